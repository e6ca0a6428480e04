#include "pcie/page_table_pool.h"

#include <algorithm>
#include <cassert>
#include <functional>

#include <fmt/format.h>

#include "common/error.h"

namespace orrery::pcie {

PageTablePool::PageTablePool(Hpa base, std::uint32_t pages) : base_(base), limit_(pages) {
  if ((base.value & 4095U) != 0 || !range_is_valid(base.value, std::uint64_t{pages} << 12U)) {
    throw Error(fmt::format("page-table memory: {} pages at {:#x} are no page-aligned range", pages, base.value),
                "give a base that is a multiple of 4096 and at least one page");
  }
}

std::optional<std::uint64_t> PageTablePool::read64(Hpa address) {
  const std::uint64_t offset = address.value - base_.value;
  const std::uint64_t page = offset >> 12U;
  if (page >= pages_.size()) [[unlikely]] {
    // Inside the region, but never given out: memory that was never written.
    if (page < limit_) {
      return 0;
    }
    return std::nullopt;
  }
  return pages_[page][(offset & 4095U) >> 3U];
}

void PageTablePool::write64(Hpa address, std::uint64_t value) {
  const std::uint64_t offset = address.value - base_.value;
  const std::uint64_t page = offset >> 12U;
  assert(page < pages_.size());
  if (page < pages_.size()) {
    pages_[page][(offset & 4095U) >> 3U] = value;
  }
}

std::optional<Hpa> PageTablePool::allocate_page() {
  std::uint32_t page = 0;
  if (!free_.empty()) {
    std::pop_heap(free_.begin(), free_.end(), std::greater<>());
    page = free_.back();
    free_.pop_back();
    std::fill_n(pages_[page].get(), words_per_page, 0);
  } else if (pages_.size() < limit_) {
    page = static_cast<std::uint32_t>(pages_.size());
    pages_.push_back(std::make_unique<std::uint64_t[]>(words_per_page));
  } else {
    return std::nullopt;
  }
  ++in_use_;
  return base_ + (std::uint64_t{page} << 12U);
}

void PageTablePool::free_page(Hpa page) {
  const std::uint64_t index = (page.value - base_.value) >> 12U;
  assert(index < pages_.size() && in_use_ > 0);
  if (index >= pages_.size()) {
    return;
  }
  --in_use_;
  free_.push_back(static_cast<std::uint32_t>(index));
  std::push_heap(free_.begin(), free_.end(), std::greater<>());
}

}  // namespace orrery::pcie
