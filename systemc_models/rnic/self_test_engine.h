// The RNIC's DMA self-test: writes, reads or compares a range of the bus in chunks.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "pcie/device.h"
#include "systemc_models/rnic/rnic_registers.h"

namespace orrery::models {

// The set-up registers of a test.
struct SelfTest {
  std::uint32_t operation = ORRERY_RNIC_OP_WRITE;
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint64_t seed = 0;
  std::uint32_t loops = 1;
};

struct SelfTestResult {
  std::uint32_t error = ORRERY_RNIC_ERROR_NONE;
  std::uint32_t completion = 0;
  std::uint64_t address = 0;
  std::uint32_t expected = 0;
  std::uint32_t found = 0;
  std::uint32_t loops = 0;
  std::uint64_t checksum = 0;
  Picoseconds start;
  Picoseconds end;
};

class SelfTestEngine final : private EventHandler, private pcie::DmaListener {
 public:
  class Listener {
   public:
    // The test is over; none of its DMA is outstanding.
    virtual void on_test_done() = 0;

   protected:
    ~Listener() = default;
  };

  static constexpr unsigned slot_count = 4;
  static constexpr std::uint32_t timed_chunk = 64U << 10;
  static constexpr std::uint32_t functional_chunk = 256U << 10;

  explicit SelfTestEngine(Listener& listener);
  void attach(pcie::DevicePort& port);

  // Starts a test; a bad set-up ends it at once (later, through an event) with ERROR_SETUP. Not while running.
  void begin(const SelfTest& test);
  // Ends a running test with ERROR_ABORTED once its DMA has drained.
  void abort();
  [[nodiscard]] bool running() const { return running_; }
  [[nodiscard]] const SelfTestResult& result() const { return result_; }
  // Forgets test and result. Transfers must have been cancelled before.
  void reset();

 private:
  struct Slot {
    pcie::DmaTransfer transfer;
    std::byte* buffer = nullptr;
    std::uint64_t offset = 0;  // in the range
    bool busy = false;
  };

  void on_event(std::uint64_t argument) override;
  void on_dma_done(pcie::DmaTransfer& transfer) override;
  void launch();
  void check(Slot& slot);
  void end_if_over();

  Listener& listener_;
  pcie::DevicePort* port_ = nullptr;
  std::unique_ptr<std::byte[]> buffers_;  // slot_count chunks, and one more to compare with
  std::array<Slot, slot_count> slots_;
  SelfTest test_;
  SelfTestResult result_;
  std::uint64_t launched_ = 0;  // bytes of the current loop
  std::uint64_t checksum_ = 0;  // of the current loop
  std::uint64_t mismatch_offset_ = 0;
  unsigned active_ = 0;
  bool running_ = false;
  std::uint64_t generation_ = 0;
};

}  // namespace orrery::models
