// What links and switches forward: 64 bytes, without the frame's bytes.
//
// A Packet says what a forwarding element has to know. Headers and payload are a reference-counted record of a
// PacketPool (packet_pool.h), which only endpoints and captures look into. Where both say the same thing (entropy
// value, ECN), the Packet is right: switches mark it, retransmissions change it, while the record is shared.
#pragma once

#include <compare>
#include <cstdint>
#include <type_traits>

#include "common/time.h"

namespace orrery::fabric {

// Ordinal of an endpoint (an RNIC port, a study's node) within a run.
using EndpointId = std::uint32_t;
inline constexpr EndpointId no_endpoint = 0xffff'ffffU;  // "look at the MAC address"

// IEEE 802 MAC address in the low 48 bits, first byte on the wire topmost: 02:00:00:00:00:01 is 0x0200'0000'0001.
struct MacAddress {
  std::uint64_t value = 0;

  constexpr auto operator<=>(const MacAddress&) const = default;
  // Group bit (IEEE 802-2014 §8.2): multicast, and broadcast too.
  [[nodiscard]] constexpr bool is_multicast() const { return ((value >> 40) & 1U) != 0; }
  [[nodiscard]] constexpr bool is_broadcast() const { return value == 0xffff'ffff'ffffU; }
};

// ECN field of the IP header (RFC 3168 §5).
enum class Ecn : std::uint8_t { not_ect = 0, ect1 = 1, ect0 = 2, ce = 3 };

// What a packet is to a forwarding element: RoCE requests and READ responses; RoCE acknowledges (ACK, NAK, atomic
// response, CNP); any other frame.
enum class PacketClass : std::uint8_t { ethernet, roce_data, roce_ack };

// Index of a record in a PacketPool. A Packet owns one reference to its record.
struct ContentHandle {
  std::uint32_t index = 0xffff'ffffU;

  constexpr bool operator==(const ContentHandle&) const = default;
  [[nodiscard]] constexpr bool empty() const { return index == 0xffff'ffffU; }
};

// Bits of Packet::flags.
namespace packet_flag {
inline constexpr std::uint8_t bad_fcs = 1;   // damaged on a link: the next receiver's Ethernet FCS check drops it
inline constexpr std::uint8_t bad_icrc = 2;  // damaged where no FCS protects: the RNIC's ICRC check drops it
inline constexpr std::uint8_t last = 4;      // last packet of its message, for capture and study
}  // namespace packet_flag

// Plain value. Whoever holds a Packet holds its content's reference: pass it on (Port::send, on_packet) or give it
// back (PacketPool::release).
struct Packet {
  EndpointId source = no_endpoint;
  EndpointId destination = no_endpoint;
  std::uint32_t flow = 0;        // connection or stream, free for the endpoints (an RNIC: destination QP number)
  std::uint32_t psn = 0;         // roce_*: BTH PSN, 24 bits
  std::uint32_t wire_bytes = 0;  // destination MAC to FCS, both included; links add preamble and gap themselves
  ContentHandle content;         // may be empty: studies without payload
  std::uint16_t entropy = 0;     // UDP source port; RoCE v1: flow label, low bits; other frames: a hash of 5-tuples
  Ecn ecn = Ecn::not_ect;
  PacketClass kind = PacketClass::ethernet;
  std::uint8_t flags = 0;  // packet_flag
  std::uint8_t hops = 0;   // links passed, saturating; links count it
  std::uint16_t tag = 0;   // free for the current holder
  MacAddress destination_mac;
  MacAddress source_mac;
  Picoseconds created;  // when the endpoint handed it to its port
  Picoseconds stamp;    // when it reaches the far end of the link that carries it; links set it
};
static_assert(sizeof(Packet) == 64 && std::is_trivially_copyable_v<Packet>);

}  // namespace orrery::fabric
