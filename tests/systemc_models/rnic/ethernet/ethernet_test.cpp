// Ethernet queues of two nodes: what is sent, who gets it, and what goes wrong.
#include "tests/systemc_models/rnic/ethernet/frames.h"
#include "tests/systemc_models/rnic/verbs_rig.h"

namespace orrery::test {
namespace {

constexpr std::uint8_t op_lso = 0x0e;

struct GuestQueue {
  std::uint32_t number = 0;
  FrameQueueContext context;
  std::uint64_t ring = 0;
  std::uint64_t record = 0;
  std::uint16_t producer = 0;
};

class EthernetTest : public VerbsTest {
 protected:
  GuestQueue make(Node& node, bool send, std::uint32_t index, GuestCq& cq, std::uint32_t log_entries = 4) {
    GuestQueue q;
    q.number = send ? max_qps + index : index;
    q.ring = node.allocate(64ULL << log_entries);
    q.record = node.allocate(8);
    q.context.pd = Node::pd;
    q.context.uar = Node::uar;
    q.context.cq = cq.number;
    q.context.log_entries = log_entries;
    q.context.log_stride = send ? 6 : 5;
    q.context.buffer = node.queue_buffer(q.ring, 64ULL << log_entries);
    q.context.doorbell_record = q.record;
    EXPECT_EQ(enter(node, q, FrameQueueState::reset), ControlResult::ok);
    EXPECT_EQ(enter(node, q, FrameQueueState::ready), ControlResult::ok);
    return q;
  }
  static ContextKind kind(const GuestQueue& q) {
    return q.number >= max_qps ? ContextKind::send_queue : ContextKind::receive_queue;
  }
  static ControlResult enter(Node& node, GuestQueue& q, FrameQueueState state) {
    q.context.state = state;
    return node.write(kind(q), q.number, q.context);
  }
  static void post_receive(Node& node, GuestQueue& q, const Sge& sge) {
    Node::put_list(node.memory.at(q.ring) + std::size_t{q.producer % (1U << q.context.log_entries)} * 32, {sge}, 32);
    store32(node.memory.at(q.record), ++q.producer);
  }
  // ctrl, eth segment with `header` inline, then the rest.
  void send(Node& node, GuestQueue& q, std::uint8_t opcode, std::span<const std::byte> header, const Sge& rest,
            unsigned checksums = 3, unsigned mss = 0, bool signalled = true) {
    Bytes wqe(16);
    if (opcode != 0) {
      wqe.resize(32 + (header.size() > 2 ? (header.size() - 2 + 15) / 16 * 16 : 0));
      store32(wqe.data() + 20, checksums << 30 | mss);
      put16(wqe, 28, static_cast<unsigned>(header.size()));
      std::copy(header.begin(), header.end(), wqe.begin() + 30);
      if (rest.length != 0) {
        wqe.resize(wqe.size() + 16);
        store32(wqe.data() + wqe.size() - 16, rest.length);
        store32(wqe.data() + wqe.size() - 12, rest.key);
        store64(wqe.data() + wqe.size() - 8, rest.address);
      }
    }
    store32(wqe.data(), std::uint32_t{q.producer} << 8 | opcode);
    store32(wqe.data() + 4, q.number << 8 | static_cast<std::uint32_t>(wqe.size() / 16));
    store32(wqe.data() + 8, signalled ? 8 : 0);
    wqe.resize((wqe.size() + 63) / 64 * 64);
    for (std::size_t at = 0; at < wqe.size(); at += 64) {
      std::memcpy(node.memory.at(q.ring) + std::size_t{q.producer++ % (1U << q.context.log_entries)} * 64,
                  wqe.data() + at, 64);
    }
    store32(node.memory.at(q.record) + 4, q.producer);
    node.engine.ring_send(0, Node::uar, q.number);
    run();
  }

