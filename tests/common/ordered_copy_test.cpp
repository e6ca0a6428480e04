#include "common/ordered_copy.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <thread>

#include <gtest/gtest.h>

namespace orrery::ordered_copy_test {
namespace {

TEST(OrderedCopy, CopiesEverySizeAtEveryAlignmentAndNothingElse) {
  std::array<std::byte, 256> from{};
  for (std::size_t i = 0; i < from.size(); ++i) {
    from[i] = static_cast<std::byte>(i * 7 + 1);
  }
  for (std::size_t shift = 0; shift < 16; ++shift) {
    for (std::size_t size = 0; size <= 130; ++size) {
      std::array<std::byte, 256> to{};
      copy_in_order(to.data() + shift + 1, from.data() + shift, size);
      EXPECT_TRUE(std::equal(to.begin() + static_cast<long>(shift) + 1,
                             to.begin() + static_cast<long>(shift + size) + 1,
                             from.begin() + static_cast<long>(shift)));
      EXPECT_EQ(to[shift], std::byte{});
      EXPECT_EQ(to[shift + size + 1], std::byte{});
    }
  }
}

// What a driver does with a completion queue: entries of 64 bytes, written several at once, the last word of each
// polled. An older word in front of a newer one would be a torn entry.
TEST(OrderedCopy, WhoPollsTheLastWordSeesTheRest) {
  constexpr std::size_t words = 16;  // of an entry
  constexpr std::size_t entries = 4;
  constexpr std::uint32_t rounds = 20'000;
  alignas(64) std::array<std::uint32_t, words * entries> shared{};
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    std::array<std::uint32_t, words * entries> block{};
    for (std::uint32_t round = 1; round <= rounds; ++round) {
      block.fill(round);
      copy_in_order(reinterpret_cast<std::byte*>(shared.data()), reinterpret_cast<const std::byte*>(block.data()),
                    sizeof(block));
    }
    stop = true;
  });
  const auto load = [&](std::size_t at) {
    return std::atomic_ref<std::uint32_t>(shared[at]).load(std::memory_order_acquire);
  };
  std::uint32_t torn = 0;
  do {
    for (std::size_t i = 0; i < entries; ++i) {
      const std::uint32_t last = load(i * words + words - 1);
      const std::uint32_t first = load(i * words);
      torn += first < last ? 1 : 0;
    }
  } while (!stop);
  writer.join();
  EXPECT_EQ(torn, 0U);
  EXPECT_EQ(shared[0], rounds);
}

}  // namespace
}  // namespace orrery::ordered_copy_test
