// The data of the RNIC's DMA self-test, as rnic_registers.h defines it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace orrery::models {

// Word k of the sequence: output k + 1 of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) seeded with `seed`.
[[nodiscard]] constexpr std::uint64_t test_word(std::uint64_t seed, std::uint64_t k) {
  std::uint64_t z = seed + (k + 1) * 0x9e37'79b9'7f4a'7c15U;
  z = (z ^ (z >> 30)) * 0xbf58'476d'1ce4'e5b9U;
  z = (z ^ (z >> 27)) * 0x94d0'49bb'1331'11ebU;
  return z ^ (z >> 31);
}

// Bytes [offset, offset + into.size()) of the sequence.
void make_test_pattern(std::uint64_t seed, std::uint64_t offset, std::span<std::byte> into);

// What the bytes [offset, …) add to the sum of 64-bit words of the range they are part of, modulo 2^64. The
// sum of the pieces of a range is the range's, however it was cut.
[[nodiscard]] std::uint64_t test_checksum(std::uint64_t offset, std::span<const std::byte> bytes);

}  // namespace orrery::models
