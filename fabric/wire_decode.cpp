#include <cstring>

#include "fabric/wire_bytes.h"
#include "fabric/wire_codec.h"

namespace orrery::fabric {

namespace {

using wire::get16;
using wire::get24;
using wire::get32;
using wire::get8;

constexpr std::size_t bth_bytes = 12;
constexpr std::size_t icrc_bytes = 4;

// The frame from its network header to the end of its ICRC, once the headers before the BTH are known to be sound.
struct Located {
  std::span<const std::byte> frame;  // padding of the link layer cut off
  std::size_t network = 0;
  std::size_t bth = 0;
};

MacAddress mac_at(std::span<const std::byte> frame, std::size_t at) {
  return {wire::get(frame, at, 6)};
}
Gid gid_at(std::span<const std::byte> frame, std::size_t at) {
  Gid gid;
  std::memcpy(gid.data(), frame.data() + at, gid.size());
  return gid;
}
void take_traffic_class(std::uint32_t value, NetworkHeaders& network) {
  network.ecn = static_cast<Ecn>(value & 3U);
  network.dscp = static_cast<std::uint8_t>((value >> 2) & 63U);
}

// UDP header at `udp`; the IP header says that the datagram ends at the end of `frame`.
DecodeStatus locate_udp(std::span<const std::byte> frame, std::size_t udp, std::uint64_t pseudo_header_sum,
                        NetworkHeaders& network, Located& located) {
  if (frame.size() < udp + 8) {
    return DecodeStatus::truncated;
  }
  if (get16(frame, udp + 2) != roce_udp_port) {
    return DecodeStatus::not_roce;
  }
  const std::size_t length = frame.size() - udp;
  if (get16(frame, udp + 4) != length) {
    return DecodeStatus::bad_udp;
  }
  if (get16(frame, udp + 6) != 0 &&
      wire::fold_checksum(pseudo_header_sum + length + wire::protocol_udp + wire::word_sum(frame.subspan(udp))) != 0) {
    return DecodeStatus::bad_udp;
  }
  network.udp_source_port = static_cast<std::uint16_t>(get16(frame, udp));
  located.frame = frame;
  located.bth = udp + 8;
  return DecodeStatus::ok;
}

DecodeStatus locate_ipv4(std::span<const std::byte> frame, NetworkHeaders& network, Located& located) {
  const std::size_t ip = located.network;
  if (frame.size() < ip + 20) {
    return DecodeStatus::truncated;
  }
  const std::size_t header_bytes = (get8(frame, ip) & 15U) * 4;
  if (get8(frame, ip) >> 4 != 4 || header_bytes < 20) {
    return DecodeStatus::bad_ip_header;
  }
  constexpr std::uint32_t more_fragments_and_offset = 0x3fff;
  if (get8(frame, ip + 9) != wire::protocol_udp || (get16(frame, ip + 6) & more_fragments_and_offset) != 0) {
    return DecodeStatus::not_roce;
  }
  const std::size_t total = get16(frame, ip + 2);
  if (total < header_bytes) {
    return DecodeStatus::bad_ip_header;
  }
  if (total > frame.size() - ip) {
    return DecodeStatus::truncated;
  }
  if (wire::fold_checksum(wire::word_sum(frame.subspan(ip, header_bytes))) != 0) {
    return DecodeStatus::bad_ip_checksum;
  }
  network.encapsulation = RoceEncapsulation::v2_ipv4;
  take_traffic_class(get8(frame, ip + 1), network);
  network.identification = static_cast<std::uint16_t>(get16(frame, ip + 4));
  network.hop_limit = static_cast<std::uint8_t>(get8(frame, ip + 8));
  network.source = gid_of_ipv4(get32(frame, ip + 12));
  network.destination = gid_of_ipv4(get32(frame, ip + 16));
  return locate_udp(frame.first(ip + total), ip + header_bytes, wire::word_sum(frame.subspan(ip + 12, 8)), network,
                    located);
}

// IPv6 header or GRH (IBTA §8.3): the same format.
DecodeStatus locate_ipv6(std::span<const std::byte> frame, bool grh, NetworkHeaders& network, Located& located) {
  const std::size_t ip = located.network;
  const DecodeStatus bad_header = grh ? DecodeStatus::bad_grh : DecodeStatus::bad_ip_header;
  if (frame.size() < ip + 40) {
    return DecodeStatus::truncated;
  }
  if (get8(frame, ip) >> 4 != 6) {
    return bad_header;
  }
  const std::uint32_t next_header = get8(frame, ip + 6);
  if (grh && next_header != wire::grh_next_header_bth) {
    return bad_header;
  }
  if (!grh && next_header != wire::protocol_udp) {
    return DecodeStatus::not_roce;
  }
  const std::size_t length = get16(frame, ip + 4);
  if (length > frame.size() - ip - 40) {
    return DecodeStatus::truncated;
  }
  const std::uint32_t first = get32(frame, ip);
  take_traffic_class((first >> 20) & 255U, network);
  network.flow_label = first & 0xf'ffffU;
  network.hop_limit = static_cast<std::uint8_t>(get8(frame, ip + 7));
  network.source = gid_at(frame, ip + 8);
  network.destination = gid_at(frame, ip + 24);
  frame = frame.first(ip + 40 + length);
  if (grh) {
    network.encapsulation = RoceEncapsulation::v1;
    located.frame = frame;
    located.bth = ip + 40;
    return DecodeStatus::ok;
  }
  network.encapsulation = RoceEncapsulation::v2_ipv6;
  return locate_udp(frame, ip + 40, wire::word_sum(frame.subspan(ip + 8, 32)), network, located);
}

DecodeStatus locate(std::span<const std::byte> frame, NetworkHeaders& network, Located& located) {
  const wire::EthernetView view = wire::ethernet_view(frame);
  if (view.ethertype == 0 && frame.size() < 18) {
    return DecodeStatus::truncated;
  }
  network.destination_mac = mac_at(frame, 0);
  network.source_mac = mac_at(frame, 6);
  network.has_vlan = view.has_vlan;
  network.vlan_tci = view.vlan_tci;
  located.network = view.network_offset;
  switch (view.ethertype) {
    case wire::ethertype_ipv4:
      return locate_ipv4(frame, network, located);
    case wire::ethertype_ipv6:
      return locate_ipv6(frame, false, network, located);
    case wire::ethertype_roce:
      return locate_ipv6(frame, true, network, located);
    default:
      return DecodeStatus::not_roce;
  }
}

// Takes big-endian fields off the front; past the end it yields zeroes and says so.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::uint64_t take(unsigned bytes) {
    if (bytes_.size() < bytes) {
      good_ = false;
      bytes_ = {};
      return 0;
    }
    const std::uint64_t value = wire::get(bytes_, 0, bytes);
    bytes_ = bytes_.subspan(bytes);
    return value;
  }
  std::uint32_t take32(unsigned bytes = 4) { return static_cast<std::uint32_t>(take(bytes)); }
  [[nodiscard]] bool good() const { return good_; }
  [[nodiscard]] std::span<const std::byte> rest() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
  bool good_ = true;
};

