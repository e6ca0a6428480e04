// The memory that IOMMU page tables live in, as the walker sees it.
#pragma once

#include <cstdint>
#include <optional>

#include "common/address.h"

namespace orrery::pcie {

// Modelled memory for page-table pages. One thread. read64 is on the path of every translated DMA.
class PageTableMemory {
 public:
  // A part of the memory that the walker may read in place, without a call of read64. Constant for the lifetime of
  // the object; every word of it can be read at any time. Empty if there is none.
  struct Window {
    Hpa base;
    std::uint64_t bytes = 0;
    const std::uint64_t* words = nullptr;
  };
  [[nodiscard]] virtual Window window() const { return {}; }

  // The 64-bit word at a multiple of 8; none if no memory answers there.
  [[nodiscard]] virtual std::optional<std::uint64_t> read64(Hpa address) = 0;
  // Only at addresses inside pages that allocate_page() gave out.
  virtual void write64(Hpa address, std::uint64_t value) = 0;
  // A 4096-byte aligned page of zeroes; none if there is no more.
  [[nodiscard]] virtual std::optional<Hpa> allocate_page() = 0;
  virtual void free_page(Hpa page) = 0;

 protected:
  ~PageTableMemory() = default;
};

}  // namespace orrery::pcie
