// One RNIC as a PCI function: identification, write counting, port counters and the DMA self-test.
//
// rnic_registers.h is its datasheet. This is the whole device until a personality (verbs) takes its place.
#pragma once

#include <cstdint>
#include <string>

#include "pcie/device.h"
#include "systemc_models/register_access.h"
#include "systemc_models/rnic/self_test_engine.h"

namespace orrery::models {

struct RnicConfig {
  std::string name = "rnic0";
  unsigned server = 0;  // 0 … 65535, both part of the serial number
  unsigned index = 0;
  Picoseconds register_access{40'000};  // one register, in timed mode. A choice
};

class RnicCore final : public pcie::DeviceModel, private SelfTestEngine::Listener {
 public:
  // Throws Error for numbers out of range.
  explicit RnicCore(const RnicConfig& config);

  void attach(pcie::DevicePort& port) override;
  void bar_read(unsigned bar, std::uint64_t offset, std::span<std::byte> into) override;
  void bar_write(unsigned bar, std::uint64_t offset, std::span<const std::byte> from) override;
  [[nodiscard]] Picoseconds access_time(unsigned bar) const override;
  void reset() override;

  [[nodiscard]] const RnicConfig& config() const { return config_; }

 private:
  void on_test_done() override;
  [[nodiscard]] std::uint32_t read_word(std::uint64_t offset);
  [[nodiscard]] std::uint32_t read_identification(std::uint64_t offset) const;
  [[nodiscard]] std::uint32_t read_test(std::uint64_t offset) const;
  [[nodiscard]] std::uint32_t read_result(std::uint64_t offset) const;
  [[nodiscard]] std::uint64_t counter(std::uint64_t offset) const;
  void write_word(std::uint64_t offset, std::uint32_t value);
  [[nodiscard]] bool write_setup(std::uint64_t offset, std::uint32_t value);
  [[nodiscard]] std::uint32_t status() const;
  void control(std::uint32_t value);

  RnicConfig config_;
  SelfTestEngine engine_;
  pcie::DevicePort* port_ = nullptr;

  std::uint32_t scratch_ = 0;
  SelfTest test_;
  std::uint32_t test_vector_ = ORRERY_RNIC_NO_VECTOR;
  bool tested_ = false;  // a test has been started since the reset
  std::uint32_t interrupt_enable_ = 0;
  std::uint32_t interrupt_status_ = 0;
  std::uint64_t writes_counted_ = 0;
  std::uint64_t writes_sum_ = 0;
  std::uint64_t writes_last_ = 0;
  std::uint64_t writes_ignored_ = 0;
  CounterLatch latch_;
};

}  // namespace orrery::models
