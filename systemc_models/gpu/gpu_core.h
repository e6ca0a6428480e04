// One GPU as its driver sees it: registers, command ring, interrupts, memory BAR.
//
// gpu_registers.h is its datasheet. Guest-made values (ring addresses, commands, doorbells) are checked before
// use; a bad one halts the engine with an error code.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "pcie/device.h"
#include "systemc_models/gpu/gpu_engine.h"
#include "systemc_models/gpu/gpu_memory.h"
#include "systemc_models/register_access.h"

namespace orrery::models {

struct GpuConfig {
  std::string name = "gpu0";
  unsigned server = 0;  // 0 … 65535, both part of the serial number
  unsigned index = 0;
  std::uint64_t memory_size = std::uint64_t{16} << 30;  // bytes, multiple of 4096, at least bar2_size; sparse
  std::uint64_t bar2_size = std::uint64_t{256} << 20;   // bytes, power of two, 4096 … 2^37
  bool bar2_mappable = true;  // a VMM may map BAR2 past the platform; false: every access is a TLP
  GpuTiming timing;
};

class GpuCore final : public pcie::DeviceModel,
                      private EventHandler,
                      private pcie::DmaListener,
                      private GpuEngine::Listener {
 public:
  // Throws Error for sizes that the fields above exclude, and if the host refuses the memory.
  explicit GpuCore(const GpuConfig& config);

  void attach(pcie::DevicePort& port) override;
  void bar_read(unsigned bar, std::uint64_t offset, std::span<std::byte> into) override;
  void bar_write(unsigned bar, std::uint64_t offset, std::span<const std::byte> from) override;
  std::span<std::byte> bar_memory(unsigned bar, std::uint64_t offset, std::uint64_t size) override;
  [[nodiscard]] int bar_memory_fd(unsigned bar) const override;
  [[nodiscard]] Picoseconds access_time(unsigned bar) const override;
  void reset() override;

  [[nodiscard]] const GpuConfig& config() const { return config_; }
  [[nodiscard]] GpuMemory& memory() { return memory_; }

 private:
  static constexpr std::uint32_t batch_commands = 32;  // fetched by one DMA read

  struct Profile {
    std::uint32_t count = 0;
    std::uint32_t tag = 0;
    std::uint64_t start = 0;
    std::uint64_t end = 0;
    std::uint64_t bytes = 0;
    pcie::LatencyBreakdown read;
    pcie::LatencyBreakdown write;
  };
  struct EngineCounters {
    std::uint64_t commands_completed = 0;
    std::uint64_t commands_failed = 0;
    std::uint64_t doorbells = 0;
    std::uint64_t writes_ignored = 0;
    std::uint64_t data_bytes = 0;
    std::uint64_t busy_time = 0;
  };

  void on_event(std::uint64_t argument) override;
  void on_dma_done(pcie::DmaTransfer& transfer) override;
  void on_command_done(const GpuResult& result) override;

  [[nodiscard]] std::uint32_t read_word(std::uint64_t offset);
  [[nodiscard]] std::uint32_t read_identification(std::uint64_t offset) const;
  [[nodiscard]] std::uint64_t counter(std::uint64_t offset) const;
  [[nodiscard]] std::uint32_t read_profile(std::uint64_t offset);
  void write_word(std::uint64_t offset, std::uint32_t value);
  [[nodiscard]] std::uint32_t status() const;

  void control(std::uint32_t value);
  void doorbell(std::uint32_t tail);
  void schedule_step();
  void step();
  void fetch();
  void execute(const orrery_gpu_command& command);
  void retire(const GpuResult& result);
  void fail(const GpuError& error, std::uint32_t tag);
  void raise(unsigned vector);
  void reset_engine();

  GpuConfig config_;
  GpuMemory memory_;
  GpuEngine engine_;
  pcie::DevicePort* port_ = nullptr;

  std::uint32_t scratch_ = 0;
  bool enabled_ = false;
  std::uint64_t ring_base_ = 0;
  std::uint32_t ring_log2_ = 0;
  std::uint32_t head_ = 0;
  std::uint32_t tail_ = 0;
  std::uint32_t interrupt_enable_ = 0;
  std::uint32_t interrupt_status_ = 0;
  GpuError error_;
  std::uint32_t error_command_ = 0;
  std::uint32_t error_tag_ = 0;
  EngineCounters counters_;
  Profile profile_;
  CounterLatch latch_;

  pcie::DmaTransfer fetch_transfer_;
  bool fetching_ = false;
  std::array<orrery_gpu_command, batch_commands> batch_{};
  std::uint32_t batch_count_ = 0;  // commands in batch_
  std::uint32_t batch_next_ = 0;   // the next of them to execute
  orrery_gpu_command current_{};   // the engine's command
  bool step_pending_ = false;
  std::uint64_t generation_ = 0;  // an event scheduled before a reset carries an old one
};

}  // namespace orrery::models
