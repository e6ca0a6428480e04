#include "pcie/page_table.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/error.h"

namespace orrery::pcie {

namespace {

constexpr unsigned top_level = 4;
constexpr unsigned entries = 512;
constexpr std::uint64_t read_bit = 1U << 0;
constexpr std::uint64_t write_bit = 1U << 1;
constexpr std::uint64_t rights_mask = read_bit | write_bit;
constexpr std::uint64_t page_size_bit = 1U << 7;
constexpr std::uint64_t address_mask = 0x000f'ffff'ffff'f000;

constexpr unsigned shift_of(unsigned level) {
  return 12 + 9 * (level - 1);
}
constexpr std::uint64_t span_of(unsigned level) {
  return std::uint64_t{1} << shift_of(level);
}
constexpr unsigned index_of(std::uint64_t address, unsigned level) {
  return static_cast<unsigned>(address >> shift_of(level)) & (entries - 1);
}
constexpr Hpa slot(Hpa table, unsigned index) {
  return table + std::uint64_t{index} * 8;
}

constexpr bool present(std::uint64_t entry) {
  return (entry & rights_mask) != 0;
}
constexpr bool is_leaf(std::uint64_t entry, unsigned level) {
  return level == 1 || (entry & page_size_bit) != 0;
}
constexpr Hpa target(std::uint64_t entry) {
  return Hpa{entry & address_mask};
}

// Iterates over the parts of [first, last] that fall into the entries of one table.
struct Part {
  unsigned index;
  std::uint64_t first;
  std::uint64_t last;
};
template <class Visit>
bool for_each_part(unsigned level, std::uint64_t first, std::uint64_t last, Visit visit) {
  const unsigned end = index_of(last, level);
  const std::uint64_t span = span_of(level);
  for (unsigned i = index_of(first, level); i <= end; ++i) {
    const std::uint64_t stop = std::min(last, first | (span - 1));
    if (!visit(Part{i, first, stop})) {
      return false;
    }
    first = stop + 1;
  }
  return true;
}

}  // namespace

const char* name(PageTableStatus status) {
  switch (status) {
    case PageTableStatus::ok:
      return "ok";
    case PageTableStatus::invalid:
      return "invalid";
    case PageTableStatus::overlap:
      return "overlap";
    case PageTableStatus::out_of_memory:
      return "out of page-table memory";
  }
  return "?";
}

PageTable::PageTable(PageTableMemory& memory, const Config& config)
    : memory_(memory), window_(memory.window()), config_(config) {
  if (config.host_address_bits < 32 || config.host_address_bits > 52) {
    throw Error(fmt::format("host_address_bits is {}", config.host_address_bits), "give 32 to 52");
  }
  if (config.largest_page_shift != 12 && config.largest_page_shift != 21 && config.largest_page_shift != 30) {
    throw Error(fmt::format("largest_page_shift is {}", config.largest_page_shift), "give 12, 21 or 30");
  }
  reserved_ = address_mask & ~((std::uint64_t{1} << config.host_address_bits) - 1);
}

PageTable::~PageTable() {
  if (root_) {
    free_tree(*root_, top_level);
  }
}

bool PageTable::read_outside_window(Hpa address, std::uint64_t& value) const {
  const std::optional<std::uint64_t> word = memory_.read64(address);
  value = word.value_or(0);
  return word.has_value();
}

std::uint64_t PageTable::entry(Hpa table, unsigned index) const {
  std::uint64_t value = 0;
  read(slot(table, index), value);
  return value;
}

std::optional<Hpa> PageTable::new_table() {
  const std::optional<Hpa> page = memory_.allocate_page();
  table_pages_ += page ? 1 : 0;
  return page;
}

void PageTable::free_table(Hpa table) {
  --table_pages_;
  memory_.free_page(table);
}

void PageTable::free_tree(Hpa table, unsigned level) {
  for (unsigned i = 0; level > 1 && i < entries; ++i) {
    const std::uint64_t value = entry(table, i);
    if (present(value) && !is_leaf(value, level)) {
      free_tree(target(value), level - 1);
    }
  }
  free_table(table);
}

bool PageTable::range_is_mappable(Iova iova, std::uint64_t size) const {
  return ((iova.value | size) & (page_bytes - 1)) == 0 && range_is_valid(iova.value, size) &&
         (iova.value + (size - 1)) >> address_bits == 0;
}

bool PageTable::range_free(Hpa table, unsigned level, std::uint64_t first, std::uint64_t last) const {
  return for_each_part(level, first, last, [&](const Part& part) {
    const std::uint64_t value = entry(table, part.index);
    return !present(value) || (!is_leaf(value, level) && range_free(target(value), level - 1, part.first, part.last));
  });
}

PageTableStatus PageTable::map(Iova iova, Hpa hpa, std::uint64_t size, DmaAccess access) {
  const std::uint64_t rights = (access.read ? read_bit : 0) | (access.write ? write_bit : 0);
  if (rights == 0 || !range_is_mappable(iova, size) || (hpa.value & (page_bytes - 1)) != 0 ||
      !range_is_valid(hpa.value, size) || (hpa.value + (size - 1)) >> config_.host_address_bits != 0) {
    return PageTableStatus::invalid;
  }
  const std::uint64_t last = iova.value + (size - 1);
  if (root_ && !range_free(*root_, top_level, iova.value, last)) {
    return PageTableStatus::overlap;
  }
  if (!fill(iova.value, hpa.value, size, rights)) {
    // Also takes back the tables that the failed attempt made and left empty.
    clear_from_root(iova.value, last);
    return PageTableStatus::out_of_memory;
  }
  mapped_bytes_ += size;
  return PageTableStatus::ok;
}

bool PageTable::fill(std::uint64_t iova, std::uint64_t hpa, std::uint64_t size, std::uint64_t rights) {
  while (size != 0) {
    unsigned level = 1;
    while (level < 3 && shift_of(level + 1) <= config_.largest_page_shift && size >= span_of(level + 1) &&
           ((iova | hpa) & (span_of(level + 1) - 1)) == 0) {
      ++level;
    }
    if (!root_ && !(root_ = new_table())) {
      return false;
    }
    Hpa table = *root_;
    for (unsigned above = top_level; above > level; --above) {
      const Hpa at = slot(table, index_of(iova, above));
      const std::uint64_t value = entry(table, index_of(iova, above));
      if (present(value)) {
        table = target(value);
        continue;
      }
      const std::optional<Hpa> made = new_table();
      if (!made) {
        return false;
      }
      memory_.write64(at, made->value | rights_mask);
      table = *made;
    }
    // A run of equal pages within this table. A larger page can only become possible where the next table begins.
    const std::uint64_t span = span_of(level);
    const std::uint64_t leaf = rights | (level > 1 ? page_size_bit : 0);
    for (unsigned i = index_of(iova, level); i < entries && size >= span; ++i) {
      memory_.write64(slot(table, i), hpa | leaf);
      iova += span;
      hpa += span;
      size -= span;
    }
  }
  return true;
}

bool PageTable::split_at(std::uint64_t iova) {
  if (iova >> address_bits != 0) {
    return true;  // the end of the address space is no page's middle
  }
  Hpa table = *root_;
  for (unsigned level = top_level; level > 1; --level) {
    const unsigned index = index_of(iova, level);
    const std::uint64_t value = entry(table, index);
    if (!present(value)) {
      return true;
    }
    if (!is_leaf(value, level)) {
      table = target(value);
      continue;
    }
    if ((iova & (span_of(level) - 1)) == 0) {
      return true;
    }
    const std::optional<Hpa> made = new_table();
    if (!made) {
      return false;
    }
    // The new table is complete before it replaces the large page, so that no walk sees a hole.
    const std::uint64_t leaf = level - 1 > 1 ? value : value & ~page_size_bit;
    for (unsigned i = 0; i < entries; ++i) {
      memory_.write64(slot(*made, i), leaf + i * span_of(level - 1));
    }
    memory_.write64(slot(table, index), made->value | rights_mask);
    table = *made;
  }
  return true;
}

PageTableStatus PageTable::unmap(Iova iova, std::uint64_t size, std::uint64_t* unmapped) {
  if (!range_is_mappable(iova, size)) {
    return PageTableStatus::invalid;
  }
  if (!root_) {
    return PageTableStatus::ok;
  }
  if (!split_at(iova.value) || !split_at(iova.value + size)) {
    return PageTableStatus::out_of_memory;
  }
  const std::uint64_t bytes = clear_from_root(iova.value, iova.value + (size - 1));
  mapped_bytes_ -= bytes;
  if (unmapped != nullptr) {
    *unmapped += bytes;
  }
  return PageTableStatus::ok;
}

std::uint64_t PageTable::clear_from_root(std::uint64_t first, std::uint64_t last) {
  if (!root_) {
    return 0;
  }
  const std::uint64_t bytes = clear(*root_, top_level, first, last);
  if (is_empty(*root_, index_of(last, top_level))) {
    free_table(*root_);
    root_.reset();
  }
  return bytes;
}

std::uint64_t PageTable::clear(Hpa table, unsigned level, std::uint64_t first, std::uint64_t last) {
  std::uint64_t bytes = 0;
  for_each_part(level, first, last, [&](const Part& part) {
    const std::uint64_t value = entry(table, part.index);
    if (!present(value)) {
      return true;
    }
    if (is_leaf(value, level)) {
      bytes += span_of(level);
    } else {
      const Hpa below = target(value);
      bytes += clear(below, level - 1, part.first, part.last);
      if (!is_empty(below, index_of(part.last, level - 1))) {
        return true;
      }
      free_table(below);
    }
    memory_.write64(slot(table, part.index), 0);
    return true;
  });
  return bytes;
}

bool PageTable::is_empty(Hpa table, unsigned hint) const {
  for (unsigned distance = 0; distance < entries; ++distance) {
    if ((hint + distance < entries && present(entry(table, hint + distance))) ||
        (hint >= distance && present(entry(table, hint - distance)))) {
      return false;
    }
  }
  return true;
}

// The state of one walk; kept apart from the result so that it stays in registers.
struct PageTable::Walk {
  std::uint64_t iova;
  std::uint64_t length;
  std::uint64_t need;                  // the right that the access asks for
  std::uint64_t rights = rights_mask;  // what the levels so far grant
  Hpa table;
  WalkResult& result;
};

void PageTable::fail(Walk& walk, unsigned level, WalkFault fault) const {
  walk.result.fault = fault;
  walk.result.steps = static_cast<std::uint8_t>(top_level + 1 - level);
}

template <unsigned level>
inline void PageTable::descend(Walk& walk) const {
  constexpr std::uint64_t span = span_of(level);
  const unsigned index = index_of(walk.iova, level);
  std::uint64_t value = 0;
  if (!read(slot(walk.table, index), value)) [[unlikely]] {
    return fail(walk, level, WalkFault::table_access);
  }
  if (!present(value)) [[unlikely]] {
    return fail(walk, level, WalkFault::not_present);
  }
  const bool leaf = is_leaf(value, level);
  const std::uint64_t below_page = leaf ? (span - 1) & address_mask : 0;
  if ((value & (reserved_ | below_page)) != 0 || (leaf && level == top_level)) [[unlikely]] {
    return fail(walk, level, WalkFault::malformed_entry);
  }
  walk.rights &= value;
  if ((walk.rights & walk.need) == 0) [[unlikely]] {
    return fail(walk, level, walk.need == read_bit ? WalkFault::read_permission : WalkFault::write_permission);
  }
  if constexpr (level > 1) {
    if (!leaf) {
      walk.table = target(value);
      return descend<level - 1>(walk);
    }
  }

  const std::uint64_t offset = walk.iova & (span - 1);
  std::uint64_t bytes = span - offset;
  std::uint64_t next = target(value).value + span;
  constexpr std::uint64_t leaf_bit = level > 1 ? page_size_bit : 0;
  const std::uint64_t kind = leaf_bit | walk.need;
  for (unsigned i = index + 1; bytes < walk.length && i < entries; ++i) {
    const std::uint64_t follower = entry(walk.table, i);
    if ((follower & address_mask) != next || (follower & kind) != kind || (next & reserved_) != 0) {
      break;
    }
    bytes += span;
    next += span;
  }
  walk.result.address = target(value) + offset;
  walk.result.bytes = std::min(bytes, walk.length);
  walk.result.steps = top_level + 1 - level;
  walk.result.page_shift = shift_of(level);
  walk.result.readable = (walk.rights & read_bit) != 0;
  walk.result.writable = (walk.rights & write_bit) != 0;
}

WalkResult PageTable::walk(Iova iova, std::uint64_t length, DmaDirection direction) const {
  WalkResult result;
  if (iova.value >> address_bits != 0) [[unlikely]] {
    result.fault = WalkFault::address_width;
    return result;
  }
  if (!root_) [[unlikely]] {
    result.fault = WalkFault::not_present;
    return result;
  }
  Walk walk{.iova = iova.value,
            .length = std::max<std::uint64_t>(length, 1),
            .need = direction == DmaDirection::read ? read_bit : write_bit,
            .table = *root_,
            .result = result};
  descend<top_level>(walk);
  return result;
}

}  // namespace orrery::pcie
