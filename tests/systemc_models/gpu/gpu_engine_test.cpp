// Every opcode against plain C++ on a copy of the world, in functional and timed mode, with delays that let
// transfers finish out of order.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/error.h"
#include "tests/systemc_models/gpu/gpu_driver.h"

namespace orrery::test::gpu_engine_test {
namespace {

constexpr std::uint64_t chunk = models::GpuEngine::functional_chunk;
constexpr std::uint64_t host_base = 0x2'0000'0000;

struct Mode {
  bool timed;
  std::uint64_t max_delay;
};

class GpuOpcodes : public ::testing::TestWithParam<Mode> {
 protected:
  GpuOpcodes() : bus(GetParam().timed), driver(bus) {
    bus.max_delay = GetParam().max_delay;
    driver.enable();
  }

  std::vector<std::byte> bytes_at(Place place, std::uint64_t length) {
    return place.on_bus ? bus.read(place.address, length) : driver.memory(place.address, length);
  }
  void put(Place place, const std::vector<std::byte>& bytes) {
    place.on_bus ? bus.write(place.address, bytes) : driver.write_memory(place.address, bytes);
  }
  // A place in own memory or on the bus with `align`, with guard bytes around it that tests look at.
  Place place(bool on_bus, std::uint64_t region, std::uint64_t align) {
    const std::uint64_t offset = guard + bus.uniform(0, 3 * chunk) / align * align;
    return {(on_bus ? host_base : 0) + region * 8 * mib + offset, on_bus};
  }
  std::uint64_t some_length(std::uint64_t element) {
    static constexpr std::array<std::uint64_t, 12> interesting = {
        1, 2, 3, 4, 4095, 4096, 4097, chunk - 1, chunk, chunk + 1, 3 * chunk + 12345, 11 * chunk};
    const std::uint64_t any =
        bus.uniform(0, 1) == 0 ? interesting[bus.uniform(0, interesting.size() - 1)] : bus.uniform(1, 2 * mib);
    return std::max(element, any / element * element);
  }

