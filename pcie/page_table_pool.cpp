#include "pcie/page_table_pool.h"

#include <algorithm>
#include <cassert>
#include <functional>

#include <fmt/format.h>

#include "common/error.h"

namespace orrery::pcie {

PageTablePool::PageTablePool(Hpa base, std::uint32_t pages) : base_(base), limit_(pages) {
  if ((base.value & 4095U) != 0 || !range_is_valid(base.value, size())) {
    throw Error(fmt::format("page-table memory: {} pages at {:#x} are no page-aligned range", pages, base.value),
                "give a base that is a multiple of 4096 and at least one page");
  }
  // calloc takes large blocks from the system as they are, zero and untouched.
  words_.reset(static_cast<std::uint64_t*>(std::calloc(pages, std::size_t{words_per_page} * 8)));
  if (!words_) {
    throw Error(fmt::format("page-table memory: the machine can't reserve {} MiB", size() >> 20U),
                "give fewer pages, or more memory");
  }
}

std::optional<std::uint64_t> PageTablePool::read64(Hpa address) {
  const std::uint64_t offset = address.value - base_.value;
  if (offset >= size()) {
    return std::nullopt;
  }
  return words_[offset >> 3U];
}

void PageTablePool::write64(Hpa address, std::uint64_t value) {
  const std::uint64_t offset = address.value - base_.value;
  assert(offset < size());
  if (offset < size()) {
    words_[offset >> 3U] = value;
  }
}

std::optional<Hpa> PageTablePool::allocate_page() {
  std::uint32_t page = 0;
  if (!free_.empty()) {
    std::pop_heap(free_.begin(), free_.end(), std::greater<>());
    page = free_.back();
    free_.pop_back();
    std::fill_n(&words_[std::size_t{page} * words_per_page], words_per_page, 0);
  } else if (touched_ < limit_) {
    page = touched_++;
  } else {
    return std::nullopt;
  }
  ++in_use_;
  return base_ + (std::uint64_t{page} << 12U);
}

void PageTablePool::free_page(Hpa page) {
  const std::uint64_t index = (page.value - base_.value) >> 12U;
  assert(index < touched_ && in_use_ > 0);
  if (index >= touched_) {
    return;
  }
  --in_use_;
  free_.push_back(static_cast<std::uint32_t>(index));
  std::push_heap(free_.begin(), free_.end(), std::greater<>());
}

}  // namespace orrery::pcie
