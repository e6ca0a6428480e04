// Fuzz target: an Ethernet frame, through the RoCE decoder, the classifier and back. The first byte says whether
// lengths, checksums and ICRC are mended first, so that what lies behind them is reached.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "fabric/wire_bytes.h"
#include "fabric/wire_codec.h"
#include "tests/fuzz/require.h"

namespace {

using namespace orrery::fabric;
using orrery::fuzz::require;

// As if the frame were RoCE over the given headers, and well sealed.
void seal(std::vector<std::byte>& frame, RoceEncapsulation encapsulation) {
  const wire::EthernetView view = wire::ethernet_view(frame);
  const std::size_t ip = view.network_offset;
  const bool ipv4 = encapsulation == RoceEncapsulation::v2_ipv4;
  const std::size_t ip_bytes =
      ipv4 && frame.size() > ip ? std::max<std::size_t>(20, (wire::get8(frame, ip) & 15U) * 4) : 40;
  const std::size_t udp_bytes = encapsulation == RoceEncapsulation::v1 ? 0 : 8;
  const std::size_t bth = ip + ip_bytes + udp_bytes;
  if (frame.size() < bth + 12 + 4) {
    return;
  }
  if (ipv4) {
    wire::set(frame, ip - 2, 2, wire::ethertype_ipv4);
    wire::set(frame, ip, 1, 0x40 | (ip_bytes / 4));
    wire::set(frame, ip + 2, 2, frame.size() - ip);
    wire::set(frame, ip + 6, 2, 0x4000);
    wire::set(frame, ip + 9, 1, wire::protocol_udp);
    wire::set(frame, ip + 10, 2, 0);
    wire::set(frame, ip + 10, 2, wire::fold_checksum(wire::word_sum(std::span(frame).subspan(ip, ip_bytes))));
  } else {
    const bool v1 = encapsulation == RoceEncapsulation::v1;
    wire::set(frame, ip - 2, 2, v1 ? wire::ethertype_roce : wire::ethertype_ipv6);
    wire::set(frame, ip, 1, 0x60 | (wire::get8(frame, ip) & 15U));
    wire::set(frame, ip + 4, 2, frame.size() - ip - 40);
    wire::set(frame, ip + 6, 1, v1 ? wire::grh_next_header_bth : wire::protocol_udp);
  }
  if (udp_bytes != 0) {
    wire::set(frame, bth - 6, 2, roce_udp_port);
    wire::set(frame, bth - 4, 2, frame.size() - (bth - 8));
    wire::set(frame, bth - 2, 2, 0);
  }
  const std::uint32_t crc = icrc(std::span(frame).first(frame.size() - 4), ip, bth);
  std::memcpy(&frame[frame.size() - 4], &crc, 4);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0 || size > 60'000) {
    return 0;
  }
  const auto bytes = std::as_bytes(std::span(data, size));
  std::vector<std::byte> frame(bytes.begin() + 1, bytes.end());
  const unsigned mode = data[0] & 3U;
  if (mode != 0) {
    seal(frame, static_cast<RoceEncapsulation>(mode - 1));
  }
  Packet packet;
  classify_frame(frame, packet);
  require(packet.wire_bytes >= smallest_wire_bytes, "a frame has a size");
  DecodedFrame decoded;
  const DecodeStatus status = decode_frame(frame, decoded);
  require(name(status)[0] != '\0', "a status has a name");
  if (status == DecodeStatus::ok) {
    require(packet.kind != PacketClass::ethernet, "classifier and decoder agree on what is RoCE");
    require(packet.psn == decoded.headers.bth.psn, "and on its PSN");
    require(decoded.payload.empty() || (decoded.payload.data() >= frame.data() &&
                                        decoded.payload.data() + decoded.payload.size() <= frame.data() + frame.size()),
            "the payload lies within the frame");
    std::vector<std::byte> again(65'536);
    again.resize(encode_frame(decoded.headers, decoded.payload, again));
    require(again.size() == frame_bytes(decoded.headers, static_cast<std::uint32_t>(decoded.payload.size())),
            "a frame is as long as foretold");
    DecodedFrame twice;
    require(decode_frame(again, twice) == DecodeStatus::ok, "what was decoded can be sent");
    require(std::equal(decoded.payload.begin(), decoded.payload.end(), twice.payload.begin(), twice.payload.end()),
            "with the same payload");
    std::vector<std::byte> thrice(65'536);
    thrice.resize(encode_frame(twice.headers, twice.payload, thrice));
    require(again == thrice, "and the same headers");
  }
  set_frame_ecn(frame, Ecn::ce);
  if (status == DecodeStatus::ok) {
    DecodedFrame marked;
    const DecodeStatus after = decode_frame(frame, marked);
    require(after == DecodeStatus::ok && marked.headers.network.ecn == Ecn::ce, "a mark leaves a frame whole");
  }
  return 0;
}
