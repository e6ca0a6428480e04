// The four address spaces of a virtualised server, as four types that do not mix.
//
// Gva: guest virtual. Gpa: guest physical. Iova: what a device puts into an untranslated TLP (AT = 00b).
// Hpa: host physical, what DRAM and BAR windows of the platform are decoded by (AT = 10b carries it too).
// A conversion always goes through the component that owns it (EPT, IOMMU page table, eMTT).
#pragma once

#include <compare>
#include <cstdint>

namespace orrery {

template <class Space>
struct Address {
  std::uint64_t value = 0;

  constexpr Address() = default;
  constexpr explicit Address(std::uint64_t v) : value(v) {}
  constexpr auto operator<=>(const Address&) const = default;
  friend constexpr Address operator+(Address a, std::uint64_t bytes) { return Address{a.value + bytes}; }
  friend constexpr Address operator-(Address a, std::uint64_t bytes) { return Address{a.value - bytes}; }
  // Distance in bytes; a must not lie below b.
  friend constexpr std::uint64_t operator-(Address a, Address b) { return a.value - b.value; }
};

using Gva = Address<struct GvaSpace>;
using Gpa = Address<struct GpaSpace>;
using Iova = Address<struct IovaSpace>;
using Hpa = Address<struct HpaSpace>;

// True if [start, start + size) neither wraps nor leaves 64 bits; the first thing to ask of an
// address and a size that came from outside.
constexpr bool range_is_valid(std::uint64_t start, std::uint64_t size) {
  return size != 0 && start + (size - 1) >= start;
}

}  // namespace orrery
