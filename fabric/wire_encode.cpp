#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

#include "common/error.h"
#include "fabric/crc32.h"
#include "fabric/wire_bytes.h"
#include "fabric/wire_codec.h"

namespace orrery::fabric {

namespace {

constexpr std::uint32_t bth_bytes = 12;
constexpr std::uint32_t icrc_bytes = 4;

std::uint32_t extension_bytes(const Bth& bth) {
  if (!bth.extended) {
    return 0;
  }
  switch (layout_of(bth.opcode).extension) {
    case RoceExtension::place:
      return placement_bytes;
    case RoceExtension::place_address:
      return placement_bytes + placement_address_bytes;
    case RoceExtension::acknowledge:
      return ack_extension_bytes;
    default:
      return 0;
  }
}

std::uint32_t network_bytes(const NetworkHeaders& network) {
  const std::uint32_t ethernet = network.has_vlan ? 18 : 14;
  switch (network.encapsulation) {
    case RoceEncapsulation::v1:
      return ethernet + 40;
    case RoceEncapsulation::v2_ipv4:
      return ethernet + 20 + 8;
    default:
      return ethernet + 40 + 8;
  }
}

// Appends big-endian fields.
class Writer {
 public:
  explicit Writer(std::span<std::byte> out) : out_(out) {}
  Writer& put(std::uint64_t value, unsigned bytes) {
    wire::set(out_, at_, bytes, value);
    at_ += bytes;
    return *this;
  }
  Writer& put(const Gid& gid) {
    std::memcpy(out_.data() + at_, gid.data(), gid.size());
    at_ += gid.size();
    return *this;
  }
  [[nodiscard]] std::size_t at() const { return at_; }

