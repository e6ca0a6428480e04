#include "pcie/config_space.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/error.h"

namespace orrery::pcie {

namespace {

namespace reg = config_register;

constexpr std::uint16_t device_control_flr = 1U << 15;
constexpr std::uint32_t device_capabilities_flr = 1U << 28;
constexpr std::uint16_t power_state_mask = 3;

constexpr std::uint16_t command_writable = command_bit::memory_space | command_bit::bus_master |
                                           command_bit::parity_error_response | command_bit::serr_enable |
                                           command_bit::interrupt_disable;
constexpr std::uint16_t status_errors = status_bit::master_data_parity_error | status_bit::signalled_target_abort |
                                        status_bit::received_target_abort | status_bit::received_master_abort |
                                        status_bit::signalled_system_error | status_bit::detected_parity_error;
constexpr std::uint16_t secondary_bus_reset = 1U << 6;
// Parity Error Response, SERR Enable, ISA Enable, Secondary Bus Reset; VGA and I/O don't exist here.
constexpr std::uint16_t bridge_control_writable = 0x0007 | secondary_bus_reset;

constexpr std::uint32_t low_half(std::uint32_t value) {
  return value & 0xffffU;
}
constexpr std::uint32_t high_half(std::uint32_t value) {
  return value >> 16U;
}

constexpr std::uint32_t byte_mask(unsigned byte_enables) {
  std::uint32_t mask = 0;
  for (unsigned i = 0; i < 4; ++i) {
    if (((byte_enables >> i) & 1U) != 0) {
      mask |= 0xffU << (8 * i);
    }
  }
  return mask;
}

}  // namespace

struct ConfigSpace::Registers {
  using Bytes = std::array<std::uint8_t, size>;

  Bytes value{};
  Bytes initial{};
  Bytes writable{};
  Bytes clear_by_one{};
  Bytes sticky{};
  Bytes flr_exempt{};
  std::array<ConfigWatch, size / 4> watch{};

