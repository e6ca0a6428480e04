// The Verilated example verilog_dma.so, built against an installed tree, in both time modes.
#include "plugin_host.h"
#include "verilog_dma_registers.h"

namespace orrery::test {
namespace {

class VerilogDma : public testing::TestWithParam<const char*> {
 protected:
  explicit VerilogDma(const std::string& params = "")
      : host(ORRERY_TEST_EXAMPLES "/verilog_dma/verilog_dma.so", GetParam(), params) {}

  PluginHost host;
  static constexpr std::uint64_t source = 0x100000;
  static constexpr std::uint64_t destination = 0x400000;

  void set_up(std::uint64_t from, std::uint64_t to, std::uint32_t length) {
    host.write64(VERILOG_DMA_SOURCE, host.iova(from));
    host.write64(VERILOG_DMA_DESTINATION, host.iova(to));
    host.write32(VERILOG_DMA_LENGTH, length);
  }
  void copy(std::uint64_t from, std::uint64_t to, std::uint32_t length) {
    set_up(from, to, length);
    const std::size_t before = host.interrupts.size();
    host.write32(VERILOG_DMA_CONTROL, VERILOG_DMA_START);
    ASSERT_TRUE(host.wait_for_interrupts(before + 1));
    EXPECT_EQ(host.interrupts.size(), before + 1);
  }
  bool timed() const { return std::string(GetParam()) == "timed"; }
};

TEST_P(VerilogDma, ShowsItsIdentityAndRegisters) {
  EXPECT_EQ(host.config_read32(0), (VERILOG_DMA_DEVICE_ID << 16) | VERILOG_DMA_VENDOR_ID);
  EXPECT_EQ(host.read32(VERILOG_DMA_ID), VERILOG_DMA_ID_VALUE);
  host.write64(VERILOG_DMA_SOURCE, 0x0123'4567'89ab'cdef);
  host.write64(VERILOG_DMA_DESTINATION, 0xfedc'ba98'7654'3210);
  host.write32(VERILOG_DMA_LENGTH, 0x8765'4321);
  EXPECT_EQ(host.read64(VERILOG_DMA_SOURCE), 0x0123'4567'89ab'cdefU);
  EXPECT_EQ(host.read64(VERILOG_DMA_DESTINATION), 0xfedc'ba98'7654'3210U);
  EXPECT_EQ(host.read32(VERILOG_DMA_LENGTH), 0x8765'4321U);
  EXPECT_EQ(host.read<std::uint16_t>(VERILOG_DMA_ID), 0xffffU);
  EXPECT_EQ(host.read32(0x100), 0xffff'ffffU);
}

TEST_P(VerilogDma, CopiesExactlyTheBytesAskedFor) {
  constexpr std::uint64_t margin = 512;
  for (const std::uint32_t length : {1U, 7U, 8U, 9U, 255U, 256U, 257U, 4096U, 30'001U}) {
    const std::uint64_t from = source + 8 * host.uniform(0, 511);
    const std::uint64_t to = destination + margin + 8 * host.uniform(0, 511);
    host.fill_random(from, length);
    host.fill_random(to - margin, length + 2 * margin);
    std::vector<unsigned char> expected(host.ram + to - margin, host.ram + to + length + margin);
    std::memcpy(expected.data() + margin, host.ram + from, length);
    copy(from, to, length);
    EXPECT_EQ(host.read32(VERILOG_DMA_STATUS), VERILOG_DMA_DONE);
    EXPECT_EQ(host.read32(VERILOG_DMA_BYTES), length);
    EXPECT_EQ(std::memcmp(host.ram + to - margin, expected.data(), expected.size()), 0) << length;
    // A word a cycle at best.
    EXPECT_GE(host.read32(VERILOG_DMA_CYCLES), (length + 7) / 8);
  }
}

TEST_P(VerilogDma, NothingToCopyIsDoneAtOnce) {
  copy(source, destination, 0);
  EXPECT_EQ(host.read32(VERILOG_DMA_STATUS), VERILOG_DMA_DONE);
  EXPECT_EQ(host.read32(VERILOG_DMA_BYTES), 0U);
}

TEST_P(VerilogDma, MisalignedAddressesAreRefused) {
  copy(source + 4, destination, 64);
  EXPECT_EQ(host.read32(VERILOG_DMA_STATUS), VERILOG_DMA_DONE | VERILOG_DMA_FAILED | VERILOG_DMA_MISALIGNED);
  copy(source, destination + 1, 64);
  EXPECT_EQ(host.read32(VERILOG_DMA_STATUS), VERILOG_DMA_DONE | VERILOG_DMA_FAILED | VERILOG_DMA_MISALIGNED);
  EXPECT_EQ(host.platform.iommu().fault_total(), 0U);
}

TEST_P(VerilogDma, FaultOnTheSourceStopsTheCopy) {
  host.fill_random(source, 0x4000);
  host.unmap(source + 0x2000, 4096);
  copy(source, destination, 0x4000);
  EXPECT_EQ(host.read32(VERILOG_DMA_STATUS), VERILOG_DMA_DONE | VERILOG_DMA_FAILED);
  EXPECT_LE(host.read32(VERILOG_DMA_BYTES), 0x2000U);
  EXPECT_EQ(std::memcmp(host.ram + destination, host.ram + source, host.read32(VERILOG_DMA_BYTES)), 0);
  copy(source, destination, 0x2000);
  EXPECT_EQ(host.read32(VERILOG_DMA_STATUS), VERILOG_DMA_DONE);
}

TEST_P(VerilogDma, FaultOnTheDestinationIsReported) {
  host.unmap(destination + 0x1000, 4096);
  copy(source, destination, 0x4000);
  EXPECT_EQ(host.read32(VERILOG_DMA_STATUS), VERILOG_DMA_DONE | VERILOG_DMA_FAILED);
  EXPECT_GT(host.platform.iommu().fault_total(), 0U);
}

TEST_P(VerilogDma, ResetInTheMiddleThenStartsAtOnce) {
  host.fill_random(source, 0x40000);
  set_up(source, destination, 0x40000);
  host.post(VERILOG_DMA_CONTROL, VERILOG_DMA_START);
  const Picoseconds start = host.platform.now();
  for (int i = 0; i < 40 || (timed() && host.platform.now() < start + 20_us); ++i) {
    host.platform.advance(host.platform.next_activity(), 1);
  }
  ASSERT_EQ(host.read32(VERILOG_DMA_STATUS), VERILOG_DMA_BUSY);
  const std::uint32_t before = host.read32(VERILOG_DMA_BYTES);
  EXPECT_GT(before, 0U);
  EXPECT_LT(before, 0x40000U);
  host.device->reset();
  host.command(pcie::command_bit::memory_space | pcie::command_bit::bus_master);
  EXPECT_EQ(host.read32(VERILOG_DMA_STATUS), 0U);
  // What is written from now on must be the new copy's.
  std::memset(host.ram + destination, 0, 0x40000);
  copy(source + 0x1000, destination + 0x800, 1000);
  EXPECT_EQ(host.read32(VERILOG_DMA_STATUS), VERILOG_DMA_DONE);
  host.run_to_rest();
  std::vector<unsigned char> expected(0x40000);
  std::memcpy(expected.data() + 0x800, host.ram + source + 0x1000, 1000);
  EXPECT_EQ(std::memcmp(host.ram + destination, expected.data(), expected.size()), 0);
  EXPECT_EQ(host.interrupts.size(), 1U);
  EXPECT_TRUE(host.platform.at_rest());
}

TEST_P(VerilogDma, ClockStandsWhileIdle) {
  copy(source, destination, 4096);
  host.run_to_rest();  // would never end with a clock that runs on
  const std::uint32_t cycles = host.read32(VERILOG_DMA_CYCLES);
  host.platform.advance(host.platform.now() + 1_ms, 0);
  EXPECT_EQ(host.read32(VERILOG_DMA_CYCLES), cycles);
}

INSTANTIATE_TEST_SUITE_P(Modes, VerilogDma, testing::Values("functional", "timed"),
                         [](const auto& mode) { return std::string(mode.param); });

class VerilogDmaTime : public testing::TestWithParam<unsigned> {};

TEST_P(VerilogDmaTime, CyclesAreSimulatedTime) {
  PluginHost host(ORRERY_TEST_EXAMPLES "/verilog_dma/verilog_dma.so", "timed",
                  "cycle_ps = " + std::to_string(GetParam()));
  host.write64(VERILOG_DMA_SOURCE, host.iova(0x100000));
  host.write64(VERILOG_DMA_DESTINATION, host.iova(0x400000));
  host.write32(VERILOG_DMA_LENGTH, 20'000);
  const Picoseconds start = host.platform.now();
  host.post(VERILOG_DMA_CONTROL, VERILOG_DMA_START);
  // Reading registers meanwhile must not make the engine's clock run faster.
  for (int i = 0; i < 50; ++i) {
    host.platform.advance(host.platform.now() + 100_ns, 0);
    EXPECT_EQ(host.read32(VERILOG_DMA_ID), VERILOG_DMA_ID_VALUE);
  }
  ASSERT_TRUE(host.wait_for_interrupts(1));
  const std::uint64_t elapsed = (host.platform.now() - start).count;
  const std::uint64_t busy = std::uint64_t{host.read32(VERILOG_DMA_CYCLES)} * GetParam();
  // The rest is the way of the write to the device and of the interrupt to the host: two crossings, well under 2 us.
  EXPECT_LE(busy, elapsed);
  EXPECT_LT(elapsed - busy, 2'000'000U);
}

INSTANTIATE_TEST_SUITE_P(Clocks, VerilogDmaTime, testing::Values(1000U, 4000U, 50'000U));

}  // namespace
}  // namespace orrery::test
