#include "common/rng.h"

#include <gtest/gtest.h>

#include <set>

namespace orrery::rng_test {
namespace {

// Known answers published with the authors' Random123 library (kat_vectors, "philox4x32 10").
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Rng, IsTheCipherInCounterMode) {
  Rng rng(0, 0);
  EXPECT_EQ(rng(), 0x6627e8d5U);
  EXPECT_EQ(rng(), 0xe169c58dU);
  EXPECT_EQ(rng.next64(), 0x9b00dbd8'bc57ac4cU);
  const PhiloxCounter second = philox4x32({1, 0, 0, 0}, {0, 0});
  EXPECT_EQ(rng(), second[0]);
}

TEST(Rng, SeedAndStreamUseAll64Bits) {
  std::set<std::uint64_t> firsts;
  for (const std::uint64_t seed : {std::uint64_t{1}, std::uint64_t{1} << 32}) {
    for (const std::uint64_t stream : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 32}) {
      firsts.insert(Rng(seed, stream).next64());
    }
  }
  EXPECT_EQ(firsts.size(), 6U);
}

TEST(Rng, BelowStaysBelowAndHitsEverything) {
  Rng rng(7, 3);
  std::array<unsigned, 6> hits{};
  for (int i = 0; i < 6000; ++i) {
    ++hits.at(rng.below(6));
  }
  // Binomial(6000, 1/6): six standard deviations are 173.
  for (const unsigned count : hits) {
    EXPECT_NEAR(count, 1000, 173);
  }
  EXPECT_EQ(rng.below(1), 0U);
}

TEST(Rng, UniformIsInTheHalfOpenInterval) {
  Rng rng(9, 0);
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const double u = rng.uniform();
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 6 * 0.2887 / 100);  // six standard errors
}

}  // namespace
}  // namespace orrery::rng_test
