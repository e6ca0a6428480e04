#include "pcie/bar.h"

#include <bit>

#include <fmt/format.h>

#include "common/error.h"

namespace orrery::pcie {

namespace {

// Low bits of a memory BAR (§7.5.1.2.1): bit 0 memory, bits 2:1 type, bit 3 prefetchable.
constexpr std::uint32_t type_64bit = 2U << 1;
constexpr std::uint32_t prefetchable_bit = 1U << 3;
constexpr std::uint32_t flag_bits = 0xf;
constexpr std::uint64_t smallest_bar = 128;
constexpr std::uint64_t largest_32bit_bar = std::uint64_t{1} << 31;

}  // namespace

void define_bars(ConfigSpace& space, const BarDescriptions& bars) {
  if (space.header_type() != HeaderType::endpoint) {
    throw Error("BARs belong into a type 0 header", "give bridges no BARs");
  }
  define_bars_at(space, config_register::bar0, bars, smallest_bar, ConfigWatch::bar, "BAR");
}

void define_bars_at(ConfigSpace& space, std::uint32_t offset, const BarDescriptions& bars, std::uint64_t smallest,
                    ConfigWatch watch, const char* what) {
  for (unsigned i = 0; i < bar_count; ++i) {
    const BarDescription& bar = bars[i];
    const std::uint32_t at = offset + 4 * i;
    if (bar.size == 0) {
      continue;
    }
    if (!std::has_single_bit(bar.size) || bar.size < smallest) {
      throw Error(fmt::format("{}{}: size {:#x}", what, i, bar.size),
                  fmt::format("give a power of two of at least {} bytes", smallest));
    }
    if (!bar.is_64bit && bar.size > largest_32bit_bar) {
      throw Error(fmt::format("{}{}: {:#x} bytes don't fit a 32-bit BAR", what, i, bar.size), "make it a 64-bit BAR");
    }
    if (!bar.is_64bit && bar.prefetchable) {
      throw Error(fmt::format("{}{}: prefetchable, but 32-bit", what, i),
                  "make it a 64-bit BAR, or one that is not prefetchable");
    }
    if (bar.is_64bit && (i + 1 == bar_count || bars[i + 1].size != 0)) {
      throw Error(fmt::format("{}{}: a 64-bit BAR needs the next register for its upper half", what, i),
                  "leave the next BAR out, and put no 64-bit BAR at index 5");
    }
    const std::uint64_t mask = ~(bar.size - 1);
    space.define(at, 4, (bar.is_64bit ? type_64bit : 0) | (bar.prefetchable ? prefetchable_bit : 0),
                 {.writable = static_cast<std::uint32_t>(mask)});
    space.watch(at, watch);
    if (bar.is_64bit) {
      space.define(at + 4, 4, 0, {.writable = static_cast<std::uint32_t>(mask >> 32U)});
      space.watch(at + 4, watch);
      ++i;
    }
  }
}

BarRegister bar_register(const ConfigSpace& space, std::uint32_t offset) {
  const std::uint32_t low = space.read32(offset);
  BarRegister result;
  result.is_64bit = (low & flag_bits & ~prefetchable_bit) == type_64bit;
  std::uint64_t mask = space.writable_bits(offset);
  result.base = low & ~flag_bits;
  if (result.is_64bit) {
    const std::uint64_t upper = space.read32(offset + 4);
    mask |= static_cast<std::uint64_t>(space.writable_bits(offset + 4)) << 32U;
    result.base |= upper << 32U;
    result.assigned = result.base != 0 && result.base != mask && upper != 0xffff'ffffU;
  } else {
    result.assigned = result.base != 0 && result.base != mask;
    mask |= mask == 0 ? 0 : 0xffff'ffff'0000'0000;
  }
  result.size = ~mask + 1;  // the mask of a power of two; 0 for none
  return result;
}

BarSet::BarSet(const ConfigSpace& space, const BarDescriptions& bars) : space_(space), bars_(bars) {
  refresh();
}

void BarSet::refresh() {
  active_ = 0;
  if (!space_.memory_decode_enabled()) {
    return;
  }
  for (unsigned i = 0; i < bar_count; ++i) {
    if (bars_[i].size == 0) {
      continue;
    }
    const BarRegister bar = bar_register(space_, config_register::bar0 + 4 * i);
    if (bar.assigned) {
      windows_[active_++] = Window{.base = bar.base, .size = bars_[i].size, .bar = i};
    }
    i += bars_[i].is_64bit ? 1 : 0;
  }
}

std::optional<std::uint64_t> BarSet::base(unsigned bar) const {
  for (unsigned i = 0; i < active_; ++i) {
    if (windows_[i].bar == bar) {
      return windows_[i].base;
    }
  }
  return std::nullopt;
}

}  // namespace orrery::pcie