void take_extension(Reader& reader, RoceExtension extension, RoceHeaders& headers) {
  if (extension == RoceExtension::acknowledge) {
    AckExtension& ack = headers.ack;
    ack.ecn_echo = (reader.take(1) & 0x80U) != 0;
    ack.trigger_psn = reader.take32(3);
    ack.ce_count = static_cast<std::uint8_t>(reader.take(1));
    ack.sack_base = reader.take32(3);
    ack.sack_bitmap = reader.take(8);
    ack.entropy = static_cast<std::uint16_t>(reader.take(2));
    ack.delay = static_cast<std::uint16_t>(reader.take(2));
    return;
  }
  Placement& placement = headers.placement;
  reader.take(1);
  placement.message = reader.take32(3);
  reader.take(1);
  placement.receive = reader.take32(3);
  placement.offset = reader.take32();
  if (extension == RoceExtension::place_address) {
    placement.address = reader.take(8);
    placement.rkey = reader.take32();
  }
}

void take_headers(Reader& reader, const OpcodeLayout& layout, RoceHeaders& headers) {
  if (layout.deth) {
    headers.deth.qkey = reader.take32();
    headers.deth.source_qp = reader.take32() & 0xff'ffffU;
  }
  if (layout.xrceth) {
    headers.xrc_srq = reader.take32() & 0xff'ffffU;
  }
  if (layout.reth) {
    headers.reth.address = reader.take(8);
    headers.reth.rkey = reader.take32();
    headers.reth.length = reader.take32();
  }
  if (layout.atomic) {
    headers.atomic.address = reader.take(8);
    headers.atomic.rkey = reader.take32();
    headers.atomic.swap_or_add = reader.take(8);
    headers.atomic.compare = reader.take(8);
  }
  if (layout.aeth) {
    headers.aeth.syndrome = static_cast<std::uint8_t>(reader.take(1));
    headers.aeth.msn = reader.take32(3);
  }
  if (layout.atomic_ack) {
    headers.atomic_original = reader.take(8);
  }
  if (layout.immediate) {
    headers.immediate = reader.take32();
  }
  if (layout.ieth) {
    headers.invalidate_rkey = reader.take32();
  }
  if (headers.bth.extended && layout.extension != RoceExtension::none) {
    take_extension(reader, layout.extension, headers);
  }
}

