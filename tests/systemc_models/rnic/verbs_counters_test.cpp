// What the RNIC counts: by counter set, and the RoCE packets of a function; and a port that is down.
#include "tests/systemc_models/rnic/verbs_rig.h"

namespace orrery::test::verbs_counters_test {
namespace {

class CountersTest : public QpPairTest {
 protected:
  static constexpr std::uint32_t set_a = 7, set_b = 255;

  void connect() {
    qa.context.counter_set = set_a;
    qb.context.counter_set = set_b;
    Node::connect(a, qa, b, qb);
  }
  QueueCounters counted(Node& node) {
    return node.read<QueueCounters>(ContextKind::queue_counters, &node == &a ? set_a : set_b);
  }
  Wqe write(std::uint32_t bytes) { return Wqe{.opcode = op::write}.remote(mb, kb).data({ma, bytes, ka}); }
};

TEST_F(CountersTest, RequestsAndPackets) {
  connect();
  b.post_receive(qb, {{mb, 100, kb}});
  a.put(qa, write(5000));
  a.put(qa, Wqe{.opcode = op::write}.remote(mb, kb));
  Wqe immediate = write(10);
  immediate.opcode = op::write_immediate;
  a.put(qa, immediate);
  a.put(qa, Wqe{.opcode = op::read}.remote(mb, kb).data({ma, 10, ka}));
  a.put(qa, Wqe{.opcode = op::fetch_add}.remote(mb, kb).atomic(1, 0).data({ma, 8, ka}));
  a.put(qa, Wqe{.opcode = op::compare_swap}.remote(mb, kb).atomic(1, 0).data({ma, 8, ka}));
  a.ring(qa);
  run();
  const QueueCounters at_b = counted(b);
  EXPECT_EQ(at_b.write_requests, 3U);
  EXPECT_EQ(at_b.read_requests, 1U);
  EXPECT_EQ(at_b.atomic_requests, 2U);
  EXPECT_EQ(at_b.out_of_buffer + at_b.out_of_sequence + at_b.duplicate_requests + at_b.responder_errors, 0U);
  EXPECT_EQ(counted(a).write_requests, 0U);
  // 5000 bytes are 5 packets of 1024; the other five requests one each.
  const FrameCounters sent = a.engine.frame_counters(0);
  const FrameCounters received = b.engine.frame_counters(0);
  EXPECT_EQ(sent.roce_sent_unicast.frames, 10U);
  EXPECT_EQ(sent.roce_sent_unicast.frames, received.roce_received_unicast.frames);
  EXPECT_EQ(sent.roce_sent_unicast.bytes, received.roce_received_unicast.bytes);
  EXPECT_EQ(sent.roce_received_unicast.frames, received.roce_sent_unicast.frames);
  EXPECT_EQ(sent.roce_received_unicast.bytes, received.roce_sent_unicast.bytes);
  EXPECT_EQ(sent.sent_unicast.frames + sent.roce_sent_multicast.frames, 0U);
  // Headers of RoCE v2 over IPv4 with the ICRC: 14 + 20 + 8 + 12 + 4; BTH extensions on top.
  EXPECT_GT(sent.roce_sent_unicast.bytes, 5010U + 10 * 58);
  b.engine.destroy_context(ContextKind::queue_counters, set_b);
  EXPECT_EQ(counted(b).write_requests, 0U);
}

TEST_F(CountersTest, ReceiverThatIsNotReady) {
  qb.context.min_rnr_timer = 1;
  connect();
  a.post(qa, Wqe{}.data({ma, 100, ka}));
  simulation.events.run_until(simulation.now() + Picoseconds{1'000'000});
  b.post_receive(qb, {{mb, 100, kb}});
  run();
  EXPECT_EQ(expect(a, ca).opcode, cqe::request);
  EXPECT_GE(counted(b).out_of_buffer, 1U);
  EXPECT_EQ(counted(b).out_of_buffer, b.engine.counters(0).rnr_naks_sent);
  EXPECT_EQ(counted(a).received_rnr_naks, b.engine.counters(0).rnr_naks_sent);
}

TEST_F(CountersTest, ErrorsOfBothSides) {
  connect();
  b.post_receive(qb, {{mb, 100, kb}});
  a.put(qa, Wqe{.opcode = op::write}.remote(mb, kb + 1).data({ma, 10, ka}));
  a.put(qa, write(10));
  a.ring(qa);
  run();
  const QueueCounters at_a = counted(a);
  EXPECT_EQ(at_a.requester_remote_access, 1U);
  EXPECT_EQ(at_a.requester_flushed, 1U);
  EXPECT_EQ(at_a.requester_errors, 2U);
  EXPECT_EQ(at_a.responder_errors, 0U);
  const QueueCounters at_b = counted(b);
  EXPECT_EQ(at_b.responder_remote_access, 1U);
  EXPECT_EQ(at_b.responder_flushed, 1U);
  EXPECT_EQ(at_b.responder_errors, 1U);
}

TEST_F(CountersTest, CounterSetOutOfRange) {
  qa.context.counter_set = max_counter_sets;
  EXPECT_EQ(a.enter(qa, QpState::init), ControlResult::bad_value);
}

TEST_F(CountersTest, PortThatIsDown) {
  qa.context.ack_timeout = 8;  // 1 ms
  qa.context.retry_count = 1;
  connect();
  auto function = b.read<FunctionContext>(ContextKind::function, 0);
  function.port_down = 1;
  b.write(ContextKind::function, 0, function);
  a.post(qa, write(10));
  run();
  EXPECT_EQ(expect(a, ca).syndrome, cqe::retry_exceeded);
  EXPECT_EQ(counted(a).requester_retries_exceeded, 1U);
  EXPECT_GE(counted(a).acknowledge_timeouts, 1U);
  EXPECT_EQ(b.engine.frame_counters(0).roce_received_unicast.frames, 0U);
  // The other way nothing leaves.
  const std::uint64_t before = a.engine.frame_counters(0).roce_received_unicast.frames;
  b.post(qb, Wqe{.opcode = op::write}.remote(ma, ka).data({mb, 10, kb}));
  simulation.events.run_until(simulation.now() + Picoseconds{1'000'000'000});
  EXPECT_EQ(a.engine.frame_counters(0).roce_received_unicast.frames, before);
  EXPECT_EQ(b.engine.frame_counters(0).roce_sent_unicast.frames, 0U);
}

}  // namespace
}  // namespace orrery::test::verbs_counters_test
