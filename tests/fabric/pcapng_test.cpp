// Captures: blocks against the draft's layout, and tshark as the judge of frames and times.
#include "fabric/pcapng.h"

#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "fabric/link.h"
#include "fabric/wire_codec.h"
#include "tests/common/temporary_file.h"
#include "tests/fabric/support.h"

namespace orrery::fabric::pcapng_test {
namespace {

using testing::Collector;
using testing::random_bytes;
using testing::random_headers;
using testing::run_all;
using testing::tshark;
using testing::valid_opcodes;

struct Memory final : CaptureSink {
  void write(std::span<const std::byte> piece) override { bytes.insert(bytes.end(), piece.begin(), piece.end()); }
  [[nodiscard]] std::uint32_t word(std::size_t at) const {
    std::uint32_t value = 0;
    std::memcpy(&value, bytes.data() + at, 4);
    return value;
  }
  std::vector<std::byte> bytes;
};

TEST(Pcapng, BlocksHaveTheirLengthAtBothEnds) {
  Memory memory;
  PcapngWriter writer(memory, "Orrery");
  EXPECT_EQ(writer.add_interface("tor.0", "first", 200'000'000'000), 0U);
  EXPECT_EQ(writer.add_interface("tor.1", "", 0), 1U);
  const std::vector<std::byte> frame(61, std::byte{1});
  writer.write_packet(1, {0x1'0000'0002 * 1000 + 999}, CaptureDirection::outbound, frame, 100);
  const std::uint32_t types[] = {0x0a0d'0d0a, 1, 1, 6};
  std::size_t at = 0;
  for (const std::uint32_t type : types) {
    ASSERT_LT(at + 8, memory.bytes.size());
    EXPECT_EQ(memory.word(at), type);
    const std::uint32_t length = memory.word(at + 4);
    ASSERT_EQ(length % 4, 0U);
    ASSERT_LE(at + length, memory.bytes.size());
    EXPECT_EQ(memory.word(at + length - 4), length);
    if (type == 6) {
      EXPECT_EQ(memory.word(at + 8), 1U);   // interface
      EXPECT_EQ(memory.word(at + 12), 1U);  // time, high and low
      EXPECT_EQ(memory.word(at + 16), 2U);
      EXPECT_EQ(memory.word(at + 20), 61U);
      EXPECT_EQ(memory.word(at + 24), 100U);
      EXPECT_EQ(memory.word(at + 28 + 64), 0x0004'0002U);  // epb_flags
      EXPECT_EQ(memory.word(at + 28 + 68), 2U);            // outbound
    }
    at += length;
  }
  EXPECT_EQ(at, memory.bytes.size());
  EXPECT_EQ(writer.packets(), 1U);
}

class Capture : public ::testing::Test {
 protected:
  Capture() : link(events, pool, {}), writer(memory, "Orrery test"), near(events, pool), far(events, pool) {
    link.end(1).attach(far);
  }
  std::vector<std::string> ask_tshark(const std::string& arguments) {
    file.write(memory.bytes);
    return tshark(file.path(), arguments);
  }
  EventQueue events;
  PacketPool pool;
  Link link;
  Memory memory;
  PcapngWriter writer;
  Collector near;
  Collector far;
  test::TemporaryFile file;
};

TEST_F(Capture, ATapRecordsBothWaysAndChangesNothing) {
  const std::uint32_t interface = writer.add_interface("rnic0", "", 0);
  CaptureTap tap(events, pool, link.end(0), writer, interface);
  tap.attach(near);
  const std::vector<std::byte> frame(100, std::byte{1});
  const Picoseconds left = tap.send(packet_of(pool, pool.make_frame(frame)));
  EXPECT_EQ(left, link.occupancy(104));
  EXPECT_EQ(tap.free_at(), left);
  tap.notify_when_free();
  link.end(1).send(packet_of(pool, pool.make_frame(frame)));
  Packet bare;
  bare.wire_bytes = 64;
  tap.send(bare);
  run_all(events);
  EXPECT_EQ(far.packets.size(), 2U);
  EXPECT_EQ(near.packets.size(), 1U);
  EXPECT_EQ(near.ready.size(), 1U);
  EXPECT_EQ(writer.packets(), 2U);
  EXPECT_EQ(tap.without_content(), 1U);
  EXPECT_EQ(pool.outstanding(), 0U);
}

TEST_F(Capture, LongPacketsAreCutInTheCaptureOnly) {
  CaptureTap tap(events, pool, link.end(0), writer, writer.add_interface("rnic0", "", 0), 64);
  tap.attach(near);
  tap.send(packet_of(pool, pool.make_frame(std::vector<std::byte>(1000))));
  run_all(events);
  EXPECT_EQ(far.packets[0].wire_bytes, 1004U);
  if (testing::have_tshark()) {
    EXPECT_EQ(ask_tshark("-T fields -e frame.len -e frame.cap_len"), std::vector<std::string>{"1000\t64"});
  }
}

TEST_F(Capture, TsharkReadsTimesAndInterfaces) {
  if (!testing::have_tshark()) {
    GTEST_SKIP() << "tshark is not installed";
  }
  writer.add_interface("rnic0.port0", "the first", 200'000'000'000);
  writer.add_interface("rnic1.port0", "", 0);
  const std::vector<std::byte> frame(60);
  writer.write_packet(0, {0}, CaptureDirection::inbound, frame, 60);
  writer.write_packet(1, {1'234'567'891'234}, CaptureDirection::outbound, frame, 60);
  const std::vector<std::string> lines = ask_tshark("-T fields -e frame.time_epoch -e frame.interface_name");
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].substr(0, 11), "0.000000000");
  EXPECT_EQ(lines[1].substr(0, 11), "1.234567891");
  EXPECT_NE(lines[1].find("rnic1.port0"), std::string::npos);
}

// Every opcode, encapsulation and extension: nothing malformed, no wrong checksum, and the fields that we wrote.
TEST_F(Capture, TsharkDecodesEveryFrame) {
  if (!testing::have_tshark()) {
    GTEST_SKIP() << "tshark is not installed";
  }
  std::mt19937_64 random(11);
  const std::uint32_t interface = writer.add_interface("rnic0", "", 0);
  std::vector<RoceHeaders> sent;
  std::vector<std::byte> frame(max_frame_bytes);
  for (const RoceEncapsulation encapsulation :
       {RoceEncapsulation::v1, RoceEncapsulation::v2_ipv4, RoceEncapsulation::v2_ipv6}) {
    for (const std::uint8_t opcode : valid_opcodes()) {
      for (const bool extended : {false, true}) {
        RoceHeaders headers = random_headers(random, opcode, encapsulation, extended);
        headers.deth.source_qp |= 0x1000;  // QP 0 and 1 carry management datagrams, which random bytes are not
        headers.bth.destination_qp |= 0x1000;
        const std::size_t size = opcode == opcode_cnp ? 16 : layout_of(opcode).payload ? 61 : 0;
        const std::size_t bytes = encode_frame(headers, random_bytes(random, size), frame);
        writer.write_packet(interface, {1000 * sent.size()}, CaptureDirection::outbound, std::span(frame).first(bytes),
                            static_cast<std::uint32_t>(bytes));
        sent.push_back(headers);
      }
    }
  }
  const std::vector<std::string> bad = ask_tshark(
      "-o ip.check_checksum:TRUE -o udp.check_checksum:TRUE"
      " -Y '_ws.malformed || _ws.short || ip.checksum.status==0 || udp.checksum.status==0' -V");
  EXPECT_TRUE(bad.empty()) << bad.size() << " lines, first: " << bad[0];
  const std::vector<std::string> lines = ask_tshark(
      "-T fields -e infiniband.bth.opcode -e infiniband.bth.destqp -e infiniband.bth.psn -e infiniband.aeth.msn"
      " -e infiniband.reth.va -e infiniband.immdt");
  ASSERT_EQ(lines.size(), sent.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const RoceHeaders& headers = sent[i];
    char expected[64];
    std::snprintf(expected, sizeof expected, "%u\t0x%06x\t%u\t", headers.bth.opcode, headers.bth.destination_qp,
                  headers.bth.psn);
    EXPECT_EQ(lines[i].substr(0, std::strlen(expected)), expected) << opcode_name(headers.bth.opcode);
  }
}

}  // namespace
}  // namespace orrery::fabric::pcapng_test
