// The device around its firmware: without one, a stuck one, a panic; doorbells of BAR 0.
#include <gtest/gtest.h>

#include "tests/systemc_models/rnic/mlx5_command_rig.h"

namespace orrery::test::mlx5_device_test {
namespace {

TEST(Mlx5Device, StaysInitializingWithoutFirmware) {
  rnic::Mlx5Settings settings = rig_settings();
  settings.with_firmware = false;
  Mlx5Rig rig(settings);
  rig.bus.run();
  EXPECT_EQ(rig.driver.read(0x1fc) >> 31, 1U);
  EXPECT_FALSE(rig.driver.begin());
  rig.driver.write(0x018, 1);
  rig.bus.run();
  EXPECT_EQ(rig.rnic.management().counters().doorbells_ignored, 1U);
}

// A processor that can be stopped.
class Stoppable final : public rnic::Processor {
 public:
  explicit Stoppable(rnic::Processor& real) : real_(real) {}
  void restart() override {
    stopped = false;
    real_.restart();
  }
  void run() override {
    if (!stopped) {
      real_.run();
    }
  }
  bool stopped = false;

 private:
  rnic::Processor& real_;
};

TEST(Mlx5Device, WatchdogRestartsAStuckFirmware) {
  if (make_firmware_target != nullptr) {
    GTEST_SKIP() << "stops the native target; FirmwareFunction.WatchdogFindsAProcessorThatHangs is its like";
  }
  Mlx5Rig rig;
  Stoppable processor(rig.rnic.processor());
  rig.rnic.management().bind(processor);
  rig.driver.bring_up();
  processor.stopped = true;
  rig.driver.prepare(0, Mlx5Driver::command(0x800), 16);
  rig.driver.ring(0);
  // Seconds of a firmware that is asked again and again: not event by event.
  rig.rnic.management().write32(rnic::reg::watchdog_period, 100);
  for (int i = 0; i < 1'000'000 && rig.rnic.management().counters().crashes == 0; ++i) {
    rig.bus.step();
  }
  ASSERT_EQ(rig.rnic.management().counters().crashes, 1U);
  EXPECT_EQ(rig.driver.read(0x014) >> 8 & 7U, 1U);
  EXPECT_EQ(rig.driver.read(0x238) >> 31, 1U);
  EXPECT_EQ(rig.driver.read(0x23c) >> 16 & 0xffU, 7U);
  rig.bus.run();
  rnic::ManagementBlock& block = rig.rnic.management();
  EXPECT_EQ(block.read32(rnic::reg::reset_cause), static_cast<std::uint32_t>(rnic::reg::ResetCause::watchdog));
  EXPECT_EQ(block.read32(rnic::reg::crash_record), 1U);
  EXPECT_EQ(block.read32(rnic::reg::crash_record + 4 * 3) & rnic::reg::event_command, rnic::reg::event_command);
  // As the driver recovers: reset, new queue.
  rig.port.cancel_all();
  rig.rnic.reset();
  rig.driver.bring_up();
  EXPECT_EQ(rig.driver.read(0x23c) >> 16 & 0xffU, 0U);
  EXPECT_TRUE(rig.driver.run(0x800).ok());
}

TEST(Mlx5Device, FirmwareMayPanic) {
  Mlx5Rig rig;
  rig.driver.bring_up();
  rig.rnic.management().write32(rnic::reg::panic, 0x55);
  EXPECT_EQ(rig.driver.read(0x1fc) >> 31, 1U);
  EXPECT_EQ(rig.driver.read(0x23c) >> 16 & 0xffU, 0x55U);
  rig.bus.run();
  rig.driver.bring_up();
}

TEST(Mlx5Device, FirmwareNeverTouchesWhatIsNotThere) {
  Mlx5Rig rig;
  rig.driver.bring_up();
  EXPECT_EQ(rig.rnic.management().read32(rnic::reg::bad_accesses), 0U);
}

TEST(Mlx5Bar, Doorbells) {
  Mlx5Rig rig;
  const auto swap = [](std::uint32_t v) { return __builtin_bswap32(v); };
  const std::uint64_t page = 9 * page_bytes;
  const std::uint64_t send = static_cast<std::uint64_t>(swap(0x123 << 8 | 3)) << 32 | swap(0x0a);
  rig.port.write64(page + 0x800, send);
  rig.port.write32(page + 0xa00, swap(0x0a));
  rig.port.write32(page + 0xa04, swap(0x124 << 8 | 3));
  rig.port.write64(page + 0x20, static_cast<std::uint64_t>(swap(0x55)) << 32 | swap(0x2100'0007));
  rig.port.write32(page + 0x40, swap(0x0300'0009));
  rig.port.write32(page + 0x48, swap(0x0300'000a));
  // A copy of the WQE behind the doorbell is no doorbell.
  std::array<std::byte, 64> blue{};
  std::memcpy(blue.data(), &send, 8);
  rig.rnic.bar_write(0, page + 0x900, blue);
  EXPECT_EQ(rig.data->doorbells, (std::vector<std::string>{"send 0 9 291", "send 0 9 292", "cq 0 9 85 7 1 2",
                                                           "eq 0 9 3 9 1", "eq 0 9 3 10 0", "send 0 9 291"}));
  EXPECT_EQ(rig.rnic.function().counters().writes_ignored, 0U);
}

TEST(Mlx5Bar, ForgedAccessesAreCounted) {
  Mlx5Rig rig;
  const std::uint64_t page = 9 * page_bytes;
  rig.port.write32(page + 0x804, 5);  // a second half alone
  rig.port.write32(page + 0x10, 5);   // nothing there
  rig.port.write32(0x100, 5);         // read-only
  std::array<std::byte, 2> two{};
  rig.rnic.bar_write(0, page + 0x800, two);
  rig.rnic.bar_write(0, page + 0x802, std::array<std::byte, 4>{});
  EXPECT_TRUE(rig.data->doorbells.empty());
  EXPECT_EQ(rig.rnic.function().counters().writes_ignored, 5U);
  for (unsigned i = 0; i < 40; ++i) {
    rig.port.write32(page + 0x800 + 8 * i, 5);  // halves that never become whole
  }
  std::array<std::byte, 3> odd{};
  rig.rnic.bar_read(0, 0x233, odd);
  rig.rnic.bar_read(0, rnic::mlx5::bar0_bytes - 3, odd);
}

}  // namespace
}  // namespace orrery::test::mlx5_device_test