  // Little-endian, `offset` + width within the space.
  static std::uint32_t get(const Bytes& bytes, std::uint32_t offset, unsigned width = 4) {
    std::uint32_t result = 0;
    for (unsigned i = 0; i < width; ++i) {
      result |= static_cast<std::uint32_t>(bytes[offset + i]) << (8 * i);
    }
    return result;
  }
  static void put(Bytes& bytes, std::uint32_t offset, std::uint32_t value, unsigned width = 4) {
    for (unsigned i = 0; i < width; ++i) {
      bytes[offset + i] = static_cast<std::uint8_t>(value >> (8 * i));
    }
  }
  // Replaces the masked bits; bytes beyond the space are left out.
  static void merge(Bytes& bytes, std::uint32_t offset, std::uint32_t mask, std::uint32_t value) {
    for (unsigned i = 0; i < 4 && offset < size && offset + i < size; ++i) {
      const auto m = static_cast<std::uint8_t>(mask >> (8 * i));
      const auto v = static_cast<std::uint8_t>(value >> (8 * i));
      std::uint8_t& byte = bytes[offset + i];
      byte = static_cast<std::uint8_t>((byte & ~m) | (v & m));
    }
  }
};

ConfigSpace::ConfigSpace(HeaderType type, const FunctionIdentity& identity)
    : type_(type), registers_(std::make_unique<Registers>()) {
  if (identity.class_code > 0xff'ffff) {
    throw Error(fmt::format("class code {:#x} has more than 24 bits", identity.class_code),
                "give base class, sub-class and programming interface, such as 0x030200");
  }
  define(reg::vendor_id, 2, identity.vendor_id);
  define(reg::device_id, 2, identity.device_id);
  define(reg::command, 2, 0, {.writable = command_writable});
  define(reg::status, 2, 0, {.clear_by_one = status_errors});
  define(reg::revision_id, 4, identity.revision | identity.class_code << 8U);
  define(0x0c, 1, 0, {.writable = 0xff});  // cache line size: no effect in PCI Express, but read-write
  define(reg::header_type, 1, static_cast<unsigned>(type) | (identity.multi_function ? 0x80U : 0U));
  define(reg::interrupt_line, 1, 0, {.writable = 0xff});
  watch(reg::command, ConfigWatch::command);
  if (type == HeaderType::endpoint) {
    define(reg::subsystem_vendor_id, 2, identity.subsystem_vendor_id);
    define(reg::subsystem_vendor_id + 2, 2, identity.subsystem_id);
    return;
  }
  for (const std::uint16_t bus : {reg::primary_bus, reg::secondary_bus, reg::subordinate_bus}) {
    define(bus, 1, 0, {.writable = 0xff});
  }
  define(reg::secondary_status, 2, 0, {.clear_by_one = status_errors});
  // Windows start closed (base above limit); the lowest bit of the prefetchable ones says "64-bit".
  define(reg::memory_base, 2, 0xfff0, {.writable = 0xfff0});
  define(reg::memory_limit, 2, 0x0000, {.writable = 0xfff0});
  define(reg::prefetchable_base, 2, 0xfff1, {.writable = 0xfff0});
  define(reg::prefetchable_limit, 2, 0x0001, {.writable = 0xfff0});
  define(reg::prefetchable_base_upper, 4, 0, {.writable = 0xffff'ffff});
  define(reg::prefetchable_limit_upper, 4, 0, {.writable = 0xffff'ffff});
  define(reg::bridge_control, 2, 0, {.writable = bridge_control_writable});
  watch(reg::primary_bus, ConfigWatch::bus_numbers);
  for (const std::uint16_t window :
       {reg::memory_base, reg::prefetchable_base, reg::prefetchable_base_upper, reg::prefetchable_limit_upper}) {
    watch(window, ConfigWatch::bridge_window);
  }
  watch(reg::interrupt_line, ConfigWatch::bridge_control);
}

ConfigSpace::~ConfigSpace() = default;

void ConfigSpace::define(std::uint32_t offset, unsigned width, std::uint32_t value, const RegisterAccess& access) {
  if ((width != 1 && width != 2 && width != 4) || offset % width != 0 || offset >= size) {
    throw Error(fmt::format("no {}-byte register fits at configuration offset {:#x}", width, offset),
                "registers are 1, 2 or 4 bytes, naturally aligned, below 0x1000");
  }
  Registers& r = *registers_;
  Registers::put(r.value, offset, value, width);
  Registers::put(r.initial, offset, value, width);
  Registers::put(r.writable, offset, access.writable, width);
  Registers::put(r.clear_by_one, offset, access.clear_by_one, width);
  Registers::put(r.sticky, offset, access.sticky, width);
  Registers::put(r.flr_exempt, offset, access.flr_exempt, width);
}

void ConfigSpace::watch(std::uint32_t offset, ConfigWatch what) {
  if (offset >= size) {
    throw Error(fmt::format("no register to watch at configuration offset {:#x}", offset), "offsets end at 0xfff");
  }
  registers_->watch[offset / 4] = what;
}

void ConfigSpace::set_power_management(std::uint16_t capability_offset, bool d1, bool d2) {
  power_offset_ = capability_offset;
  d1_ = d1;
  d2_ = d2;
}

std::uint8_t ConfigSpace::read8(std::uint32_t offset) const {
  return offset < size ? registers_->value[offset] : std::uint8_t{0xff};
}

std::uint16_t ConfigSpace::read16(std::uint32_t offset) const {
  return offset <= size - 2 ? static_cast<std::uint16_t>(Registers::get(registers_->value, offset, 2))
                            : std::uint16_t{0xffff};
}

std::uint32_t ConfigSpace::read32(std::uint32_t offset) const {
  return offset <= size - 4 ? Registers::get(registers_->value, offset) : 0xffff'ffffU;
}

std::uint64_t ConfigSpace::read64(std::uint32_t offset) const {
  return offset <= size - 8 ? read32(offset) | static_cast<std::uint64_t>(read32(offset + 4)) << 32U
                            : ~std::uint64_t{0};
}

std::uint32_t ConfigSpace::writable_bits(std::uint32_t offset) const {
  return offset <= size - 4 ? Registers::get(registers_->writable, offset) : 0;
}

void ConfigSpace::set_bits(std::uint32_t offset, std::uint32_t bits) {
  Registers::merge(registers_->value, offset, bits, bits);
}

void ConfigSpace::clear_bits(std::uint32_t offset, std::uint32_t bits) {
  Registers::merge(registers_->value, offset, bits, 0);
}

void ConfigSpace::update_bits(std::uint32_t offset, std::uint32_t mask, std::uint32_t value) {
  Registers::merge(registers_->value, offset, mask, value);
}

void ConfigSpace::set_hardware(std::uint32_t offset, std::uint32_t mask, std::uint32_t value) {
  Registers::merge(registers_->value, offset, mask, value);
  Registers::merge(registers_->initial, offset, mask, value);
}

void ConfigSpace::read(std::uint32_t offset, std::span<std::byte> into) const {
  for (std::size_t i = 0; i < into.size(); ++i) {
    const std::uint64_t at = std::uint64_t{offset} + i;
    into[i] = at < size ? std::byte{registers_->value[at]} : std::byte{0xff};
  }
}

void ConfigSpace::write(std::uint32_t offset, std::span<const std::byte> from) {
  std::size_t done = 0;
  while (done < from.size() && std::uint64_t{offset} + done < size) {
    const auto at = static_cast<std::uint32_t>(offset + done);
    std::uint32_t value = 0;
    unsigned enables = 0;
    for (unsigned lane = at % 4; lane < 4 && done < from.size(); ++lane, ++done) {
      value |= std::to_integer<std::uint32_t>(from[done]) << (8 * lane);
      enables |= 1U << lane;
    }
    write_dword(at, value, enables);
  }
}

std::uint32_t ConfigSpace::read_dword(std::uint32_t offset) const {
  return read32(offset & ~3U);
}

void ConfigSpace::write_dword(std::uint32_t offset, std::uint32_t value, unsigned byte_enables) {
  offset &= ~3U;
  if (offset >= size) {
    return;
  }
  Registers& r = *registers_;
  const std::uint32_t enabled = byte_mask(byte_enables);
  const std::uint32_t writable = Registers::get(r.writable, offset) & enabled;
  const std::uint32_t cleared = Registers::get(r.clear_by_one, offset) & enabled & value;
  const ConfigWatch what = r.watch[offset / 4];
  const std::uint32_t before = Registers::get(r.value, offset);
  std::uint32_t after = ((before & ~writable) | (value & writable)) & ~cleared;
  if (what == ConfigWatch::power) {
    after = filter_power(before, after);
  }
  Registers::put(r.value, offset, after);

  // Initiate Function Level Reset reads 0, so no register bit holds it; Device Capabilities lies one dword before.
  if (what == ConfigWatch::device_control && (value & enabled & device_control_flr) != 0 &&
      (Registers::get(r.value, offset - 4) & device_capabilities_flr) != 0) {
    reset(ResetKind::function_level);
    return;
  }
  if (what != ConfigWatch::none && after != before && observer_ != nullptr) {
    notify(what, before, after);
  }
}

std::uint32_t ConfigSpace::filter_power(std::uint32_t before, std::uint32_t after) const {
  const auto from = static_cast<PowerState>(before & power_state_mask);
  const auto to = static_cast<PowerState>(after & power_state_mask);
  // A state that doesn't exist is discarded (§7.5.2.2); out of D3hot there is only the way to D0 (§5.3.1.4.1).
  const bool refused = (to == PowerState::d1 && (!d1_ || from != PowerState::d0)) ||
                       (to == PowerState::d2 && (!d2_ || from == PowerState::d3hot));
  return refused ? (after & ~std::uint32_t{power_state_mask}) | (before & power_state_mask) : after;
}

void ConfigSpace::notify(ConfigWatch what, std::uint32_t before, std::uint32_t after) {
  const bool low = low_half(before) != low_half(after);
  const bool high = high_half(before) != high_half(after);
  switch (what) {
    case ConfigWatch::none:
      break;
    case ConfigWatch::command:
      if (low) {
        observer_->on_command(static_cast<std::uint16_t>(low_half(before)),
                              static_cast<std::uint16_t>(low_half(after)));
      }
      break;
    case ConfigWatch::bar:
      observer_->on_bars();
      break;
    case ConfigWatch::msix_control:
      if (high) {
        observer_->on_msix_control((after >> 31U) != 0, ((after >> 30U) & 1U) != 0);
      }
      break;
    case ConfigWatch::power:
      if (((before ^ after) & power_state_mask) != 0) {
        observer_->on_power_state(static_cast<PowerState>(before & power_state_mask),
                                  static_cast<PowerState>(after & power_state_mask));
      }
      break;
    case ConfigWatch::device_control:
    case ConfigWatch::device_control2:
      if (low) {
        observer_->on_device_control();
      }
      break;
    case ConfigWatch::ats:
      observer_->on_ats_control();
      break;
    case ConfigWatch::acs:
      observer_->on_acs_control();
      break;
    case ConfigWatch::aer:
      observer_->on_aer();
      break;
    case ConfigWatch::sriov:
      observer_->on_sriov();
      break;
    case ConfigWatch::bus_numbers:
      observer_->on_bus_numbers();
      break;
    case ConfigWatch::bridge_window:
      observer_->on_bridge_windows();
      break;
    case ConfigWatch::bridge_control:
      if (((high_half(before) ^ high_half(after)) & secondary_bus_reset) != 0) {
        observer_->on_secondary_bus_reset((high_half(after) & secondary_bus_reset) != 0);
      }
      break;
  }
}

void ConfigSpace::reset(ResetKind kind) {
  Registers& r = *registers_;
  for (std::uint32_t i = 0; i < size; ++i) {
    unsigned keep = 0;
    if (kind != ResetKind::cold) {
      keep = r.sticky[i];
    }
    if (kind == ResetKind::function_level) {
      keep |= r.flr_exempt[i];
    }
    r.value[i] = static_cast<std::uint8_t>((r.value[i] & keep) | (r.initial[i] & ~keep));
  }
  if (observer_ != nullptr) {
    observer_->on_reset(kind);
  }
}

PowerState ConfigSpace::power_state() const {
  return power_offset_ == 0 ? PowerState::d0 : static_cast<PowerState>(read8(power_offset_ + 4U) & power_state_mask);
}

bool ConfigSpace::memory_decode_enabled() const {
  return (command() & command_bit::memory_space) != 0 && power_state() == PowerState::d0;
}

std::uint8_t ConfigSpace::capability(std::uint8_t id) const {
  if ((read16(reg::status) & status_bit::capabilities_list) == 0) {
    return 0;
  }
  std::uint8_t at = read8(reg::capabilities_pointer);
  // The lists are built by define(), which checks nothing of their shape: bound the walk.
  for (unsigned n = 0; at >= reg::first_capability && n < 48; ++n) {
    if (read8(at) == id) {
      return at;
    }
    at = read8(at + 1U);
  }
  return 0;
}

std::uint16_t ConfigSpace::extended_capability(std::uint16_t id) const {
  std::uint32_t at = reg::first_extended_capability;
  for (unsigned n = 0; at >= reg::first_extended_capability && n < 960; ++n) {
    const std::uint32_t header = read32(at);
    if (header == 0 || header == 0xffff'ffffU) {
      return 0;
    }
    if (low_half(header) == id) {
      return static_cast<std::uint16_t>(at);
    }
    at = header >> 20U;
  }
  return 0;
}

BridgeWindows bridge_windows(const ConfigSpace& space) {
  BridgeWindows windows;
  if (space.header_type() != HeaderType::bridge) {
    return windows;
  }
  windows.primary_bus = space.read8(reg::primary_bus);
  windows.secondary_bus = space.read8(reg::secondary_bus);
  windows.subordinate_bus = space.read8(reg::subordinate_bus);
  if (!space.memory_decode_enabled()) {
    return windows;
  }
  constexpr std::uint64_t granule = 0xf'ffff;
  const auto address = [&](std::uint16_t at) { return static_cast<std::uint64_t>(space.read16(at) & 0xfff0U) << 16U; };
  const auto upper = [&](std::uint16_t at) { return static_cast<std::uint64_t>(space.read32(at)) << 32U; };
  windows.memory = {address(reg::memory_base), address(reg::memory_limit) | granule};
  windows.prefetchable = {address(reg::prefetchable_base) | upper(reg::prefetchable_base_upper),
                          address(reg::prefetchable_limit) | upper(reg::prefetchable_limit_upper) | granule};
  return windows;
}

}  // namespace orrery::pcie