  std::uint64_t area_a = a.allocate(1U << 16), area_b = b.allocate(1U << 16);
  std::uint32_t key_a = a.make_key(area_a, 1U << 16), key_b = b.make_key(area_b, 1U << 16);
  GuestCq send_cq = a.make_cq(6), receive_cq = b.make_cq(6);
  GuestQueue sq = make(a, true, 1, send_cq), rq = make(b, false, 1, receive_cq);
};

TEST_F(EthernetTest, NopsComplete) {
  send(a, sq, 0, {}, {});
  const Cqe cqe = expect(a, send_cq);
  EXPECT_EQ(cqe.opcode, cqe::request);
  EXPECT_EQ(cqe.counter, 0U);
  EXPECT_EQ(cqe.qp, sq.number);
}

TEST_F(EthernetTest, FrameWithInlineHeaderAndChecksums) {
  const Bytes frame = make_frame(false, 6, 501);
  std::memcpy(a.memory.at(area_a), frame.data() + 18, frame.size() - 18);
  post_receive(b, rq, {area_b, 2048, key_b});
  send(a, sq, op::send, std::span(frame).first(18), {area_a, static_cast<std::uint32_t>(frame.size() - 18), key_a});
  EXPECT_EQ(expect(a, send_cq).opcode, cqe::request);
  const std::byte* entry = b.memory.at(receive_cq.ring);
  const Cqe cqe = expect(b, receive_cq);
  EXPECT_EQ(cqe.opcode, cqe::receive);
  EXPECT_EQ(cqe.bytes, frame.size());
  const std::span got{b.memory.at(area_b), frame.size()};
  EXPECT_TRUE(l4_right(got, false));
  EXPECT_EQ(slow_sum(got, 14, 34), 0xffffU);
  EXPECT_EQ(std::to_integer<unsigned>(entry[0x1c]), 6U);  // L3 and L4 right
  EXPECT_EQ(load32(entry + 0x14) >> 16, slow_sum(got, 14, got.size()));
  EXPECT_EQ(a.engine.frame_counters(0).sent_unicast.bytes, frame.size());
  EXPECT_EQ(b.engine.frame_counters(0).received_unicast.frames, 1U);
}

TEST_F(EthernetTest, LargePacketIsCut) {
  const Bytes whole = make_frame(true, 6, 3001);
  std::memcpy(a.memory.at(area_a), whole.data() + 74, 3001);
  for (std::uint32_t i = 0; i < 3; ++i) {
    post_receive(b, rq, {area_b + 2048 * i, 2048, key_b});
  }
  send(a, sq, op_lso, std::span(whole).first(74), {area_a, 3001, key_a}, 3, 1428);
  EXPECT_EQ(expect(a, send_cq).opcode, cqe::request);
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(expect(b, receive_cq).bytes, i < 2 ? 74U + 1428U : 74U + 145U);
    EXPECT_EQ(std::memcmp(b.memory.at(area_b + 2048 * i) + 74, whole.data() + 74 + 1428 * i, i < 2 ? 1428 : 145), 0);
  }
}

TEST_F(EthernetTest, ShortFramesArePadded) {
  post_receive(b, rq, {area_b, 2048, key_b});
  const Bytes frame = make_frame(false, 17, 0);
  send(a, sq, op::send, frame, {});
  EXPECT_EQ(expect(b, receive_cq).bytes, 60U);
}

TEST_F(EthernetTest, BadRequestsEndTheQueue) {
  send(a, sq, op::read, {}, {});
  const Cqe bad = expect(a, send_cq);
  EXPECT_EQ(bad.opcode, cqe::request_error);
  EXPECT_EQ(bad.syndrome, cqe::local_qp_operation);
  send(a, sq, 0, {}, {}, 0, 0, false);
  EXPECT_EQ(expect(a, send_cq).syndrome, cqe::flushed);
  EXPECT_EQ(a.read<FrameQueueContext>(ContextKind::send_queue, sq.number).state, FrameQueueState::error);
  // Reset and ready again: from the beginning.
  EXPECT_EQ(enter(a, sq, FrameQueueState::ready), ControlResult::wrong_state);
  EXPECT_EQ(enter(a, sq, FrameQueueState::reset), ControlResult::ok);
  EXPECT_EQ(enter(a, sq, FrameQueueState::ready), ControlResult::ok);
  sq.producer = 0;
  send(a, sq, 0, {}, {});
  EXPECT_EQ(expect(a, send_cq).opcode, cqe::request);
}

TEST_F(EthernetTest, KeysAndLengthsAreChecked) {
  send(a, sq, op::send, {}, {area_a, 100, key_a ^ 1});
  EXPECT_EQ(expect(a, send_cq).syndrome, cqe::local_protection);
  GuestQueue other = make(a, true, 2, send_cq);
  send(a, other, op::send, {}, {area_a, 20'000, key_a});
  EXPECT_EQ(expect(a, send_cq).syndrome, cqe::local_length);
  GuestQueue third = make(a, true, 3, send_cq);
  send(a, third, op_lso, {}, {area_a, 2000, key_a}, 3, 100);
  EXPECT_EQ(expect(a, send_cq).syndrome, cqe::local_qp_operation);
  expect_none(b, receive_cq);
}

TEST_F(EthernetTest, EmptyQueueDropsAndCounts) {
  const Bytes frame = make_frame(false, 17, 100);
  send(a, sq, op::send, frame, {});
  expect_none(b, receive_cq);
  EXPECT_EQ(b.engine.frame_counters(0).no_buffer, 1U);
  post_receive(b, rq, {area_b, 2048, key_b});
  send(a, sq, op::send, frame, {});
  EXPECT_EQ(expect(b, receive_cq).bytes, frame.size());
}

TEST_F(EthernetTest, OneEntryQueueIsNeverChosen) {
  ASSERT_EQ(enter(b, rq, FrameQueueState::error), ControlResult::ok);
  GuestQueue drop = make(b, false, 2, receive_cq, 0);
  post_receive(b, drop, {area_b, 2048, key_b});
  send(a, sq, op::send, make_frame(false, 17, 100), {});
  expect_none(b, receive_cq);
  EXPECT_EQ(b.engine.frame_counters(0).no_buffer, 1U);
}

TEST_F(EthernetTest, AddressesAreObeyed) {
  for (std::uint32_t i = 0; i < 4; ++i) {
    post_receive(b, rq, {area_b, 2048, key_b});
  }
  send(a, sq, op::send, make_frame(false, 17, 100, 0x0200'0000'0999), {});
  expect_none(b, receive_cq);
  send(a, sq, op::send, make_frame(false, 17, 100, 0xffff'ffff'ffff), {});
  expect(b, receive_cq);
  send(a, sq, op::send, make_frame(false, 17, 100, 0x3333'0000'0001), {});
  expect(b, receive_cq);
  // An address of its list, until it is taken out again.
  ASSERT_EQ(b.write(ContextKind::mac, 5, MacContext{0x0200'0000'0999}), ControlResult::ok);
  EXPECT_EQ(b.write(ContextKind::mac, 6, MacContext{0x0100'5e00'0001}), ControlResult::bad_value);
  EXPECT_EQ(b.write(ContextKind::mac, max_functions * max_macs, MacContext{2}), ControlResult::bad_index);
  send(a, sq, op::send, make_frame(false, 17, 100, 0x0200'0000'0999), {});
  expect(b, receive_cq);
  EXPECT_EQ(b.engine.destroy_context(ContextKind::mac, 5), ControlResult::ok);
  send(a, sq, op::send, make_frame(false, 17, 100, 0x0200'0000'0999), {});
  expect_none(b, receive_cq);
  auto function = b.read<FunctionContext>(ContextKind::function, 0);
  function.promiscuous = 1;
  b.write(ContextKind::function, 0, function);
  send(a, sq, op::send, make_frame(false, 17, 100, 0x0200'0000'0999), {});
  expect(b, receive_cq);
  EXPECT_EQ(b.engine.frame_counters(0).received_broadcast.frames, 1U);
  EXPECT_EQ(b.engine.frame_counters(0).received_multicast.frames, 1U);
  EXPECT_EQ(b.engine.frame_counters(0).received_unicast.frames, 2U);
}

TEST_F(EthernetTest, LongFramesAreErrorsOfThePort) {
  auto function = b.read<FunctionContext>(ContextKind::function, 0);
  function.mtu = 120;
  b.write(ContextKind::function, 0, function);
  send(a, sq, op::send, make_frame(false, 17, 100), {});
  EXPECT_EQ(b.engine.frame_counters(0).received_errors.frames, 1U);
  EXPECT_EQ(b.engine.frame_counters(0).no_buffer, 0U);
}

TEST_F(EthernetTest, ShortReceiveEntryIsAnError) {
  post_receive(b, rq, {area_b, 64, key_b});
  send(a, sq, op::send, make_frame(false, 17, 100), {});
  EXPECT_EQ(expect(b, receive_cq).syndrome, cqe::local_length);
  EXPECT_EQ(b.read<FrameQueueContext>(ContextKind::receive_queue, rq.number).state, FrameQueueState::error);
}

TEST_F(EthernetTest, DoorbellsOfOthersAreRefused) {
  a.engine.ring_send(0, Node::uar + 1, sq.number);
  a.engine.ring_send(0, Node::uar, max_qps + 77);
  a.engine.ring_send(0, Node::uar, 0xff'ffff);
  EXPECT_EQ(a.engine.counters(0).doorbells_refused, 3U);
}

TEST_F(EthernetTest, DestroyedQueuesDrain) {
  std::memset(a.memory.at(area_a), 0, 100);
  const auto result = a.engine.destroy_context(ContextKind::send_queue, sq.number);
  EXPECT_EQ(result, ControlResult::ok);
  EXPECT_EQ(b.engine.destroy_context(ContextKind::receive_queue, rq.number), ControlResult::ok);
  EXPECT_EQ(b.engine.destroy_context(ContextKind::receive_queue, rq.number), ControlResult::bad_index);
  a.engine.reset(0);
  run();
  EXPECT_EQ(pool.outstanding(), 0U);
}

}  // namespace
}  // namespace orrery::test
