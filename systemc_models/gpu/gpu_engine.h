// The GPU's data engine: executes one command at a time by moving it in chunks.
//
// A chunk passes three steps: gather (read operands by DMA, or own memory), compute (copy, fill, add), scatter
// (write the result by DMA and have it confirmed). Several chunks are under way at once, so that a link is
// kept busy in timed mode; in functional mode a chunk bounds the work of one event, so that an access of the
// guest never waits behind a large transfer.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "pcie/device.h"
#include "systemc_models/gpu/gpu_command.h"
#include "systemc_models/gpu/gpu_memory.h"

namespace orrery::models {

// What the GPU itself costs in timed mode; functional mode charges nothing. Rates are bytes per microsecond
// (10^6 bytes/us = 1 TB/s), >= 1.
struct GpuTiming {
  // Between a command being there and its execution.
  Picoseconds command_decode{50'000};
  // Reads plus writes of GPU memory by the engine: 2.0 TB/s, as an 80 GB A100 (SXM) is specified (2039 GB/s).
  std::uint64_t memory_bytes_per_us = 2'000'000;
  // Bytes of one operand through the adders. A choice, not a datasheet value: slower than memory, faster than a link.
  std::uint64_t reduce_bytes_per_us = 500'000;
  // One register, and one access to memory through BAR2. Choices.
  Picoseconds register_access{40'000};
  Picoseconds memory_access{350'000};
};

// How a command ended.
struct GpuResult {
  GpuError error;
  Picoseconds started;
  Picoseconds finished;
};

class GpuEngine final : private EventHandler, private pcie::DmaListener {
 public:
  class Listener {
   public:
    // The command given to begin() is over and none of its DMA is outstanding. begin() must not be called from here.
    virtual void on_command_done(const GpuResult& result) = 0;

   protected:
    ~Listener() = default;
  };

  // Chunks in flight, and their size.
  static constexpr unsigned slot_count = 8;
  static constexpr std::uint32_t timed_chunk = 64U << 10;
  static constexpr std::uint32_t functional_chunk = 256U << 10;

  GpuEngine(GpuMemory& memory, const GpuTiming& timing, Listener& listener);
  void attach(pcie::DevicePort& port);

  // Starts a command that check_command() has passed and that is no NOP. One at a time.
  void begin(const orrery_gpu_command& command);
  [[nodiscard]] bool busy() const { return busy_; }
  // Starts no further chunk of the running command; on_command_done() reports `reason` once its DMA has drained.
  void stop(const GpuError& reason);
  // Forgets the command. Its transfers must have been cancelled (DevicePort::cancel_all) before.
  void reset();

  // Breakdown of the DMA read and DMA write that finished last of the command that ran last.
  [[nodiscard]] const pcie::LatencyBreakdown& read_latency() const { return read_latency_; }
  [[nodiscard]] const pcie::LatencyBreakdown& write_latency() const { return write_latency_; }

 private:
  enum class Step : std::uint8_t { free, gather, compute, scatter };
  struct Slot {
    pcie::DmaTransfer source;       // also the transfer of scatter
    pcie::DmaTransfer destination;  // second operand of a reduce
    std::byte* source_staging = nullptr;
    std::byte* destination_staging = nullptr;
    std::uint64_t offset = 0;  // of the chunk in the command's range
    std::uint32_t bytes = 0;
    std::uint32_t waiting = 0;  // transfers and events of the current step
    Step step = Step::free;
  };

  void on_event(std::uint64_t argument) override;
  void on_dma_done(pcie::DmaTransfer& transfer) override;

  void launch_chunks();
  void next_chunk(Slot& slot);
  void gather(Slot& slot);
  void compute(Slot& slot);
  void scatter(Slot& slot);
  void step_done(Slot& slot);
  void finish_if_over();

  void dma(Slot& slot, pcie::DmaTransfer& transfer, pcie::DmaTransfer::Kind kind, std::uint64_t address,
           std::byte* buffer);
  void wait_until(Slot& slot, Picoseconds at);
  void apply(Slot& slot);
  [[nodiscard]] Picoseconds occupy(Picoseconds& free_at, std::uint64_t bytes, std::uint64_t bytes_per_us);
  [[nodiscard]] std::byte* source_bytes(Slot& slot);
  [[nodiscard]] std::byte* destination_bytes(Slot& slot);

  GpuMemory& memory_;
  GpuTiming timing_;
  Listener& listener_;
  pcie::DevicePort* port_ = nullptr;
  pcie::Simulation* simulation_ = nullptr;

  std::unique_ptr<std::byte[]> staging_;
  std::array<Slot, slot_count> slots_;

  orrery_gpu_command command_{};
  std::uint64_t length_ = 0;  // of the command's range: 8 for a fence
  std::uint64_t launched_ = 0;
  unsigned active_ = 0;      // slots that are not free
  unsigned slot_limit_ = 0;  // 1 where chunks depend on each other's order
  bool descending_ = false;
  bool busy_ = false;
  GpuError error_;
  Picoseconds started_;
  std::uint64_t generation_ = 0;  // events of a command that was reset carry an old one

  Picoseconds memory_free_;
  Picoseconds adder_free_;
  Picoseconds last_read_;
  Picoseconds last_write_;
  pcie::LatencyBreakdown read_latency_;
  pcie::LatencyBreakdown write_latency_;
};

}  // namespace orrery::models