  static constexpr std::uint64_t guard = 64;
  FakeBus bus;
  GpuDriver driver;
};

TEST_P(GpuOpcodes, CopyMovesExactlyItsBytes) {
  for (int round = 0; round < 48; ++round) {
    const Place source = place((round & 1) != 0, 0, 1);
    const Place destination = place((round & 2) != 0, 1, 1);
    const std::uint64_t length = some_length(1);
    SCOPED_TRACE(testing::Message() << "round " << round << " length " << length << " from " << source.address << " to "
                                    << destination.address);
    const auto data = bus.random_bytes(length);
    put(source, data);
    const Place window{destination.address - guard, destination.on_bus};
    auto expected = bus.random_bytes(length + 2 * guard);
    put(window, expected);
    std::copy(data.begin(), data.end(), expected.begin() + guard);
    ASSERT_TRUE(driver.execute(copy(source, destination, length)));
    ASSERT_TRUE(bytes_at(window, expected.size()) == expected);
    ASSERT_TRUE(bytes_at(source, length) == data);
    ASSERT_EQ(driver.port.in_flight(), 0U);
  }
  EXPECT_EQ(driver.port.unconfirmed_writes, 0U);
}

TEST_P(GpuOpcodes, OverlappingCopyInOwnMemoryIsMemmove) {
  for (const std::int64_t distance :
       {1L, -1L, 7L, -4096L, 100'000L, -static_cast<std::int64_t>(chunk), static_cast<std::int64_t>(chunk),
        2L * static_cast<std::int64_t>(chunk) - 3, 0L}) {
    const std::uint64_t length = 3 * chunk + 4321;
    const std::uint64_t from = 8 * mib + 5;
    auto world = bus.random_bytes(24 * mib);
    driver.write_memory(0, world);
    ASSERT_TRUE(driver.execute(copy({from, false}, {from + static_cast<std::uint64_t>(distance), false}, length)));
    std::memmove(world.data() + from + distance, world.data() + from, length);
    ASSERT_TRUE(driver.memory(0, world.size()) == world) << "distance " << distance;
  }
}

TEST_P(GpuOpcodes, FillRepeatsThePatternFromTheStart) {
  for (int round = 0; round < 32; ++round) {
    const Place destination = place((round & 1) != 0, 1, 1);
    const std::uint64_t length = some_length(1);
    const auto pattern = static_cast<std::uint32_t>(bus.random());
    const Place window{destination.address - guard, destination.on_bus};
    auto expected = bus.random_bytes(length + 2 * guard);
    put(window, expected);
    for (std::uint64_t i = 0; i < length; ++i) {
      expected[guard + i] = static_cast<std::byte>(pattern >> (8 * (i % 4)));
    }
    ASSERT_TRUE(driver.execute(fill(destination, length, pattern)));
    ASSERT_TRUE(bytes_at(window, expected.size()) == expected) << "length " << length;
  }
}

TEST_P(GpuOpcodes, ReduceF32AddsElementwise) {
  for (int round = 0; round < 32; ++round) {
    const Place source = place((round & 1) != 0, 0, 4);
    const Place destination = place((round & 2) != 0, 1, 4);
    const std::uint64_t length = some_length(4);
    std::vector<float> a(length / 4), b(length / 4), sum(length / 4);
    for (std::size_t i = 0; i < a.size(); ++i) {
      a[i] = static_cast<float>(static_cast<std::int64_t>(bus.random() >> 40)) / 64.0F;
      b[i] = -static_cast<float>(static_cast<std::int64_t>(bus.random() >> 40)) / 16.0F;
      sum[i] = static_cast<float>(static_cast<double>(b[i]) + static_cast<double>(a[i]));  // exact, rounded once
    }
    const auto raw = [](const std::vector<float>& v) {
      const auto bytes = std::as_bytes(std::span(v));
      return std::vector<std::byte>(bytes.begin(), bytes.end());
    };
    put(source, raw(a));
    const Place window{destination.address - guard, destination.on_bus};
    auto expected = bus.random_bytes(length + 2 * guard);
    put(window, expected);
    put(destination, raw(b));
    const auto raw_sum = raw(sum);
    std::copy(raw_sum.begin(), raw_sum.end(), expected.begin() + guard);
    ASSERT_TRUE(driver.execute(command(ORRERY_GPU_OP_REDUCE_F32_SUM, source, destination, length)));
    ASSERT_TRUE(bytes_at(window, expected.size()) == expected);
    ASSERT_TRUE(bytes_at(source, length) == raw(a));
  }
}

TEST_P(GpuOpcodes, ReduceBf16AddsElementwise) {
  // Small integers and quarters: exact in bfloat16, so no rounding hides a wrong element.
  const auto encode = [](int quarters) {
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(quarters) / 4.0F) >> 16);
  };
  for (int round = 0; round < 32; ++round) {
    const Place source = place((round & 1) != 0, 0, 2);
    const Place destination = place((round & 2) != 0, 1, 2);
    const std::uint64_t length = some_length(2);
    std::vector<std::byte> a(length), b(length), sum(length);
    for (std::uint64_t i = 0; i < length; i += 2) {
      const int x = static_cast<int>(bus.random() % 127) - 63;
      const int y = static_cast<int>(bus.random() % 127) - 63;
      const std::array<std::uint16_t, 3> values = {encode(x), encode(y), encode(x + y)};
      std::memcpy(&a[i], values.data(), 2);
      std::memcpy(&b[i], &values[1], 2);
      std::memcpy(&sum[i], &values[2], 2);
    }
    put(source, a);
    put(destination, b);
    ASSERT_TRUE(driver.execute(command(ORRERY_GPU_OP_REDUCE_BF16_SUM, source, destination, length)));
    ASSERT_TRUE(bytes_at(destination, length) == sum);
  }
}

