// The memory type of translation entries: who decides it, and how long it holds.
#include <gtest/gtest.h>

#include <vector>

#include "systemc_models/rnic/verbs/translation.h"

namespace orrery::rnic::memory_type_test {
namespace {

constexpr std::uint64_t rights = translation::readable | translation::writable;

class MemoryTypeTest : public testing::Test {
 protected:
  // A GPU's memory at 4 GiB of the function's addresses, 1 MiB of it, which is elsewhere on the host.
  static constexpr pcie::PeerWindow gpu{0x1'0000'0000, 0x10'0000, 0x4'8000'0000};

  TranslationMemory memory{1U << 16};
  FunctionWindows windows;
  SegmentList segments;

  void show(std::uint32_t function, const std::vector<pcie::PeerWindow>& all) {
    windows.set_device_windows(function, all);
  }
  // An access over one entry.
  WalkStatus walk(std::uint64_t entry, std::uint64_t offset = 0, std::uint64_t length = 64, std::uint32_t shift = 12,
                  std::uint32_t function = 0) {
    memory.write(0, std::vector<std::uint64_t>{entry});
    segments.clear();
    return walk_pages(memory, windows, function, 0, 1, shift, offset, length, translation::writable, segments).status;
  }
};

TEST_F(MemoryTypeTest, FollowsFromWhereThePageIs) {
  show(0, {gpu});
  for (const std::uint64_t offset : {0ULL, 0x5000ULL, 0xf'f000ULL}) {
    const std::uint64_t entry = windows.typed(0, (gpu.iova + offset) | rights);
    EXPECT_NE(entry & translation::device_memory, 0U);
    ASSERT_EQ(walk(entry, 0x10, 0x20), WalkStatus::ok);
    ASSERT_EQ(segments.all().size(), 1U);
    EXPECT_EQ(segments.all()[0].address, gpu.hpa + offset + 0x10);
    EXPECT_EQ(segments.all()[0].at, pcie::AddressType::translated);
  }
  for (const std::uint64_t page : {gpu.iova - 0x1000, gpu.iova + gpu.size, std::uint64_t{0x5000}, gpu.hpa}) {
    const std::uint64_t entry = windows.typed(0, page | rights);
    EXPECT_EQ(entry, page | rights);
    ASSERT_EQ(walk(entry), WalkStatus::ok);
    EXPECT_EQ(segments.all()[0].address, page);
    EXPECT_EQ(segments.all()[0].at, pcie::AddressType::untranslated);
  }
}

TEST_F(MemoryTypeTest, ReadOnlyStaysReadOnly) {
  show(0, {gpu});
  EXPECT_EQ(walk(windows.typed(0, gpu.iova | translation::readable)), WalkStatus::denied);
}

// Whatever is in a driver's list, or a firmware's.
TEST_F(MemoryTypeTest, CannotBeForged) {
  const std::uint64_t forged = gpu.hpa | rights | translation::device_memory | 1ULL << translation::window_shift;
  EXPECT_EQ(walk(forged), WalkStatus::absent) << "no window at all";
  EXPECT_EQ(windows.typed(0, forged), gpu.hpa | rights) << "a host page like any other";
  show(0, {gpu});
  EXPECT_EQ(windows.typed(0, forged), gpu.hpa | rights);
  EXPECT_EQ(walk(gpu.hpa | rights | translation::device_memory), WalkStatus::absent) << "of no window";
  EXPECT_EQ(walk((gpu.hpa + gpu.size) | rights | translation::device_memory | 1ULL << translation::window_shift),
            WalkStatus::absent)
      << "beside it";
}

TEST_F(MemoryTypeTest, BelongsToOneFunction) {
  show(0, {gpu});
  const std::uint64_t entry = windows.typed(0, gpu.iova | rights);
  EXPECT_EQ(windows.typed(1, gpu.iova | rights), gpu.iova | rights);
  EXPECT_EQ(walk(entry, 0, 64, 12, 1), WalkStatus::absent);
  show(1, {{gpu.iova, gpu.size, 0x9'0000'0000}});
  EXPECT_EQ(walk(entry, 0, 64, 12, 1), WalkStatus::absent);
}

TEST_F(MemoryTypeTest, EndsWithItsWindow) {
  show(0, {gpu});
  const std::uint64_t entry = windows.typed(0, gpu.iova | rights);
  show(0, {{0x2'0000'0000, 0x1000, 0x5000}, gpu});
  EXPECT_EQ(walk(entry), WalkStatus::ok) << "others come and go";
  show(0, {});
  EXPECT_EQ(walk(entry), WalkStatus::absent);
  show(0, {gpu});
  EXPECT_EQ(walk(entry), WalkStatus::absent) << "the same place again, but it was away: who knows what it is now";
  EXPECT_EQ(walk(windows.typed(0, gpu.iova | rights)), WalkStatus::ok);
  show(0, {{gpu.iova, gpu.size, gpu.hpa + 0x1000}});
  EXPECT_EQ(walk(entry), WalkStatus::absent) << "moved";
}

// A page that is larger than the window, or than what it has left.
TEST_F(MemoryTypeTest, LeavesTheWindowNever) {
  show(0, {gpu});
  const std::uint64_t entry = windows.typed(0, gpu.iova | rights);
  EXPECT_EQ(walk(entry, gpu.size - 64, 64, 21), WalkStatus::ok);
  EXPECT_EQ(walk(entry, gpu.size - 63, 64, 21), WalkStatus::absent);
  EXPECT_EQ(walk(entry, gpu.size, 64, 21), WalkStatus::absent);
}

TEST_F(MemoryTypeTest, WindowsBeyondTheMostAreHostMemory) {
  std::vector<pcie::PeerWindow> all;
  for (std::uint64_t i = 0; i <= FunctionWindows::most_device_windows; ++i) {
    all.push_back({(i + 1) << 32, 0x1000, (i + 100) << 32});
  }
  show(0, all);
  const std::uint64_t last = all.size() << 32;
  EXPECT_NE(windows.typed(0, (last - (1ULL << 32)) | rights) & translation::device_memory, 0U);
  EXPECT_EQ(windows.typed(0, last | rights), last | rights);
}

}  // namespace
}  // namespace orrery::rnic::memory_type_test
