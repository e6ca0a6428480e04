// Page-table memory of its own: a bounded region of the host physical address map.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "pcie/page_table_memory.h"

namespace orrery::pcie {

// `pages` pages at `base`, all of them readable in place. The machine backs a page when it is first used; until
// then it costs address space only. Pages are given out lowest first, so that equal runs build equal tables.
class PageTablePool final : public PageTableMemory {
 public:
  // base: multiple of 4096; throws Error if the region isn't a valid range, or more than the machine can reserve.
  PageTablePool(Hpa base, std::uint32_t pages);

  [[nodiscard]] Window window() const override { return {base_, size(), words_.get()}; }
  [[nodiscard]] std::optional<std::uint64_t> read64(Hpa address) override;
  void write64(Hpa address, std::uint64_t value) override;
  [[nodiscard]] std::optional<Hpa> allocate_page() override;
  void free_page(Hpa page) override;

  [[nodiscard]] std::uint32_t pages_in_use() const { return in_use_; }
  [[nodiscard]] Hpa base() const { return base_; }
  [[nodiscard]] std::uint64_t size() const { return std::uint64_t{limit_} << 12; }

 private:
  static constexpr std::uint32_t words_per_page = 512;
  struct Free {
    void operator()(std::uint64_t* words) const { std::free(words); }
  };

  Hpa base_;
  std::uint32_t limit_;
  std::uint32_t touched_ = 0;  // pages that were ever given out
  std::uint32_t in_use_ = 0;
  std::unique_ptr<std::uint64_t[], Free> words_;
  std::vector<std::uint32_t> free_;  // a heap, lowest page on top
};

}  // namespace orrery::pcie
