// The codec against published captures, an independent bit-by-bit ICRC, itself (round trips), and damage.
#include "fabric/wire_codec.h"

#include <cstring>
#include <random>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "common/error.h"
#include "fabric/wire_bytes.h"
#include "tests/fabric/support.h"

namespace orrery::fabric::wire_codec_test {
namespace {

using testing::bitwise_crc32;
using testing::random_bytes;
using testing::random_headers;
using testing::valid_opcodes;
constexpr RoceEncapsulation encapsulations[] = {RoceEncapsulation::v1, RoceEncapsulation::v2_ipv4,
                                                RoceEncapsulation::v2_ipv6};

std::vector<std::byte> from_hex(std::string_view text) {
  std::vector<std::byte> bytes;
  std::string digits;
  for (const char c : text) {
    if (c != ' ') {
      digits += c;
    }
  }
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoul(digits.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::vector<std::byte> encode(const RoceHeaders& headers, std::span<const std::byte> payload = {}) {
  std::vector<std::byte> frame(max_frame_bytes);
  frame.resize(encode_frame(headers, payload, frame));
  return frame;
}

// A CNP captured from a ConnectX-4 Lx, published in the tests of scapy's RoCE dissector.
constexpr std::string_view captured_cnp =
    "e41d2dab2bc2 7cfe90643b32 0800 45c2003c718c400040119161 0a001101 0a001201 000012b700280000"
    "8100ffff 40000118 00000000 00000000000000000000000000000000 82fd002a";

TEST(WireCodec, DecodesACnpOfRealHardware) {
  const std::vector<std::byte> frame = from_hex(captured_cnp);
  DecodedFrame decoded;
  ASSERT_EQ(decode_frame(frame, decoded), DecodeStatus::ok);
  const RoceHeaders& headers = decoded.headers;
  EXPECT_EQ(headers.network.destination_mac.value, 0xe41d'2dab'2bc2U);
  EXPECT_EQ(headers.network.source_mac.value, 0x7cfe'9064'3b32U);
  EXPECT_EQ(headers.network.ecn, Ecn::ect0);
  EXPECT_EQ(headers.network.dscp, 48);
  EXPECT_EQ(headers.network.identification, 0x718c);
  EXPECT_EQ(headers.network.hop_limit, 64);
  EXPECT_EQ(ipv4_of_gid(headers.network.source), 0x0a00'1101U);
  EXPECT_EQ(ipv4_of_gid(headers.network.destination), 0x0a00'1201U);
  EXPECT_EQ(headers.bth.opcode, opcode_cnp);
  EXPECT_TRUE(headers.bth.becn);
  EXPECT_FALSE(headers.bth.fecn);
  EXPECT_FALSE(headers.bth.migrated);
  EXPECT_EQ(headers.bth.destination_qp, 0x118U);
  EXPECT_EQ(decoded.payload.size(), 16U);
  EXPECT_EQ(encode(headers, decoded.payload), frame);
}

// Another published packet of scapy's tests: UC SEND Only with two bytes of pad, ICRC 78 f3 53 f3 on the wire.
TEST(WireCodec, EncodesAPublishedUcSend) {
  RoceHeaders headers;
  headers.network.destination_mac = headers.network.source_mac = {0x248a'07a8'fa22U};
  headers.network.ecn = Ecn::ect1;
  headers.network.identification = 1144;
  headers.network.source = headers.network.destination = gid_of_ipv4(0xc0a8'0007U);
  headers.network.udp_source_port = 49152;
  headers.bth.opcode = opcode_of(RoceTransport::uc, RoceOperation::send_only);
  headers.bth.destination_qp = 211;
  headers.bth.psn = 13571856;
  const std::vector<std::byte> payload = from_hex("4630818be28935d90e9a95505401be88 5e50");
  const std::vector<std::byte> frame = encode(headers, payload);
  ASSERT_EQ(frame.size(), 14U + 64);
  EXPECT_EQ(wire::get16(frame, 14 + 10), 0xb4d5U);  // IPv4 checksum
  EXPECT_EQ(wire::get32(frame, frame.size() - 4), 0x78f3'53f3U);
}

// What A17.4.5 (RoCEv2) and A16.4.3 (RoCE) say, byte by byte, from the frame alone.
std::uint32_t independent_icrc(const std::vector<std::byte>& frame) {
  const std::size_t ip = frame[12] == std::byte{0x81} ? 18 : 14;
  std::vector<std::byte> masked(8, std::byte{0xff});
  masked.insert(masked.end(), frame.begin() + static_cast<std::ptrdiff_t>(ip), frame.end() - 4);
  const auto ones = [&masked](std::size_t at) { masked[8 + at] = std::byte{0xff}; };
  const std::size_t ethertype = wire::get16(frame, ip - 2);
  std::size_t bth = 0;
  if (ethertype == 0x0800) {
    for (const std::size_t at : {1, 8, 10, 11, 26, 27}) {
      ones(at);
    }
    bth = 28;
  } else {
    masked[8] |= std::byte{0x0f};
    for (const std::size_t at : {1, 2, 3, 7}) {
      ones(at);
    }
    bth = 40;
    if (ethertype == 0x86dd) {
      ones(46);
      ones(47);
      bth = 48;
    }
  }
  ones(bth + 4);
  return bitwise_crc32(masked);
}

TEST(WireCodec, EveryOpcodeSurvivesTheWireAndHasTheIcrcOfTheSpecification) {
  std::mt19937_64 random(3);
  for (const RoceEncapsulation encapsulation : encapsulations) {
    for (const std::uint8_t opcode : valid_opcodes()) {
      for (const bool extended : {false, true}) {
        for (const std::size_t wanted : {0, 1, 2, 3, 4, 255, 4096}) {
          const std::size_t size = layout_of(opcode).payload ? wanted : 0;
          const RoceHeaders headers = random_headers(random, opcode, encapsulation, extended);
          const std::vector<std::byte> payload = random_bytes(random, size);
          const std::vector<std::byte> frame = encode(headers, payload);
          ASSERT_EQ(frame.size(), frame_bytes(headers, static_cast<std::uint32_t>(size)));
          std::uint32_t sent = 0;
          std::memcpy(&sent, &frame[frame.size() - 4], 4);
          ASSERT_EQ(sent, independent_icrc(frame)) << opcode_name(opcode);
          DecodedFrame decoded;
          ASSERT_EQ(decode_frame(frame, decoded), DecodeStatus::ok) << opcode_name(opcode);
          ASSERT_TRUE(std::equal(payload.begin(), payload.end(), decoded.payload.begin(), decoded.payload.end()));
          ASSERT_EQ(decoded.headers.bth.pad, -size & 3U);
          ASSERT_EQ(encode(decoded.headers, decoded.payload), frame) << opcode_name(opcode);
        }
      }
    }
  }
}

TEST(WireCodec, FieldsLieWhereTheSpecificationPutsThem) {
  RoceHeaders headers;
  headers.bth = {};
  headers.bth.opcode = opcode_of(RoceTransport::rc, RoceOperation::write_only_immediate);
  headers.bth.solicited = true;
  headers.bth.destination_qp = 0x123456;
  headers.bth.ack_request = true;
  headers.bth.psn = 0xabcdef;
  headers.reth = {0x1122'3344'5566'7788U, 0x99aa'bbccU, 3};
  headers.immediate = 0xdead'beefU;
  headers.bth.extended = true;
  headers.placement = {0x010203, 0x040506, 0x0708'090a, 1, 1};  // address and rkey aren't this opcode's
  const std::vector<std::byte> payload = from_hex("a1a2a3");
  const std::vector<std::byte> frame = encode(headers, payload);
  const std::vector<std::byte> expected = from_hex(
      "0bd0ffff 00123456 c0abcdef 1122334455667788 99aabbcc 00000003 deadbeef"
      "00010203 00040506 0708090a a1a2a300");
  const std::vector<std::byte> transport(frame.begin() + 42, frame.end() - 4);
  EXPECT_EQ(transport, expected);
}

TEST(WireCodec, AcknowledgeFieldsLieWhereTheDocumentationPutsThem) {
  RoceHeaders headers;
  headers.bth.opcode = opcode_of(RoceTransport::rc, RoceOperation::acknowledge);
  headers.bth.extended = true;
  headers.aeth = {aeth::ack_no_credits, 0x000102};
  headers.ack = {0x0a0b0c, 0x0d0e0f, 0x8000'0000'0000'0001U, 0xc123, true, 7, 0x0203};
  const std::vector<std::byte> frame = encode(headers);
  const std::vector<std::byte> expected =
      from_hex("1140ffff 00000000 40000000 1f000102 800a0b0c 070d0e0f 8000000000000001 c1230203");
  EXPECT_EQ(std::vector<std::byte>(frame.begin() + 42, frame.end() - 4), expected);
}

TEST(WireCodec, RefusesToEncodeWhatDoesNotExist) {
  std::vector<std::byte> out(max_frame_bytes);
  RoceHeaders headers;
  headers.bth.opcode = 0x40;  // RD SEND First
  EXPECT_THROW(static_cast<void>(encode_frame(headers, {}, out)), Error);
  headers.bth.opcode = opcode_of(RoceTransport::rc, RoceOperation::read_request);
  EXPECT_THROW(static_cast<void>(encode_frame(headers, std::span(out).first(1), out)), Error);
  headers.bth.opcode = opcode_of(RoceTransport::rc, RoceOperation::send_only);
  const std::vector<std::byte> jumbo(9216);
  EXPECT_NO_THROW(static_cast<void>(encode_frame(headers, jumbo, out)));
  EXPECT_THROW(static_cast<void>(encode_frame(headers, jumbo, std::span(out).first(9216))), Error);
  std::vector<std::byte> large(100'000);
  EXPECT_THROW(static_cast<void>(encode_frame(headers, std::span(large).first(70'000), large)), Error);
  std::vector<std::byte> exact(frame_bytes(headers, 5));
  EXPECT_EQ(encode_frame(headers, std::span(jumbo).first(5), exact), exact.size());
  EXPECT_THROW(static_cast<void>(encode_frame(headers, std::span(jumbo).first(5), std::span(exact).subspan(1))), Error);
}

// Repairs the ICRC, the IPv4 checksum and a UDP checksum after a test's own damage.
void reseal(std::vector<std::byte>& frame, std::size_t bth = 42, std::size_t end = 0) {
  const std::size_t limit = end == 0 ? frame.size() : end;
  wire::set(frame, 24, 2, 0);
  wire::set(frame, 24, 2, wire::fold_checksum(wire::word_sum(std::span(frame).subspan(14, bth - 42 + 20))));
  const std::uint32_t crc = icrc(std::span(frame).first(limit - 4), 14, bth);
  std::memcpy(&frame[limit - 4], &crc, 4);
}

class DamagedFrame : public ::testing::Test {
 protected:
  DamagedFrame() {
    headers_.bth.opcode = opcode_of(RoceTransport::rc, RoceOperation::send_only);
    headers_.network.source = gid_of_ipv4(0x0a00'0001);
    headers_.network.destination = gid_of_ipv4(0x0a00'0002);
    frame_ = encode(headers_, std::vector<std::byte>(10, std::byte{0x5a}));
  }
  DecodeStatus decode() { return decode_frame(frame_, decoded_); }
  void set(std::size_t at, unsigned value) { frame_[at] = static_cast<std::byte>(value); }

  RoceHeaders headers_;
  std::vector<std::byte> frame_;
  DecodedFrame decoded_;
};

TEST_F(DamagedFrame, EveryPrefixIsRefused) {
  for (std::size_t size = 0; size < frame_.size(); ++size) {
    const std::vector<std::byte> shorter(frame_.begin(), frame_.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_EQ(decode_frame(shorter, decoded_), DecodeStatus::truncated) << size;
  }
}

TEST_F(DamagedFrame, EveryBitMattersButThoseThatRoutersChange) {
  // DSCP and ECN, TTL and BTH byte 4 aren't under the ICRC; the IPv4 checksum covers the first two.
  for (std::size_t bit = 8 * 14; bit < 8 * frame_.size(); ++bit) {
    std::vector<std::byte> damaged = frame_;
    damaged[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    const DecodeStatus status = decode_frame(damaged, decoded_);
    EXPECT_EQ(status == DecodeStatus::ok, bit / 8 == 46) << "bit " << bit << ": " << name(status);
  }
}

TEST_F(DamagedFrame, RoutersMayChangeEcnAndTtl) {
  set(15, 0x03);
  set(22, 5);
  wire::set(frame_, 24, 2, 0);
  wire::set(frame_, 24, 2, wire::fold_checksum(wire::word_sum(std::span(frame_).subspan(14, 20))));
  ASSERT_EQ(decode(), DecodeStatus::ok);
  EXPECT_EQ(decoded_.headers.network.ecn, Ecn::ce);
  EXPECT_EQ(decoded_.headers.network.hop_limit, 5);
}

TEST_F(DamagedFrame, OtherProtocolsAreNotRoce) {
  const std::vector<std::byte> good = frame_;
  const auto with = [this, &good](std::size_t at, unsigned value) {
    frame_ = good;
    set(at, value);
    return decode();
  };
  EXPECT_EQ(with(13, 0x06), DecodeStatus::not_roce);  // ARP
  EXPECT_EQ(with(23, 6), DecodeStatus::not_roce);     // TCP
  EXPECT_EQ(with(20, 0x60), DecodeStatus::not_roce);  // more fragments
  EXPECT_EQ(with(21, 0x01), DecodeStatus::not_roce);  // a later fragment
  frame_ = good;
  set(37, 0xb8);  // port 4792
  reseal(frame_);
  EXPECT_EQ(decode(), DecodeStatus::not_roce);
}

TEST_F(DamagedFrame, BadIpHeaders) {
  const std::vector<std::byte> good = frame_;
  set(14, 0x55);
  EXPECT_EQ(decode(), DecodeStatus::bad_ip_header);
  frame_ = good;
  set(14, 0x44);
  EXPECT_EQ(decode(), DecodeStatus::bad_ip_header);
  frame_ = good;
  wire::set(frame_, 16, 2, 19);
  EXPECT_EQ(decode(), DecodeStatus::bad_ip_header);
  frame_ = good;
  wire::set(frame_, 16, 2, 1000);
  EXPECT_EQ(decode(), DecodeStatus::truncated);
  frame_ = good;
  set(22, 1);
  EXPECT_EQ(decode(), DecodeStatus::bad_ip_checksum);
}

TEST_F(DamagedFrame, UdpLengthsAndChecksums) {
  const std::vector<std::byte> good = frame_;
  wire::set(frame_, 38, 2, 7);
  EXPECT_EQ(decode(), DecodeStatus::bad_udp);
  frame_ = good;
  wire::set(frame_, 40, 2, 0x1234);  // a checksum that is there must be right
  EXPECT_EQ(decode(), DecodeStatus::bad_udp);
  const std::uint64_t sum = wire::word_sum(std::span(good).subspan(26, 8)) + 17 + (good.size() - 34) +
                            wire::word_sum(std::span(good).subspan(34));
  wire::set(frame_, 40, 2, wire::fold_checksum(sum));
  EXPECT_EQ(decode(), DecodeStatus::ok);
}

TEST_F(DamagedFrame, Ipv4OptionsArePassedOver) {
  frame_.insert(frame_.begin() + 34, 4, std::byte{1});  // four no-operations
  set(14, 0x46);
  wire::set(frame_, 16, 2, frame_.size() - 14);
  reseal(frame_, 46);
  wire::set(frame_, 24, 2, 0);
  wire::set(frame_, 24, 2, wire::fold_checksum(wire::word_sum(std::span(frame_).subspan(14, 24))));
  ASSERT_EQ(decode(), DecodeStatus::ok);
  EXPECT_EQ(decoded_.payload.size(), 10U);
}

TEST_F(DamagedFrame, PaddingBehindTheIpLengthIsIgnored) {
  frame_.resize(frame_.size() + 30, std::byte{0xee});
  ASSERT_EQ(decode(), DecodeStatus::ok);
  EXPECT_EQ(decoded_.payload.size(), 10U);
}

TEST_F(DamagedFrame, BadTransportHeaders) {
  const std::vector<std::byte> good = frame_;
  const auto with = [this, &good](std::size_t at, unsigned value) {
    frame_ = good;
    set(at, value);
    reseal(frame_);
    return decode();
  };
  EXPECT_EQ(with(43, 0x61), DecodeStatus::bad_bth);         // TVer 1
  EXPECT_EQ(with(42, 0x44), DecodeStatus::unknown_opcode);  // RD
  EXPECT_EQ(with(42, 0x15), DecodeStatus::unknown_opcode);  // reserved
  EXPECT_EQ(with(42, 0xff), DecodeStatus::unknown_opcode);
  EXPECT_EQ(with(42, 0x0c), DecodeStatus::truncated);         // a READ request is longer
  EXPECT_EQ(with(42, 0x11), DecodeStatus::unexpected_bytes);  // an acknowledge has no payload
  EXPECT_EQ(with(50, 0x7f), DecodeStatus::bad_bth);           // extended: a placement header takes it all, the pad too
  frame_ = encode(headers_);
  set(43, 0x70);  // three bytes of pad, of nothing
  reseal(frame_);
  EXPECT_EQ(decode(), DecodeStatus::bad_bth);
}

TEST_F(DamagedFrame, ReservedBitsAndExtensionsOfOtherOpcodesAreIgnored) {
  set(50, 0x3f);
  reseal(frame_);
  ASSERT_EQ(decode(), DecodeStatus::ok);
  EXPECT_FALSE(decoded_.headers.bth.extended);
  headers_.bth.opcode = opcode_of(RoceTransport::uc, RoceOperation::send_only);
  frame_ = encode(headers_, std::vector<std::byte>(10, std::byte{1}));
  set(50, 0x40);
  reseal(frame_);
  ASSERT_EQ(decode(), DecodeStatus::ok);
  EXPECT_EQ(decoded_.payload.size(), 10U);
}

TEST(WireCodec, BadGrhAndIpv6Headers) {
  std::mt19937_64 random(4);
  DecodedFrame decoded;
  for (const RoceEncapsulation encapsulation : {RoceEncapsulation::v1, RoceEncapsulation::v2_ipv6}) {
    RoceHeaders headers = random_headers(random, 0x04, encapsulation, false);
    headers.network.has_vlan = false;
    const std::vector<std::byte> good = encode(headers, random_bytes(random, 7));
    const bool v1 = encapsulation == RoceEncapsulation::v1;
    std::vector<std::byte> bad = good;
    bad[14] = std::byte{0x40};
    EXPECT_EQ(decode_frame(bad, decoded), v1 ? DecodeStatus::bad_grh : DecodeStatus::bad_ip_header);
    bad = good;
    bad[20] = std::byte{58};  // ICMPv6
    EXPECT_EQ(decode_frame(bad, decoded), v1 ? DecodeStatus::bad_grh : DecodeStatus::not_roce);
    bad = good;
    bad[18] = std::byte{0xff};
    EXPECT_EQ(decode_frame(bad, decoded), DecodeStatus::truncated);
    bad = good;
    bad[19] = std::byte{1};
    EXPECT_EQ(decode_frame(bad, decoded), DecodeStatus::truncated);
    bad = good;
    bad.back() ^= std::byte{1};
    EXPECT_EQ(decode_frame(bad, decoded), v1 ? DecodeStatus::bad_icrc : DecodeStatus::bad_udp);
  }
}

TEST(WireCodec, RnrDelaysAreThoseOfTable46) {
  EXPECT_EQ(rnr_delay(0).count, 655'360'000'000U);
  EXPECT_EQ(rnr_delay(1).count, 10'000'000U);
  EXPECT_EQ(rnr_delay(12).count, 640'000'000U);
  EXPECT_EQ(rnr_delay(31).count, 491'520'000'000U);
}

TEST(Classify, SeesWhatForwardingNeeds) {
  std::mt19937_64 random(5);
  PacketPool pool;
  for (const RoceEncapsulation encapsulation : encapsulations) {
    for (const std::uint8_t opcode : valid_opcodes()) {
      const RoceHeaders headers = random_headers(random, opcode, encapsulation, true);
      const Packet packet = packet_of(pool, pool.make_roce(headers, {}));
      Packet seen;
      classify_frame(encode(headers), seen);
      EXPECT_EQ(seen.kind, packet.kind) << opcode_name(opcode);
      EXPECT_EQ(seen.flow, packet.flow);
      EXPECT_EQ(seen.psn, packet.psn);
      EXPECT_EQ(seen.wire_bytes, packet.wire_bytes);
      EXPECT_EQ(seen.entropy, packet.entropy);
      EXPECT_EQ(seen.ecn, packet.ecn);
      EXPECT_EQ(seen.flags, packet.flags);
      EXPECT_EQ(seen.destination_mac, packet.destination_mac);
      EXPECT_EQ(seen.source_mac, packet.source_mac);
      pool.release(packet.content);
    }
  }
}

TEST(Classify, FlowsOfOtherProtocolsDifferAndFragmentsStayTogether) {
  std::vector<std::byte> tcp =
      from_hex("020000000001 020000000002 0800 4500002800004000 4006 0000 0a000001 0a000002 1234 0050 00000000");
  Packet a;
  classify_frame(tcp, a);
  EXPECT_EQ(a.kind, PacketClass::ethernet);
  EXPECT_EQ(a.wire_bytes, 64U);
  tcp[34] = std::byte{0x99};  // another source port
  Packet b;
  classify_frame(tcp, b);
  EXPECT_NE(a.entropy, b.entropy);
  tcp[20] = std::byte{0x20};  // more fragments: ports don't count
  Packet first;
  classify_frame(tcp, first);
  tcp[35] = std::byte{0x77};
  tcp[21] = std::byte{0x05};
  Packet second;
  classify_frame(tcp, second);
  EXPECT_EQ(first.entropy, second.entropy);
}

TEST(Classify, TakesAnyBytes) {
  std::mt19937_64 random(6);
  const std::vector<std::byte> good = encode(random_headers(random, 0x0a, RoceEncapsulation::v2_ipv4, true));
  for (std::size_t size = 0; size < good.size(); ++size) {
    Packet packet;
    std::vector<std::byte> frame(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
    classify_frame(frame, packet);
    set_frame_ecn(frame, Ecn::ce);
    EXPECT_GE(packet.wire_bytes, 64U);
  }
}

TEST(EncodePacket, TakesEntropyAndEcnFromThePacket) {
  PacketPool pool;
  RoceHeaders headers;
  headers.bth.opcode = opcode_of(RoceTransport::rc, RoceOperation::send_only);
  Packet packet = packet_of(pool, pool.make_roce(headers, std::vector<std::byte>(20)));
  packet.entropy = 0xffee;
  packet.ecn = Ecn::ce;
  std::vector<std::byte> frame(max_frame_bytes);
  std::size_t size = encode_packet(pool, packet, frame);
  DecodedFrame decoded;
  ASSERT_EQ(decode_frame(std::span(frame).first(size), decoded), DecodeStatus::ok);
  EXPECT_EQ(decoded.headers.network.udp_source_port, 0xffee);
  EXPECT_EQ(decoded.headers.network.ecn, Ecn::ce);
  packet.flags |= packet_flag::bad_icrc;
  size = encode_packet(pool, packet, frame);
  EXPECT_EQ(decode_frame(std::span(frame).first(size), decoded), DecodeStatus::bad_icrc);
  pool.release(packet.content);
  EXPECT_EQ(encode_packet(pool, Packet{}, frame), 0U);
}

TEST(EncodePacket, CarriesTheEntropyOfEveryEncapsulation) {
  PacketPool pool;
  std::mt19937_64 random(8);
  std::vector<std::byte> frame(max_frame_bytes);
  for (const RoceEncapsulation encapsulation : encapsulations) {
    Packet packet = packet_of(pool, pool.make_roce(random_headers(random, 0x04, encapsulation, false), {}));
    packet.entropy = 0xc0de;
    const std::size_t size = encode_packet(pool, packet, frame);
    DecodedFrame decoded;
    ASSERT_EQ(decode_frame(std::span(frame).first(size), decoded), DecodeStatus::ok);
    const Packet received = packet_of(pool, pool.make_roce(decoded.headers, decoded.payload));
    EXPECT_EQ(received.entropy, 0xc0de);
    pool.release(packet.content);
    pool.release(received.content);
  }
}

TEST(EncodePacket, MarksRawFrames) {
  PacketPool pool;
  const std::vector<std::byte> udp = from_hex(
      "020000000001 020000000002 0800 4502002000004000 4011 26c9 0a000001 0a000002 1234 0035 000c0000 01020304");
  ASSERT_EQ(wire::fold_checksum(wire::word_sum(std::span(udp).subspan(14, 20))), 0);
  Packet packet = packet_of(pool, pool.make_frame(udp));
  EXPECT_EQ(packet.ecn, Ecn::ect0);
  packet.ecn = Ecn::ce;
  std::vector<std::byte> frame(max_frame_bytes);
  ASSERT_EQ(encode_packet(pool, packet, frame), udp.size());
  EXPECT_EQ(frame[15], std::byte{0x03});
  EXPECT_EQ(wire::fold_checksum(wire::word_sum(std::span(frame).subspan(14, 20))), 0);
  EXPECT_EQ(pool.at(packet.content).bytes()[15], std::byte{0x02});  // the record is shared, and stays
  EXPECT_THROW(static_cast<void>(encode_packet(pool, packet, std::span(frame).first(20))), Error);
  pool.release(packet.content);
}

}  // namespace
}  // namespace orrery::fabric::wire_codec_test
