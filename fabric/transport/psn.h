// Packet sequence numbers: 24 bits that wrap (IBTA Volume 1 §9.7.2).
#pragma once

#include <cstdint>

namespace orrery::fabric {

// Half of the number space: only PSNs less than this apart can be ordered, so no window is larger.
inline constexpr std::uint32_t psn_half_space = 1U << 23;

struct Psn {
  std::uint32_t value = 0;  // 0 … 2^24-1

  static constexpr std::uint32_t mask = 0xff'ffffU;
  static constexpr Psn of(std::uint32_t number) { return {number & mask}; }

  constexpr bool operator==(const Psn&) const = default;
  friend constexpr Psn operator+(Psn psn, std::uint32_t n) { return of(psn.value + n); }
  friend constexpr Psn operator-(Psn psn, std::uint32_t n) { return of(psn.value - n); }
};

// Steps forward from `from` to `to`; negative if `to` is earlier. -2^23 … 2^23-1.
constexpr std::int32_t distance(Psn from, Psn to) {
  const std::uint32_t forward = (to.value - from.value) & Psn::mask;
  return forward < psn_half_space ? static_cast<std::int32_t>(forward)
                                  : static_cast<std::int32_t>(forward) - (std::int32_t{1} << 24);
}
constexpr bool before(Psn a, Psn b) {
  return distance(a, b) > 0;
}

}  // namespace orrery::fabric
