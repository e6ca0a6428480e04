// CRC-32 of IEEE 802.3 (reflected, polynomial 0x04c11db7): Ethernet FCS and the InfiniBand ICRC use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace orrery::fabric {

// Running value: start with crc32_start, feed bytes, finish with crc32_finish.
inline constexpr std::uint32_t crc32_start = 0xffff'ffffU;
std::uint32_t crc32_update(std::uint32_t state, std::span<const std::byte> bytes);
constexpr std::uint32_t crc32_finish(std::uint32_t state) {
  return ~state;
}

}  // namespace orrery::fabric
