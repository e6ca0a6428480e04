// Registers, ring, interrupts, errors and resets.
#include "systemc_models/gpu/gpu_core.h"

#include <gtest/gtest.h>

#include "common/error.h"
#include "systemc_models/device_identity.h"
#include "tests/systemc_models/gpu/gpu_driver.h"

namespace orrery::test::gpu_core_test {
namespace {

constexpr std::uint64_t chunk = models::GpuEngine::functional_chunk;
constexpr std::uint64_t host_base = 0x2'0000'0000;

class GpuCoreTest : public ::testing::Test {
 protected:
  FakeBus bus;
  GpuDriver driver{bus, small_gpu(5)};

  void expect_error(std::uint32_t code, std::uint64_t address) {
    EXPECT_EQ(driver.status(), ORRERY_GPU_STATUS_ERROR);
    EXPECT_EQ(driver.error(), code);
    EXPECT_EQ(driver.error_address(), address);
    EXPECT_EQ(driver.port.in_flight(), 0U);
  }
  // The engine is as good as new after an engine reset.
  void expect_recovery() {
    driver.reset_engine();
    EXPECT_EQ(driver.status(), ORRERY_GPU_STATUS_DISABLED);
    EXPECT_EQ(driver.error(), ORRERY_GPU_ERROR_NONE);
    EXPECT_EQ(driver.head(), 0U);
    driver.enable();
    const auto data = bus.random_bytes(3 * chunk);
    bus.write(host_base, data);
    EXPECT_TRUE(driver.execute(copy({host_base, true}, {77, false}, data.size())));
    EXPECT_TRUE(driver.memory(77, data.size()) == data);
  }
};

TEST_F(GpuCoreTest, IdentifiesItself) {
  EXPECT_EQ(driver.port.read32(ORRERY_GPU_ID), 0x5547'524fU);
  EXPECT_EQ(driver.port.read32(ORRERY_GPU_INDEX), 5U);
  EXPECT_EQ(driver.port.read64(ORRERY_GPU_SERIAL), 0x024f'5201'0000'0005U);
  EXPECT_EQ(driver.port.read64(ORRERY_GPU_MEMORY_SIZE), 64 * mib);
  EXPECT_EQ(driver.port.read64(ORRERY_GPU_BAR2_SIZE), 16 * mib);
  EXPECT_EQ(driver.port.read32(ORRERY_GPU_FEATURES), ORRERY_GPU_FEATURE_F32 | ORRERY_GPU_FEATURE_BF16);
  EXPECT_EQ(driver.port.read32(ORRERY_GPU_ENGINE_STATUS), ORRERY_GPU_STATUS_DISABLED);
}

TEST_F(GpuCoreTest, RegistersTakeAnyReadButOnlyWholeWordWrites) {
  driver.port.write32(ORRERY_GPU_SCRATCH, 0x1122'3344);
  std::array<std::byte, 7> odd{};
  driver.gpu.bar_read(0, ORRERY_GPU_SCRATCH - 2, odd);
  EXPECT_EQ(odd[2], std::byte{0x44});
  EXPECT_EQ(odd[5], std::byte{0x11});
  std::array<std::byte, 2> half{};
  driver.gpu.bar_write(0, ORRERY_GPU_SCRATCH, half);                            // too small
  driver.gpu.bar_write(0, ORRERY_GPU_SCRATCH + 2, std::array<std::byte, 4>{});  // unaligned
  driver.gpu.bar_write(0, ORRERY_GPU_SCRATCH, std::array<std::byte, 6>{});      // no multiple of 4
  driver.gpu.bar_write(0, ORRERY_GPU_SCRATCH, std::span<const std::byte>{});
  driver.port.write32(ORRERY_GPU_ID, 0);  // read-only
  driver.port.write32(0xfffc, 1);         // unassigned
  EXPECT_EQ(driver.port.read32(ORRERY_GPU_SCRATCH), 0x1122'3344U);
  EXPECT_EQ(driver.port.read32(ORRERY_GPU_ID), ORRERY_GPU_ID_VALUE);
  EXPECT_EQ(driver.port.read32(0xfffc), 0U);
  EXPECT_EQ(driver.port.read64(ORRERY_GPU_WRITES_IGNORED), 6U);
}

TEST_F(GpuCoreTest, ABurstOverAllRegistersHarmsNothing) {
  driver.enable();
  std::vector<std::byte> all(ORRERY_GPU_BAR0_SIZE, std::byte{0xff});
  driver.gpu.bar_write(0, 0, all);
  bus.run();
  driver.gpu.bar_read(0, 0, all);
  expect_recovery();
}

TEST_F(GpuCoreTest, A64BitCounterReadInHalvesDoesNotTear) {
  driver.enable();
  const std::uint64_t almost = (std::uint64_t{1} << 32) - 4;
  // Bring the byte counter to just below 2^32, then over it between the two halves.
  while (driver.port.read64(ORRERY_GPU_DATA_BYTES) < almost) {
    const std::uint64_t left = almost - driver.port.read64(ORRERY_GPU_DATA_BYTES);
    ASSERT_TRUE(driver.execute(fill({0, false}, std::min(left, 64 * mib), 0)));
  }
  const std::uint32_t low = driver.port.read32(ORRERY_GPU_DATA_BYTES);
  ASSERT_TRUE(driver.execute(fill({0, false}, 8, 0)));
  const std::uint32_t high = driver.port.read32(ORRERY_GPU_DATA_BYTES + 4);
  EXPECT_EQ((std::uint64_t{high} << 32) | low, almost);
  EXPECT_EQ(driver.port.read64(ORRERY_GPU_DATA_BYTES), almost + 8);
  EXPECT_EQ(driver.port.read32(ORRERY_GPU_DATA_BYTES + 4), 1U) << "a high half read alone is live";
}

TEST_F(GpuCoreTest, MemoryBarShowsTheFirstBytesOfMemoryOnly) {
  EXPECT_EQ(driver.gpu.bar_memory(2, 0, 16 * mib).size(), 16 * mib);
  EXPECT_TRUE(driver.gpu.bar_memory(2, 16 * mib - 1, 2).empty());
  EXPECT_TRUE(driver.gpu.bar_memory(2, ~std::uint64_t{0}, 2).empty());
  EXPECT_TRUE(driver.gpu.bar_memory(0, 0, 4).empty());
  EXPECT_TRUE(driver.gpu.bar_memory(4, 0, 4).empty());
  EXPECT_GE(driver.gpu.bar_memory_fd(2), 0);
  EXPECT_EQ(driver.gpu.bar_memory_fd(0), -1);
  models::GpuConfig config = small_gpu();
  config.bar2_mappable = false;
  EXPECT_EQ(models::GpuCore(config).bar_memory_fd(2), -1);
}

TEST_F(GpuCoreTest, RingWrapsWithFreeRunningCounts) {
  driver.enable(2);  // four slots
  for (std::uint32_t i = 0; i < 1000; ++i) {
    const std::uint32_t batch = 1 + i % 4;
    for (std::uint32_t k = 0; k < batch; ++k) {
      driver.push(fence({k * 8, false}, (std::uint64_t{i} << 8) | k));
    }
    driver.ring();
    bus.run();
    ASSERT_EQ(driver.head(), driver.tail());
    for (std::uint32_t k = 0; k < batch; ++k) {
      std::uint64_t value = 0;
      std::memcpy(&value, driver.memory(k * 8, 8).data(), 8);
      ASSERT_EQ(value, (std::uint64_t{i} << 8) | k);
    }
  }
  EXPECT_EQ(driver.port.read64(ORRERY_GPU_COMMANDS_COMPLETED), driver.tail());
}

TEST_F(GpuCoreTest, FetchesSeveralCommandsAtOnce) {
  driver.enable(8);
  for (int i = 0; i < 200; ++i) {
    driver.push(command(ORRERY_GPU_OP_NOP, {0, false}, {0, false}, 0));
  }
  driver.ring();
  bus.run();
  EXPECT_EQ(driver.head(), 200U);
  EXPECT_LE(driver.port.started, 10U);
  EXPECT_EQ(driver.port.counters().read_bytes_requested, 200U * 64);
}

TEST_F(GpuCoreTest, ADoorbellStormCostsOneEvent) {
  driver.enable();
  driver.push(fill({0, false}, 4, 1));
  const std::uint64_t before = bus.simulation.events.pending();
  for (int i = 0; i < 100'000; ++i) {
    driver.ring();
  }
  EXPECT_LE(bus.simulation.events.pending() - before, 1U);
  bus.run();
  EXPECT_EQ(driver.head(), 1U);
  EXPECT_EQ(driver.port.read64(ORRERY_GPU_DOORBELLS), 100'000U);
  EXPECT_EQ(driver.status(), ORRERY_GPU_STATUS_IDLE);
}

TEST_F(GpuCoreTest, InterruptsFollowTheEnableBits) {
  driver.enable();
  driver.port.write32(ORRERY_GPU_INTERRUPT_ENABLE, ~(1U << 3));
  ASSERT_TRUE(driver.execute(with_interrupt(fence({0, false}, 1), 3)));
  EXPECT_TRUE(driver.port.interrupts.empty());
  EXPECT_EQ(driver.port.read32(ORRERY_GPU_INTERRUPT_STATUS), 1U << 3) << "status shows it for a driver that polls";
  driver.port.write32(ORRERY_GPU_INTERRUPT_ENABLE, ~0U);
  EXPECT_TRUE(driver.port.interrupts.empty()) << "enabling sends nothing late";
  driver.port.write32(ORRERY_GPU_INTERRUPT_STATUS, 1U << 3);
  EXPECT_EQ(driver.port.read32(ORRERY_GPU_INTERRUPT_STATUS), 0U);
  ASSERT_TRUE(driver.execute(with_interrupt(fill({0, false}, 1, 1), 31)));
  ASSERT_TRUE(driver.execute(with_interrupt(command(ORRERY_GPU_OP_NOP, {0, false}, {0, false}, 0), 0)));
  EXPECT_EQ(driver.port.interrupts, (std::vector<unsigned>{31, 0}));
}

TEST_F(GpuCoreTest, ProfileKeepsTheMarkedCommand) {
  driver.enable();
  orrery_gpu_command c = copy({host_base, true}, {host_base + mib, true}, 12345);
  c.flags |= ORRERY_GPU_FLAG_PROFILE;
  c.tag = 99;
  ASSERT_TRUE(driver.execute(c));
  ASSERT_TRUE(driver.execute(fence({0, false}, 1)));  // unmarked: leaves the record alone
  EXPECT_EQ(driver.port.read32(ORRERY_GPU_PROFILE_COUNT), 1U);
  EXPECT_EQ(driver.port.read32(ORRERY_GPU_PROFILE_TAG), 99U);
  EXPECT_EQ(driver.port.read64(ORRERY_GPU_PROFILE_BYTES), 12345U);
  ASSERT_EQ(driver.port.read32(ORRERY_GPU_PROFILE_READ_HOPS), 1U);
  ASSERT_EQ(driver.port.read32(ORRERY_GPU_PROFILE_WRITE_HOPS), 1U);
  for (const std::uint64_t window : {ORRERY_GPU_PROFILE_READ_WINDOW, ORRERY_GPU_PROFILE_WRITE_WINDOW}) {
    EXPECT_EQ(driver.port.read32(window), 7U);           // the test bus's component
    EXPECT_EQ(driver.port.read32(window + 12), 12345U);  // its serialisation
    EXPECT_EQ(driver.port.read32(window + 24), 0U);      // no second hop
  }
}

// --- Errors ------------------------------------------------------------------------------------------

TEST_F(GpuCoreTest, RingThatCannotBeIsRefusedWhenEnabled) {
  const auto enable = [&](std::uint64_t base, std::uint32_t log2) {
    driver.reset_engine();
    driver.port.write64(ORRERY_GPU_RING_BASE, base);
    driver.port.write32(ORRERY_GPU_RING_LOG2, log2);
    driver.port.write32(ORRERY_GPU_ENGINE_CONTROL, ORRERY_GPU_CONTROL_ENABLE);
    return driver.error();
  };
  EXPECT_EQ(enable(0x1000, 0), ORRERY_GPU_ERROR_RING_CONFIG);
  EXPECT_EQ(enable(0x1000, 17), ORRERY_GPU_ERROR_RING_CONFIG);
  EXPECT_EQ(enable(0x1000, 0xffff'ffff), ORRERY_GPU_ERROR_RING_CONFIG);
  EXPECT_EQ(enable(0x1020, 4), ORRERY_GPU_ERROR_RING_CONFIG);
  expect_error(ORRERY_GPU_ERROR_RING_CONFIG, 0x1020);
  EXPECT_EQ(enable(0xffff'ffff'ffff'ff00, 4), ORRERY_GPU_ERROR_RING_CONFIG);
  EXPECT_EQ(enable(0xffff'ffff'ffff'fc00, 4), ORRERY_GPU_ERROR_NONE) << "ends at the last byte";
  expect_recovery();
}

TEST_F(GpuCoreTest, RingRegistersAreLockedWhileEnabled) {
  driver.enable();
  driver.port.write64(ORRERY_GPU_RING_BASE, 0xdead'0000);
  driver.port.write32(ORRERY_GPU_RING_LOG2, 3);
  EXPECT_EQ(driver.port.read64(ORRERY_GPU_RING_BASE), driver.ring_base());
  EXPECT_EQ(driver.port.read32(ORRERY_GPU_RING_LOG2), 6U);
  EXPECT_EQ(driver.port.read64(ORRERY_GPU_WRITES_IGNORED), 3U);
}

TEST_F(GpuCoreTest, DoorbellErrors) {
  driver.port.write32(ORRERY_GPU_DOORBELL, 1);  // not enabled
  expect_error(ORRERY_GPU_ERROR_DOORBELL, 1);
  driver.reset_engine();
  driver.enable(4);
  driver.port.write32(ORRERY_GPU_DOORBELL, 17);  // 16 slots
  expect_error(ORRERY_GPU_ERROR_DOORBELL, 17);
  EXPECT_EQ(driver.port.interrupts, (std::vector<unsigned>{0}));
  driver.port.write32(ORRERY_GPU_DOORBELL, 1);  // ignored from here on
  bus.run();
  EXPECT_EQ(driver.port.started, 0U);
  driver.reset_engine();
  driver.enable(4);
  driver.push(fill({0, false}, 1, 1));
  driver.push(fill({0, false}, 1, 1));
  driver.ring();
  driver.port.write32(ORRERY_GPU_DOORBELL, 1);  // backwards, before anything ran
  expect_error(ORRERY_GPU_ERROR_DOORBELL, 1);
  expect_recovery();
}

TEST_F(GpuCoreTest, ABadDoorbellStopsARunningCopyAtTheNextChunk) {
  driver.enable();
  driver.submit(fill({0, false}, 32 * mib, 0xffff'ffff));
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(bus.simulation.events.run_one());
  }
  driver.port.write32(ORRERY_GPU_DOORBELL, 0x8000'0000);
  bus.run();
  expect_error(ORRERY_GPU_ERROR_DOORBELL, 0x8000'0000);
  EXPECT_EQ(driver.memory(31 * mib, 1)[0], std::byte{0});
  expect_recovery();
}

TEST_F(GpuCoreTest, UnreadableRingIsAFetchError) {
  driver.enable();
  bus.break_page(driver.ring_base());
  driver.submit(fill({0, false}, 1, 1));
  bus.run();
  expect_error(ORRERY_GPU_ERROR_RING_FETCH, driver.ring_base());
  EXPECT_EQ(driver.port.read32(ORRERY_GPU_ERROR_COMPLETION), 4U);
  bus.mend_page(driver.ring_base());
  expect_recovery();
}

TEST_F(GpuCoreTest, ABadCommandHaltsAfterThoseBeforeIt) {
  driver.enable();
  driver.push(fill({0, false}, 4, 0x0101'0101));
  orrery_gpu_command bad = copy({0, false}, {64 * mib, false}, 1);
  bad.tag = 4711;
  driver.push(bad);
  driver.push(fill({64, false}, 4, 0x0202'0202));
  driver.ring();
  bus.run();
  expect_error(ORRERY_GPU_ERROR_ADDRESS_RANGE, 64 * mib);
  EXPECT_EQ(driver.head(), 1U);
  EXPECT_EQ(driver.port.read32(ORRERY_GPU_ERROR_COMMAND), 1U);
  EXPECT_EQ(driver.port.read32(ORRERY_GPU_ERROR_TAG), 4711U);
  EXPECT_EQ(driver.memory(0, 1)[0], std::byte{1});
  EXPECT_EQ(driver.memory(64, 1)[0], std::byte{0}) << "nothing after the error ran";
  EXPECT_EQ(driver.port.interrupts, (std::vector<unsigned>{0}));
  EXPECT_EQ(driver.port.read64(ORRERY_GPU_COMMANDS_FAILED), 1U);
  expect_recovery();
}

TEST_F(GpuCoreTest, UnmappedPageGivesItsAddressAndTouchesNothingElse) {
  const std::uint64_t length = 6 * chunk;
  const std::uint64_t hole = host_base + 3 * chunk + 8192;
  const auto data = bus.random_bytes(length);
  for (const bool delayed : {false, true}) {
    bus.max_delay = delayed ? 1000 : 0;
    driver.reset_engine();
    driver.enable();
    driver.write_memory(0, data);
    bus.break_page(hole);
    // Write: guard bytes on both sides of the destination stay.
    bus.write(host_base - 64, std::vector<std::byte>(64, std::byte{0x55}));
    bus.write(host_base + length, std::vector<std::byte>(64, std::byte{0x55}));
    driver.submit(copy({0, false}, {host_base, true}, length));
    bus.run();
    expect_error(ORRERY_GPU_ERROR_DMA_WRITE, hole);
    EXPECT_EQ(driver.port.read32(ORRERY_GPU_ERROR_COMPLETION), 4U);
    EXPECT_EQ(bus.read(hole, 1)[0], std::byte{0});
    EXPECT_EQ(bus.read(host_base - 64, 64), std::vector<std::byte>(64, std::byte{0x55}));
    EXPECT_EQ(bus.read(host_base + length, 64), std::vector<std::byte>(64, std::byte{0x55}));
    // Read, directly into memory, through staging, and as either operand of a reduce.
    for (const orrery_gpu_command& c :
         {copy({host_base, true}, {0, false}, length), copy({host_base, true}, {host_base + 32 * mib, true}, length),
          command(ORRERY_GPU_OP_REDUCE_F32_SUM, {host_base, true}, {0, false}, length),
          command(ORRERY_GPU_OP_REDUCE_BF16_SUM, {0, false}, {host_base, true}, length),
          command(ORRERY_GPU_OP_REDUCE_F32_SUM, {host_base, true}, {host_base + 32 * mib, true}, length)}) {
      driver.reset_engine();
      driver.enable();
      driver.submit(c);
      bus.run();
      expect_error(ORRERY_GPU_ERROR_DMA_READ, hole);
    }
    bus.mend_page(hole);
  }
  // A fence to nowhere fails too.
  bus.break_page(hole);
  driver.reset_engine();
  driver.enable();
  driver.submit(fence({hole + 16, true}, 1));
  bus.run();
  expect_error(ORRERY_GPU_ERROR_DMA_WRITE, hole + 16);
  bus.mend_page(hole);
  expect_recovery();
}

TEST_F(GpuCoreTest, ErrorInterruptObeysItsEnableBit) {
  driver.enable();
  driver.port.write32(ORRERY_GPU_INTERRUPT_ENABLE, 0);
  driver.submit(command(200, {0, false}, {0, false}, 0));
  bus.run();
  expect_error(ORRERY_GPU_ERROR_OPCODE, 200);
  EXPECT_TRUE(driver.port.interrupts.empty());
  EXPECT_EQ(driver.port.read32(ORRERY_GPU_INTERRUPT_STATUS), 1U);
}

// --- Resets ------------------------------------------------------------------------------------------

TEST_F(GpuCoreTest, EngineResetAtAnyMomentForgetsEverything) {
  bus.max_delay = 500;
  for (int after = 0; after < 60; ++after) {
    driver.enable();
    const std::uint64_t completed = driver.port.read64(ORRERY_GPU_COMMANDS_COMPLETED);
    driver.push(copy({host_base, true}, {host_base + 32 * mib, true}, 9 * chunk));
    driver.push(command(ORRERY_GPU_OP_REDUCE_F32_SUM, {host_base, true}, {0, false}, 5 * chunk));
    driver.push(with_interrupt(fence({host_base + 8, true}, 1), 1));
    driver.ring();
    for (int i = 0; i < after; ++i) {
      bus.simulation.events.run_one();
    }
    const std::size_t interrupts = driver.port.interrupts.size();
    const std::uint32_t head = driver.head();
    driver.reset_engine();
    ASSERT_EQ(driver.port.in_flight(), 0U);
    bus.run();
    ASSERT_EQ(driver.status(), ORRERY_GPU_STATUS_DISABLED);
    ASSERT_EQ(driver.port.interrupts.size(), interrupts) << "an interrupt after the reset";
    ASSERT_EQ(driver.port.read64(ORRERY_GPU_COMMANDS_COMPLETED), completed + head);
    // Straight into new work, while old events may still be queued.
    driver.enable();
    driver.push(fill({0, false}, 2 * chunk, 0xabab'abab));
    driver.ring();
    driver.reset_engine();
    expect_recovery();
    driver.reset_engine();
  }
}

// Events of the old command are still queued when the new one starts in the same slots.
TEST_F(GpuCoreTest, EventsFromBeforeAResetDoNotReachTheNextCommand) {
  for (int after = 2; after < 12; ++after) {
    driver.enable();
    driver.submit(fill({0, false}, 32 * mib, 0x1111'1111));
    for (int i = 0; i < after; ++i) {
      ASSERT_TRUE(bus.simulation.events.run_one());
    }
    driver.reset_engine();
    expect_recovery();
    driver.reset_engine();
  }
}

TEST_F(GpuCoreTest, TheFirstOfSeveralFailuresIsReported) {
  driver.enable();
  bus.break_page(host_base + 8192);
  bus.break_page(host_base + chunk + 4096);
  bus.break_page(host_base + 2 * chunk);
  driver.submit(copy({0, false}, {host_base, true}, 4 * chunk));
  bus.run();
  expect_error(ORRERY_GPU_ERROR_DMA_WRITE, host_base + 8192);
  EXPECT_EQ(driver.port.read64(ORRERY_GPU_COMMANDS_FAILED), 1U);
  EXPECT_EQ(driver.port.interrupts.size(), 1U) << "one error, one interrupt";
}

TEST_F(GpuCoreTest, DisablingIsAnEngineReset) {
  driver.enable();
  driver.submit(fill({0, false}, 8 * mib, 1));
  bus.simulation.events.run_one();
  driver.port.write32(ORRERY_GPU_ENGINE_CONTROL, 0);
  bus.run();
  EXPECT_EQ(driver.status(), ORRERY_GPU_STATUS_DISABLED);
  EXPECT_EQ(driver.port.read64(ORRERY_GPU_RING_BASE), 0U);
}

TEST_F(GpuCoreTest, FunctionResetErasesMemoryAndRegisters) {
  driver.enable();
  ASSERT_TRUE(driver.execute(fill({0, false}, 64 * mib, 0x5555'5555)));
  driver.port.write32(ORRERY_GPU_SCRATCH, 1);
  driver.submit(copy({0, false}, {host_base, true}, 8 * mib));
  bus.simulation.events.run_one();
  driver.port.cancel_all();  // as the endpoint does
  driver.gpu.reset();
  bus.run();
  EXPECT_EQ(driver.memory(0, 64 * mib), std::vector<std::byte>(64 * mib));
  for (std::uint64_t offset = ORRERY_GPU_SCRATCH; offset < ORRERY_GPU_BAR0_SIZE; offset += 4) {
    if ((offset >= ORRERY_GPU_WRITE_BYTES_SENT && offset < ORRERY_GPU_COMMANDS_COMPLETED) ||
        (offset & ~7U) == ORRERY_GPU_TIME) {
      continue;  // the port's counters and the clock go on
    }
    ASSERT_EQ(driver.port.read32(offset), 0U) << std::hex << offset;
  }
  expect_recovery();
}

// --- Hostile input -----------------------------------------------------------------------------------

TEST_F(GpuCoreTest, RandomCommandsAndRegisterWritesNeverHang) {
  bus.random.seed(20);
  for (int round = 0; round < 400; ++round) {
    driver.reset_engine();
    driver.enable(4);
    for (int i = 0; i < 16; ++i) {
      orrery_gpu_command c{};
      std::memcpy(&c, bus.random_bytes(sizeof(c)).data(), sizeof(c));
      // Half of them nearly right, so that they get past the first checks.
      if (bus.uniform(0, 1) == 0) {
        c.opcode %= 6;
        c.flags &= 0xf;
        c.reserved0 = 0;
        std::fill(std::begin(c.reserved1), std::end(c.reserved1), 0);
        c.vector = (c.flags & ORRERY_GPU_FLAG_INTERRUPT) != 0 ? c.vector % 32 : 0;
        c.length %= 2 * mib;
        c.source %= 65 * mib;
        c.destination %= 65 * mib;
        c.value = c.opcode == ORRERY_GPU_OP_FILL ? c.value & 0xffff'ffff : 0;
      }
      driver.push(c);
    }
    driver.ring();
    for (int i = 0; i < 8; ++i) {
      driver.port.write32(bus.uniform(0, 0x1fff) & ~3ULL, static_cast<std::uint32_t>(bus.random()));
      bus.simulation.events.run_one();
    }
    bus.run(100'000);
    ASSERT_EQ(driver.port.in_flight(), 0U);
  }
  driver.port.write32(ORRERY_GPU_ENGINE_CONTROL, ORRERY_GPU_CONTROL_RESET);
  expect_recovery();
}

// --- Construction ------------------------------------------------------------------------------------

TEST(GpuCoreConfig, RefusesSizesThatCannotBe) {
  const auto make = [](std::uint64_t memory, std::uint64_t bar) {
    models::GpuConfig config;
    config.memory_size = memory;
    config.bar2_size = bar;
    return models::GpuCore(config).config().memory_size;
  };
  EXPECT_THROW(make(64 * mib, 128 * mib), Error);
  EXPECT_THROW(make(64 * mib, 3 * mib), Error);
  EXPECT_THROW(make(64 * mib, 0), Error);
  EXPECT_THROW(make(64 * mib, 2048), Error);
  EXPECT_THROW(make(64 * mib + 1, mib), Error);
  EXPECT_THROW(make(~std::uint64_t{0}, mib), Error);
  EXPECT_THROW(make(std::uint64_t{1} << 60, mib), Error);
  EXPECT_EQ(make(std::uint64_t{128} << 30, std::uint64_t{128} << 30), std::uint64_t{128} << 30);
  models::GpuConfig config = small_gpu(65536);
  EXPECT_THROW(models::GpuCore{config}, Error);
}

}  // namespace
}  // namespace orrery::test::gpu_core_test