Bth bth_at(std::span<const std::byte> frame, std::size_t at) {
  Bth bth;
  bth.opcode = static_cast<std::uint8_t>(get8(frame, at));
  const std::uint32_t flags = get8(frame, at + 1);
  bth.solicited = (flags & 0x80U) != 0;
  bth.migrated = (flags & 0x40U) != 0;
  bth.pad = static_cast<std::uint8_t>((flags >> 4) & 3U);
  bth.pkey = static_cast<std::uint16_t>(get16(frame, at + 2));
  bth.fecn = (get8(frame, at + 4) & 0x80U) != 0;
  bth.becn = (get8(frame, at + 4) & 0x40U) != 0;
  bth.destination_qp = get24(frame, at + 5);
  bth.ack_request = (get8(frame, at + 8) & 0x80U) != 0;
  bth.extended = (get8(frame, at + 8) & bth_extended_bit) != 0;
  bth.psn = get24(frame, at + 9);
  return bth;
}

}  // namespace

const char* name(DecodeStatus status) {
  constexpr const char* names[decode_statuses] = {
      "ok",      "not_roce", "truncated",      "bad_ip_header",    "bad_ip_checksum", "bad_udp",
      "bad_grh", "bad_bth",  "unknown_opcode", "unexpected_bytes", "bad_icrc"};
  return names[static_cast<unsigned>(status)];
}

DecodeStatus decode_frame(std::span<const std::byte> frame, DecodedFrame& out) {
  out.headers = RoceHeaders{};
  Located located;
  const DecodeStatus status = locate(frame, out.headers.network, located);
  if (status != DecodeStatus::ok) {
    return status;
  }
  frame = located.frame;
  if (frame.size() < located.bth + bth_bytes + icrc_bytes) {
    return DecodeStatus::truncated;
  }
  const std::size_t end = frame.size() - icrc_bytes;
  std::uint32_t received = 0;
  std::memcpy(&received, frame.data() + end, icrc_bytes);
  if (icrc(frame.first(end), located.network, located.bth) != received) {
    return DecodeStatus::bad_icrc;  // first: of a damaged frame nothing else is worth saying
  }
  Bth& bth = out.headers.bth;
  bth = bth_at(frame, located.bth);
  if ((get8(frame, located.bth + 1) & 15U) != 0) {
    return DecodeStatus::bad_bth;
  }
  const OpcodeLayout& layout = layout_of(bth.opcode);
  if (!layout.valid) {
    return DecodeStatus::unknown_opcode;
  }
  Reader reader(frame.subspan(located.bth + bth_bytes, end - located.bth - bth_bytes));
  take_headers(reader, layout, out.headers);
  if (!reader.good()) {
    return DecodeStatus::truncated;
  }
  const std::span<const std::byte> rest = reader.rest();
  if (rest.size() < bth.pad) {
    return DecodeStatus::bad_bth;
  }
  if (!rest.empty() && !layout.payload) {
    return DecodeStatus::unexpected_bytes;
  }
  out.payload = rest.first(rest.size() - bth.pad);
  return DecodeStatus::ok;
}

}  // namespace orrery::fabric
