// A second-stage I/O page table in modelled memory: 4 levels, pages of 4 KiB, 2 MiB and 1 GiB.
//
// Entry format of Intel VT-d second-stage translation (VT-d Architecture Specification, chapter 9,
// "Second-Stage Paging Entries"): bit 0 read, bit 1 write, bit 7 page size (leaf above the last level),
// bits 51:12 address. An entry is present if it grants read or write; rights are the AND over all levels.
#pragma once

#include <cstdint>
#include <optional>

#include "common/address.h"
#include "pcie/function_access.h"
#include "pcie/page_table_memory.h"

namespace orrery::pcie {

enum class PageTableStatus : std::uint8_t {
  ok,
  invalid,        // size 0, unaligned to 4096, wraps, beyond the address width, no access right
  overlap,        // map: a page of the range is mapped already; nothing was changed
  out_of_memory,  // no page for a table; nothing was changed
};
[[nodiscard]] const char* name(PageTableStatus status);

// Why a walk ends without a translation.
enum class WalkFault : std::uint8_t {
  none,
  address_width,    // the address lies beyond the table's width
  not_present,      // an entry grants neither read nor write
  read_permission,  // present, but some level denies the access
  write_permission,
  malformed_entry,  // a reserved bit is set: page size at the top level, address bits below a large
                    // page's size or beyond the host's address width
  table_access,     // no memory answers at the table's address
};

enum class DmaDirection : std::uint8_t { read, write };

struct WalkResult {
  Hpa address;
  std::uint64_t bytes = 0;  // from `address` on, contiguous and with the access asked for; 0 on a fault
  WalkFault fault = WalkFault::none;
  std::uint8_t steps = 0;       // memory reads of one walk to any page in [address, address + bytes)
  std::uint8_t page_shift = 0;  // 12, 21 or 30: size of each of those pages
  bool writable = false;        // rights of the first page, all levels taken together
  bool readable = false;

  [[nodiscard]] bool ok() const { return fault == WalkFault::none; }
};

// One thread. Not copyable: it owns its table pages in `memory`, which must outlive it.
class PageTable {
 public:
  static constexpr unsigned address_bits = 48;  // 4 levels
  static constexpr std::uint64_t page_bytes = 4096;

  struct Config {
    unsigned host_address_bits = 52;   // 32 … 52
    unsigned largest_page_shift = 30;  // 12, 21 or 30: largest page that map() uses
  };

  PageTable(PageTableMemory& memory, const Config& config);
  PageTable(const PageTable&) = delete;
  PageTable& operator=(const PageTable&) = delete;
  ~PageTable();

  // Maps [iova, iova + size) to [hpa, hpa + size), all or nothing, with the largest pages that alignment
  // and size allow.
  PageTableStatus map(Iova iova, Hpa hpa, std::uint64_t size, DmaAccess access);

  // Takes away every page in [iova, iova + size); holes are no error. A large page that reaches over an
  // end of the range is split first. Adds the number of bytes that were mapped to *unmapped if not null.
  // Empty tables are freed. On out_of_memory (a split needs up to 2 tables an end) nothing is unmapped.
  PageTableStatus unmap(Iova iova, std::uint64_t size, std::uint64_t* unmapped = nullptr);

  // Walks for [iova, iova + length); length 0 counts as 1. The answer covers the first page and the
  // following ones as long as they are leaves of the same table, contiguous in host memory and allow
  // the access; so at most 2 MiB of 4 KiB pages, 1 GiB of 2 MiB pages, 512 GiB of 1 GiB pages.
  [[nodiscard]] WalkResult walk(Iova iova, std::uint64_t length, DmaDirection direction) const;

  // Root table, allocated at the first map(); none before that.
  [[nodiscard]] std::optional<Hpa> root() const { return root_; }
  [[nodiscard]] std::uint64_t mapped_bytes() const { return mapped_bytes_; }
  // Pages of tables held, the root included.
  [[nodiscard]] std::uint32_t table_pages() const { return table_pages_; }

 private:
  struct Walk;
  template <unsigned level>
  void descend(Walk& walk) const;
  void fail(Walk& walk, unsigned level, WalkFault fault) const;
  [[nodiscard]] bool range_is_mappable(Iova iova, std::uint64_t size) const;
  // Recursive over [first, last], inclusive addresses within what `table` covers at `level` (4: root … 1).
  [[nodiscard]] bool range_free(Hpa table, unsigned level, std::uint64_t first, std::uint64_t last) const;
  std::uint64_t clear(Hpa table, unsigned level, std::uint64_t first, std::uint64_t last);
  std::uint64_t clear_from_root(std::uint64_t first, std::uint64_t last);
  // No entry is present. The search goes outwards from `hint`, around which an entry is likely to be found.
  [[nodiscard]] bool is_empty(Hpa table, unsigned hint) const;
  [[nodiscard]] bool fill(std::uint64_t iova, std::uint64_t hpa, std::uint64_t size, std::uint64_t rights);
  // Makes a page boundary of `iova`, at the cost of at most 2 tables.
  [[nodiscard]] bool split_at(std::uint64_t iova);
  void free_tree(Hpa table, unsigned level);
  std::optional<Hpa> new_table();
  void free_table(Hpa table);
  // False if no memory answers.
  bool read(Hpa address, std::uint64_t& value) const {
    const std::uint64_t offset = address.value - window_.base.value;
    if (offset < window_.bytes) [[likely]] {
      value = window_.words[offset >> 3U];
      return true;
    }
    return read_outside_window(address, value);
  }
  bool read_outside_window(Hpa address, std::uint64_t& value) const;
  [[nodiscard]] std::uint64_t entry(Hpa table, unsigned index) const;

  PageTableMemory& memory_;
  PageTableMemory::Window window_;
  Config config_;
  std::uint64_t reserved_;  // address bits that the host doesn't have
  std::optional<Hpa> root_;
  std::uint64_t mapped_bytes_ = 0;
  std::uint32_t table_pages_ = 0;
};

}  // namespace orrery::pcie
