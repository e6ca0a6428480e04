// Page-table memory of its own: a bounded region of the host physical address map.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "pcie/page_table_memory.h"

namespace orrery::pcie {

// `pages` pages at `base`. Backing is taken from the machine page by page, when a page is first used.
// Pages are given out lowest first, so that equal runs build equal tables.
class PageTablePool final : public PageTableMemory {
 public:
  // base: multiple of 4096; throws Error if the region isn't a valid range.
  PageTablePool(Hpa base, std::uint32_t pages);

  [[nodiscard]] std::optional<std::uint64_t> read64(Hpa address) override;
  void write64(Hpa address, std::uint64_t value) override;
  [[nodiscard]] std::optional<Hpa> allocate_page() override;
  void free_page(Hpa page) override;

  [[nodiscard]] std::uint32_t pages_in_use() const { return in_use_; }
  [[nodiscard]] Hpa base() const { return base_; }
  [[nodiscard]] std::uint64_t size() const { return std::uint64_t{limit_} << 12; }

 private:
  static constexpr std::uint32_t words_per_page = 512;

  Hpa base_;
  std::uint32_t limit_;
  std::uint32_t in_use_ = 0;
  std::vector<std::unique_ptr<std::uint64_t[]>> pages_;
  std::vector<std::uint32_t> free_;  // a heap, lowest page on top
};

}  // namespace orrery::pcie
