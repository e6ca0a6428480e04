// The mlx5 formats, byte by byte: values from the interface description.
#include "systemc_models/rnic/mlx5/queue_format.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/systemc_models/rnic/verbs_node.h"

namespace orrery::rnic::mlx5::queue_format_test {
namespace {

using test::load32;
using test::store32;
using test::store64;

class FormatTest : public testing::Test {
 protected:
  Mlx5QueueFormat format;
  std::vector<std::byte> wqe = std::vector<std::byte>(1024);
  SendWorkRequest request;

  void control(std::uint8_t opcode, unsigned segments, std::uint8_t flags = 8) {
    store32(wqe.data(), (0x1234U << 8) | opcode);
    store32(wqe.data() + 4, (0xabcdefU << 8) | segments);
    store32(wqe.data() + 8, flags);
    store32(wqe.data() + 12, 0x11223344);
  }
  void data(unsigned segment, std::uint32_t length, std::uint32_t key, std::uint64_t address) {
    store32(wqe.data() + 16 * segment, length);
    store32(wqe.data() + 16 * segment + 4, key);
    store64(wqe.data() + 16 * segment + 8, address);
  }
  void decode(QpType type = QpType::rc) { format.decode_send(wqe, type, request); }
};

TEST_F(FormatTest, DoorbellRecords) {
  std::array<std::byte, 8> record{};
  store32(record.data(), 0x0001'2345);
  store32(record.data() + 4, 0x0009'fffe);
  EXPECT_EQ(format.receive_producer(record), 0x2345);
  EXPECT_EQ(format.send_producer(record), 0xfffe);
  store32(record.data(), 0xff12'3456);
  EXPECT_EQ(format.cq_consumer(record), 0x12'3456U);
}

TEST_F(FormatTest, WriteWithTwoEntries) {
  control(0x09, 4, 8 | 2 | 0x40);
  store64(wqe.data() + 16, 0x1122'3344'5566'7788);
  store32(wqe.data() + 24, 0x99aa'bbcc);
  data(2, 100, 0x500, 0x1000);
  data(3, 0, 0x501, 0x2000);  // 0 means 2 GiB
  EXPECT_EQ(format.send_blocks(wqe), 1U);
  decode();
  EXPECT_EQ(request.opcode, SendOpcode::write_immediate);
  EXPECT_EQ(request.raw_opcode, 9);
  EXPECT_EQ(request.index, 0x1234);
  EXPECT_TRUE(request.signalled && request.solicited && request.fence);
  EXPECT_EQ(request.immediate, 0x11223344U);
  EXPECT_EQ(request.remote_address, 0x1122'3344'5566'7788U);
  EXPECT_EQ(request.remote_key, 0x99aa'bbccU);
  ASSERT_EQ(request.entry_count, 2U);
  EXPECT_EQ(request.entries[0].key, 0x500U);
  EXPECT_EQ(request.length, 100 + 0x8000'0000ULL);
}

TEST_F(FormatTest, InlineDataSaysWhereItIs) {
  control(0x0a, 3);
  store32(wqe.data() + 16, 0x8000'0000U | 28);
  decode();
  EXPECT_EQ(request.opcode, SendOpcode::send);
  EXPECT_TRUE(request.is_inline);
  EXPECT_EQ(request.length, 28U);
  EXPECT_EQ(request.entries[0].address, 20U);
  store32(wqe.data() + 16, 0x8000'0000U | 29);  // one byte more than the WQE has
  decode();
  EXPECT_EQ(request.opcode, SendOpcode::invalid);
}

// As UCX sends a header with a payload from memory.
TEST_F(FormatTest, InlineDataAndPointersMix) {
  control(0x0a, 4);
  store32(wqe.data() + 16, 0x8000'0000U | 12);
  data(2, 100, 0x500, 0x7000);
  store32(wqe.data() + 48, 0x8000'0000U | 5);
  decode();
  EXPECT_EQ(request.opcode, SendOpcode::send);
  EXPECT_TRUE(request.is_inline);
  EXPECT_EQ(request.length, 117U);
  ASSERT_EQ(request.entry_count, 3U);
  EXPECT_TRUE(request.entries[0].is_inline);
  EXPECT_EQ(request.entries[0].address, 20U);
  EXPECT_FALSE(request.entries[1].is_inline);
  EXPECT_EQ(request.entries[1].address, 0x7000U);
  EXPECT_TRUE(request.entries[2].is_inline);
  EXPECT_EQ(request.entries[2].address, 52U);
}

TEST_F(FormatTest, Datagram) {
  control(0x0b, 5);
  std::byte* av = wqe.data() + 16;
  store32(av, 0xdead);
  store32(av + 8, 0x8000'0000U | 0x123456);
  store32(av + 12, (5U << 24) | 0xc123);
  store32(av + 0x14, 0x0200'0000);
  store32(av + 0x18, (0x0007U << 16) | (0x68U << 8) | 63);
  store32(av + 0x1c, (1U << 30) | (9U << 20) | 0x54321);
  av[0x20] = std::byte{0xfe};
  av[0x2f] = std::byte{0x11};
  data(4, 10, 1, 2);
  decode(QpType::ud);
  ASSERT_EQ(request.opcode, SendOpcode::send_immediate);
  EXPECT_EQ(request.datagram.qkey, 0xdeadU);
  EXPECT_EQ(request.datagram.qp, 0x123456U);
  const PathContext& path = request.datagram.path;
  EXPECT_EQ(path.remote_mac, 0x0200'0000'0007U);
  EXPECT_EQ(path.udp_source_port, 0xc123U);
  EXPECT_EQ(path.service_level, 5);
  EXPECT_EQ(path.traffic_class, 0x68);
  EXPECT_EQ(path.hop_limit, 63);
  EXPECT_EQ(path.address_index, 9U);
  EXPECT_EQ(path.flow_label, 0x54321U);
  EXPECT_EQ(path.remote_gid[0], 0xfe);
  EXPECT_EQ(path.remote_gid[15], 0x11);
  control(0x0b, 3);  // too short for an address vector
  decode(QpType::ud);
  EXPECT_EQ(request.opcode, SendOpcode::invalid);
}

TEST_F(FormatTest, XrcAndAtomics) {
  control(0x11, 5);
  store32(wqe.data() + 16, 0xff00'0042);
  store64(wqe.data() + 32, 0x8000);
  store32(wqe.data() + 40, 0x777);
  store64(wqe.data() + 48, 11);
  store64(wqe.data() + 56, 12);
  data(4, 8, 1, 2);
  decode(QpType::xrc);
  ASSERT_EQ(request.opcode, SendOpcode::compare_swap);
  EXPECT_EQ(request.srq, 0x42U);
  EXPECT_EQ(request.swap_add, 11U);
  EXPECT_EQ(request.compare, 12U);
  EXPECT_EQ(request.entry_count, 1U);
}

TEST_F(FormatTest, ReceiveListsEndAtTheKeyThatSaysSo) {
  data(0, 16, 7, 0x1000);
  data(1, 0, 0x100, 0);
  data(2, 16, 7, 0x2000);
  ReceiveWorkRequest receive;
  ASSERT_TRUE(format.decode_receive(std::span(wqe).first(64), receive));
  EXPECT_EQ(receive.entry_count, 1U);
  store32(wqe.data(), 0xffff'0009);
  data(1, 20, 7, 0x3000);
  data(2, 0, 0x100, 0);
  ASSERT_TRUE(format.decode_srq(std::span(wqe).first(64), receive));
  EXPECT_EQ(receive.next, 9);
  EXPECT_EQ(receive.length, 20U);
}

TEST_F(FormatTest, GoodCompletion) {
  Completion c;
  c.kind = CompletionKind::receive_immediate;
  c.solicited = true;
  c.has_grh = true;
  c.network = NetworkHeader::ipv4;
  c.wqe_index = 0x8001;
  c.qp = 0x123456;
  c.user_index = 0xabc;
  c.source_qp = 0x77;
  c.immediate = 0xcafe;
  c.byte_count = 99;
  c.timestamp = 0x1'0000'0002;
  std::array<std::byte, 128> entry;
  format.encode_completion(c, 3, entry);
  const std::byte* at = entry.data() + 64;  // the upper half of 128 bytes
  EXPECT_EQ(load32(at + 0x18), (1U << 28) | (2U << 24) | 0x77U);
  EXPECT_EQ(load32(at + 0x20), 0xabcU);
  EXPECT_EQ(load32(at + 0x24), 0xcafeU);
  EXPECT_EQ(load32(at + 0x2c), 99U);
  EXPECT_EQ(load32(at + 0x30), 1U);
  EXPECT_EQ(load32(at + 0x34), 2U);
  EXPECT_EQ(load32(at + 0x38), 0x123456U);
  EXPECT_EQ(load32(at + 0x3c), 0x8001'0000U | (3U << 4) | 2U | 1U);
}

TEST_F(FormatTest, FailedCompletionsAndTheirSyndromes) {
  const std::pair<CompletionCode, unsigned> table[] = {{CompletionCode::local_length, 0x01},
                                                       {CompletionCode::local_qp_operation, 0x02},
                                                       {CompletionCode::local_protection, 0x04},
                                                       {CompletionCode::flushed, 0x05},
                                                       {CompletionCode::memory_window_bind, 0x06},
                                                       {CompletionCode::bad_response, 0x10},
                                                       {CompletionCode::local_access, 0x11},
                                                       {CompletionCode::remote_invalid_request, 0x12},
                                                       {CompletionCode::remote_access, 0x13},
                                                       {CompletionCode::remote_operation, 0x14},
                                                       {CompletionCode::transport_retry_exceeded, 0x15},
                                                       {CompletionCode::rnr_retry_exceeded, 0x16},
                                                       {CompletionCode::aborted, 0x22}};
  for (const auto& [code, syndrome] : table) {
    Completion c;
    c.code = code;
    c.vendor_code = 0x5a;
    c.raw_opcode = 8;
    c.qp = 3;
    c.timestamp = ~std::uint64_t{0};  // must not show
    std::array<std::byte, 64> entry;
    format.encode_completion(c, 0, entry);
    EXPECT_EQ(load32(entry.data() + 0x34), 0x5a00U | syndrome);
    EXPECT_EQ(load32(entry.data() + 0x38), 0x0800'0003U);
    EXPECT_EQ(entry[63], std::byte{0xd0});
    c.kind = CompletionKind::receive;
    format.encode_completion(c, 1, entry);
    EXPECT_EQ(entry[63], std::byte{0xe1});
  }
}

TEST_F(FormatTest, Events) {
  Event event = format.completion_event(0x1234);
  std::array<std::byte, 64> entry;
  format.encode_event(event, 1, entry);
  EXPECT_EQ(load32(entry.data()), 0U);
  EXPECT_EQ(load32(entry.data() + 0x20 + 24), 0x1234U);
  EXPECT_EQ(entry[63], std::byte{1});
}

}  // namespace
}  // namespace orrery::rnic::mlx5::queue_format_test
