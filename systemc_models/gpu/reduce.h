// Element-wise sums as the GPU's engine computes them.
//
// Binary32 as in IEEE 754-2019, round to nearest even, subnormals kept. A bfloat16 is the upper half of a
// binary32. Every NaN result is one quiet NaN, so that a result depends on values only, never on the order in
// which a compiler puts the operands of an addition.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace orrery::models {

inline constexpr std::uint32_t quiet_nan_f32 = 0x7fc0'0000U;
inline constexpr std::uint16_t quiet_nan_bf16 = 0x7fc0U;

[[nodiscard]] constexpr float bf16_to_f32(std::uint16_t value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

// Round to nearest even; overflow gives infinity, NaN gives quiet_nan_bf16.
[[nodiscard]] constexpr std::uint16_t f32_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  // Adding just under half a unit, or exactly half if the kept part is odd, carries into it when due; the
  // carry out of the largest finite value is infinity's encoding.
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  return (bits & 0x7fff'ffffU) > 0x7f80'0000U ? quiet_nan_bf16 : static_cast<std::uint16_t>(rounded);
}

// into[i] = into[i] + from[i]. Equal sizes, multiples of 4 (2 for bf16); the ranges are the same or disjoint;
// no alignment is needed.
void add_f32(std::span<std::byte> into, std::span<const std::byte> from);
void add_bf16(std::span<std::byte> into, std::span<const std::byte> from);

}  // namespace orrery::models
