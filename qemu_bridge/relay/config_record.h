// What a client has written to a device's configuration space, as a new server must be told of it.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "qemu_bridge/relay/device_description.h"
#include "qemu_bridge/relay/request.h"

namespace orrery::bridge {

// The latest value of each byte that was ever written. One thread.
class ConfigRecord {
 public:
  static constexpr std::size_t size = 4096;

  // Finds the registers that need care; what was noted before is gone.
  void open(const DeviceDescription& device);

  // A write that the device has carried out. One that initiates a function level reset leaves the BARs only:
  // a VMM keeps them over a reset, and the guest's driver writes the rest anew.
  void write(std::uint64_t offset, std::span<const std::byte> data);
  // A write while there is no device: BARs are noted. Anything else is not, since it may come from what was read,
  // which is all ones.
  void write_absent(std::uint64_t offset, std::span<const std::byte> data);
  // True if write_absent() notes something of this range.
  [[nodiscard]] static bool touches_bars(std::uint64_t offset, std::size_t count);

  // Appends the writes, with the command register last: what it enables is then in place.
  void replay(std::vector<RelayRequest>& requests) const;

 private:
  [[nodiscard]] bool resets_function(std::uint64_t offset, std::span<const std::byte> data) const;
  void note(std::uint64_t offset, std::span<const std::byte> data, bool bars_only);
  void replay_range(std::size_t begin, std::size_t end, std::vector<RelayRequest>& requests) const;

  std::array<std::byte, size> value_{};
  std::bitset<size> written_;
  std::size_t reset_byte_ = 0;  // that has Initiate Function Level Reset; 0: there's none
};

}  // namespace orrery::bridge
