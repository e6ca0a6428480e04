// Ring AllReduce of n GPUs over a bus, driven by fences: the job that the guest's program does on a platform.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "tests/systemc_models/gpu/gpu_driver.h"

namespace orrery::test::gpu_allreduce_test {
namespace {

constexpr std::uint64_t fence_page = 0x8'0000'0000;
std::uint64_t bar_of(unsigned gpu) {
  return 0x40'0000'0000 + gpu * 0x1000'0000ULL;
}

class AllReduce : public ::testing::TestWithParam<unsigned> {};

TEST_P(AllReduce, SumsAndMovesTheBytesThatTheRingNeeds) {
  const unsigned n = GetParam();
  const std::uint64_t part = 64 * 1024 + 4 * 37;  // no multiple of a page, so that every edge is crossed
  const std::uint64_t size = part * n;            // S
  const std::uint64_t inbox = 8 * mib;            // where the left neighbour's part arrives
  FakeBus bus;
  bus.max_delay = 1000;
  std::vector<std::unique_ptr<GpuDriver>> gpus;
  std::vector<std::vector<float>> data(n, std::vector<float>(size / 4));
  std::vector<float> expected(size / 4, 0.0F);
  for (unsigned g = 0; g < n; ++g) {
    gpus.push_back(std::make_unique<GpuDriver>(bus, small_gpu(g)));
    gpus[g]->enable();
    bus.map_bar(bar_of(g), 16 * mib, gpus[g]->port, 2);
    for (std::size_t i = 0; i < data[g].size(); ++i) {
      data[g][i] = static_cast<float>(static_cast<int>(bus.random() % 2001) - 1000) / 8.0F;
      expected[i] += data[g][i];  // exact: small multiples of 1/8
    }
    const auto bytes = std::as_bytes(std::span(data[g]));
    gpus[g]->write_memory(0, {bytes.begin(), bytes.end()});
  }

  std::uint64_t fences = 0;
  // One step of the ring: every GPU sends part (g - step) to its right neighbour, then fences.
  const auto step = [&](unsigned index, bool reduce) {
    ++fences;
    for (unsigned g = 0; g < n; ++g) {
      const unsigned right = (g + 1) % n;
      const unsigned sent = (g + (reduce ? 0 : 1) + 2 * n - index) % n;
      const std::uint64_t into = reduce ? inbox : sent * part;
      gpus[g]->push(copy({sent * part, false}, {bar_of(right) + into, true}, part));
      gpus[g]->push(with_interrupt(fence({fence_page + g * 64, true}, fences), 1));
      gpus[g]->ring();
    }
    bus.run();
    for (unsigned g = 0; g < n; ++g) {
      std::uint64_t value = 0;
      bus.read(fence_page + g * 64, &value, 8);
      ASSERT_EQ(value, fences);
    }
    if (!reduce) {
      return;
    }
    for (unsigned g = 0; g < n; ++g) {
      const unsigned received = (g + 2 * n - 1 - index) % n;
      ASSERT_TRUE(
          gpus[g]->execute(command(ORRERY_GPU_OP_REDUCE_F32_SUM, {inbox, false}, {received * part, false}, part)));
    }
  };
  for (unsigned i = 0; i + 1 < n; ++i) {
    step(i, true);
  }
  for (unsigned i = 0; i + 1 < n; ++i) {
    step(i, false);
  }

  for (unsigned g = 0; g < n; ++g) {
    std::vector<float> result(size / 4);
    std::memcpy(result.data(), gpus[g]->memory(0, size).data(), size);
    ASSERT_EQ(result, expected) << "gpu " << g;
    const std::uint64_t moved = 2 * (n - 1) * (size / n);
    EXPECT_EQ(gpus[g]->port.read64(ORRERY_GPU_WRITE_BYTES_SENT), moved + fences * (8 + 4)) << "fence 8, MSI-X 4";
    EXPECT_EQ(gpus[g]->port.read64(ORRERY_GPU_WRITE_BYTES_RECEIVED), moved);
    EXPECT_EQ(gpus[g]->port.interrupts.size(), fences);
    EXPECT_EQ(gpus[g]->port.in_flight(), 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, AllReduce, ::testing::Values(2, 3, 8));

}  // namespace
}  // namespace orrery::test::gpu_allreduce_test
