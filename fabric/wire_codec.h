// RoCE frames to and from bytes.
//
// Frames run from the destination MAC to the ICRC; the Ethernet FCS is not part of them. IBTA Volume 1 Release 1.4,
// §7.8.1 (ICRC), §9.2, Annex A16, A17; RFC 791, 768, 8200; IEEE 802.1Q.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fabric/packet_pool.h"
#include "fabric/roce_headers.h"

namespace orrery::fabric {

// Bytes of headers, payload, pad and ICRC; not FCS. The opcode must be valid.
std::uint32_t frame_bytes(const RoceHeaders& headers, std::uint32_t payload_bytes);
inline constexpr std::uint32_t fcs_bytes = 4;
inline constexpr std::uint32_t smallest_wire_bytes = 64;  // IEEE 802.3 §4A.2.3.2.4, FCS included

// Writes the frame and returns its length. Computes pad, lengths, IPv4 and UDP checksums (UDP over IPv4: 0, A17.4.4)
// and ICRC. Values wider than their field are cut. Error if the opcode is invalid, if it carries no payload but there
// is some, or if `out` is too small (max_frame_bytes always suffices for 9216 bytes).
std::size_t encode_frame(const RoceHeaders& headers, std::span<const std::byte> payload, std::span<std::byte> out);

// What was wrong with a frame; each is counted and dropped silently by a receiver (IBTA §9.6).
enum class DecodeStatus : std::uint8_t {
  ok,
  not_roce,          // other ethertype, protocol, port, or an IP fragment: for the network stack
  truncated,         // ends before its headers do
  bad_ip_header,     // version, header length, total length
  bad_ip_checksum,   // IPv4
  bad_udp,           // length, or a checksum that is there and wrong
  bad_grh,           // version, next header, length
  bad_bth,           // transport header version (§9.6.1.1.2), pad beyond the payload
  unknown_opcode,    // reserved, or RD
  unexpected_bytes,  // payload on an opcode that has none
  bad_icrc,
};
inline constexpr unsigned decode_statuses = 11;
const char* name(DecodeStatus status);

struct DecodedFrame {
  RoceHeaders headers;
  std::span<const std::byte> payload;  // within the frame; pad excluded
};
// Decodes any bytes; hostile ones are safe. `out` is unspecified unless ok. IPv4 options are skipped; padding after
// the IP length is ignored.
DecodeStatus decode_frame(std::span<const std::byte> frame, DecodedFrame& out);

// ICRC of a frame as encode_frame writes it, as the number whose little-endian bytes are on the wire. `frame` ends
// before the ICRC; `network_offset`: where IP header or GRH begins; `bth_offset`: where the BTH does.
std::uint32_t icrc(std::span<const std::byte> frame, std::size_t network_offset, std::size_t bth_offset);

// What forwarding needs to know of any frame: class (RoCE by port or ethertype and opcode), addresses, entropy
// (UDP source port of RoCEv2, low bits of RoCE v1's flow label, else a hash of IP addresses, protocol and ports), ECN.
// Any bytes are allowed; what is not there stays default. Sets wire_bytes (at least 64) too.
void classify_frame(std::span<const std::byte> frame, Packet& packet);
// Sets the ECN field of an IPv4 or IPv6 frame and mends the IPv4 checksum; leaves other frames alone.
void set_frame_ecn(std::span<std::byte> frame, Ecn ecn);

// The frame that a packet is on the wire, as a capture shows it: the record with the packet's entropy and ECN; a
// packet with flag bad_icrc gets a wrong one. Returns 0 for a packet without content. Error as encode_frame.
std::size_t encode_packet(const PacketPool& pool, const Packet& packet, std::span<std::byte> out);

}  // namespace orrery::fabric
