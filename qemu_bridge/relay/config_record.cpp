#include "qemu_bridge/relay/config_record.h"

#include <algorithm>

#include "qemu_bridge/codec.h"

namespace orrery::bridge {
namespace {

// PCI Local Bus 3.0 §6.2: command register; base address registers; expansion ROM base address.
constexpr std::size_t command_register = 0x04;
constexpr std::size_t command_end = 0x06;
constexpr std::size_t bars = 0x10;
constexpr std::size_t bars_end = 0x28;
constexpr std::size_t rom = 0x30;
constexpr std::size_t rom_end = 0x34;

constexpr bool is_bar(std::uint64_t offset) {
  return (offset >= bars && offset < bars_end) || (offset >= rom && offset < rom_end);
}

}  // namespace

void ConfigRecord::open(const DeviceDescription& device) {
  // PCIe Base 6.3 §7.5.3.3 and §7.5.3.4: Device Capabilities bit 28, Device Control bit 15.
  constexpr std::uint8_t pci_express = 0x10;
  constexpr std::size_t capabilities = 4;
  constexpr std::size_t control = 8;
  written_.reset();
  reset_byte_ = 0;
  const std::size_t at = device.capability(pci_express);
  if (at != 0 && at + control + 2 <= DeviceDescription::config_bytes &&
      (device.config[at + capabilities + 3] & std::byte{0x10}) != std::byte{0}) {
    reset_byte_ = at + control + 1;
  }
}

bool ConfigRecord::resets_function(std::uint64_t offset, std::span<const std::byte> data) const {
  return reset_byte_ != 0 && offset <= reset_byte_ && reset_byte_ - offset < data.size() &&
         (data[reset_byte_ - offset] & std::byte{0x80}) != std::byte{0};
}

void ConfigRecord::write(std::uint64_t offset, std::span<const std::byte> data) {
  if (!resets_function(offset, data)) {
    note(offset, data, false);
    return;
  }
  for (std::size_t i = 0; i < size; ++i) {
    if (!is_bar(i)) {
      written_.reset(i);
    }
  }
}

void ConfigRecord::write_absent(std::uint64_t offset, std::span<const std::byte> data) {
  note(offset, data, true);
}

bool ConfigRecord::touches_bars(std::uint64_t offset, std::size_t count) {
  const auto overlaps = [&](std::uint64_t begin, std::uint64_t end) {
    return offset < end && count > 0 && offset + count > begin;
  };
  return overlaps(bars, bars_end) || overlaps(rom, rom_end);
}

void ConfigRecord::note(std::uint64_t offset, std::span<const std::byte> data, bool bars_only) {
  for (std::size_t i = 0; i < data.size() && offset < size && i < size - offset; ++i) {
    if (!bars_only || is_bar(offset + i)) {
      value_[offset + i] = data[i];
      written_.set(offset + i);
    }
  }
}

void ConfigRecord::replay(std::vector<RelayRequest>& requests) const {
  replay_range(0, command_register, requests);
  replay_range(command_end, size, requests);
  replay_range(command_register, command_end, requests);
}

void ConfigRecord::replay_range(std::size_t begin, std::size_t end, std::vector<RelayRequest>& requests) const {
  for (std::size_t at = begin; at < end;) {
    if (!written_[at]) {
      ++at;
      continue;
    }
    // A dword at most, as a guest writes them.
    const std::size_t dword_end = std::min(end, (at / 4 + 1) * 4);
    std::size_t last = at + 1;
    while (last < dword_end && written_[last]) {
      ++last;
    }
    std::vector<std::byte> payload =
        payload_of(wire::RegionAccess{at, wire::region_config, static_cast<std::uint32_t>(last - at)});
    payload.insert(payload.end(), value_.begin() + static_cast<std::ptrdiff_t>(at),
                   value_.begin() + static_cast<std::ptrdiff_t>(last));
    requests.push_back({wire::Command::region_write, std::move(payload), {}});
    at = last;
  }
}

}  // namespace orrery::bridge
