// Random numbers by counter: Philox4x32-10.
//
// Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. A number is a
// pure function of (key, counter), so streams need no state to be independent of each other and of the
// order in which components draw.
#pragma once

#include <array>
#include <cstdint>

namespace orrery {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

// The ten-round bijection of the paper.
constexpr PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key) {
  for (unsigned round = 0; round < 10; ++round) {
    if (round != 0) {
      key[0] += 0x9e3779b9U;  // golden ratio
      key[1] += 0xbb67ae85U;  // sqrt(3) - 1
    }
    const std::uint64_t product0 = std::uint64_t{0xd2511f53U} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xcd9e8d57U} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
  }
  return counter;
}

// A sequential stream. Streams of one seed with different numbers are independent. Meets
// UniformRandomBitGenerator; 2^66 numbers before it repeats. Plain value, one thread at a time.
class Rng {
 public:
  using result_type = std::uint32_t;

  // `stream`: who draws, e.g. an endpoint's ordinal together with a purpose.
  constexpr Rng(std::uint64_t seed, std::uint64_t stream)
      : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)}, stream_(stream) {}

  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return 0xffff'ffffU; }

  constexpr result_type operator()() {
    if (left_ == 0) {
      block_ = philox4x32({static_cast<std::uint32_t>(block_number_), static_cast<std::uint32_t>(block_number_ >> 32),
                           static_cast<std::uint32_t>(stream_), static_cast<std::uint32_t>(stream_ >> 32)},
                          key_);
      ++block_number_;
      left_ = 4;
    }
    return block_[4 - left_--];
  }
  constexpr std::uint64_t next64() {
    const std::uint64_t low = (*this)();
    return low | (std::uint64_t{(*this)()} << 32);
  }
  // Uniform in [0, bound), without bias (Lemire, "Fast random integer generation in an interval", 2019).
  // bound >= 1.
  constexpr std::uint32_t below(std::uint32_t bound) {
    std::uint64_t product = std::uint64_t{(*this)()} * bound;
    auto low = static_cast<std::uint32_t>(product);
    if (low < bound) {
      const std::uint32_t threshold = (0U - bound) % bound;
      while (low < threshold) {
        product = std::uint64_t{(*this)()} * bound;
        low = static_cast<std::uint32_t>(product);
      }
    }
    return static_cast<std::uint32_t>(product >> 32);
  }
  // Uniform in [0, 1), 53 bits.
  constexpr double uniform() { return static_cast<double>(next64() >> 11) * 0x1.0p-53; }

 private:
  PhiloxKey key_;
  std::uint64_t stream_;
  std::uint64_t block_number_ = 0;
  PhiloxCounter block_{};
  unsigned left_ = 0;
};

}  // namespace orrery
