#include "systemc_models/rnic/rnic_core.h"

#include <gtest/gtest.h>

#include "common/error.h"
#include "pcie/capabilities.h"
#include "systemc_models/rnic/rnic_function.h"
#include "systemc_models/rnic/test_pattern.h"
#include "tests/systemc_models/fake_bus.h"

namespace orrery::test::rnic_core_test {
namespace {

constexpr std::uint64_t chunk = models::SelfTestEngine::functional_chunk;
constexpr std::uint64_t base = 0x3'0000'0000;

models::RnicConfig second_rnic() {
  models::RnicConfig config;
  config.name = "rnic2";
  config.index = 2;
  return config;
}

class RnicCoreTest : public ::testing::Test {
 protected:
  FakeBus bus;
  models::RnicCore rnic{second_rnic()};
  FakePort port{bus, rnic};

  void set_up(std::uint32_t operation, std::uint64_t address, std::uint64_t length, std::uint64_t seed,
              std::uint32_t loops = 1) {
    port.write32(ORRERY_RNIC_TEST_OPERATION, operation);
    port.write64(ORRERY_RNIC_TEST_ADDRESS, address);
    port.write64(ORRERY_RNIC_TEST_LENGTH, length);
    port.write64(ORRERY_RNIC_TEST_SEED, seed);
    port.write32(ORRERY_RNIC_TEST_LOOPS, loops);
  }
  void start() { port.write32(ORRERY_RNIC_TEST_CONTROL, ORRERY_RNIC_TEST_START); }
  std::uint32_t run(std::uint32_t operation, std::uint64_t address, std::uint64_t length, std::uint64_t seed,
                    std::uint32_t loops = 1) {
    set_up(operation, address, length, seed, loops);
    start();
    EXPECT_EQ(status(), ORRERY_RNIC_STATUS_RUNNING);
    bus.run();
    EXPECT_EQ(port.in_flight(), 0U);
    return error();
  }
  std::uint32_t status() { return port.read32(ORRERY_RNIC_TEST_STATUS); }
  std::uint32_t error() { return port.read32(ORRERY_RNIC_RESULT_ERROR); }
};

// The sequence, from its definition in the datasheet.
std::vector<std::byte> sequence(std::uint64_t seed, std::uint64_t length) {
  std::vector<std::byte> bytes(length);
  for (std::uint64_t i = 0; i < length; ++i) {
    bytes[i] = static_cast<std::byte>(models::test_word(seed, i / 8) >> (8 * (i % 8)));
  }
  return bytes;
}

TEST_F(RnicCoreTest, IdentifiesItself) {
  EXPECT_EQ(port.read32(ORRERY_RNIC_ID), 0x4e52'524fU);
  EXPECT_EQ(port.read32(ORRERY_RNIC_INDEX), 2U);
  EXPECT_EQ(port.read64(ORRERY_RNIC_SERIAL), 0x024f'5202'0000'0002U);
  EXPECT_EQ(status(), ORRERY_RNIC_STATUS_IDLE);
  EXPECT_EQ(port.read32(ORRERY_RNIC_TEST_LOOPS), 1U);
  EXPECT_EQ(port.read32(ORRERY_RNIC_TEST_VECTOR), ORRERY_RNIC_NO_VECTOR);
}

TEST_F(RnicCoreTest, WritesReadsAndComparesAnyLengthAndAlignment) {
  for (const std::uint64_t delay : {0U, 1000U}) {
    bus.max_delay = delay;
    for (const std::uint64_t length :
         {std::uint64_t{1}, std::uint64_t{7}, std::uint64_t{8}, std::uint64_t{4097}, chunk, 5 * chunk + 3}) {
      const std::uint64_t address = base + bus.uniform(0, 2 * chunk);
      const std::uint64_t seed = bus.random();
      auto expected = bus.random_bytes(length + 32);
      bus.write(address - 16, expected);
      const auto data = sequence(seed, length);
      std::copy(data.begin(), data.end(), expected.begin() + 16);
      ASSERT_EQ(run(ORRERY_RNIC_OP_WRITE, address, length, seed), ORRERY_RNIC_ERROR_NONE);
      ASSERT_EQ(status(), ORRERY_RNIC_STATUS_PASSED);
      ASSERT_TRUE(bus.read(address - 16, length + 32) == expected);
      ASSERT_EQ(run(ORRERY_RNIC_OP_COMPARE, address, length, seed), ORRERY_RNIC_ERROR_NONE);
      ASSERT_EQ(run(ORRERY_RNIC_OP_READ, address, length, 0), ORRERY_RNIC_ERROR_NONE);
      std::uint64_t sum = 0;
      for (std::uint64_t i = 0; i < length; ++i) {
        sum += std::to_integer<std::uint64_t>(data[i]) << (8 * (i % 8));
      }
      ASSERT_EQ(port.read64(ORRERY_RNIC_RESULT_CHECKSUM), sum);
    }
  }
  EXPECT_EQ(port.unconfirmed_writes, 0U);
  EXPECT_LE(port.largest_transfer * models::SelfTestEngine::slot_count, 1U << 20);
}

TEST_F(RnicCoreTest, CompareReportsTheFirstDifferingByte) {
  bus.max_delay = 1000;
  const std::uint64_t length = 4 * chunk;
  bus.write(base, sequence(9, length));
  for (const std::uint64_t at : {std::uint64_t{0}, std::uint64_t{13}, chunk + 1, length - 1}) {
    const std::byte good = bus.read(base + at, 1)[0];
    const std::byte bad = good ^ std::byte{0x40};
    bus.write(base + at, {bad});
    EXPECT_EQ(run(ORRERY_RNIC_OP_COMPARE, base, length, 9), ORRERY_RNIC_ERROR_MISMATCH);
    EXPECT_EQ(status(), ORRERY_RNIC_STATUS_FAILED);
    EXPECT_EQ(port.read64(ORRERY_RNIC_RESULT_ADDRESS), base + at);
    EXPECT_EQ(port.read32(ORRERY_RNIC_RESULT_EXPECTED), std::to_integer<std::uint32_t>(good));
    EXPECT_EQ(port.read32(ORRERY_RNIC_RESULT_FOUND), std::to_integer<std::uint32_t>(bad));
    EXPECT_EQ(port.read32(ORRERY_RNIC_RESULT_LOOPS), 0U);
    bus.write(base + at, {good});
  }
}

TEST_F(RnicCoreTest, OfSeveralMismatchesUnderWayTheLowestIsReported) {
  bus.max_delay = 1000;
  const std::uint64_t length = 4 * chunk;  // all in flight at once, ending in any order
  for (int round = 0; round < 20; ++round) {
    bus.write(base, sequence(9, length));
    for (const std::uint64_t at : {chunk - 1, 2 * chunk - 1, 3 * chunk}) {
      bus.write(base + at, {bus.read(base + at, 1)[0] ^ std::byte{1}});
    }
    ASSERT_EQ(run(ORRERY_RNIC_OP_COMPARE, base, length, 9), ORRERY_RNIC_ERROR_MISMATCH);
    ASSERT_EQ(port.read64(ORRERY_RNIC_RESULT_ADDRESS), base + chunk - 1);
  }
}

TEST_F(RnicCoreTest, LoopsUseSuccessiveSeeds) {
  EXPECT_EQ(run(ORRERY_RNIC_OP_WRITE, base, 100, 5, 7), ORRERY_RNIC_ERROR_NONE);
  EXPECT_EQ(port.read32(ORRERY_RNIC_RESULT_LOOPS), 7U);
  EXPECT_EQ(bus.read(base, 100), sequence(11, 100));
  EXPECT_EQ(port.counters().write_bytes_sent, 700U);
  // The second loop compares with another sequence than the first.
  EXPECT_EQ(run(ORRERY_RNIC_OP_COMPARE, base, 100, 11, 2), ORRERY_RNIC_ERROR_MISMATCH);
  EXPECT_EQ(port.read32(ORRERY_RNIC_RESULT_LOOPS), 1U);
}

TEST_F(RnicCoreTest, UnmappedPageIsACleanError) {
  const std::uint64_t hole = base + 2 * chunk + 4096;
  bus.break_page(hole);
  EXPECT_EQ(run(ORRERY_RNIC_OP_WRITE, base, 4 * chunk, 1), ORRERY_RNIC_ERROR_DMA_WRITE);
  EXPECT_EQ(port.read64(ORRERY_RNIC_RESULT_ADDRESS), hole);
  EXPECT_EQ(port.read32(ORRERY_RNIC_RESULT_COMPLETION), 4U);
  EXPECT_EQ(run(ORRERY_RNIC_OP_READ, base, 4 * chunk, 1), ORRERY_RNIC_ERROR_DMA_READ);
  EXPECT_EQ(port.read64(ORRERY_RNIC_RESULT_ADDRESS), hole);
  bus.mend_page(hole);
  EXPECT_EQ(run(ORRERY_RNIC_OP_WRITE, base, 4 * chunk, 1), ORRERY_RNIC_ERROR_NONE);
}

TEST_F(RnicCoreTest, ImpossibleSetUpsAreRefused) {
  EXPECT_EQ(run(3, base, 8, 0), ORRERY_RNIC_ERROR_SETUP);
  EXPECT_EQ(run(ORRERY_RNIC_OP_READ, base, 0, 0), ORRERY_RNIC_ERROR_SETUP);
  EXPECT_EQ(run(ORRERY_RNIC_OP_READ, base, 8, 0, 0), ORRERY_RNIC_ERROR_SETUP);
  EXPECT_EQ(run(ORRERY_RNIC_OP_READ, ~std::uint64_t{0}, 2, 0), ORRERY_RNIC_ERROR_SETUP);
  EXPECT_EQ(run(ORRERY_RNIC_OP_READ, 2, ~std::uint64_t{0}, 0), ORRERY_RNIC_ERROR_SETUP);
  port.write32(ORRERY_RNIC_TEST_VECTOR, ORRERY_RNIC_VECTOR_COUNT);
  EXPECT_EQ(run(ORRERY_RNIC_OP_READ, base, 8, 0), ORRERY_RNIC_ERROR_SETUP);
  EXPECT_EQ(port.started, 0U);
}

TEST_F(RnicCoreTest, RaisesItsVectorOnceAtTheEnd) {
  port.write32(ORRERY_RNIC_INTERRUPT_ENABLE, 1U << 6);
  port.write32(ORRERY_RNIC_TEST_VECTOR, 6);
  EXPECT_EQ(run(ORRERY_RNIC_OP_WRITE, base, 3 * chunk, 1, 3), ORRERY_RNIC_ERROR_NONE);
  EXPECT_EQ(port.interrupts, (std::vector<unsigned>{6}));
  EXPECT_EQ(run(ORRERY_RNIC_OP_COMPARE, base, 1, 77), ORRERY_RNIC_ERROR_MISMATCH);
  EXPECT_EQ(port.interrupts, (std::vector<unsigned>{6, 6})) << "a failure is an end too";
  port.write32(ORRERY_RNIC_TEST_VECTOR, 2);  // not enabled
  EXPECT_EQ(run(ORRERY_RNIC_OP_READ, base, 1, 0), ORRERY_RNIC_ERROR_NONE);
  EXPECT_EQ(port.interrupts.size(), 2U);
  EXPECT_EQ(port.read32(ORRERY_RNIC_INTERRUPT_STATUS), (1U << 6) | (1U << 2));
}

TEST_F(RnicCoreTest, ARunningTestKeepsItsSetUpAndCanBeAborted) {
  set_up(ORRERY_RNIC_OP_WRITE, base, 64 * chunk, 1, 1'000'000);
  start();
  bus.simulation.events.run_one();
  set_up(ORRERY_RNIC_OP_READ, 0, 1, 2, 1);
  start();
  EXPECT_EQ(port.read64(ORRERY_RNIC_TEST_ADDRESS), base);
  EXPECT_EQ(port.read64(ORRERY_RNIC_WRITES_IGNORED), 9U);  // 8 words of set-up, 1 START
  EXPECT_EQ(status(), ORRERY_RNIC_STATUS_RUNNING);
  port.write32(ORRERY_RNIC_TEST_CONTROL, ORRERY_RNIC_TEST_ABORT);
  bus.run();
  EXPECT_EQ(status(), ORRERY_RNIC_STATUS_FAILED);
  EXPECT_EQ(error(), ORRERY_RNIC_ERROR_ABORTED);
  EXPECT_EQ(run(ORRERY_RNIC_OP_WRITE, base, 10, 1), ORRERY_RNIC_ERROR_NONE);
}

TEST_F(RnicCoreTest, ResetAtAnyMoment) {
  bus.max_delay = 500;
  for (int after = 0; after < 20; ++after) {
    set_up(ORRERY_RNIC_OP_WRITE, base, 9 * chunk, 1, 3);
    start();
    for (int i = 0; i < after; ++i) {
      bus.simulation.events.run_one();
    }
    port.cancel_all();  // as the endpoint does
    rnic.reset();
    const std::uint64_t started = port.started;
    bus.run();
    ASSERT_EQ(port.started, started) << "a DMA after the reset";
    ASSERT_EQ(status(), ORRERY_RNIC_STATUS_IDLE);
    ASSERT_EQ(port.read64(ORRERY_RNIC_TEST_ADDRESS), 0U);
    ASSERT_EQ(run(ORRERY_RNIC_OP_WRITE, base, chunk, 1), ORRERY_RNIC_ERROR_NONE);
  }
}

TEST_F(RnicCoreTest, CountsEveryWordWrittenToTheWritePage) {
  port.write32(ORRERY_RNIC_WRITE_PAGE, 0xffff'ffff);
  port.write64(ORRERY_RNIC_WRITE_PAGE + 0xff8, 0x0000'0002'0000'0003);
  std::array<std::byte, 64> burst{};
  burst.fill(std::byte{1});
  rnic.bar_write(0, ORRERY_RNIC_WRITE_PAGE + 64, burst);
  rnic.bar_write(0, ORRERY_RNIC_WRITE_PAGE, std::span(burst).first(2));   // no whole word
  port.write32(ORRERY_RNIC_WRITE_PAGE + ORRERY_RNIC_WRITE_PAGE_SIZE, 1);  // the page after
  EXPECT_EQ(port.read64(ORRERY_RNIC_WRITES_COUNTED), 1U + 2 + 16);
  EXPECT_EQ(port.read64(ORRERY_RNIC_WRITES_SUM), 0xffff'ffffULL + 5 + 16 * 0x0101'0101ULL);
  EXPECT_EQ(port.read64(ORRERY_RNIC_WRITES_LAST), 0x0101'0101U);
  EXPECT_EQ(port.read64(ORRERY_RNIC_WRITES_IGNORED), 2U);
  EXPECT_EQ(port.read32(ORRERY_RNIC_WRITE_PAGE), 0U);
}

TEST(RnicFunction, IsAnSriovPhysicalFunction) {
  const models::RnicCore rnic(second_rnic());
  const auto space = models::make_rnic_config_space(rnic, {}, 16);
  EXPECT_EQ(space->read32(0x00), 0x0e20'1234U);
  EXPECT_EQ(space->read32(0x08) >> 8, 0x020000U);
  const std::uint32_t sriov = space->extended_capability(pcie::extended_capability_id::sriov);
  ASSERT_NE(sriov, 0U);
  EXPECT_EQ(space->read16(sriov + 0x0e), 16U);  // TotalVFs, §9.3.3.6
  const std::uint32_t acs = space->extended_capability(pcie::extended_capability_id::acs);
  ASSERT_NE(acs, 0U);
  EXPECT_EQ(space->read16(acs + 4), 0U);
  EXPECT_NE(space->extended_capability(pcie::extended_capability_id::ats), 0);
  const std::uint32_t serial = space->extended_capability(pcie::extended_capability_id::serial_number);
  EXPECT_EQ(space->read64(serial + 4), 0x024f'5202'0000'0002U);
  // Without VFs there is no sign of SR-IOV.
  const auto plain = models::make_rnic_config_space(rnic, {}, 0);
  EXPECT_EQ(plain->extended_capability(pcie::extended_capability_id::sriov), 0);
  EXPECT_EQ(plain->extended_capability(pcie::extended_capability_id::ari), 0);
  for (const pcie::BarDescription& bar : models::rnic_bars()) {
    EXPECT_EQ(bar.memory_fd, -1) << "a mappable region would make the RNIC's writes synchronous";
  }
}

}  // namespace
}  // namespace orrery::test::rnic_core_test
