#include "common/page_shadow.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "common/rng.h"

namespace orrery::page_shadow_test {
namespace {

struct Collected final : PageShadow::Listener {
  struct Run {
    unsigned file;
    std::uint64_t offset;
    std::vector<std::byte> bytes;
  };
  std::vector<Run> runs;
  void on_difference(unsigned file, std::uint64_t offset, std::span<const std::byte> bytes) override {
    runs.push_back({file, offset, {bytes.begin(), bytes.end()}});
  }
};

std::vector<std::byte> filled(std::size_t size, unsigned value) {
  return std::vector<std::byte>(size, std::byte(value));
}

TEST(PageShadow, FreshMemoryIsZero) {
  PageShadow shadow;
  Collected out;
  shadow.before_read(0, 0, filled(10'000, 0), out);
  EXPECT_TRUE(out.runs.empty());
  EXPECT_EQ(shadow.pages(), 3U);
}

TEST(PageShadow, ReportsADifferenceOnce) {
  PageShadow shadow;
  Collected out;
  const std::vector<std::byte> data = filled(100, 7);
  shadow.before_read(2, 4000, data, out);
  ASSERT_EQ(out.runs.size(), 2U);  // split at the page
  EXPECT_EQ(out.runs[0].file, 2U);
  EXPECT_EQ(out.runs[0].offset, 4000U);
  EXPECT_EQ(out.runs[0].bytes.size(), 96U);
  EXPECT_EQ(out.runs[1].offset, 4096U);
  EXPECT_EQ(out.runs[1].bytes.size(), 4U);
  shadow.before_read(2, 4000, data, out);
  EXPECT_EQ(out.runs.size(), 2U);
  shadow.before_read(3, 4000, data, out);  // another file
  EXPECT_EQ(out.runs.size(), 4U);
}

TEST(PageShadow, NearRunsJoinAndFarOnesDoNot) {
  PageShadow shadow;
  std::vector<std::byte> data = filled(1000, 0);
  data[10] = std::byte{1};
  data[10 + PageShadow::joined_gap] = std::byte{1};          // gap - 1 equal bytes between
  data[10 + 2 * PageShadow::joined_gap + 1] = std::byte{1};  // gap equal bytes between
  Collected out;
  shadow.before_read(0, 0, data, out);
  ASSERT_EQ(out.runs.size(), 2U);
  EXPECT_EQ(out.runs[0].offset, 10U);
  EXPECT_EQ(out.runs[0].bytes.size(), PageShadow::joined_gap + 1);
  EXPECT_EQ(out.runs[1].offset, 11 + 2 * PageShadow::joined_gap);
  EXPECT_EQ(out.runs[1].bytes.size(), 1U);
}

TEST(PageShadow, WhatADeviceWroteIsKnown) {
  PageShadow shadow;
  Collected out;
  shadow.after_write(0, 8190, filled(4, 9));
  shadow.before_read(0, 8190, filled(4, 9), out);
  EXPECT_TRUE(out.runs.empty());
  shadow.before_read(0, 8190, filled(4, 0), out);  // the guest has cleared it since
  EXPECT_EQ(out.runs.size(), 2U);
}

TEST(PageShadow, ForgetsAFile) {
  PageShadow shadow;
  Collected out;
  shadow.after_write(0, 0, filled(1, 1));
  shadow.after_write(1, 0, filled(1, 1));
  shadow.forget(0);
  EXPECT_EQ(shadow.pages(), 1U);
  shadow.before_read(1, 0, filled(1, 1), out);
  EXPECT_TRUE(out.runs.empty());
}

// Against a plain model: a replay that applies the differences reads what the device read.
TEST(PageShadow, AReplayReadsWhatTheDeviceRead) {
  constexpr std::size_t size = 3 * 4096;
  Rng rng(1, 0);
  std::vector<std::byte> guest(size);
  std::vector<std::byte> replay(size);
  PageShadow shadow;
  for (int step = 0; step < 2000; ++step) {
    const std::size_t at = rng.below(size);
    const std::size_t length = 1 + rng.below(static_cast<std::uint32_t>(std::min<std::size_t>(size - at, 700)));
    switch (rng.below(3)) {
      case 0:  // the guest writes
        for (std::size_t i = 0; i < length; ++i) {
          guest[at + i] = std::byte(rng.below(4));
        }
        break;
      case 1: {  // a device writes, in both worlds
        const std::vector<std::byte> data = filled(length, rng.below(4));
        std::copy(data.begin(), data.end(), guest.begin() + static_cast<std::ptrdiff_t>(at));
        std::copy(data.begin(), data.end(), replay.begin() + static_cast<std::ptrdiff_t>(at));
        shadow.after_write(0, at, data);
        break;
      }
      default: {  // a device reads
        Collected out;
        shadow.before_read(0, at, std::span(guest).subspan(at, length), out);
        for (const Collected::Run& run : out.runs) {
          std::copy(run.bytes.begin(), run.bytes.end(), replay.begin() + static_cast<std::ptrdiff_t>(run.offset));
        }
        ASSERT_TRUE(std::equal(guest.begin() + static_cast<std::ptrdiff_t>(at),
                               guest.begin() + static_cast<std::ptrdiff_t>(at + length),
                               replay.begin() + static_cast<std::ptrdiff_t>(at)))
            << "step " << step;
      }
    }
  }
}

}  // namespace
}  // namespace orrery::page_shadow_test
