// Big-endian fields of frames, and the Internet checksum. Internal to the codec.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fabric/packet.h"

namespace orrery::fabric::wire {

inline constexpr std::uint16_t ethertype_ipv4 = 0x0800;
inline constexpr std::uint16_t ethertype_vlan = 0x8100;
inline constexpr std::uint16_t ethertype_ipv6 = 0x86dd;
inline constexpr std::uint16_t ethertype_roce = 0x8915;  // A16.3.1
inline constexpr std::uint8_t protocol_tcp = 6;
inline constexpr std::uint8_t protocol_udp = 17;
inline constexpr std::uint8_t grh_next_header_bth = 0x1b;  // IBTA §8.3.4

// The `bytes` (1 … 8) bytes at `at` as a number. The caller has checked that they are there.
inline std::uint64_t get(std::span<const std::byte> from, std::size_t at, unsigned bytes) {
  std::uint64_t value = 0;
  for (unsigned i = 0; i < bytes; ++i) {
    value = (value << 8) | static_cast<std::uint64_t>(from[at + i]);
  }
  return value;
}
inline std::uint32_t get8(std::span<const std::byte> from, std::size_t at) {
  return static_cast<std::uint32_t>(from[at]);
}
inline std::uint32_t get16(std::span<const std::byte> from, std::size_t at) {
  return (static_cast<std::uint32_t>(from[at]) << 8) | static_cast<std::uint32_t>(from[at + 1]);
}
inline std::uint32_t get24(std::span<const std::byte> from, std::size_t at) {
  return static_cast<std::uint32_t>(get(from, at, 3));
}
inline std::uint32_t get32(std::span<const std::byte> from, std::size_t at) {
  return static_cast<std::uint32_t>(get(from, at, 4));
}
inline void set(std::span<std::byte> to, std::size_t at, unsigned bytes, std::uint64_t value) {
  for (unsigned i = 0; i < bytes; ++i) {
    to[at + i] = static_cast<std::byte>(value >> (8 * (bytes - 1 - i)));
  }
}

// Sum of 16-bit words, an odd byte padded with zero (RFC 1071).
inline std::uint64_t word_sum(std::span<const std::byte> bytes) {
  std::uint64_t sum = 0;
  std::size_t i = 0;
  for (; i + 1 < bytes.size(); i += 2) {
    sum += get16(bytes, i);
  }
  return i < bytes.size() ? sum + (get8(bytes, i) << 8) : sum;
}
inline std::uint16_t fold_checksum(std::uint64_t sum) {
  while (sum >> 16 != 0) {
    sum = (sum & 0xffffU) + (sum >> 16);
  }
  return static_cast<std::uint16_t>(~sum);
}

// Where the network header of an Ethernet frame begins. ethertype 0: the frame is too short.
struct EthernetView {
  std::size_t network_offset = 14;
  std::uint16_t ethertype = 0;
  bool has_vlan = false;
  std::uint16_t vlan_tci = 0;
};
inline EthernetView ethernet_view(std::span<const std::byte> frame) {
  EthernetView view;
  if (frame.size() < 14) {
    return view;
  }
  view.ethertype = static_cast<std::uint16_t>(get16(frame, 12));
  if (view.ethertype == ethertype_vlan) {
    if (frame.size() < 18) {
      view.ethertype = 0;
      return view;
    }
    view.has_vlan = true;
    view.vlan_tci = static_cast<std::uint16_t>(get16(frame, 14));
    view.ethertype = static_cast<std::uint16_t>(get16(frame, 16));
    view.network_offset = 18;
  }
  return view;
}

}  // namespace orrery::fabric::wire
