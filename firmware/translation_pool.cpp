#include "firmware/translation_pool.h"

namespace orrery::firmware {

std::uint32_t TranslationPool::order_of(std::uint32_t entries) {
  std::uint32_t order = log_smallest;
  while (order < 31 && (1U << order) < entries) {
    ++order;
  }
  return order;
}

std::uint32_t TranslationPool::word_base(std::uint32_t order) {
  std::uint32_t base = 0;
  for (std::uint32_t o = log_smallest; o < order; ++o) {
    const std::uint32_t blocks = 1U << (log_largest - o);
    base += (blocks + 31) / 32;
  }
  return base;
}

void TranslationPool::begin(std::uint32_t entries) {
  log_size_ = log_smallest;
  while (log_size_ < log_largest && (2U << log_size_) <= entries) {
    ++log_size_;
  }
  mark(log_size_, 0);
}

void TranslationPool::mark(std::uint32_t order, std::uint32_t block) {
  const std::uint32_t word = block / 32;
  bits_[word_base(order) + word] |= 1U << (block % 32);
  std::uint32_t& first = first_word_[order - log_smallest];
  first = word < first ? word : first;
  ++free_blocks_[order - log_smallest];
}

bool TranslationPool::take(std::uint32_t order, std::uint32_t block) {
  std::uint32_t& bits = bits_[word_base(order) + block / 32];
  const std::uint32_t bit = 1U << (block % 32);
  if ((bits & bit) == 0) {
    return false;
  }
  bits &= ~bit;
  --free_blocks_[order - log_smallest];
  return true;
}

std::uint32_t TranslationPool::allocate(std::uint32_t entries) {
  const std::uint32_t wanted = order_of(entries);
  std::uint32_t order = wanted;
  while (order <= log_size_ && free_blocks_[order - log_smallest] == 0) {
    ++order;
  }
  if (order > log_size_) {
    return none;
  }
  std::uint32_t word = first_word_[order - log_smallest];
  while (bits_[word_base(order) + word] == 0) {
    ++word;
  }
  first_word_[order - log_smallest] = word;
  std::uint32_t block = word * 32 + static_cast<std::uint32_t>(__builtin_ctz(bits_[word_base(order) + word]));
  static_cast<void>(take(order, block));
  // The upper halves of what is too large stay free.
  while (order > wanted) {
    --order;
    block *= 2;
    mark(order, block + 1);
  }
  used_ += 1U << wanted;
  return block << wanted;
}

void TranslationPool::release(std::uint32_t start, std::uint32_t entries) {
  std::uint32_t order = order_of(entries);
  std::uint32_t block = start >> order;
  used_ -= 1U << order;
  while (order < log_size_ && take(order, block ^ 1U)) {
    block /= 2;
    ++order;
  }
  mark(order, block);
}

}  // namespace orrery::firmware