TEST_P(GpuOpcodes, ReduceOntoItselfDoubles) {
  for (const bool on_bus : {false, true}) {
    const Place place{(on_bus ? host_base : 0) + 4096, on_bus};
    const std::vector<float> v(chunk / 2, 1.25F);
    const auto bytes = std::as_bytes(std::span(v));
    put(place, {bytes.begin(), bytes.end()});
    ASSERT_TRUE(driver.execute(command(ORRERY_GPU_OP_REDUCE_F32_SUM, place, place, bytes.size())));
    const auto result = bytes_at(place, bytes.size());
    for (std::size_t i = 0; i < v.size(); ++i) {
      float x = 0;
      std::memcpy(&x, &result[i * 4], 4);
      ASSERT_EQ(x, 2.5F);
    }
  }
}

TEST_P(GpuOpcodes, FenceWritesItsValueInEitherPlace) {
  for (const bool on_bus : {false, true}) {
    const Place place{(on_bus ? host_base : 0) + 8, on_bus};
    put({place.address - 8, on_bus}, std::vector<std::byte>(24, std::byte{0xee}));
    ASSERT_TRUE(driver.execute(fence(place, 0x0123'4567'89ab'cdef)));
    std::vector<std::byte> expected(24, std::byte{0xee});
    for (unsigned i = 0; i < 8; ++i) {
      expected[8 + i] = static_cast<std::byte>(0x0123'4567'89ab'cdefU >> (8 * i));
    }
    EXPECT_TRUE(bytes_at({place.address - 8, on_bus}, 24) == expected);
  }
}

// The driver polls the fence in host memory: when it shows, everything before it must be there.
TEST_P(GpuOpcodes, FenceFollowsEverythingBefore) {
  const Place target{host_base + 16 * mib, true};
  const Place flag{host_base, true};
  const std::uint64_t length = 5 * chunk + 3;
  for (std::uint64_t round = 1; round <= 10; ++round) {
    const auto data = bus.random_bytes(length);
    driver.write_memory(0, data);
    driver.push(copy({0, false}, target, length));
    driver.push(with_interrupt(fence(flag, round), 5));
    driver.ring();
    std::uint64_t seen = 0;
    while (seen != round) {
      ASSERT_EQ(driver.port.interrupts.size(), round - 1) << "the interrupt came before the fence";
      ASSERT_TRUE(bus.simulation.events.run_one());
      bus.read(flag.address, &seen, 8);
    }
    ASSERT_TRUE(bus.read(target.address, length) == data);
    bus.run();
    ASSERT_EQ(driver.port.interrupts.size(), round);
    ASSERT_EQ(driver.port.interrupts.back(), 5U);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Modes, GpuOpcodes, ::testing::Values(Mode{false, 0}, Mode{false, 1'000'000}, Mode{true, 0}, Mode{true, 3'000'000}),
    [](const auto& mode) {
      return std::string(mode.param.timed ? "Timed" : "Functional") + (mode.param.max_delay == 0 ? "" : "Delayed");
    });

TEST(GpuEngine, OneEventNeverDoesMoreThanAMebibyte) {
  FakeBus bus;
  GpuDriver driver(bus);
  driver.enable();
  const std::uint64_t length = 48 * mib;
  driver.submit(fill({0, false}, length, 0xffff'ffff));
  std::uint64_t done = 0;
  const auto memory = driver.gpu.memory().bytes(0, length);
  while (bus.simulation.events.run_one()) {
    const std::uint64_t before = done;
    while (done < length && memory[done] == std::byte{0xff}) {
      done += 4096;
    }
    ASSERT_LE(done - before, mib);
    // A register access gets in between any two events.
    ASSERT_EQ(driver.status(), done < length || driver.head() == 0 ? ORRERY_GPU_STATUS_BUSY : ORRERY_GPU_STATUS_IDLE);
  }
  EXPECT_EQ(done, length);

  driver.submit(copy({0, false}, {host_base, true}, length));
  bus.run();
  EXPECT_LE(driver.port.largest_transfer, mib);
  EXPECT_GE(driver.port.most_in_flight, 2U) << "chunks are pipelined";
  EXPECT_LE(driver.port.most_in_flight, 2 * models::GpuEngine::slot_count);
}

TEST(GpuEngine, CuttingUpAddsNoPieceToTheBus) {
  FakeBus bus;
  GpuDriver driver(bus);
  driver.enable();
  // 2 chunks and a bit from an unaligned address: pieces end at multiples of the chunk, so 3 transfers.
  ASSERT_TRUE(driver.execute(copy({0, false}, {host_base + 12345, true}, 2 * chunk)));
  EXPECT_EQ(driver.port.confirmed_writes, 3U);
  EXPECT_EQ(driver.port.counters().write_bytes_sent, 2 * chunk);
}

TEST(GpuEngine, TimedCostsFollowTheConfiguredRates) {
  FakeBus bus(true);
  models::GpuConfig config = small_gpu();
  config.timing.memory_bytes_per_us = 1'000'000;  // 1 byte/ps
  config.timing.reduce_bytes_per_us = 250'000;    // 4 ps/byte
  GpuDriver driver(bus, config);
  driver.enable();
  const auto cost = [&](orrery_gpu_command c) {
    c.flags |= ORRERY_GPU_FLAG_PROFILE;
    EXPECT_TRUE(driver.execute(c));
    return driver.port.read64(ORRERY_GPU_PROFILE_END) - driver.port.read64(ORRERY_GPU_PROFILE_START);
  };
  EXPECT_EQ(cost(fill({0, false}, mib, 1)), mib);                     // written once
  EXPECT_EQ(cost(copy({0, false}, {2 * mib, false}, mib)), 2 * mib);  // read and written
  EXPECT_EQ(cost(fence({0, false}, 1)), 8U);
  // The bus of this test costs nothing: a copy off the GPU costs the read of its memory.
  EXPECT_EQ(cost(copy({0, false}, {host_base, true}, mib)), mib);
  EXPECT_EQ(cost(copy({host_base, true}, {0, false}, mib)), mib);
  EXPECT_EQ(cost(copy({host_base, true}, {host_base + 4 * mib, true}, mib)), 0U);
  // Adding takes 4 ps a byte; what the adders wait for is the first chunk's operands (2 ps a byte).
  const std::uint64_t first = models::GpuEngine::timed_chunk;
  EXPECT_GE(cost(command(ORRERY_GPU_OP_REDUCE_F32_SUM, {0, false}, {2 * mib, false}, mib)), 4 * mib + 2 * first);
}

// The queue can't take events back: those of a command that was reset come while the next one runs.
TEST(GpuEngine, EventsFromBeforeAResetDoNotHurryTheNextCommand) {
  FakeBus bus(true);
  models::GpuConfig config = small_gpu();
  config.timing.memory_bytes_per_us = 1'000'000;
  config.timing.command_decode = Picoseconds{1000};
  GpuDriver driver(bus, config);
  for (int after = 3; after < 20; ++after) {
    driver.enable();
    driver.submit(fill({0, false}, 8 * mib, 1));
    for (int i = 0; i < after; ++i) {
      ASSERT_TRUE(bus.simulation.events.run_one());
    }
    driver.reset_engine();
    driver.enable();
    orrery_gpu_command c = fill({0, false}, mib, 2);
    c.flags |= ORRERY_GPU_FLAG_PROFILE;
    ASSERT_TRUE(driver.execute(c));
    ASSERT_EQ(driver.port.read64(ORRERY_GPU_PROFILE_END) - driver.port.read64(ORRERY_GPU_PROFILE_START), mib);
    driver.reset_engine();
  }
}

TEST(GpuEngine, RefusesRatesOfZero) {
  models::GpuConfig config = small_gpu();
  config.timing.memory_bytes_per_us = 0;
  EXPECT_THROW(models::GpuCore{config}, Error);
}

}  // namespace
}  // namespace orrery::test::gpu_engine_test
