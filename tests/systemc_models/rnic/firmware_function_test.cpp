// The management registers as another machine's PCI function: who may do what to them, sleep and interrupt, and what
// happens when that machine goes. The firmware runs here, but reaches the registers only through the function.
#include <gtest/gtest.h>

#include <optional>

#include "firmware/native/native_firmware.h"
#include "systemc_models/device_identity.h"
#include "systemc_models/rnic/firmware_function.h"
#include "tests/systemc_models/rnic/mlx5_rig.h"

namespace orrery::test::firmware_function_test {
namespace {

namespace reg = rnic::reg;

rnic::Mlx5Settings without_firmware() {
  rnic::Mlx5Settings settings = rig_settings();
  settings.with_firmware = false;
  return settings;
}

class FirmwareFunction : public testing::Test,
                         public Mlx5Rig,
                         protected firmware::RegisterAccess,
                         protected pcie::InterruptSink {
 protected:
  FirmwareFunction()
      : Mlx5Rig(without_firmware()), function("rnic0-management", rnic.management(), [this] { ++starts; }) {
    rnic.management().bind(function);
    rnic.management().power_on();
  }

  // The other machine comes up: connects, resets its device, boots the firmware.
  void boot_machine() {
    function.set_interrupt_sink(this);
    function.reset();
    processor.emplace(static_cast<firmware::RegisterAccess&>(*this));
    processor->boot();
    write32(reg::wait, 1);
  }
  // The driver gives a command, and the processor does nothing about it.
  void hang_in_a_command() {
    hangs = true;
    driver.prepare(0, Mlx5Driver::command(0x800), 16);
    driver.ring(0);
    bus.run();
  }
  void end_machine() {
    processor.reset();
    function.disconnect();
  }

  std::uint32_t read32(std::uint32_t offset) override {
    std::uint32_t value = 0;
    function.bar_read(0, offset, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  void write32(std::uint32_t offset, std::uint32_t value) override {
    function.bar_write(0, offset, std::as_bytes(std::span(&value, 1)));
  }
  void msix(unsigned vector) override {
    EXPECT_EQ(vector, 0U);
    ++interrupts;
    if (processor && !hangs) {
      processor->step();
      write32(reg::wait, 1);
    }
  }

  int starts = 0;
  int interrupts = 0;
  bool hangs = false;
  rnic::FirmwareFunction function;
  std::optional<firmware::NativeFirmware> processor;
};

TEST_F(FirmwareFunction, IsAPciFunctionWithOneInterrupt) {
  std::uint32_t identity = 0;
  function.config_read(0, std::as_writable_bytes(std::span(&identity, 1)));
  EXPECT_EQ(identity, ORRERY_PCI_DEVICE_MANAGEMENT << 16 | ORRERY_PCI_VENDOR);
  EXPECT_EQ(function.bars()[0].size, 0x20'0000U);
  EXPECT_EQ(function.msix_vectors(), 1U);
}

TEST_F(FirmwareFunction, ServesADriver) {
  EXPECT_EQ(starts, 1);
  EXPECT_FALSE(driver.begin());  // nobody runs it yet
  boot_machine();
  driver.bring_up();
  driver.create_command_eq();
  const Reply reply = driver.run(0x800);
  EXPECT_TRUE(reply.ok());
  EXPECT_TRUE(reply.by_event);
  EXPECT_TRUE(rnic.management().asleep());
  EXPECT_EQ(rnic.management().read32(reg::bad_accesses), 0U);
  EXPECT_EQ(rnic.management().counters().crashes, 0U);
}

TEST_F(FirmwareFunction, WaitIsForOneInterrupt) {
  function.set_interrupt_sink(this);
  write32(reg::event_enable, reg::event_software);
  write32(reg::event_set, reg::event_software);
  bus.run();
  EXPECT_EQ(interrupts, 0);
  // What is pending already wakes at once, and only once.
  write32(reg::wait, 1);
  EXPECT_EQ(read32(reg::wait), 1U);
  bus.run();
  EXPECT_EQ(interrupts, 1);
  EXPECT_EQ(read32(reg::wait), 0U);
  write32(reg::event_pending, reg::event_software);
  write32(reg::event_set, reg::event_software);
  bus.run();
  EXPECT_EQ(interrupts, 1);
  write32(reg::event_pending, reg::event_software);
  write32(reg::wait, 1);
  bus.run();
  EXPECT_EQ(interrupts, 1);
  write32(reg::event_set, reg::event_software);
  bus.run();
  EXPECT_EQ(interrupts, 2);
}

TEST_F(FirmwareFunction, OnlyWholeAlignedWords) {
  function.set_interrupt_sink(this);
  std::array<std::byte, 16> bytes{};
  bytes.fill(std::byte{0xff});
  function.bar_read(0, reg::id + 1, std::span(bytes).first(4));
  EXPECT_EQ(bytes[0], std::byte{0});
  function.bar_read(0, reg::id, std::span(bytes).first(2));
  function.bar_write(0, reg::sram + 2, std::span(bytes).first(4));
  function.bar_write(0, reg::sram, std::span(bytes).first(1));
  EXPECT_EQ(read32(reg::bad_accesses), 4U);
  // Several words in one access are several accesses.
  function.bar_read(0, reg::id, std::span(bytes).first(8));
  std::uint32_t version = 0;
  std::memcpy(&version, bytes.data() + 4, 4);
  EXPECT_EQ(version, reg::version_value);
  // Nothing behind the SRAM, nothing in another BAR.
  write32(reg::sram + reg::sram_bytes - 4, 7);
  EXPECT_EQ(read32(reg::sram + reg::sram_bytes - 4), 7U);
  function.bar_read(4, 0, std::span(bytes).first(4));
  EXPECT_EQ(bytes[0], std::byte{0});
}

TEST_F(FirmwareFunction, LostProcessorIsAFatalErrorAndARestart) {
  boot_machine();
  driver.bring_up();
  function.processor_ended();
  EXPECT_EQ(driver.read(0x014) >> 8 & 7U, 1U);
  EXPECT_EQ(driver.read(0x238) >> 31, 1U);
  EXPECT_EQ(driver.read(0x23c) >> 16 & 0xffU, 7U);
  bus.run();
  EXPECT_EQ(starts, 2);
  EXPECT_EQ(rnic.management().read32(reg::crash_record + 4), static_cast<std::uint32_t>(reg::ResetCause::lost));
  // A processor that isn't quite dead reaches nothing any more.
  write32(reg::ready, 1);
  EXPECT_FALSE(rnic.management().ready());
  EXPECT_EQ(read32(reg::id), 0U);
  end_machine();
  boot_machine();
  EXPECT_EQ(read32(reg::reset_cause), static_cast<std::uint32_t>(reg::ResetCause::lost));
  port.cancel_all();
  rnic.reset();
  driver.bring_up();
  EXPECT_TRUE(driver.run(0x800).ok());
  EXPECT_EQ(rnic.management().counters().crashes, 1U);
}

TEST_F(FirmwareFunction, ResetOfARunningMachineIsACrash) {
  boot_machine();
  driver.bring_up();
  EXPECT_EQ(rnic.management().counters().crashes, 0U);  // the reset before it ran was none
  function.reset();
  EXPECT_EQ(rnic.management().counters().crashes, 1U);
  function.processor_ended();  // the same crash
  EXPECT_EQ(rnic.management().counters().crashes, 1U);
  bus.run();
  EXPECT_EQ(starts, 2);
}

TEST_F(FirmwareFunction, WatchdogFindsAProcessorThatHangs) {
  boot_machine();
  driver.bring_up();
  hang_in_a_command();
  EXPECT_EQ(rnic.management().counters().crashes, 1U);
  EXPECT_EQ(rnic.management().read32(reg::crash_record + 4), static_cast<std::uint32_t>(reg::ResetCause::watchdog));
  EXPECT_EQ(starts, 2);
}

TEST_F(FirmwareFunction, DebuggerHoldsTheWatchdog) {
  boot_machine();
  driver.bring_up();
  rnic.management().hold_watchdog(true);
  hang_in_a_command();
  bus.simulation.events.advance_to(bus.simulation.now() + Picoseconds{3'600'000'000'000'000});  // an hour
  EXPECT_EQ(rnic.management().counters().crashes, 0U);
  EXPECT_FALSE(driver.collect(0).answered);
  // It goes on where it was.
  hangs = false;
  rnic.management().hold_watchdog(false);
  processor->step();
  write32(reg::wait, 1);
  bus.run();
  EXPECT_TRUE(driver.collect(0).ok());
  EXPECT_EQ(rnic.management().counters().crashes, 0U);
}

TEST_F(FirmwareFunction, WatchdogCountsAgainAfterTheDebugger) {
  boot_machine();
  driver.bring_up();
  rnic.management().hold_watchdog(true);
  hang_in_a_command();
  EXPECT_EQ(rnic.management().counters().crashes, 0U);
  rnic.management().hold_watchdog(false);
  bus.run();
  EXPECT_EQ(rnic.management().counters().crashes, 1U);
}

}  // namespace
}  // namespace orrery::test::firmware_function_test
