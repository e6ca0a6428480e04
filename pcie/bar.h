// Base address registers: their layout in a type 0 header and the decoding of memory addresses by them.
//
// PCI Express Base 6.3 §7.5.1.2.1. A driver sizes a BAR by writing all ones and reading back the mask;
// only memory BARs exist here (no I/O space).
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "pcie/config_space.h"
#include "pcie/function_access.h"

namespace orrery::pcie {

using BarDescriptions = std::array<BarDescription, bar_count>;

// Lays the BAR registers down in a type 0 space. Throws Error, naming the BAR, for a size that is no power
// of two or below 128 bytes, a 32-bit BAR over 2 GiB, a 64-bit BAR whose upper half isn't free, and a
// prefetchable BAR that isn't 64-bit (the last two limits of endpoints: §7.5.1.2.1).
void define_bars(ConfigSpace& space, const BarDescriptions& bars);

// The same for six registers anywhere (the VF BARs of SR-IOV), none smaller than `smallest` bytes.
// `what` names the registers in an error message.
void define_bars_at(ConfigSpace& space, std::uint32_t offset, const BarDescriptions& bars, std::uint64_t smallest,
                    ConfigWatch watch, const char* what);

// One BAR as the registers show it; `offset` is that of the BAR, not of the upper half of one.
struct BarRegister {
  std::uint64_t base = 0;  // what was written, flags taken off
  std::uint64_t size = 0;  // bytes; 0: no BAR here
  bool is_64bit = false;
  bool assigned = false;  // base is an address, see BarSet
};
[[nodiscard]] BarRegister bar_register(const ConfigSpace& space, std::uint32_t offset);

// Which BAR of a function claims a memory address.
//
// A BAR claims while memory decode is enabled (command register, D0) and its register holds an address:
// neither 0 (never assigned) nor the pattern of a sizing write (all writable bits ones; for a 64-bit BAR
// also an upper half of all ones). Looking up is a scan over at most six registers held decoded.
class BarSet {
 public:
  struct Hit {
    unsigned bar;
    std::uint64_t offset;  // bytes from the BAR's base
  };

  // The space must outlive the set and hold the registers that define_bars() made from `bars`.
  BarSet(const ConfigSpace& space, const BarDescriptions& bars);

  // Reads the registers again: call on on_bars, on_command, on_power_state and on_reset.
  void refresh();

  // The BAR that holds all of [address, address + length), length >= 1; none otherwise.
  [[nodiscard]] std::optional<Hit> find(std::uint64_t address, std::uint64_t length) const {
    for (unsigned i = 0; i < active_; ++i) {
      const Window& window = windows_[i];
      const std::uint64_t offset = address - window.base;  // wraps to a large value below the base
      if (offset < window.size && length <= window.size - offset) {
        return Hit{window.bar, offset};
      }
    }
    return std::nullopt;
  }

  // Where a BAR claims now; none while it doesn't.
  [[nodiscard]] std::optional<std::uint64_t> base(unsigned bar) const;
  [[nodiscard]] const BarDescriptions& descriptions() const { return bars_; }

 private:
  struct Window {
    std::uint64_t base = 0;
    std::uint64_t size = 0;
    unsigned bar = 0;
  };
  const ConfigSpace& space_;
  BarDescriptions bars_;
  std::array<Window, bar_count> windows_;
  unsigned active_ = 0;
};

}  // namespace orrery::pcie
