// Headers of RoCE packets as values, and which of them an opcode carries.
//
// IBTA Architecture Specification Volume 1 Release 1.4 (below: IBTA), chapter 9 and Annexes A14 (XRC), A16 (RoCE)
// and A17 (RoCEv2). The bytes on the wire are wire_codec.h's. Two extensions of Orrery's own, placement and
// acknowledge fields, follow the standard headers where Bth::extended is set: docs/fabric.md gives their bits.
#pragma once

#include <array>
#include <cstdint>

#include "fabric/packet.h"

namespace orrery::fabric {

// BTH opcode (IBTA §9.2.1 table 38, A14): transport in bits 7:5, operation in bits 4:0.
enum class RoceTransport : std::uint8_t { rc = 0, uc = 1, rd = 2, ud = 3, cnp = 4, xrc = 5 };
enum class RoceOperation : std::uint8_t {
  send_first = 0,
  send_middle = 1,
  send_last = 2,
  send_last_immediate = 3,
  send_only = 4,
  send_only_immediate = 5,
  write_first = 6,
  write_middle = 7,
  write_last = 8,
  write_last_immediate = 9,
  write_only = 10,
  write_only_immediate = 11,
  read_request = 12,
  read_response_first = 13,
  read_response_middle = 14,
  read_response_last = 15,
  read_response_only = 16,
  acknowledge = 17,
  atomic_acknowledge = 18,
  compare_swap = 19,
  fetch_add = 20,
  send_last_invalidate = 22,
  send_only_invalidate = 23,
};
inline constexpr std::uint8_t opcode_cnp = 0x81;  // congestion notification (A17.9.3)

constexpr std::uint8_t opcode_of(RoceTransport transport, RoceOperation operation) {
  return static_cast<std::uint8_t>((static_cast<unsigned>(transport) << 5) | static_cast<unsigned>(operation));
}
constexpr RoceTransport transport_of(std::uint8_t opcode) {
  return static_cast<RoceTransport>(opcode >> 5);
}
constexpr RoceOperation operation_of(std::uint8_t opcode) {
  return static_cast<RoceOperation>(opcode & 31U);
}

// Extension that a packet of an opcode may carry. place: the 12-byte placement header; place_address: that and
// address and key (WRITE without a RETH); acknowledge: the acknowledge fields.
enum class RoceExtension : std::uint8_t { none, place, place_address, acknowledge };

// Extended headers of an opcode, in wire order (IBTA §9.2, table 38 and figure 75; XRC: A14.3).
struct OpcodeLayout {
  bool valid = false;  // an opcode of RC, UC, UD, XRC, or CNP; RD is not supported
  bool deth = false;
  bool xrceth = false;
  bool reth = false;
  bool atomic = false;
  bool aeth = false;
  bool atomic_ack = false;
  bool immediate = false;
  bool ieth = false;
  bool payload = false;  // may carry payload
  bool starts_message = false;
  bool ends_message = false;
  bool answer = false;            // ACK, NAK, atomic response or CNP
  bool request = false;           // travels from requester to responder
  bool consumes_receive = false;  // at its end: SEND, WRITE with immediate
  RoceExtension extension = RoceExtension::none;
  std::uint8_t header_bytes = 0;  // all of the above flags' headers, without BTH and extension
};
// Constant time; any byte is allowed.
const OpcodeLayout& layout_of(std::uint8_t opcode);
// "RC SEND First", as the specification spells it; "unknown opcode" otherwise.
const char* opcode_name(std::uint8_t opcode);

// A GID or IPv6 address, in network byte order. IPv4 addresses are ::ffff:a.b.c.d (IBTA A17.4.5.2).
using Gid = std::array<std::uint8_t, 16>;
constexpr Gid gid_of_ipv4(std::uint32_t address) {
  Gid gid{};
  gid[10] = gid[11] = 0xff;
  for (unsigned i = 0; i < 4; ++i) {
    gid[12 + i] = static_cast<std::uint8_t>(address >> (24 - 8 * i));
  }
  return gid;
}
constexpr std::uint32_t ipv4_of_gid(const Gid& gid) {
  return (std::uint32_t{gid[12]} << 24) | (std::uint32_t{gid[13]} << 16) | (std::uint32_t{gid[14]} << 8) | gid[15];
}

// v1: ethertype 0x8915 and a GRH (A16). v2: UDP port 4791 over IPv4 or IPv6 (A17).
enum class RoceEncapsulation : std::uint8_t { v1, v2_ipv4, v2_ipv6 };
inline constexpr std::uint16_t roce_udp_port = 4791;

// Everything before the BTH.
struct NetworkHeaders {
  MacAddress destination_mac;
  MacAddress source_mac;
  bool has_vlan = false;
  std::uint16_t vlan_tci = 0;  // IEEE 802.1Q: priority, DEI, VLAN ID
  RoceEncapsulation encapsulation = RoceEncapsulation::v2_ipv4;
  Ecn ecn = Ecn::not_ect;
  std::uint8_t dscp = 0;             // 6 bits
  std::uint8_t hop_limit = 64;       // TTL
  std::uint32_t flow_label = 0;      // 20 bits; v1 and IPv6
  std::uint16_t identification = 0;  // IPv4; DF is always sent
  std::uint16_t udp_source_port = 0xc000;
  Gid source{};
  Gid destination{};
};

// Base transport header (§9.2).
struct Bth {
  std::uint8_t opcode = 0;
  bool solicited = false;
  bool migrated = true;
  std::uint8_t pad = 0;  // 0 … 3; encoding computes it
  std::uint16_t pkey = 0xffff;
  bool fecn = false;
  bool becn = false;
  std::uint32_t destination_qp = 0;  // 24 bits
  bool ack_request = false;
  bool extended = false;  // Orrery: the opcode's RoceExtension follows (bit 6 of the 7 reserved bits before the PSN)
  std::uint32_t psn = 0;  // 24 bits
};

struct Deth {
  std::uint32_t qkey = 0;
  std::uint32_t source_qp = 0;  // 24 bits
};
struct Reth {
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
  std::uint32_t length = 0;
};
struct AtomicEth {
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
  std::uint64_t swap_or_add = 0;
  std::uint64_t compare = 0;
};
// §9.7.5.2.1 to 9.7.5.2.4, table 45: bits 6:5 say ACK (0), RNR NAK (1), NAK (3), bits 4:0 credits, timer or code.
struct Aeth {
  std::uint8_t syndrome = 0;
  std::uint32_t msn = 0;  // 24 bits
};
namespace aeth {
inline constexpr std::uint8_t ack_no_credits = 0x1f;  // ACK, credit count not valid
inline constexpr std::uint8_t rnr_nak = 0x20;         // + timer code (table 46)
inline constexpr std::uint8_t nak_sequence_error = 0x60;
inline constexpr std::uint8_t nak_invalid_request = 0x61;
inline constexpr std::uint8_t nak_remote_access = 0x62;
inline constexpr std::uint8_t nak_remote_operation = 0x63;
constexpr bool is_ack(std::uint8_t syndrome) {
  return (syndrome & 0xe0U) == 0;
}
constexpr bool is_rnr_nak(std::uint8_t syndrome) {
  return (syndrome & 0xe0U) == 0x20;
}
constexpr bool is_nak(std::uint8_t syndrome) {
  return (syndrome & 0xe0U) == 0x60;
}
}  // namespace aeth
// Delay of an RNR NAK's 5-bit timer code (§9.7.5.2.8 table 46): 0 is 655.36 ms, 1 is 10 µs, 31 is 491.52 ms.
Picoseconds rnr_delay(std::uint8_t timer_code);

// Orrery's placement header: a SEND or WRITE packet can be placed alone, in whatever order it arrives.
struct Placement {
  std::uint32_t message = 0;  // ordinal of the request message on its QP, 24 bits, from 0
  // Ordinal among the messages that consume a receive WQE, 24 bits, from 0 (SEND, WRITE with immediate): which WQE a
  // packet goes to. Of a WRITE without immediate: the ordinal that the next such message has.
  std::uint32_t receive = 0;
  std::uint32_t offset = 0;   // of this packet's first byte in its message
  std::uint64_t address = 0;  // WRITE middle and last: virtual address of this packet's first byte
  std::uint32_t rkey = 0;     // WRITE middle and last
};

// Orrery's acknowledge fields, after the AETH of ACK and NAK packets. BTH.PSN stays the cumulative PSN.
struct AckExtension {
  std::uint32_t trigger_psn = 0;  // 24 bits: the packet that made the receiver send this
  std::uint32_t sack_base = 0;    // 24 bits
  std::uint64_t sack_bitmap = 0;  // bit i: PSN sack_base + i has arrived
  std::uint16_t entropy = 0;      // the trigger's UDP source port
  bool ecn_echo = false;          // the trigger was marked CE
  std::uint8_t ce_count = 0;      // packets marked CE since the last acknowledge, saturating
  std::uint16_t delay = 0;        // from the trigger's arrival to this, in units of 16 ns, saturating
};

// Bytes of the extensions on the wire, and their flag in the ninth byte of the BTH (bit 6 of the seven reserved ones).
inline constexpr std::uint32_t placement_bytes = 12;
inline constexpr std::uint32_t placement_address_bytes = 12;  // more, for place_address
inline constexpr std::uint32_t ack_extension_bytes = 20;
inline constexpr std::uint32_t bth_extended_bit = 0x40;

// All headers of a packet. Which are on the wire, the opcode (layout_of) and Bth::extended say; the rest is not read.
struct RoceHeaders {
  NetworkHeaders network;
  Bth bth;
  Deth deth;
  std::uint32_t xrc_srq = 0;  // XRCETH, 24 bits (A14.3.2)
  Reth reth;
  AtomicEth atomic;
  Aeth aeth;
  std::uint64_t atomic_original = 0;  // AtomicAckETH
  std::uint32_t immediate = 0;        // ImmDt, as a big-endian number
  std::uint32_t invalidate_rkey = 0;  // IETH
  Placement placement;
  AckExtension ack;
};

}  // namespace orrery::fabric
