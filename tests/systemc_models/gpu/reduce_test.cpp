#include "systemc_models/gpu/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace orrery::models::reduce_test {
namespace {

std::uint16_t add_one_bf16(std::uint16_t x, std::uint16_t y) {
  add_bf16(std::as_writable_bytes(std::span(&x, 1)), std::as_bytes(std::span(&y, 1)));
  return x;
}

std::uint32_t add_one_f32(std::uint32_t x, std::uint32_t y) {
  add_f32(std::as_writable_bytes(std::span(&x, 1)), std::as_bytes(std::span(&y, 1)));
  return x;
}

// Worked out by hand from the format: sign, 8 exponent bits, 7 fraction bits; the exponent of 1.0 is 127 (0x3f80).
TEST(Bf16, RoundsTheBinary32SumToNearestEven) {
  struct Row {
    std::uint16_t a, b, sum;
    const char* why;
  };
  const Row rows[] = {
      {0x3f80, 0x3f80, 0x4000, "1 + 1 = 2"},
      {0x3f80, 0x3b80, 0x3f80, "1 + 2^-8 is a tie between 1 and 1 + 2^-7: even is 1"},
      {0x3f81, 0x3b80, 0x3f82, "(1 + 2^-7) + 2^-8 is a tie: even is 1 + 2^-6"},
      {0x3f80, 0x3b81, 0x3f81, "1 + 2^-8 (1 + 2^-7) lies above the tie"},
      {0x3f80, 0x3b7f, 0x3f80, "1 + just under 2^-8 lies below the tie"},
      {0xbf80, 0xbb80, 0xbf80, "the first tie, negative"},
      {0xbf81, 0xbb80, 0xbf82, "the second tie, negative"},
      {0x3fff, 0x3c00, 0x4000, "carry out of the fraction: 1.9921875 + 2^-7 = 2"},
      {0x3fff, 0x3b80, 0x4000, "tie below a power of two: even is the power"},
      {0x3f80, 0xbf80, 0x0000, "x - x = +0"},
      {0x8000, 0x8000, 0x8000, "-0 + -0 = -0"},
      {0x8000, 0x0000, 0x0000, "-0 + 0 = +0"},
      {0x0001, 0x0001, 0x0002, "subnormals add exactly"},
      {0x007f, 0x0001, 0x0080, "largest subnormal plus smallest is the smallest normal"},
      {0x0080, 0x8001, 0x007f, "and back"},
      {0x7f7f, 0x7f7f, 0x7f80, "overflow is infinity"},
      {0x7f7f, 0x7aff, 0x7f7f, "largest + just under half a unit (2^119) stays"},
      {0x7f7f, 0x7b00, 0x7f80, "largest + half a unit: a tie, and largest is odd"},
      {0xff7f, 0xff7f, 0xff80, "negative overflow"},
      {0x7f80, 0x3f80, 0x7f80, "inf + 1"},
      {0x7f80, 0x7f80, 0x7f80, "inf + inf"},
      {0xff80, 0x7f7f, 0xff80, "-inf + largest"},
      {0x7f80, 0xff80, 0x7fc0, "inf - inf is the quiet NaN, positive"},
      {0x7fc1, 0x3f80, 0x7fc0, "a NaN's payload is not kept"},
      {0x3f80, 0xffff, 0x7fc0, "nor its sign"},
      {0x7f81, 0x0000, 0x7fc0, "a signalling NaN becomes quiet, not infinity"},
      {0x7fc0, 0x7f80, 0x7fc0, "NaN + inf"},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(add_one_bf16(row.a, row.b), row.sum) << row.why;
    EXPECT_EQ(add_one_bf16(row.b, row.a), row.sum) << row.why << " (swapped)";
  }
}

// Independent of bit tricks: the nearest of the two bfloat16 neighbours, by distance, in double.
TEST(Bf16, ConversionPicksTheNearestNeighbourForEveryExponent) {
  std::mt19937 random(7);
  for (int i = 0; i < 200'000; ++i) {
    const auto bits = static_cast<std::uint32_t>(random());
    const auto value = std::bit_cast<float>(bits);
    if (!std::isfinite(value)) {
      continue;
    }
    const auto down = static_cast<std::uint16_t>(bits >> 16);  // towards zero
    const auto up = static_cast<std::uint16_t>(down + 1);
    const double below = bf16_to_f32(down);
    // Beyond the largest finite value the next neighbour counts as 2^128 (IEEE 754-2019 §4.3.1).
    const double above =
        (up & 0x7fff) == 0x7f80 ? std::copysign(std::ldexp(1.0, 128), value) : static_cast<double>(bf16_to_f32(up));
    const double to_below = std::abs(value - below);
    const double to_above = std::abs(above - value);
    const std::uint16_t expected = to_below < to_above   ? down
                                   : to_above < to_below ? up
                                                         : static_cast<std::uint16_t>((down & 1) == 0 ? down : up);
    ASSERT_EQ(f32_to_bf16(value), expected) << std::hex << bits;
  }
}

TEST(Bf16, EveryValueSurvivesARoundTrip) {
  for (unsigned v = 0; v <= 0xffff; ++v) {
    const auto value = static_cast<std::uint16_t>(v);
    const bool nan = (value & 0x7fff) > 0x7f80;
    ASSERT_EQ(f32_to_bf16(bf16_to_f32(value)), nan ? quiet_nan_bf16 : value);
  }
}

TEST(F32, SpecialValues) {
  constexpr std::uint32_t inf = 0x7f80'0000;
  constexpr std::uint32_t largest = 0x7f7f'ffff;
  EXPECT_EQ(add_one_f32(inf, 0xff80'0000), quiet_nan_f32);
  EXPECT_EQ(add_one_f32(0x7f80'0001, 0), quiet_nan_f32);  // signalling NaN
  EXPECT_EQ(add_one_f32(0xffff'ffff, inf), quiet_nan_f32);
  EXPECT_EQ(add_one_f32(largest, largest), inf);
  EXPECT_EQ(add_one_f32(inf, largest), inf);
  EXPECT_EQ(add_one_f32(1, 1), 2U);  // subnormals are kept
  EXPECT_EQ(add_one_f32(0x0080'0000, 0x8000'0001), 0x007f'ffffU);
  EXPECT_EQ(add_one_f32(0x3f80'0000, 0x3380'0000), 0x3f80'0000U);  // 1 + 2^-24: tie to even
  EXPECT_EQ(add_one_f32(0x3f80'0001, 0x3380'0000), 0x3f80'0002U);
}

TEST(F32, AgreesWithDoubleRoundedOnceForAnyLengthAndAlignment) {
  std::mt19937_64 random(11);
  for (const std::size_t count : {1U, 2U, 3U, 511U, 512U, 513U, 1023U, 1024U, 5000U}) {
    std::vector<float> a(count), b(count);
    for (std::size_t i = 0; i < count; ++i) {
      // Exponents close together, so that the double sum is exact and rounds once.
      a[i] = static_cast<float>(static_cast<double>(random() % 2'000'001) - 1e6) / 4096.0F;
      b[i] = static_cast<float>(static_cast<double>(random() % 2'000'001) - 1e6) / 1024.0F;
    }
    std::vector<std::byte> x(count * 4 + 1), y(count * 4 + 3);
    std::memcpy(x.data() + 1, a.data(), count * 4);  // the functions need no alignment
    std::memcpy(y.data() + 3, b.data(), count * 4);
    add_f32(std::span(x).subspan(1), std::span(y).subspan(3));
    for (std::size_t i = 0; i < count; ++i) {
      float sum = 0;
      std::memcpy(&sum, x.data() + 1 + i * 4, 4);
      ASSERT_EQ(sum, static_cast<float>(static_cast<double>(a[i]) + static_cast<double>(b[i])));
    }
  }
}

TEST(F32, SameRangeDoubles) {
  std::vector<float> v{1.5F, -2.25F, 0.0F, 3e38F};
  add_f32(std::as_writable_bytes(std::span(v)), std::as_bytes(std::span(v)));
  EXPECT_EQ(v, (std::vector<float>{3.0F, -4.5F, 0.0F, std::numeric_limits<float>::infinity()}));
}

}  // namespace
}  // namespace orrery::models::reduce_test
