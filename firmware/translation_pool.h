// Allocates runs of the translation memory: a buddy system over blocks of 8 entries. Freestanding; all zero is an
// empty pool (begin() gives it its entries).
#pragma once

#include <cstdint>

namespace orrery::firmware {

class TranslationPool {
 public:
  static constexpr std::uint32_t log_smallest = 3;  // entries
  static constexpr std::uint32_t log_largest = 23;
  static constexpr std::uint32_t none = 0xffff'ffffU;

  // `entries` is rounded down to a power of two, at most 1 << log_largest.
  void begin(std::uint32_t entries);
  // First entry of a run of at least `entries` (>= 1), aligned to its size; none if there is none.
  [[nodiscard]] std::uint32_t allocate(std::uint32_t entries);
  // A run that allocate(entries) gave.
  void release(std::uint32_t start, std::uint32_t entries);
  [[nodiscard]] std::uint32_t used() const { return used_; }  // entries, rounded up as they were given
  // log2 of the run's size.
  [[nodiscard]] static std::uint32_t order_of(std::uint32_t entries);

 private:
  static constexpr std::uint32_t orders = log_largest - log_smallest + 1;
  // Bitmaps one behind the other, that of the smallest blocks first; each half as long as its predecessor. The five
  // orders with less than a word of blocks get a word each.
  static constexpr std::uint32_t words = (2U << (log_largest - log_smallest)) / 32 + 5;
  [[nodiscard]] static std::uint32_t word_base(std::uint32_t order);
  void mark(std::uint32_t order, std::uint32_t block);
  [[nodiscard]] bool take(std::uint32_t order, std::uint32_t block);  // false: it isn't free

  std::uint32_t log_size_;
  std::uint32_t used_;
  std::uint32_t free_blocks_[orders];
  std::uint32_t first_word_[orders];  // no word before it has a free block
  std::uint32_t bits_[words];
};

}  // namespace orrery::firmware
