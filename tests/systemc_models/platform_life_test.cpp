// A guest's comings and goings on a platform: disconnection, resets, peers that move, memory that fails. One process a
// TEST.
#include "systemc_models/server/platform.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/systemc_models/guest_rig.h"

namespace orrery::models::platform_life_test {
namespace {

using pcie::MapResult;
using testing::Function;
using testing::Gpu;
using testing::memory_at;
using testing::noise;
using testing::Ram;
using testing::registers_at;
using testing::run;
using testing::Sink;
using testing::small_server;

constexpr std::uint64_t mib = 1U << 20;
constexpr std::uint64_t bar2_bytes = 8 * mib;

class GuestLifeModes : public ::testing::TestWithParam<TimeMode> {};
INSTANTIATE_TEST_SUITE_P(Modes, GuestLifeModes, ::testing::Values(TimeMode::functional, TimeMode::timed),
                         [](const auto& instance) {
                           return instance.param == TimeMode::timed ? "Timed" : "Functional";
                         });

TEST_P(GuestLifeModes, DisconnectLeavesNothing) {
  Platform platform(small_server(GetParam()));
  const Ram ram(16 * mib);
  Gpu gpu(platform, "gpu3");
  gpu.place(registers_at(0), memory_at(0));
  ASSERT_EQ(gpu.map(ram, 0, 0, 16 * mib), MapResult::ok);
  gpu.start_ring(ram, 0);
  Sink sink;
  gpu.access.set_interrupt_sink(&sink);
  gpu.write(0x5000, 0x4242'4242U, 2);
  auto command = Gpu::copy(0, false, mib, true, 8 * mib);
  command.flags |= ORRERY_GPU_FLAG_INTERRUPT;
  gpu.submit(command);
  if (GetParam() == TimeMode::timed) {
    platform.advance(platform.now() + Picoseconds{5'000'000}, 0);  // in the middle of it
  }
  gpu.access.disconnect();
  run(platform);
  EXPECT_EQ(platform.dram().mapped_bytes(), 0U);
  const pcie::DomainId domain = platform.iommu().domain_of(platform.topology().find("gpu3")->bdf);
  EXPECT_EQ(platform.iommu().table(domain).mapped_bytes(), 0U);
  EXPECT_LE(platform.iommu().table(domain).table_pages(), 1U);
  EXPECT_TRUE(sink.vectors.empty());
  EXPECT_EQ(gpu.read(ORRERY_GPU_ID), 0xffff'ffffU);
  EXPECT_EQ(gpu.config(0x10), 0U);
  EXPECT_EQ(gpu.config(0x4, 2), 0U);
  EXPECT_FALSE(gpu.placement(0).placed);
  // The next guest finds it as new.
  gpu.place(registers_at(2), memory_at(2));
  EXPECT_EQ(gpu.read(ORRERY_GPU_ENGINE_STATUS), ORRERY_GPU_STATUS_DISABLED);
  EXPECT_EQ(gpu.read(0x5000, 2), 0U) << "memory is erased between guests";
  EXPECT_EQ(gpu.read(ORRERY_GPU_RING_LOG2), 0U);
}

TEST_P(GuestLifeModes, ResetKeepsMappingsAndPlaces) {
  Platform platform(small_server(GetParam()));
  const Ram ram(4 * mib);
  Gpu gpu(platform, "gpu3");
  gpu.place(registers_at(0), memory_at(0));
  ASSERT_EQ(gpu.map(ram, 0, 0, 4 * mib), MapResult::ok);
  gpu.start_ring(ram, 0);
  gpu.write(ORRERY_GPU_SCRATCH, 5U);
  gpu.access.reset();
  EXPECT_EQ(gpu.read(ORRERY_GPU_SCRATCH), 0U);
  EXPECT_EQ(gpu.config(0x10), registers_at(0));
  EXPECT_EQ(platform.dram().mapped_bytes(), 4 * mib);
  gpu.set_config(0x4, 6, 2);
  gpu.start_ring(ram, 0);
  gpu.do_copy(0, false, mib, true, 4096);
  // The guest's own function level reset clears the BARs of the function; the VMM's stay.
  const std::uint32_t express = [&] {
    std::uint32_t at = gpu.config(0x34, 1);
    while (gpu.config(at, 1) != 0x10) {
      at = gpu.config(at + 1, 1);
    }
    return at;
  }();
  gpu.set_config(express + 8, 0x8000, 2);
  gpu.set_config(0x4, 6, 2);
  EXPECT_EQ(gpu.read(ORRERY_GPU_ID), ORRERY_GPU_ID_VALUE);
  EXPECT_EQ(gpu.read(ORRERY_GPU_ENGINE_STATUS), ORRERY_GPU_STATUS_DISABLED);
}

// A mapping of a peer's BAR lives and dies with the BAR, and never shows another guest's.
TEST(PlatformPeers, MappingsFollowTheBar) {
  Platform platform(small_server());
  const Ram ram(4 * mib);
  Gpu a(platform, "gpu0");
  Gpu b(platform, "gpu1");
  Gpu c(platform, "gpu2");
  platform.assign(a.index, "x");
  platform.assign(b.index, "x");
  platform.assign(c.index, "y");
  a.place(registers_at(0), memory_at(0));
  b.place(registers_at(1), memory_at(1));
  ASSERT_EQ(a.map(ram, 0, 0, 4 * mib), MapResult::ok);
  const auto map_peer = [&](std::uint64_t iova, std::uint64_t size) {
    return a.access.dma_map(Iova{iova}, size, {true, true}, std::nullopt, nullptr);
  };
  EXPECT_EQ(map_peer(memory_at(1) + bar2_bytes - 4096, 8192), MapResult::no_peer) << "over its end";
  EXPECT_EQ(map_peer(memory_at(2), 4096), MapResult::no_peer) << "nobody there";
  ASSERT_EQ(map_peer(memory_at(1), bar2_bytes), MapResult::ok);
  a.start_ring(ram, 0);
  const auto attempt = [&] {
    a.submit(Gpu::copy(0x100, false, memory_at(1) + 0x100, true, 64));
    run(platform);
    const bool ok = a.read(ORRERY_GPU_ENGINE_STATUS) == ORRERY_GPU_STATUS_IDLE;
    if (!ok) {
      EXPECT_EQ(a.read(ORRERY_GPU_ERROR_CODE), ORRERY_GPU_ERROR_DMA_WRITE);
      a.write(ORRERY_GPU_ENGINE_CONTROL, ORRERY_GPU_CONTROL_RESET);
      a.start_ring(ram, 0);
    }
    return ok;
  };
  a.write(0x100, 0x11U, 2);
  EXPECT_TRUE(attempt());
  EXPECT_EQ(b.read(0x100, 2), 0x11U);
  // Decode off and on: gone and back.
  b.set_config(0x4, 0, 2);
  EXPECT_FALSE(attempt());
  b.set_config(0x4, 6, 2);
  EXPECT_TRUE(attempt());
  // The peer leaves; another guest's BAR takes its very place.
  b.access.disconnect();
  c.place(registers_at(1), memory_at(1));
  EXPECT_EQ(c.placement(2).hpa.value, memory_at(1));
  EXPECT_FALSE(attempt());
  EXPECT_EQ(c.read(0x100, 2), 0U) << "not a byte for the other guest";
  // Back again at the guest's address, which the host has given away.
  b.place(registers_at(1), memory_at(1));
  EXPECT_NE(b.placement(2).hpa.value, memory_at(1));
  EXPECT_TRUE(attempt());
  EXPECT_EQ(b.read(0x100, 2), 0x11U);
  EXPECT_EQ(c.read(0x100, 2), 0U);
  // Handed over to another guest while it is mapped.
  platform.assign(b.index, "y");
  EXPECT_FALSE(attempt());
  EXPECT_EQ(a.access.dma_unmap(Iova{memory_at(1)}, bar2_bytes), MapResult::ok);
}

// Memory that comes without a descriptor and is nobody's BAR: messages, also of a mapping that is cut.
struct Messages final : pcie::MessageMemory {
  explicit Messages(std::size_t size) : bytes(size) {}
  void read(Iova address, std::span<std::byte> into, Done done, void* context) override {
    calls.push_back({address.value, into, {}, done, context});
  }
  void write(Iova address, std::span<const std::byte> from, Done done, void* context) override {
    calls.push_back({address.value, {}, {from.begin(), from.end()}, done, context});
  }
  void answer_all(Platform& platform, bool ok) {
    while (!calls.empty()) {
      std::vector<Call> now = std::move(calls);
      calls.clear();
      for (const Call& call : now) {
        platform.settle();
        if (ok && !call.into.empty()) {
          std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(call.address - base), call.into.size(),
                      call.into.begin());
        } else if (ok) {
          std::copy(call.from.begin(), call.from.end(),
                    bytes.begin() + static_cast<std::ptrdiff_t>(call.address - base));
        }
        call.done(call.context, ok);
        platform.settle();
      }
      while (platform.next_activity() != Picoseconds::max()) {
        platform.advance(platform.next_activity(), 0);
      }
    }
  }
  struct Call {
    std::uint64_t address;
    std::span<std::byte> into;
    std::vector<std::byte> from;
    Done done;
    void* context;
  };
  static constexpr std::uint64_t base = 0x4000'0000;
  std::vector<std::byte> bytes;
  std::vector<Call> calls;
};

void run_until_messages(Platform& platform) {
  platform.settle();
  while (platform.next_activity() != Picoseconds::max()) {
    platform.advance(platform.next_activity(), 0);
  }
}

TEST_P(GuestLifeModes, MemoryBehindMessages) {
  Platform platform(small_server(GetParam()));
  const Ram ram(4 * mib);
  Messages messages(mib);
  messages.bytes = noise(mib, 5);
  Gpu gpu(platform, "gpu6");
  gpu.place(registers_at(0), memory_at(0));
  ASSERT_EQ(gpu.map(ram, 0, 0, 4 * mib), MapResult::ok);
  ASSERT_EQ(gpu.access.dma_map(Iova{Messages::base}, mib, {true, true}, std::nullopt, &messages), MapResult::ok);
  gpu.start_ring(ram, 0);
  gpu.submit(Gpu::copy(Messages::base + 0x123, true, 0, false, 100'000));
  run_until_messages(platform);
  EXPECT_EQ(gpu.read(ORRERY_GPU_ENGINE_STATUS), ORRERY_GPU_STATUS_BUSY);
  EXPECT_EQ(gpu.read(ORRERY_GPU_ID), ORRERY_GPU_ID_VALUE) << "registers are served while messages are out";
  messages.answer_all(platform, true);
  EXPECT_EQ(gpu.read(ORRERY_GPU_RING_HEAD), 1U);
  std::vector<std::byte> got(100'000);
  gpu.access.bar_read(2, 0, got);
  EXPECT_TRUE(std::equal(got.begin(), got.end(), messages.bytes.begin() + 0x123));
  ASSERT_EQ(gpu.access.dma_unmap(Iova{Messages::base + 4096}, 4096), MapResult::ok);
  gpu.submit(Gpu::copy(0, false, Messages::base + 8192, true, 5000));
  run_until_messages(platform);
  messages.answer_all(platform, true);
  EXPECT_TRUE(std::equal(got.begin(), got.begin() + 5000, messages.bytes.begin() + 8192));
  // A message that fails is a failed read.
  gpu.submit(Gpu::copy(Messages::base, true, 0, false, 64));
  run_until_messages(platform);
  messages.answer_all(platform, false);
  EXPECT_EQ(gpu.read(ORRERY_GPU_ERROR_CODE), ORRERY_GPU_ERROR_DMA_READ);
  EXPECT_EQ(gpu.read(ORRERY_GPU_ERROR_COMPLETION), 4U);
  gpu.access.disconnect();
  run(platform);
  EXPECT_EQ(platform.dram().mapped_bytes(), 0U);
}

// Guest RAM whose file its owner cuts while devices use it.
TEST(PlatformLife, ATruncatedFileIsNoCrash) {
  Platform platform(small_server());
  const Ram ram(4 * mib);
  Gpu gpu(platform, "gpu0");
  gpu.place(registers_at(0), memory_at(0));
  ASSERT_EQ(gpu.map(ram, 0, 0, 4 * mib), MapResult::ok);
  gpu.start_ring(ram, 0);
  std::vector<std::byte> bytes = noise(4096, 1);
  gpu.access.bar_write(2, 0, bytes);
  ASSERT_EQ(ftruncate(ram.fd(), mib), 0);
  gpu.do_copy(2 * mib, true, 0, false, 4096);
  gpu.access.bar_read(2, 0, bytes);
  EXPECT_EQ(bytes, std::vector<std::byte>(4096));
  EXPECT_EQ(platform.dram().truncated().size(), 1U);
  gpu.do_copy(0, false, 3 * mib, true, 64);
}

}  // namespace
}  // namespace orrery::models::platform_life_test
