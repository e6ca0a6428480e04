// Timed mode and other shapes of the platform. SystemC elaborates once in a process: runs that are compared with
// each other are made in children.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "pcie/tlp_trace.h"
#include "systemc_models/device_identity.h"
#include "systemc_models/rnic/rnic_registers.h"
#include "tests/systemc_models/guest_rig.h"

namespace orrery::models::platform_timed_test {
namespace {

using pcie::MapResult;
using testing::Function;
using testing::Gpu;
using testing::memory_at;
using testing::noise;
using testing::Ram;
using testing::registers_at;
using testing::run;
using testing::small_server;

constexpr std::uint64_t mib = 1U << 20;
constexpr std::uint64_t bar2_bytes = 8 * mib;

// Runs `work` in a child process and returns the values that it computed.
using Values = std::array<std::uint64_t, 4>;
Values in_child(const std::function<Values()>& work) {
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe(ends.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    const Values values = work();
    const bool ok = !::testing::Test::HasFailure() && write(ends[1], values.data(), sizeof(values)) == sizeof(values);
    _exit(ok ? 0 : 1);
  }
  close(ends[1]);
  Values values{};
  EXPECT_EQ(read(ends[0], values.data(), sizeof(values)), static_cast<ssize_t>(sizeof(values)));
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return values;
}

// A busy quarter of a millisecond: eight GPUs copy to each other and to host memory, two RNICs test DMA, the CPU
// reads registers in between. Hash of all TLPs, their number, the time at the end, bytes in the guest's RAM.
Values scenario(std::uint64_t seed, std::uint64_t step_ps) {
  ServerConfig config = small_server(TimeMode::timed);
  Platform platform(config);
  pcie::TlpTrace trace(platform.simulation());
  platform.simulation().observer = &trace;
  const Ram ram(32 * mib);
  std::vector<Gpu> gpus;
  for (unsigned i = 0; i < 8; ++i) {
    gpus.emplace_back(platform, "gpu" + std::to_string(i));
    gpus[i].place(registers_at(i), memory_at(i));
  }
  std::vector<Function> rnics;
  for (unsigned i = 0; i < 2; ++i) {
    rnics.emplace_back(platform, "rnic" + std::to_string(i));
    rnics[i].place(registers_at(10 + i));
    EXPECT_EQ(rnics[i].map(ram, 0, 0, 32 * mib), MapResult::ok);
  }
  for (unsigned i = 0; i < 8; ++i) {
    EXPECT_EQ(gpus[i].map(ram, 0, 0, 32 * mib), MapResult::ok);
    const unsigned peer = (i + 1) % 8;
    EXPECT_EQ(gpus[i].access.dma_map(Iova{memory_at(peer)}, bar2_bytes, {true, true}, std::nullopt, nullptr),
              MapResult::ok);
    gpus[i].start_ring(ram, i * 0x1000);
  }
  const auto bytes = noise(mib, seed);
  ram.put(mib, bytes);
  for (unsigned i = 0; i < 8; ++i) {
    gpus[i].submit(Gpu::copy(mib + i * 999, true, 0x100, false, 200'000));
    gpus[i].submit(Gpu::copy(0x100, false, memory_at((i + 1) % 8) + 0x10'0000, true, 200'000));
    gpus[i].submit(Gpu::copy(0x100, false, 16 * mib + i * mib, true, 200'000));
  }
  for (Function& rnic : rnics) {
    rnic.write<std::uint64_t>(ORRERY_RNIC_TEST_ADDRESS, 30 * mib + (&rnic == rnics.data() ? 0 : mib));
    rnic.write<std::uint64_t>(ORRERY_RNIC_TEST_LENGTH, 100'000);
    rnic.write<std::uint64_t>(ORRERY_RNIC_TEST_SEED, seed);
    rnic.write(ORRERY_RNIC_TEST_OPERATION, ORRERY_RNIC_OP_WRITE);
    rnic.write(ORRERY_RNIC_TEST_CONTROL, ORRERY_RNIC_TEST_START);
  }
  for (int i = 0; i < 20; ++i) {
    platform.advance(platform.now() + Picoseconds{step_ps}, 0);
    EXPECT_EQ(gpus[static_cast<unsigned>(i % 8)].read(ORRERY_GPU_ID), ORRERY_GPU_ID_VALUE);
  }
  run(platform);
  for (unsigned i = 0; i < 8; ++i) {
    EXPECT_EQ(gpus[i].read(ORRERY_GPU_RING_HEAD), 3U);
    const auto out = ram.at(16 * mib + i * mib, 200'000);
    EXPECT_TRUE(std::equal(out.begin(), out.end(), bytes.begin() + i * 999));
  }
  for (Function& rnic : rnics) {
    EXPECT_EQ(rnic.read(ORRERY_RNIC_TEST_STATUS), ORRERY_RNIC_STATUS_PASSED);
  }
  std::uint64_t sum = 0;
  for (const std::byte b : ram.at(0, 32 * mib)) {
    sum = sum * 31 + static_cast<std::uint64_t>(b);
  }
  const Values values = {trace.hash(), trace.count(), platform.now().count, sum};
  platform.simulation().observer = nullptr;
  return values;
}

TEST(PlatformTimed, TwoRunsHaveTheSameTrace) {
  const Values first = in_child([] { return scenario(1, 1'000'000); });
  const Values again = in_child([] { return scenario(1, 1'000'000); });
  EXPECT_EQ(first, again);
  EXPECT_GT(first[1], 50'000U);
  const Values other_data = in_child([] { return scenario(2, 1'000'000); });
  EXPECT_NE(first[0], other_data[0]) << "the hash covers payload";
  EXPECT_EQ(first[1], other_data[1]);
  EXPECT_EQ(first[2], other_data[2]) << "time does not depend on data";
  const Values other_times = in_child([] { return scenario(1, 1'700'000); });
  EXPECT_NE(first[0], other_times[0]) << "the hash covers time";
  EXPECT_EQ(first[3], other_times[3]);
}

struct FirstTlp final : pcie::TlpObserver {
  void on_link(pcie::ComponentId /*link*/, const pcie::Tlp& tlp, Picoseconds start, Picoseconds /*end*/) override {
    if (!seen) {
      seen = true;
      at = start;
      created = tlp.created;
    }
  }
  bool seen = false;
  Picoseconds at;
  Picoseconds created;
};

// What comes from outside happens at the kernel's time, though nothing has happened inside for long.
TEST(PlatformTimed, StimuliHappenNow) {
  Platform platform(small_server(TimeMode::timed));
  Gpu gpu(platform, "gpu0");
  gpu.place(registers_at(0), memory_at(0));
  run(platform);
  const Picoseconds later = platform.now() + Picoseconds{7'000'000'000};
  platform.advance(later, 0);
  EXPECT_EQ(platform.now(), later);
  FirstTlp first;
  platform.simulation().observer = &first;
  gpu.write(ORRERY_GPU_SCRATCH, 1U);
  run(platform);
  ASSERT_TRUE(first.seen);
  EXPECT_EQ(first.created, later);
  EXPECT_EQ(first.at, later + platform.config().root_complex.latency);
  platform.advance(platform.now() + Picoseconds{1'000'000'000}, 0);
  first.seen = false;
  const Picoseconds before = platform.now();
  EXPECT_EQ(gpu.read(ORRERY_GPU_SCRATCH), 1U);
  EXPECT_EQ(first.created, before);
  EXPECT_GT(platform.now(), before + Picoseconds{500'000});
  EXPECT_LT(platform.now(), before + Picoseconds{2'000'000});
  EXPECT_EQ(gpu.read<std::uint64_t>(ORRERY_GPU_TIME) > before.count, true);
  platform.simulation().observer = nullptr;
}

struct LateMessages final : pcie::MessageMemory {
  void read(Iova /*address*/, std::span<std::byte> /*into*/, Done done, void* context) override {
    calls.emplace_back(done, context);
  }
  void write(Iova /*address*/, std::span<const std::byte> /*from*/, Done done, void* context) override {
    calls.emplace_back(done, context);
  }
  std::vector<std::pair<Done, void*>> calls;
};

TEST(PlatformTimed, AnswersToMessagesHappenNow) {
  Platform platform(small_server(TimeMode::timed));
  const Ram ram(4 * mib);
  LateMessages messages;
  Gpu gpu(platform, "gpu0");
  gpu.place(registers_at(0), memory_at(0));
  ASSERT_EQ(gpu.map(ram, 0, 0, 4 * mib), MapResult::ok);
  ASSERT_EQ(gpu.access.dma_map(Iova{0x4000'0000}, mib, {true, true}, std::nullopt, &messages), MapResult::ok);
  gpu.start_ring(ram, 0);
  gpu.submit(Gpu::copy(0x4000'0000, true, 0, false, 64));
  platform.advance(platform.now() + Picoseconds{100'000'000}, 0);
  ASSERT_EQ(messages.calls.size(), 1U);
  const Picoseconds later = platform.now() + Picoseconds{3'000'000'000};
  platform.advance(later, 0);
  FirstTlp first;
  platform.simulation().observer = &first;
  messages.calls[0].first(messages.calls[0].second, true);
  run(platform);
  ASSERT_TRUE(first.seen);
  EXPECT_EQ(first.at, later + platform.config().root_complex.latency);
  EXPECT_EQ(gpu.read(ORRERY_GPU_RING_HEAD), 1U);
  platform.simulation().observer = nullptr;
}

// A write to GPU memory that goes on while the CPU reads from it: posted bytes arrive in order.
TEST(PlatformTimed, ABudgetStopsEarlyAndLosesNothing) {
  Platform platform(small_server(TimeMode::timed));
  const Ram ram(4 * mib);
  Gpu gpu(platform, "gpu0");
  gpu.place(registers_at(0), memory_at(0));
  ASSERT_EQ(gpu.map(ram, 0, 0, 4 * mib), MapResult::ok);
  gpu.start_ring(ram, 0);
  const auto bytes = noise(mib, 1);
  ram.put(mib, bytes);
  gpu.submit(Gpu::copy(mib, true, 0, false, mib));
  unsigned stops = 0;
  const Picoseconds end = platform.now() + Picoseconds{1'000'000'000};
  while (platform.next_activity() != Picoseconds::max() && stops < 10'000'000) {
    const std::uint64_t before = platform.simulation().events.dispatched();
    platform.advance(end, 100);
    EXPECT_LE(platform.simulation().events.dispatched() - before, 100U);
    ++stops;
  }
  EXPECT_GT(stops, 50U);
  std::vector<std::byte> back(mib);
  gpu.access.bar_read(2, 0, back);
  EXPECT_EQ(back, bytes);
}

// ---- Shapes ---------------------------------------------------------------------------------------------------

struct Shape {
  const char* name;
  unsigned sockets;
  unsigned switches;
  unsigned rnics_per_switch;
  unsigned gpus_per_switch;
  unsigned rnics;  // without switches
  unsigned gpus;
  std::size_t functions;
};
void PrintTo(const Shape& shape, std::ostream* out) {
  *out << shape.name;
}

class Shapes : public ::testing::TestWithParam<std::tuple<Shape, TimeMode>> {};
INSTANTIATE_TEST_SUITE_P(All, Shapes,
                         ::testing::Combine(::testing::Values(Shape{"OneSwitch", 1, 1, 1, 2, 0, 0, 3},
                                                              Shape{"EightSwitches", 2, 8, 1, 2, 0, 0, 24},
                                                              Shape{"TwoRnicsASwitch", 2, 4, 2, 2, 0, 0, 16},
                                                              Shape{"RootPortsOnly", 2, 0, 0, 0, 4, 8, 12},
                                                              Shape{"OneGpu", 1, 0, 0, 0, 0, 1, 1}),
                                            ::testing::Values(TimeMode::functional, TimeMode::timed)),
                         [](const auto& instance) {
                           return std::string(std::get<0>(instance.param).name) +
                                  (std::get<1>(instance.param) == TimeMode::timed ? "Timed" : "Functional");
                         });

TEST_P(Shapes, ComeUpAndMoveData) {
  const auto& [shape, mode] = GetParam();
  ServerConfig config = small_server(mode);
  config.topology.sockets = shape.sockets;
  config.topology.switches = shape.switches;
  config.topology.rnics_per_switch = shape.rnics_per_switch;
  config.topology.gpus_per_switch = shape.gpus_per_switch;
  config.topology.rnics = shape.rnics;
  config.topology.gpus = shape.gpus;
  Platform platform(config);
  ASSERT_EQ(platform.functions(), shape.functions);
  const Ram ram(8 * mib);
  std::vector<Gpu> gpus;
  unsigned n = 0;
  for (const Topology::Endpoint& endpoint : platform.topology().endpoints) {
    Function f(platform, endpoint.name);
    EXPECT_EQ(f.config(0, 2), ORRERY_PCI_VENDOR);
    ++n;
    if (endpoint.kind == EndpointKind::gpu) {
      gpus.emplace_back(platform, endpoint.name);
      gpus.back().place(registers_at(n), memory_at(n));
      EXPECT_EQ(gpus.back().read(ORRERY_GPU_INDEX), endpoint.ordinal);
    } else {
      f.place(registers_at(n));
      EXPECT_EQ(f.read(ORRERY_RNIC_INDEX), endpoint.ordinal);
      ASSERT_EQ(f.map(ram, 0, 0, 8 * mib), MapResult::ok);
      f.write<std::uint64_t>(ORRERY_RNIC_TEST_ADDRESS, 4 * mib + 5);
      f.write<std::uint64_t>(ORRERY_RNIC_TEST_LENGTH, 50'000);
      for (const std::uint32_t operation : {ORRERY_RNIC_OP_WRITE, ORRERY_RNIC_OP_COMPARE}) {
        f.write(ORRERY_RNIC_TEST_OPERATION, operation);
        f.write(ORRERY_RNIC_TEST_CONTROL, ORRERY_RNIC_TEST_START);
        run(platform);
        EXPECT_EQ(f.read(ORRERY_RNIC_TEST_STATUS), ORRERY_RNIC_STATUS_PASSED);
      }
    }
  }
  // Once around all GPUs, back to host memory.
  const auto bytes = noise(100'000, 8);
  ram.put(mib, bytes);
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    Gpu& gpu = gpus[i];
    ASSERT_EQ(gpu.map(ram, 0, 0, 8 * mib), MapResult::ok);
    gpu.start_ring(ram, i * 0x1000);
    if (i == 0) {
      gpu.do_copy(mib, true, 0x500, false, bytes.size());
    }
    if (i + 1 < gpus.size()) {
      const std::uint64_t next = gpus[i + 1].placement(2).gpa.value;
      ASSERT_EQ(gpu.access.dma_map(Iova{next}, bar2_bytes, {true, true}, std::nullopt, nullptr), MapResult::ok);
      gpu.do_copy(0x500, false, next + 0x500, true, bytes.size());
    }
  }
  gpus.back().do_copy(0x500, false, 2 * mib, true, bytes.size());
  const auto out = ram.at(2 * mib, bytes.size());
  EXPECT_TRUE(std::equal(out.begin(), out.end(), bytes.begin()));
  EXPECT_EQ(platform.iommu().fault_total(), 0U);
  for (std::size_t i = 0; i < platform.functions(); ++i) {
    platform.function(i).disconnect();
  }
  run(platform);
  EXPECT_EQ(platform.dram().mapped_bytes(), 0U);
}

// ---- Latencies by hand --------------------------------------------------------------------------------------

// A second switch and the root complex on a posted write's way: +346 ns (configuration reference), of which the
// parts are known: switch 115, root complex 150, two flights of 40, and two more times on a wire.
TEST(PlatformTimed, TheWayOverTheRootComplexCostsItsParts) {
  ServerConfig config = small_server(TimeMode::timed);
  config.switches.acs = 0;
  config.topology.sockets = 1;
  Platform platform(config);
  const Ram ram(4 * mib);
  std::vector<Gpu> gpus;
  for (unsigned i = 0; i < 3; ++i) {
    gpus.emplace_back(platform, "gpu" + std::to_string(i));
    gpus[i].place(registers_at(i), memory_at(i));
  }
  ASSERT_EQ(gpus[0].map(ram, 0, 0, 4 * mib), MapResult::ok);
  for (unsigned peer = 1; peer < 3; ++peer) {
    ASSERT_EQ(gpus[0].access.dma_map(Iova{memory_at(peer)}, bar2_bytes, {true, true}, std::nullopt, nullptr),
              MapResult::ok);
  }
  gpus[0].start_ring(ram, 0);
  struct Arrivals final : pcie::TlpObserver {
    void on_link(pcie::ComponentId id, const pcie::Tlp& tlp, Picoseconds start, Picoseconds end) override {
      if (tlp.type == pcie::TlpType::MWr && tlp.requester == sender && tlp.length == 64) {
        first = first == Picoseconds::max() ? start : first;
        last = end;
        static_cast<void>(id);
      }
    }
    pcie::Bdf sender;
    Picoseconds first = Picoseconds::max();
    Picoseconds last;
  } arrivals;
  arrivals.sender = platform.topology().find("gpu0")->bdf;
  platform.simulation().observer = &arrivals;
  std::array<Picoseconds, 2> one_way{};
  for (unsigned peer = 1; peer < 3; ++peer) {
    arrivals.first = Picoseconds::max();
    gpus[0].do_copy(0, false, memory_at(peer), true, 64);
    one_way[peer - 1] = arrivals.last - arrivals.first;
  }
  platform.simulation().observer = nullptr;
  const pcie::ByteTime t = pcie::byte_time(5, 16);
  const std::uint64_t wire = (88 * t.numerator + t.denominator - 1) / t.denominator;  // 64 bytes, 64-bit address
  EXPECT_EQ(one_way[0].count, 2 * wire + 2 * 40'000 + 115'000);
  EXPECT_EQ(one_way[1].count - one_way[0].count, 2 * wire + 2 * 40'000 + 115'000 + 150'000);
}

}  // namespace
}  // namespace orrery::models::platform_timed_test
