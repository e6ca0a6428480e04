#include "systemc_models/rnic/test_pattern.h"

#include <algorithm>

namespace orrery::models {

void make_test_pattern(std::uint64_t seed, std::uint64_t offset, std::span<std::byte> into) {
  std::size_t done = 0;
  while (done < into.size()) {
    const std::uint64_t at = offset + done;
    const std::size_t skip = at % 8;
    const std::size_t count = std::min<std::size_t>(8 - skip, into.size() - done);
    const std::uint64_t word = test_word(seed, at / 8);
    std::memcpy(into.data() + done, reinterpret_cast<const std::byte*>(&word) + skip, count);
    done += count;
  }
}

std::uint64_t test_checksum(std::uint64_t offset, std::span<const std::byte> bytes) {
  std::uint64_t sum = 0;
  std::size_t done = 0;
  while (done < bytes.size()) {
    const std::size_t skip = (offset + done) % 8;
    const std::size_t count = std::min<std::size_t>(8 - skip, bytes.size() - done);
    std::uint64_t word = 0;
    std::memcpy(reinterpret_cast<std::byte*>(&word) + skip, bytes.data() + done, count);
    sum += word;
    done += count;
  }
  return sum;
}

}  // namespace orrery::models
