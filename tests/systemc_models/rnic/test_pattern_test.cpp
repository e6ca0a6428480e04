#include "systemc_models/rnic/test_pattern.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace orrery::models::test_pattern_test {
namespace {

// First outputs of SplitMix64 seeded with 1234567, as published with the generator's reference code.
TEST(TestPattern, IsSplitMix64) {
  EXPECT_EQ(test_word(1234567, 0), 6457827717110365317U);
  EXPECT_EQ(test_word(1234567, 1), 3203168211198807973U);
  EXPECT_EQ(test_word(1234567, 2), 9817491932198370423U);
  EXPECT_EQ(test_word(1234567, 3), 4593380528125082431U);
  EXPECT_EQ(test_word(1234567, 4), 16408922859458223821U);
}

TEST(TestPattern, PiecesAreThoseOfTheWhole) {
  std::mt19937_64 random(3);
  std::vector<std::byte> whole(1000);
  make_test_pattern(42, 0, whole);
  EXPECT_EQ(whole[8], static_cast<std::byte>(test_word(42, 1)));  // little-endian
  EXPECT_EQ(whole[15], static_cast<std::byte>(test_word(42, 1) >> 56));
  std::uint64_t sum = 0;
  for (std::uint64_t k = 0; k < 125; ++k) {
    sum += test_word(42, k);
  }
  for (int round = 0; round < 100; ++round) {
    std::uint64_t pieces = 0;
    for (std::size_t done = 0; done < whole.size();) {
      const std::size_t n = std::min<std::size_t>(1 + random() % 40, whole.size() - done);
      std::vector<std::byte> piece(n);
      make_test_pattern(42, done, piece);
      ASSERT_TRUE(std::equal(piece.begin(), piece.end(), whole.begin() + static_cast<std::ptrdiff_t>(done)));
      pieces += test_checksum(done, piece);
      done += n;
    }
    ASSERT_EQ(pieces, sum);
  }
}

TEST(TestPattern, ALastPartialWordIsPaddedWithZeros) {
  const std::vector<std::byte> three = {std::byte{1}, std::byte{2}, std::byte{3}};
  EXPECT_EQ(test_checksum(0, three), 0x03'02'01U);
  EXPECT_EQ(test_checksum(8 * 5, three), 0x03'02'01U);
  EXPECT_EQ(test_checksum(6, three), (std::uint64_t{0x0201} << 48) + 3);
  EXPECT_EQ(test_checksum(0, {}), 0U);
}

}  // namespace
}  // namespace orrery::models::test_pattern_test
