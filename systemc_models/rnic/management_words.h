// Words and halves of words, as the parts of the management block take registers and guest structures apart. Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace orrery::rnic {

inline constexpr std::uint64_t ps_per_us = 1'000'000;

constexpr std::uint32_t low_half(std::uint64_t value) {
  return static_cast<std::uint32_t>(value);
}
constexpr std::uint32_t high_half(std::uint64_t value) {
  return static_cast<std::uint32_t>(value >> 32);
}

inline std::uint32_t load_word(const std::byte* from) {
  std::uint32_t value = 0;
  std::memcpy(&value, from, sizeof value);
  return value;
}
inline std::uint64_t load_big64(const std::byte* from) {
  std::uint64_t value = 0;
  std::memcpy(&value, from, sizeof value);
  return __builtin_bswap64(value);
}

// Whether `offset` is a register of a block of `count` at `base`.
constexpr bool within_block(std::uint32_t offset, std::uint32_t base, std::uint32_t count) {
  return offset >= base && offset < base + 4 * count;
}

}  // namespace orrery::rnic
