#include <algorithm>

#include "fabric/wire_bytes.h"
#include "fabric/wire_codec.h"

namespace orrery::fabric {

namespace {

using wire::get16;
using wire::get32;
using wire::get8;

// Mixes 64 bits (the finaliser of MurmurHash3, Appleby, public domain): every input bit reaches every output bit.
constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51'afd7'ed55'8ccdU;
  x = (x ^ (x >> 33)) * 0xc4ce'b9fe'1a85'ec53U;
  return x ^ (x >> 33);
}

void classify_transport(std::span<const std::byte> frame, std::size_t bth, Packet& packet) {
  if (frame.size() < bth + 12) {
    return;
  }
  const auto opcode = static_cast<std::uint8_t>(get8(frame, bth));
  const OpcodeLayout& layout = layout_of(opcode);
  if (!layout.valid) {
    return;
  }
  packet.kind = layout.answer ? PacketClass::roce_ack : PacketClass::roce_data;
  packet.flow = wire::get24(frame, bth + 5);
  packet.psn = wire::get24(frame, bth + 9);
  if (layout.ends_message) {
    packet.flags |= packet_flag::last;
  }
}

// Ports of TCP and UDP where they are within the frame; RoCE is recognised by its UDP port.
void classify_ports(std::span<const std::byte> frame, std::size_t at, std::uint32_t protocol, std::uint64_t addresses,
                    Packet& packet) {
  std::uint64_t ports = 0;
  if ((protocol == wire::protocol_tcp || protocol == wire::protocol_udp) && frame.size() >= at + 4) {
    ports = get32(frame, at);
    if (protocol == wire::protocol_udp && (ports & 0xffffU) == roce_udp_port) {
      packet.entropy = static_cast<std::uint16_t>(ports >> 16);
      classify_transport(frame, at + 8, packet);
      return;
    }
  }
  packet.entropy = static_cast<std::uint16_t>(mix(addresses ^ mix((ports << 8) | protocol)));
}

}  // namespace

void classify_frame(std::span<const std::byte> frame, Packet& packet) {
  packet.wire_bytes = std::max(static_cast<std::uint32_t>(frame.size()) + fcs_bytes, smallest_wire_bytes);
  packet.kind = PacketClass::ethernet;
  const wire::EthernetView view = wire::ethernet_view(frame);
  if (frame.size() < 14) {
    return;
  }
  packet.destination_mac = {wire::get(frame, 0, 6)};
  packet.source_mac = {wire::get(frame, 6, 6)};
  const std::size_t ip = view.network_offset;
  if (view.ethertype == wire::ethertype_ipv4 && frame.size() >= ip + 20) {
    packet.ecn = static_cast<Ecn>(get8(frame, ip + 1) & 3U);
    const bool fragment = (get16(frame, ip + 6) & 0x3fffU) != 0;
    // A fragment's ports are in the first one only; all of a datagram must take one path.
    const std::size_t ports = fragment ? frame.size() : ip + (get8(frame, ip) & 15U) * 4;
    classify_ports(frame, ports, get8(frame, ip + 9), wire::get(frame, ip + 12, 8), packet);
  } else if ((view.ethertype == wire::ethertype_ipv6 || view.ethertype == wire::ethertype_roce) &&
             frame.size() >= ip + 40) {
    packet.ecn = static_cast<Ecn>((get8(frame, ip + 1) >> 4) & 3U);
    if (view.ethertype == wire::ethertype_roce) {
      packet.entropy = static_cast<std::uint16_t>(get32(frame, ip));  // low bits of the flow label
      classify_transport(frame, ip + 40, packet);
      return;
    }
    const std::uint64_t addresses = mix(wire::get(frame, ip + 8, 8)) + mix(wire::get(frame, ip + 16, 8) + 1) +
                                    mix(wire::get(frame, ip + 24, 8) + 2) + mix(wire::get(frame, ip + 32, 8) + 3);
    classify_ports(frame, ip + 40, get8(frame, ip + 6), addresses, packet);
  }
}

void set_frame_ecn(std::span<std::byte> frame, Ecn ecn) {
  const wire::EthernetView view = wire::ethernet_view(frame);
  const std::size_t ip = view.network_offset;
  const auto bits = static_cast<std::uint32_t>(ecn);
  if (view.ethertype == wire::ethertype_ipv4 && frame.size() >= ip + 20) {
    const std::size_t header_bytes = (get8(frame, ip) & 15U) * 4;
    if (header_bytes < 20 || frame.size() < ip + header_bytes) {
      return;
    }
    frame[ip + 1] = static_cast<std::byte>((get8(frame, ip + 1) & ~3U) | bits);
    wire::set(frame, ip + 10, 2, 0);
    wire::set(frame, ip + 10, 2, wire::fold_checksum(wire::word_sum(frame.subspan(ip, header_bytes))));
  } else if ((view.ethertype == wire::ethertype_ipv6 || view.ethertype == wire::ethertype_roce) &&
             frame.size() >= ip + 40) {
    frame[ip + 1] = static_cast<std::byte>((get8(frame, ip + 1) & ~0x30U) | (bits << 4));
  }
}

}  // namespace orrery::fabric
