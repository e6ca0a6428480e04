// What goes wrong, and which completion says so (IBTA Volume 1 §9.7.5, §10.3.1, §11.6.2).
#include "tests/systemc_models/rnic/verbs_rig.h"

namespace orrery::test::verbs_error_test {
namespace {

class ErrorTest : public QpPairTest {
 protected:
  void connect() { Node::connect(a, qa, b, qb); }
  Wqe send(std::uint32_t bytes) { return Wqe{}.data({ma, bytes, ka}); }
  Wqe write(std::uint32_t bytes) { return Wqe{.opcode = op::write}.remote(mb, kb).data({ma, bytes, ka}); }
  QpState state(Node& node, const GuestQp& qp) { return node.read<QpContext>(ContextKind::qp, qp.number).state; }
  void expect_flushed(Node& node, GuestCq& cq, unsigned opcode, unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
      const Cqe cqe = expect(node, cq);
      EXPECT_EQ(cqe.opcode, opcode) << i;
      EXPECT_EQ(cqe.syndrome, cqe::flushed) << i;
    }
  }
  std::uint32_t error_cause(Node& node) {
    for (const HardwareEvent& e : node.events) {
      if (e.code == EventCode::qp_error) {
        return e.detail;
      }
    }
    return 0;
  }
};

TEST_F(ErrorTest, LocalProtectionFlushesBothQueues) {
  connect();
  a.post_receive(qa, {{ma, 10, ka}});
  a.post_receive(qa, {{ma, 10, ka}});
  a.put(qa, write(5000));
  a.put(qa, Wqe{}.data({ma + area - 10, 20, ka}));  // beyond the region
  Wqe quiet = write(1);
  quiet.signalled = false;
  a.put(qa, quiet);
  a.put(qa, send(1));
  a.ring(qa);
  simulation.events.run_until(simulation.now() + 1_ms);
  EXPECT_EQ(expect(a, ca).opcode, cqe::request);
  const Cqe bad = expect(a, ca);
  EXPECT_EQ(bad.opcode, cqe::request_error);
  EXPECT_EQ(bad.syndrome, cqe::local_protection);
  EXPECT_EQ(bad.send_opcode, op::send);
  EXPECT_EQ(bad.counter, 1U);
  unsigned requests = 0;
  unsigned receives = 0;
  while (const auto cqe = a.poll(ca)) {
    EXPECT_EQ(cqe->syndrome, cqe::flushed);
    ++(cqe->opcode == cqe::request_error ? requests : receives);
  }
  EXPECT_EQ(requests, 2U);
  EXPECT_EQ(receives, 2U);
  EXPECT_EQ(state(a, qa), QpState::error);
  EXPECT_EQ(error_cause(a), static_cast<std::uint32_t>(QpErrorCause::local));
  // What is posted later is flushed, too: sends by their doorbell, receives although there is none.
  a.post(qa, send(1));
  a.post_receive(qa, {{ma, 10, ka}});
  run();
  EXPECT_EQ(expect(a, ca).syndrome, cqe::flushed);
  EXPECT_EQ(expect(a, ca).syndrome, cqe::flushed);
  a.post_receive(qa, {{ma, 10, ka}});
  a.enter(qa, QpState::error);  // as drivers do before they drain a queue
  run();
  EXPECT_EQ(expect(a, ca).syndrome, cqe::flushed);
  // The only way out is reset.
  GuestQp again = qa;
  EXPECT_EQ(a.enter(again, QpState::rts), ControlResult::wrong_state);
  EXPECT_EQ(a.enter(again, QpState::reset), ControlResult::ok);
  EXPECT_EQ(state(a, qa), QpState::reset);
}

TEST_F(ErrorTest, WrongKeyPartsAreRefused) {
  connect();
  const std::uint32_t read_only = b.make_key(mb, area, key_local_read | key_local_write | key_remote_read);
  MkeyContext foreign = b.read<MkeyContext>(ContextKind::mkey, kb >> 8);
  foreign.pd = Node::pd + 1;
  b.write(ContextKind::mkey, 0x500, foreign);
  MkeyContext bound = b.read<MkeyContext>(ContextKind::mkey, kb >> 8);
  bound.qp = qb.number + 1;
  b.write(ContextKind::mkey, 0x501, bound);
  MkeyContext freed = b.read<MkeyContext>(ContextKind::mkey, kb >> 8);
  freed.state = KeyState::free;
  b.write(ContextKind::mkey, 0x502, freed);
  for (const std::uint32_t key :
       {kb + 1, read_only, 0x500U << 8 | 0x5a, 0x501U << 8 | 0x5a, 0x502U << 8 | 0x5a, 0xffffff00U}) {
    GuestQp qp = a.make_qp(QpType::rc, ca);
    GuestQp peer = b.make_qp(QpType::rc, cb);
    Node::connect(a, qp, b, peer);
    a.post(qp, Wqe{.opcode = op::write}.remote(mb, key).data({ma, 10, ka}));
    run();
    const Cqe cqe = expect(a, ca);
    EXPECT_EQ(cqe.opcode, cqe::request_error);
    EXPECT_EQ(cqe.syndrome, cqe::remote_access) << std::hex << key;
    EXPECT_EQ(state(b, peer), QpState::error);
  }
  EXPECT_EQ(error_cause(b), static_cast<std::uint32_t>(QpErrorCause::access_violation));
  EXPECT_EQ(b.engine.counters(0).key_violations, 6U);
}

TEST_F(ErrorTest, RemoteErrorAfterGoodWork) {
  connect();
  for (unsigned i = 0; i < 3; ++i) {
    b.post_receive(qb, {{mb + 100'000, 4000, kb}});
  }
  a.put(qa, send(3000));
  a.put(qa, Wqe{.opcode = op::read}.remote(mb + 200'000, kb).data({ma + 300'000, 50'000, ka}));
  a.put(qa, Wqe{.opcode = op::read}.remote(mb + area, kb).data({ma, 1, ka}));
  a.put(qa, send(10));
  a.ring(qa);
  run();
  EXPECT_EQ(expect(a, ca).opcode, cqe::request);
  EXPECT_EQ(expect(a, ca).opcode, cqe::request);  // READs before the bad one are answered
  EXPECT_TRUE(same(a, ma + 300'000, b, mb + 200'000, 50'000));
  EXPECT_EQ(expect(a, ca).syndrome, cqe::remote_access);
  expect_flushed(a, ca, cqe::request_error, 1);
  EXPECT_EQ(expect(b, cb).opcode, cqe::receive);
  expect_flushed(b, cb, cqe::receive_error, 2);
}

TEST_F(ErrorTest, OperationsThatTheResponderDoesNotAllow) {
  qb.context.flags &= ~std::uint32_t{qp_remote_write};
  connect();
  a.post(qa, write(10));
  run();
  EXPECT_EQ(expect(a, ca).syndrome, cqe::remote_invalid);
  EXPECT_EQ(error_cause(b), static_cast<std::uint32_t>(QpErrorCause::bad_request));
}

TEST_F(ErrorTest, MessageLongerThanTheReceive) {
  connect();
  b.post_receive(qb, {{mb, 2000, kb}});
  a.post(qa, send(2001));
  run();
  EXPECT_EQ(expect(a, ca).syndrome, cqe::remote_invalid);
  const Cqe cqe = expect(b, cb);
  EXPECT_EQ(cqe.opcode, cqe::receive_error);
  EXPECT_EQ(cqe.syndrome, cqe::local_length);
}

TEST_F(ErrorTest, ReceiveWithABadKey) {
  connect();
  b.post_receive(qb, {{mb, 2000, kb + 1}});
  a.post(qa, send(100));
  run();
  EXPECT_EQ(expect(a, ca).syndrome, cqe::remote_operation);
  EXPECT_EQ(expect(b, cb).syndrome, cqe::local_protection);
}

TEST_F(ErrorTest, MemoryThatGoesAway) {
  connect();
  b.memory.broken.insert((mb + 8192) / 4096);
  a.post(qa, Wqe{.opcode = op::write}.remote(mb, kb).data({ma, 20'000, ka}));
  run();
  EXPECT_EQ(expect(a, ca).syndrome, cqe::remote_operation);

  GuestQp q1 = a.make_qp(QpType::rc, ca);
  GuestQp q2 = b.make_qp(QpType::rc, cb);
  Node::connect(a, q1, b, q2);
  a.memory.broken.insert((ma + 8192) / 4096);
  a.post(q1, Wqe{.opcode = op::write}.remote(mb + 100'000, kb).data({ma, 20'000, ka}));
  run();
  EXPECT_EQ(expect(a, ca).syndrome, cqe::local_protection);

  GuestQp q3 = a.make_qp(QpType::rc, ca);
  GuestQp q4 = b.make_qp(QpType::rc, cb);
  Node::connect(a, q3, b, q4);
  a.post(q3, Wqe{.opcode = op::read}.remote(mb + 100'000, kb).data({ma, 20'000, ka}));
  run();
  EXPECT_EQ(expect(a, ca).syndrome, cqe::local_access);

  GuestQp q5 = a.make_qp(QpType::rc, ca);
  GuestQp q6 = b.make_qp(QpType::rc, cb);
  Node::connect(a, q5, b, q6);
  a.post(q5, Wqe{.opcode = op::read}.remote(mb, kb).data({ma + 100'000, 20'000, ka}));
  run();
  EXPECT_EQ(expect(a, ca).syndrome, cqe::remote_operation);

  GuestQp q7 = a.make_qp(QpType::rc, ca);
  GuestQp q8 = b.make_qp(QpType::rc, cb);
  Node::connect(a, q7, b, q8);
  a.post(q7, Wqe{.opcode = op::fetch_add}.remote(mb + 8192, kb).atomic(1, 0).data({ma + 100'000, 8, ka}));
  run();
  EXPECT_EQ(expect(a, ca).syndrome, cqe::remote_operation);
}

TEST_F(ErrorTest, SilentPeer) {
  qa.context.retry_count = 1;
  qa.context.ack_timeout = 8;  // 1.05 ms
  a.aim(qa, b, 0x4321);
  a.start(qa);
  a.put(qa, write(10));
  a.put(qa, write(10));
  a.ring(qa);
  run();
  EXPECT_EQ(expect(a, ca).syndrome, cqe::retry_exceeded);
  expect_flushed(a, ca, cqe::request_error, 1);
}

TEST_F(ErrorTest, ReceiverNeverReady) {
  qa.context.rnr_retry = 2;
  connect();
  a.post(qa, send(10));
  run();
  EXPECT_EQ(expect(a, ca).syndrome, cqe::rnr_exceeded);
  EXPECT_EQ(b.engine.counters(0).rnr_naks_sent, 3U);
  EXPECT_EQ(a.engine.counters(0).rnr_naks_received, 3U);
}

TEST_F(ErrorTest, ReceiverReadyInTime) {
  qb.context.min_rnr_timer = 12;  // 0.64 ms
  connect();
  a.post(qa, send(3000));
  simulation.events.run_until(simulation.now() + 100_us);
  b.post_receive(qb, {{mb, 3000, kb}});
  run();
  EXPECT_EQ(expect(a, ca).opcode, cqe::request);
  EXPECT_EQ(expect(b, cb).bytes, 3000U);
  EXPECT_EQ(b.engine.counters(0).rnr_naks_sent, 1U);
}

TEST_F(ErrorTest, MalformedWorkRequests) {
  for (unsigned kind = 0; kind < 6; ++kind) {
    GuestQp qp = a.make_qp(QpType::rc, ca);
    GuestQp peer = b.make_qp(QpType::rc, cb);
    Node::connect(a, qp, b, peer);
    unsigned syndrome = cqe::local_qp_operation;
    Wqe wqe = write(10);
    switch (kind) {
      case 0:
        wqe.opcode = 0x77;
        break;
      case 1:
        wqe = Wqe{.opcode = op::write};  // no remote address
        break;
      case 2:
        wqe = Wqe{.opcode = op::fetch_add}.remote(mb, kb).atomic(1, 1).data({ma, 9, ka});
        syndrome = cqe::local_length;
        break;
      case 3:
        wqe = Wqe{.opcode = op::fetch_add}.remote(mb + 4, kb).atomic(1, 1).data({ma, 8, ka});
        break;
      case 4:
        wqe = Wqe{};
        store32(wqe.grow(16), 0x8000'0000U | 500);  // inline data beyond its end
        break;
      default:
        wqe = Wqe{.opcode = 0x15}.remote(mb, kb).atomic(1, 1).atomic(1, 1).data({ma, 8, ka});  // masked
        break;
    }
    a.post(qp, wqe);
    run();
    EXPECT_EQ(expect(a, ca).syndrome, syndrome) << kind;
  }
}

TEST_F(ErrorTest, DoorbellRecordThatLies) {
  connect();
  qa.send_producer = 1000;  // the ring has 64 blocks
  a.ring(qa);
  run();
  EXPECT_EQ(state(a, qa), QpState::error);
  EXPECT_EQ(error_cause(a), static_cast<std::uint32_t>(QpErrorCause::fatal));
}

TEST_F(ErrorTest, ResetForgets) {
  connect();
  a.memory.max_delay = 5'000'000;
  a.put(qa, write(100'000));
  a.put(qa, send(10));
  a.ring(qa);
  for (unsigned i = 0; i < 20; ++i) {
    simulation.events.run_one();
  }
  EXPECT_EQ(a.enter(qa, QpState::reset), ControlResult::ok);
  EXPECT_EQ(b.enter(qb, QpState::reset), ControlResult::ok);
  run();
  expect_none(a, ca);
  expect_none(b, cb);
  EXPECT_EQ(pool.outstanding(), 0U);
  // And again, with the same numbers.
  qa.send_producer = qb.receive_producer = 0;
  connect();
  b.post_receive(qb, {{mb, 100, kb}});
  a.post(qa, send(100));
  run();
  EXPECT_EQ(expect(a, ca).opcode, cqe::request);
  EXPECT_EQ(expect(b, cb).opcode, cqe::receive);
  EXPECT_EQ(pool.outstanding(), 0U);
}

TEST_F(ErrorTest, DestroyWaitsForDma) {
  connect();
  a.memory.max_delay = 10'000'000;
  a.post(qa, write(50'000));
  while (a.memory.transfers < 5) {
    ASSERT_TRUE(simulation.events.run_one());
  }
  EXPECT_EQ(a.engine.destroy_context(ContextKind::mkey, ka >> 8), ControlResult::busy);
  EXPECT_EQ(a.engine.destroy_context(ContextKind::qp, qa.number), ControlResult::busy);
  EXPECT_EQ(a.engine.destroy_context(ContextKind::cq, ca.number), ControlResult::busy);
  EXPECT_FALSE(a.engine.idle(ContextKind::qp, qa.number));
  EXPECT_EQ(a.enter(qa, QpState::init), ControlResult::busy);
  b.engine.destroy_context(ContextKind::qp, qb.number);
  run();
  EXPECT_EQ(a.idle.size(), 3U);
  EXPECT_TRUE(a.engine.idle(ContextKind::qp, qa.number));
  EXPECT_EQ(a.engine.destroy_context(ContextKind::qp, qa.number), ControlResult::bad_index);
  EXPECT_EQ(pool.outstanding(), 0U);
}

TEST_F(ErrorTest, FunctionResetDropsEverything) {
  connect();
  a.memory.max_delay = 10'000'000;
  b.memory.max_delay = 10'000'000;
  b.post_receive(qb, {{mb, 1000, kb}});
  a.put(qa, send(900));
  a.put(qa, write(50'000));
  a.put(qa, Wqe{.opcode = op::read}.remote(mb, kb).data({ma, 50'000, ka}));
  a.ring(qa);
  for (unsigned i = 0; i < 150; ++i) {
    simulation.events.run_one();
  }
  for (Node* node : {&a, &b}) {
    node->memory.cancel_all();
    node->engine.reset(0);
  }
  run();
  EXPECT_EQ(pool.outstanding(), 0U);
  EXPECT_EQ(a.engine.destroy_context(ContextKind::qp, qa.number), ControlResult::bad_index);
}

TEST_F(ErrorTest, DoorbellsOfOthersAreRefused) {
  connect();
  run();
  a.put(qa, write(10));
  store32(a.memory.at(qa.record) + 4, qa.send_producer);
  a.engine.ring_send(0, Node::uar + 1, qa.number);
  a.engine.ring_send(1, Node::uar, qa.number);
  a.engine.ring_send(0, Node::uar, 0x1f'0000);
  a.engine.arm_cq(0, Node::uar + 1, ca.number, 0, false, 0);
  a.engine.update_eq(0, Node::uar, 5, 0, true);
  a.engine.ring_send(99, Node::uar, qa.number);
  run();
  expect_none(a, ca);
  EXPECT_EQ(a.engine.counters(0).doorbells_refused, 4U);
  EXPECT_EQ(a.engine.counters(1).doorbells_refused, 1U);
  a.ring(qa);
  run();
  EXPECT_EQ(expect(a, ca).opcode, cqe::request);
}

TEST_F(ErrorTest, PacketsOfStrangersAreIgnored) {
  connect();
  // A third host that knows the QP number and PSN.
  GuestCq cq = a.make_cq(4);
  GuestQp fake = a.make_qp(QpType::rc, cq);
  AddressContext other;
  other.gid[10] = other.gid[11] = 0xff;
  other.gid[12] = 10;
  other.gid[15] = 99;
  other.roce_version = 2;
  a.write(ContextKind::address, address_index(0, 1), other);
  a.aim(fake, b, qb.number);
  fake.context.path.address_index = 1;
  fake.context.send_psn = qb.context.receive_psn;
  fake.context.retry_count = 0;
  fake.context.ack_timeout = 1;
  a.start(fake);
  fill(a, ma, 100, 55);
  a.post(fake, write(100));
  run();
  EXPECT_EQ(expect(a, cq).syndrome, cqe::retry_exceeded);
  EXPECT_FALSE(same(a, ma, b, mb, 100));
  a.post(qa, write(100));
  run();
  EXPECT_EQ(expect(a, ca).opcode, cqe::request);
}

TEST_F(ErrorTest, CompletionQueueOverrun) {
  GuestCq small = a.make_cq(2);
  GuestQp q1 = a.make_qp(QpType::rc, small);
  GuestQp q2 = b.make_qp(QpType::rc, cb);
  Node::connect(a, q1, b, q2);
  for (unsigned i = 0; i < 6; ++i) {
    a.put(q1, write(10));
  }
  a.ring(q1);
  run();
  EXPECT_EQ(a.count(EventCode::cq_overrun), 1U);
  a.post(q1, write(10));
  run();
  EXPECT_EQ(state(a, q1), QpState::error);
}

TEST_F(ErrorTest, ResponderPageFault) {
  const std::uint64_t at = b.allocate(16'384);
  const std::uint32_t key = b.make_key(at, 16'384, Node::all_access, 0);  // no page is present
  connect();
  a.post(qa, Wqe{.opcode = op::write}.remote(at + 100, key).data({ma, 5000, ka}));
  simulation.events.run_until(simulation.now() + 25_us);
  ASSERT_EQ(b.count(EventCode::page_fault), 1U);
  const std::uint32_t token = b.events.back().detail;
  const auto record = b.read<FaultRecord>(ContextKind::fault, token);
  EXPECT_EQ(record.qp, qb.number);
  EXPECT_EQ(record.key, key);
  EXPECT_EQ(record.address, at + 100);
  EXPECT_EQ(record.length, 5000U);
  EXPECT_EQ(record.flags, fault_responder | fault_write | fault_rdma);
  const MkeyContext context = b.read<MkeyContext>(ContextKind::mkey, key >> 8);
  const std::uint64_t entries[] = {at | 3, (at + 4096) | 3, (at + 8192) | 3, (at + 12'288) | 3};
  b.engine.write_translation(context.translation, entries);
  EXPECT_EQ(b.engine.resume_fault(token, false), ControlResult::ok);
  run();
  EXPECT_EQ(expect(a, ca).opcode, cqe::request);
  EXPECT_TRUE(same(a, ma, b, at + 100, 5000));
  EXPECT_EQ(b.engine.resume_fault(token, false), ControlResult::wrong_state);
}

// A READ's and an atomic's response has to go somewhere, too; a long one over many pages.
TEST_F(ErrorTest, PageFaultWhereAResponseGoes) {
  constexpr std::uint64_t length = 200'000;
  const std::uint64_t from = b.allocate(length);
  const std::uint32_t remote = b.make_key(from, length);
  const std::uint64_t into = a.allocate(length);
  const std::uint32_t local = a.make_key(into, length);
  const MkeyContext context = a.read<MkeyContext>(ContextKind::mkey, local >> 8);
  const std::uint64_t page = 30;  // the only one that isn't there
  const std::uint64_t absent[] = {0};
  const std::uint64_t present[] = {(into + page * 4096) | 3};
  connect();
  struct Case {
    std::uint8_t opcode;
    std::uint64_t at;
    std::uint32_t bytes;
    std::uint64_t committed;
  };
  for (const Case& c : {Case{op::read, 0, length, page * 4096}, Case{op::fetch_add, page * 4096 + 8, 8, 0}}) {
    a.engine.write_translation(context.translation + page, absent);
    const std::size_t faults = a.count(EventCode::page_fault);
    Wqe wqe{.opcode = c.opcode};
    wqe.remote(from, remote);
    if (c.opcode == op::fetch_add) {
      wqe.atomic(1, 0);
    }
    a.post(qa, wqe.data({into + c.at, c.bytes, local}));
    run();
    ASSERT_EQ(a.count(EventCode::page_fault), faults + 1);
    expect_none(a, ca);
    const auto record = a.read<FaultRecord>(ContextKind::fault, a.events.back().detail);
    EXPECT_EQ(record.qp, qa.number);
    EXPECT_EQ(record.key, local);
    EXPECT_EQ(record.committed, c.committed);
    EXPECT_EQ(record.flags & fault_responder, 0U);
    a.engine.write_translation(context.translation + page, present);
    ASSERT_EQ(a.engine.resume_fault(qa.number, false), ControlResult::ok);
    run();
    EXPECT_EQ(expect(a, ca).opcode, cqe::request);
  }
  EXPECT_TRUE(same(b, from + 8, a, into + 8, page * 4096));
  EXPECT_TRUE(same(b, from + page * 4096 + 16, a, into + page * 4096 + 16, length - page * 4096 - 16));
}

TEST_F(ErrorTest, FaultsThatCannotBeMended) {
  const std::uint32_t remote = b.make_key(mb, 8192, Node::all_access, 0);
  const std::uint32_t local = a.make_key(ma, 8192, Node::all_access, 0);
  connect();
  a.post(qa, Wqe{.opcode = op::read}.remote(mb, remote).data({ma, 5000, ka}));
  simulation.events.run_until(simulation.now() + 25_us);
  ASSERT_EQ(b.count(EventCode::page_fault), 1U);
  b.engine.resume_fault(b.events.back().detail, true);
  run();
  EXPECT_EQ(expect(a, ca).syndrome, cqe::remote_access);

  GuestQp q1 = a.make_qp(QpType::rc, ca);
  GuestQp q2 = b.make_qp(QpType::rc, cb);
  Node::connect(a, q1, b, q2);
  a.post(q1, Wqe{.opcode = op::write}.remote(mb, kb).data({ma, 5000, local}));
  run();
  ASSERT_EQ(a.count(EventCode::page_fault), 1U);
  a.engine.resume_fault(q1.number, true);
  run();
  EXPECT_EQ(expect(a, ca).syndrome, cqe::local_protection);
}

TEST_F(ErrorTest, FirmwareWorkRequests) {
  connect();
  a.put(qa, write(10));
  a.put(qa, Wqe{.opcode = op::umr, .immediate = 0x123400}.inline_data("firmware sees this", 18));
  a.put(qa, write(10));
  a.ring(qa);
  run();
  EXPECT_EQ(expect(a, ca).opcode, cqe::request);
  expect_none(a, ca);
  ASSERT_EQ(a.count(EventCode::work_request), 1U);
  EXPECT_EQ(a.events.back().detail, 1U);
  const auto bytes = a.engine.work_request(qa.number);
  ASSERT_EQ(bytes.size(), 64U);
  EXPECT_EQ(load32(bytes.data() + 12), 0x123400U);
  EXPECT_EQ(std::memcmp(bytes.data() + 20, "firmware sees this", 18), 0);
  EXPECT_EQ(a.engine.complete_work_request(qa.number, CompletionCode::success), ControlResult::ok);
  EXPECT_EQ(a.engine.complete_work_request(qa.number, CompletionCode::success), ControlResult::wrong_state);
  run();
  EXPECT_EQ(expect(a, ca).send_opcode, op::umr);
  EXPECT_EQ(expect(a, ca).send_opcode, op::write);

  GuestQp control = a.make_qp(QpType::control, ca);
  control.context.flags = qp_has_send_queue;
  a.start(control);
  a.put(control, Wqe{.opcode = op::umr});
  a.put(control, Wqe{.opcode = op::umr});
  a.ring(control);
  run();
  EXPECT_EQ(a.engine.complete_work_request(control.number, CompletionCode::success), ControlResult::ok);
  run();
  EXPECT_EQ(expect(a, ca).qp, control.number);
  EXPECT_EQ(a.engine.complete_work_request(control.number, CompletionCode::memory_window_bind), ControlResult::ok);
  run();
  EXPECT_EQ(expect(a, ca).syndrome, cqe::bind);
  EXPECT_EQ(state(a, control), QpState::error);
}

TEST_F(ErrorTest, SendQueueDrain) {
  connect();
  a.put(qa, write(100'000));
  a.ring(qa);
  for (unsigned i = 0; i < 10; ++i) {
    simulation.events.run_one();
  }
  EXPECT_EQ(a.enter(qa, QpState::sqd), ControlResult::ok);
  a.post(qa, write(10));
  run();
  EXPECT_EQ(expect(a, ca).opcode, cqe::request);
  EXPECT_EQ(a.count(EventCode::send_queue_drained), 1U);
  expect_none(a, ca);
  EXPECT_EQ(a.enter(qa, QpState::rts), ControlResult::ok);
  run();
  EXPECT_EQ(expect(a, ca).opcode, cqe::request);
}

}  // namespace
}  // namespace orrery::test::verbs_error_test