 private:
  std::span<std::byte> out_;
  std::size_t at_ = 0;
};

// Where the fields that are known only at the end are.
struct Offsets {
  std::size_t network = 0;
  std::size_t udp = 0;  // 0: none
  std::size_t bth = 0;
};

Offsets put_network(Writer& writer, const NetworkHeaders& network, std::uint32_t transport_bytes) {
  writer.put(network.destination_mac.value, 6).put(network.source_mac.value, 6);
  if (network.has_vlan) {
    writer.put(wire::ethertype_vlan, 2).put(network.vlan_tci, 2);
  }
  Offsets offsets;
  const std::uint32_t traffic_class = ((network.dscp & 63U) << 2) | static_cast<std::uint32_t>(network.ecn);
  if (network.encapsulation == RoceEncapsulation::v2_ipv4) {
    writer.put(wire::ethertype_ipv4, 2);
    offsets.network = writer.at();
    writer.put(0x45, 1).put(traffic_class, 1).put(20 + 8 + transport_bytes, 2);
    writer.put(network.identification, 2).put(0x4000, 2);  // don't fragment
    writer.put(network.hop_limit, 1).put(wire::protocol_udp, 1).put(0, 2);
    writer.put(ipv4_of_gid(network.source), 4).put(ipv4_of_gid(network.destination), 4);
  } else {
    const bool v1 = network.encapsulation == RoceEncapsulation::v1;
    writer.put(v1 ? wire::ethertype_roce : wire::ethertype_ipv6, 2);
    offsets.network = writer.at();
    writer.put((6U << 28) | (traffic_class << 20) | (network.flow_label & 0xf'ffffU), 4);
    writer.put(v1 ? transport_bytes : 8 + transport_bytes, 2);
    writer.put(v1 ? wire::grh_next_header_bth : wire::protocol_udp, 1).put(network.hop_limit, 1);
    writer.put(network.source).put(network.destination);
  }
  if (network.encapsulation != RoceEncapsulation::v1) {
    offsets.udp = writer.at();
    writer.put(network.udp_source_port, 2).put(roce_udp_port, 2).put(8 + transport_bytes, 2).put(0, 2);
  }
  offsets.bth = writer.at();
  return offsets;
}

void put_extension(Writer& writer, const RoceHeaders& headers, RoceExtension extension) {
  if (extension == RoceExtension::acknowledge) {
    const AckExtension& ack = headers.ack;
    writer.put(ack.ecn_echo ? 0x80 : 0, 1).put(ack.trigger_psn, 3).put(ack.ce_count, 1).put(ack.sack_base, 3);
    writer.put(ack.sack_bitmap, 8).put(ack.entropy, 2).put(ack.delay, 2);
    return;
  }
  const Placement& placement = headers.placement;
  writer.put(0, 1).put(placement.message, 3).put(0, 1).put(placement.receive, 3).put(placement.offset, 4);
  if (extension == RoceExtension::place_address) {
    writer.put(placement.address, 8).put(placement.rkey, 4);
  }
}

void put_transport(Writer& writer, const RoceHeaders& headers, const OpcodeLayout& layout, unsigned pad) {
  const Bth& bth = headers.bth;
  writer.put(bth.opcode, 1).put((bth.solicited ? 0x80U : 0U) | (bth.migrated ? 0x40U : 0U) | (pad << 4), 1);
  writer.put(bth.pkey, 2).put((bth.fecn ? 0x80U : 0U) | (bth.becn ? 0x40U : 0U), 1).put(bth.destination_qp, 3);
  writer.put((bth.ack_request ? 0x80U : 0U) | (bth.extended ? bth_extended_bit : 0U), 1).put(bth.psn, 3);
  if (layout.deth) {
    writer.put(headers.deth.qkey, 4).put(0, 1).put(headers.deth.source_qp, 3);
  }
  if (layout.xrceth) {
    writer.put(0, 1).put(headers.xrc_srq, 3);
  }
  if (layout.reth) {
    writer.put(headers.reth.address, 8).put(headers.reth.rkey, 4).put(headers.reth.length, 4);
  }
  if (layout.atomic) {
    writer.put(headers.atomic.address, 8).put(headers.atomic.rkey, 4);
    writer.put(headers.atomic.swap_or_add, 8).put(headers.atomic.compare, 8);
  }
  if (layout.aeth) {
    writer.put(headers.aeth.syndrome, 1).put(headers.aeth.msn, 3);
  }
  if (layout.atomic_ack) {
    writer.put(headers.atomic_original, 8);
  }
  if (layout.immediate) {
    writer.put(headers.immediate, 4);
  }
  if (layout.ieth) {
    writer.put(headers.invalidate_rkey, 4);
  }
  if (bth.extended && layout.extension != RoceExtension::none) {
    put_extension(writer, headers, layout.extension);
  }
}

// IPv6 only (RFC 8200 §8.1): over the pseudo-header, UDP header and payload. 0 is sent as 0xffff.
std::uint16_t udp_checksum(std::span<const std::byte> frame, const Offsets& offsets) {
  const std::span<const std::byte> datagram = frame.subspan(offsets.udp);
  const std::uint64_t sum = wire::word_sum(frame.subspan(offsets.network + 8, 32)) + datagram.size() +
                            wire::protocol_udp + wire::word_sum(datagram);
  const std::uint16_t checksum = wire::fold_checksum(sum);
  return checksum == 0 ? 0xffff : checksum;
}

}  // namespace

std::uint32_t frame_bytes(const RoceHeaders& headers, std::uint32_t payload_bytes) {
  return network_bytes(headers.network) + bth_bytes + layout_of(headers.bth.opcode).header_bytes +
         extension_bytes(headers.bth) + ((payload_bytes + 3U) & ~3U) + icrc_bytes;
}

std::uint32_t icrc(std::span<const std::byte> frame, std::size_t network_offset, std::size_t bth_offset) {
  // The fields that routers change count as ones, as do the eight bytes of the LRH that isn't there (A16.4.3, A17.4.5).
  std::array<std::byte, 8 + 60 + 8 + bth_bytes> head;  // an IPv4 header has up to 60 bytes
  constexpr std::byte ones{0xff};
  std::memset(head.data(), 0xff, 8);
  const std::size_t masked = std::min(bth_offset + bth_bytes - network_offset, head.size() - 8);
  std::memcpy(head.data() + 8, frame.data() + network_offset, masked);
  std::byte* ip = head.data() + 8;
  const std::size_t bth = bth_offset - network_offset;
  const bool ipv4 = (ip[0] >> 4) == std::byte{4};
  const std::size_t ip_bytes = ipv4 ? static_cast<std::size_t>(ip[0] & std::byte{15}) * 4 : 40;
  if (ipv4) {
    ip[1] = ones;            // DSCP, ECN
    ip[8] = ones;            // TTL
    ip[10] = ip[11] = ones;  // header checksum
  } else {
    ip[0] |= std::byte{0x0f};  // traffic class, flow label
    ip[1] = ip[2] = ip[3] = ones;
    ip[7] = ones;  // hop limit
  }
  if (bth > ip_bytes) {  // RoCEv2: a UDP header lies between
    ip[bth - 2] = ip[bth - 1] = ones;
  }
  ip[bth + 4] = ones;  // FECN, BECN, reserved
  std::uint32_t crc = crc32_update(crc32_start, std::span(head).first(8 + masked));
  crc = crc32_update(crc, frame.subspan(network_offset + masked));
  return crc32_finish(crc);
}

std::size_t encode_frame(const RoceHeaders& headers, std::span<const std::byte> payload, std::span<std::byte> out) {
  const OpcodeLayout& layout = layout_of(headers.bth.opcode);
  if (!layout.valid) {
    throw Error(fmt::format("opcode {:#04x} can't be encoded", headers.bth.opcode),
                "use one of RC, UC, UD, XRC or CNP");
  }
  if (!payload.empty() && !layout.payload) {
    throw Error(
        fmt::format("{} has no payload, but there are {} bytes", opcode_name(headers.bth.opcode), payload.size()),
        "give it none");
  }
  constexpr std::size_t ip_limit = 65535 - 28;
  const std::size_t size =
      payload.size() > ip_limit ? ip_limit + 1 : frame_bytes(headers, static_cast<std::uint32_t>(payload.size()));
  if (size > out.size() || size > ip_limit) {
    throw Error(fmt::format("a frame with {} bytes of payload doesn't fit in {}", payload.size(), out.size()),
                "make room for frame_bytes()");
  }
  const auto pad = static_cast<unsigned>(-payload.size() & 3U);
  Writer writer(out);
  const auto transport_bytes = static_cast<std::uint32_t>(size) - network_bytes(headers.network);
  const Offsets offsets = put_network(writer, headers.network, transport_bytes);
  put_transport(writer, headers, layout, pad);
  std::size_t at = writer.at();
  if (!payload.empty()) {
    std::memcpy(out.data() + at, payload.data(), payload.size());
    at += payload.size();
    std::memset(out.data() + at, 0, pad);
    at += pad;
  }
  const std::span<std::byte> frame = out.first(size);
  if (headers.network.encapsulation == RoceEncapsulation::v2_ipv4) {
    wire::set(frame, offsets.network + 10, 2, wire::fold_checksum(wire::word_sum(frame.subspan(offsets.network, 20))));
  }
  const std::uint32_t crc = icrc(frame.first(at), offsets.network, offsets.bth);
  std::memcpy(frame.data() + at, &crc, icrc_bytes);  // least significant byte first (§7.8.1)
  if (headers.network.encapsulation == RoceEncapsulation::v2_ipv6) {
    wire::set(frame, offsets.udp + 6, 2, udp_checksum(frame, offsets));
  }
  return size;
}

std::size_t encode_packet(const PacketPool& pool, const Packet& packet, std::span<std::byte> out) {
  if (packet.content.empty()) {
    return 0;
  }
  const PacketContent& content = pool.at(packet.content);
  const std::span<const std::byte> bytes = content.bytes();
  if (!content.is_roce) {
    if (bytes.size() > out.size()) {
      throw Error(fmt::format("a frame of {} bytes doesn't fit in {}", bytes.size(), out.size()), "make more room");
    }
    std::copy(bytes.begin(), bytes.end(), out.begin());
    if (packet.ecn == Ecn::ce) {
      set_frame_ecn(out.first(bytes.size()), Ecn::ce);
    }
    return bytes.size();
  }
  RoceHeaders headers = content.roce;
  headers.network.udp_source_port = packet.entropy;
  if (headers.network.encapsulation == RoceEncapsulation::v1) {
    headers.network.flow_label = (headers.network.flow_label & 0xf'0000U) | packet.entropy;
  }
  headers.network.ecn = packet.ecn;
  const std::size_t size = encode_frame(headers, bytes, out);
  if ((packet.flags & packet_flag::bad_icrc) != 0) {
    out[size - 1] ^= std::byte{0xff};
  }
  return size;
}

}  // namespace orrery::fabric
