// Datagrams, unreliable connections, shared receive queues, XRC, events and interrupts.
#include "tests/systemc_models/rnic/verbs_rig.h"

namespace orrery::test::verbs_types_test {
namespace {

class TypesTest : public VerbsTest {
 protected:
  static constexpr std::uint64_t area = 1U << 20;
  GuestCq ca = a.make_cq(8);
  GuestCq cb = b.make_cq(8);
  std::uint64_t ma = a.allocate(area);
  std::uint64_t mb = b.allocate(area);
  std::uint32_t ka = a.make_key(ma, area);
  std::uint32_t kb = b.make_key(mb, area);

  TypesTest() {
    fill(a, ma, area, 1);
    fill(b, mb, area, 2);
  }
  // A WQE with the address vector of datagrams to `peer`.
  Wqe datagram(const Node& peer, unsigned ordinal, std::uint32_t qp, std::uint32_t qkey, std::uint32_t bytes) {
    Wqe wqe;
    std::byte* at = wqe.grow(48);
    store32(at, qkey);
    store32(at + 8, qp | 0x8000'0000U);
    store32(at + 0x14, static_cast<std::uint32_t>(peer.mac() >> 16));
    store32(at + 0x18, static_cast<std::uint32_t>(peer.mac() << 16) | 64);
    store32(at + 0x1c, 1U << 30);
    at[0x2a] = at[0x2b] = std::byte{0xff};
    at[0x2c] = std::byte{10};
    at[0x2f] = static_cast<std::byte>(ordinal + 1);
    wqe.data({ma, bytes, ka});
    return wqe;
  }
};

TEST_F(TypesTest, DatagramWithItsHeader) {
  GuestQp qa = a.make_qp(QpType::ud, ca);
  GuestQp qb = b.make_qp(QpType::ud, cb);
  a.start(qa);
  b.start(qb);
  b.post_receive(qb, {{mb, 30, kb}, {mb + 1000, 2000, kb}});
  a.post(qa, datagram(b, 1, qb.number, 0x1234, 500));
  run();
  const Cqe cqe = expect(b, cb);
  EXPECT_EQ(cqe.opcode, cqe::receive);
  EXPECT_EQ(cqe.bytes, 540U);
  EXPECT_EQ(cqe.source_qp, qa.number);
  EXPECT_TRUE(cqe.has_grh);
  EXPECT_TRUE(same(a, ma, b, mb + 1010, 500));
  EXPECT_EQ(b.memory.at(mb)[20], std::byte{0x45});
  EXPECT_EQ(load32(b.memory.at(mb + 1002)), 0x0a00'0001U);  // source address, byte 32 of the 40
  EXPECT_EQ(expect(a, ca).opcode, cqe::request);
}

// On InfiniBand ports an address vector has a LID and nothing else.
TEST_F(TypesTest, DatagramByLid) {
  constexpr std::uint32_t first_lid = 0x21;
  for (Node* node : {&a, &b}) {
    const std::uint32_t lid = first_lid + (node == &b ? 1 : 0);
    auto function = node->read<FunctionContext>(ContextKind::function, 0);
    function.lid = lid;
    function.mac = lid_mac(lid);
    node->write(ContextKind::function, 0, function);
    AddressContext address;
    lid_gid(lid, address.gid);
    address.mac = lid_mac(lid);
    address.roce_version = 2;
    node->write(ContextKind::address, address_index(0, 0), address);
  }
  GuestQp qa = a.make_qp(QpType::ud, ca);
  GuestQp qb = b.make_qp(QpType::ud, cb);
  a.start(qa);
  b.start(qb);
  b.post_receive(qb, {{mb, 2040, kb}});
  Wqe wqe;
  std::byte* at = wqe.grow(48);
  store32(at, 0x1234);
  store32(at + 8, qb.number | 0x8000'0000U);
  store32(at + 0x0c, first_lid + 1);
  a.post(qa, wqe.data({ma, 500, ka}));
  run();
  EXPECT_EQ(expect(a, ca).opcode, cqe::request);
  EXPECT_EQ(expect(b, cb).bytes, 540U);
  EXPECT_TRUE(same(a, ma, b, mb + 40, 500));
}

TEST_F(TypesTest, DatagramsThatAreDropped) {
  GuestQp qa = a.make_qp(QpType::ud, ca);
  GuestQp qb = b.make_qp(QpType::ud, cb);
  a.start(qa);
  b.start(qb);
  a.post(qa, datagram(b, 1, qb.number, 0x1234, 500));  // no receive
  run();
  b.post_receive(qb, {{mb, 2000, kb}});
  a.post(qa, datagram(b, 1, qb.number, 0x9999, 500));  // wrong Q_Key
  a.post(qa, datagram(b, 1, 0x3333, 0x1234, 500));     // no such QP
  run();
  for (unsigned i = 0; i < 3; ++i) {
    EXPECT_EQ(expect(a, ca).opcode, cqe::request);
  }
  expect_none(b, cb);
  EXPECT_EQ(b.engine.counters(0).qkey_violations, 1U);
  EXPECT_EQ(b.engine.counters(0).datagrams_dropped, 2U);
  // Longer than a packet: the sender's own error; its receive queue goes on.
  a.post(qa, datagram(b, 1, qb.number, 0x1234, 1025));
  a.post(qa, datagram(b, 1, qb.number, 0x1234, 10));
  run();
  EXPECT_EQ(expect(a, ca).syndrome, cqe::local_length);
  EXPECT_EQ(expect(a, ca).syndrome, cqe::flushed);
  EXPECT_EQ(a.read<QpContext>(ContextKind::qp, qa.number).state, QpState::sqe);
  EXPECT_EQ(a.enter(qa, QpState::rts), ControlResult::ok);
  a.post(qa, datagram(b, 1, qb.number, 0x1234, 10));
  run();
  EXPECT_EQ(expect(a, ca).opcode, cqe::request);
  EXPECT_EQ(expect(b, cb).bytes, 50U);
}

TEST_F(TypesTest, GeneralServicesAreQp1OfTheirFunction) {
  GuestQp qa = a.make_qp(QpType::gsi, ca);
  GuestQp qb = b.make_qp(QpType::gsi, cb);
  a.start(qa);
  b.start(qb);
  b.post_receive(qb, {{mb, 2000, kb}});
  a.post(qa, datagram(b, 1, 1, 0x8001'0000, 256));
  run();
  // The AV's Q_Key has its top bit: the QP's own is sent, which is wrong here.
  expect_none(b, cb);
  qa.context.qkey = 0x8001'0000;
  a.enter(qa, QpState::rts);
  a.post(qa, datagram(b, 1, 1, 0x8001'0000, 256));
  run();
  const Cqe cqe = expect(b, cb);
  EXPECT_EQ(cqe.bytes, 296U);
  EXPECT_EQ(cqe.source_qp, 1U);
  EXPECT_EQ(cqe.qp, qb.number);
  EXPECT_EQ(cqe.immediate, 0xffffU);  // P_Key
}

TEST_F(TypesTest, MulticastReachesEveryMember) {
  GuestQp qa = a.make_qp(QpType::ud, ca);
  GuestQp q1 = b.make_qp(QpType::ud, cb);
  GuestQp q2 = b.make_qp(QpType::ud, cb);
  GuestQp own = a.make_qp(QpType::ud, ca);
  a.start(qa);
  a.start(own);
  b.start(q1);
  b.start(q2);
  GroupContext group;
  group.gid[10] = group.gid[11] = 0xff;
  group.gid[12] = 224;
  group.gid[15] = 7;
  group.valid = 1;
  group.qp = q1.number;
  b.write(ContextKind::group, 1, group);
  group.qp = q2.number;
  b.write(ContextKind::group, 2, group);
  group.qp = own.number;
  a.write(ContextKind::group, 9, group);
  b.post_receive(q1, {{mb, 2000, kb}});
  b.post_receive(q2, {{mb + 4000, 2000, kb}});
  a.post_receive(own, {{ma + 8000, 2000, ka}});
  Wqe wqe = datagram(b, 1, 0xff'ffff, 0x1234, 300);
  std::byte* at = wqe.body.data();
  store32(at + 0x14, 0x0100'5e00);
  store32(at + 0x18, 0x0007'0040);
  at[0x2c] = std::byte{224};
  at[0x2f] = std::byte{7};
  a.post(qa, wqe);
  run();
  EXPECT_EQ(expect(b, cb).bytes, 340U);
  EXPECT_EQ(expect(b, cb).bytes, 340U);
  EXPECT_TRUE(same(a, ma, b, mb + 40, 300));
  EXPECT_TRUE(same(a, ma, b, mb + 4040, 300));
  EXPECT_TRUE(same(a, ma, a, ma + 8040, 300));
  b.engine.destroy_context(ContextKind::group, 1);
  b.post_receive(q1, {{mb, 2000, kb}});
  b.post_receive(q2, {{mb, 2000, kb}});
  a.post(qa, wqe);
  run();
  EXPECT_EQ(expect(b, cb).qp, q2.number);
  expect_none(b, cb);
}

TEST_F(TypesTest, UnreliableConnectionDropsDamagedMessages) {
  GuestQp qa = a.make_qp(QpType::uc, ca);
  GuestQp qb = b.make_qp(QpType::uc, cb);
  Node::connect(a, qa, b, qb);
  unsigned number = 0;
  a.wire.fate = [&](fabric::Packet&) { return number++ == 4 ? 0U : 1U; };  // in the second message
  for (unsigned i = 0; i < 4; ++i) {
    b.post_receive(qb, {{mb + 10'000ULL * i, 3000, kb}});
    a.put(qa, Wqe{}.data({ma + 10'000ULL * i, 3000, ka}));
  }
  a.put(qa, Wqe{.opcode = op::write_immediate, .immediate = 5}.remote(mb + 500'000, kb).data({ma, 5000, ka}));
  a.ring(qa);
  run();
  for (unsigned i = 0; i < 5; ++i) {
    EXPECT_EQ(expect(a, ca).opcode, cqe::request);
  }
  EXPECT_TRUE(same(a, ma, b, mb, 3000));
  EXPECT_TRUE(same(a, ma + 20'000, b, mb + 10'000, 3000));  // takes the dropped one's receive
  EXPECT_TRUE(same(a, ma + 30'000, b, mb + 20'000, 3000));
  EXPECT_TRUE(same(a, ma, b, mb + 500'000, 5000));
  for (unsigned i = 0; i < 3; ++i) {
    EXPECT_EQ(expect(b, cb).bytes, 3000U);
  }
  EXPECT_EQ(expect(b, cb).opcode, cqe::write_immediate);
  expect_none(b, cb);
}

TEST_F(TypesTest, SharedReceiveQueueAndItsLimit) {
  GuestSrq srq = b.make_srq(4);
  srq.context.limit = 3;
  b.write(ContextKind::srq, srq.number, srq.context);
  std::vector<GuestQp> senders;
  std::vector<GuestQp> receivers;
  for (unsigned i = 0; i < 3; ++i) {
    senders.push_back(a.make_qp(QpType::rc, ca));
    receivers.push_back(b.make_qp(QpType::rc, cb));
    receivers[i].context.flags &= ~std::uint32_t{qp_has_receive_queue};
    receivers[i].context.srq = srq.number;
    Node::connect(a, senders[i], b, receivers[i]);
  }
  for (unsigned i = 0; i < 6; ++i) {
    b.post(srq, {{mb + 1000ULL * i, 1000, kb}});
  }
  for (unsigned i = 0; i < 3; ++i) {
    a.post(senders[i], Wqe{}.data({ma, 100 + i, ka}));
  }
  run();
  unsigned seen = 0;
  for (unsigned i = 0; i < 3; ++i) {
    const Cqe cqe = expect(b, cb);
    EXPECT_EQ(cqe.opcode, cqe::receive);
    seen |= 1U << cqe.counter;
    const GuestQp& qp = receivers[cqe.qp - receivers[0].number];
    EXPECT_EQ(cqe.user_index, qp.context.user_index);
    EXPECT_TRUE(same(a, ma, b, mb + 1000ULL * cqe.counter, cqe.bytes));
  }
  EXPECT_EQ(seen, 7U);
  EXPECT_EQ(b.count(EventCode::srq_limit), 0U);
  a.post(senders[0], Wqe{}.data({ma, 10, ka}));
  run();
  EXPECT_EQ(b.count(EventCode::srq_limit), 1U);
  EXPECT_EQ(b.read<SrqContext>(ContextKind::srq, srq.number).limit, 0U);
  // Runs dry, and goes on when there is more.
  for (unsigned i = 0; i < 4; ++i) {
    a.put(senders[1], Wqe{}.data({ma, 20, ka}));
  }
  a.ring(senders[1]);
  simulation.events.run_until(simulation.now() + 30_us);
  for (unsigned i = 0; i < 2; ++i) {
    b.post(srq, {{mb, 1000, kb}});
  }
  run();
  for (unsigned i = 0; i < 5; ++i) {
    EXPECT_EQ(expect(b, cb).opcode, cqe::receive);
  }
  EXPECT_EQ(b.enter(receivers[2], QpState::error), ControlResult::ok);
  EXPECT_EQ(b.count(EventCode::last_receive), 1U);
}

TEST_F(TypesTest, XrcNamesItsQueueInEachMessage) {
  GuestCq cs = b.make_cq(6);
  std::vector<GuestSrq> srqs;
  for (unsigned i = 0; i < 2; ++i) {
    srqs.push_back(b.make_srq(4));
    srqs[i].context.xrc_domain = 5;
    srqs[i].context.cq = cs.number;
    srqs[i].context.user_index = 0x900 + i;
    b.write(ContextKind::srq, srqs[i].number, srqs[i].context);
    b.post(srqs[i], {{mb + 10'000ULL * i, 5000, kb}});
  }
  GuestQp qa = a.make_qp(QpType::xrc, ca);
  GuestQp qb = b.make_qp(QpType::xrc, cb);
  qa.context.flags &= ~std::uint32_t{qp_has_receive_queue};
  qb.context.flags &= ~std::uint32_t{qp_has_receive_queue | qp_has_send_queue};
  qb.context.xrc_domain = 5;
  Node::connect(a, qa, b, qb);
  a.put(qa, Wqe{}.xrc(srqs[1].number).data({ma, 4000, ka}));
  a.put(qa, Wqe{}.xrc(srqs[0].number).data({ma + 5000, 3000, ka}));
  a.put(qa, Wqe{.opcode = op::write}.xrc(0).remote(mb + 50'000, kb).data({ma, 2000, ka}));
  a.ring(qa);
  run();
  for (unsigned i = 0; i < 3; ++i) {
    EXPECT_EQ(expect(a, ca).opcode, cqe::request);
  }
  const Cqe first = expect(b, cs);
  EXPECT_EQ(first.user_index, 0x901U);
  EXPECT_EQ(first.bytes, 4000U);
  EXPECT_EQ(expect(b, cs).user_index, 0x900U);
  EXPECT_TRUE(same(a, ma, b, mb + 10'000, 4000));
  EXPECT_TRUE(same(a, ma + 5000, b, mb, 3000));
  EXPECT_TRUE(same(a, ma, b, mb + 50'000, 2000));
  // A queue of another domain is out of reach.
  GuestSrq foreign = b.make_srq(4);
  foreign.context.xrc_domain = 6;
  foreign.context.cq = cs.number;
  b.write(ContextKind::srq, foreign.number, foreign.context);
  a.post(qa, Wqe{}.xrc(foreign.number).data({ma, 10, ka}));
  run();
  EXPECT_EQ(expect(a, ca).syndrome, cqe::remote_invalid);
}

TEST_F(TypesTest, CompletionEventsAreOneShot) {
  b.make_eq(4, 17);
  GuestCq cq = b.make_cq(6, 4);
  GuestQp qa = a.make_qp(QpType::rc, ca);
  GuestQp qb = b.make_qp(QpType::rc, cq);
  Node::connect(a, qa, b, qb);
  const auto deliver = [&](bool solicited) {
    b.post_receive(qb, {{mb, 100, kb}});
    Wqe wqe = Wqe{}.data({ma, 10, ka});
    wqe.solicited = solicited;
    a.post(qa, wqe);
    run();
  };
  deliver(false);
  EXPECT_EQ(b.engine.counters(0).events, 0U);  // not armed
  // Armed for what it hasn't seen: at once. The EQ isn't armed: no interrupt.
  b.engine.arm_cq(0, Node::uar, cq.number, 0, false, 0);
  run();
  EXPECT_EQ(b.engine.counters(0).events, 1U);
  EXPECT_EQ(load32(b.memory.at(b.eq_ring) + 0x20 + 24), cq.number);
  EXPECT_EQ(b.memory.at(b.eq_ring)[1], std::byte{0});
  EXPECT_EQ(b.memory.at(b.eq_ring)[63], std::byte{0});
  EXPECT_TRUE(b.memory.interrupts.empty());
  b.engine.update_eq(0, Node::uar, 4, 0, true);
  EXPECT_EQ(b.memory.interrupts, std::vector<unsigned>{17});
  b.engine.update_eq(0, Node::uar, 4, 1, true);
  EXPECT_EQ(b.memory.interrupts.size(), 1U);
  b.poll(cq);
  b.engine.arm_cq(0, Node::uar, cq.number, 1, true, 1);
  deliver(false);
  EXPECT_EQ(b.engine.counters(0).events, 1U);  // not solicited
  deliver(true);
  EXPECT_EQ(b.engine.counters(0).events, 2U);
  EXPECT_EQ(b.memory.interrupts.size(), 2U);
  deliver(true);
  EXPECT_EQ(b.engine.counters(0).events, 2U);
}

TEST_F(TypesTest, ModerationGathersCompletions) {
  b.make_eq(4, 17);
  GuestCq cq = b.make_cq(6, 4);
  CqContext context = b.read<CqContext>(ContextKind::cq, cq.number);
  context.moderation_count = 4;
  context.moderation_period_us = 100;
  EXPECT_EQ(b.write(ContextKind::cq, cq.number, context), ControlResult::ok);
  GuestQp qa = a.make_qp(QpType::rc, ca);
  GuestQp qb = b.make_qp(QpType::rc, cq);
  Node::connect(a, qa, b, qb);
  b.engine.arm_cq(0, Node::uar, cq.number, 0, false, 0);
  const auto deliver = [&] {
    b.post_receive(qb, {{mb, 100, kb}});
    a.post(qa, Wqe{}.data({ma, 10, ka}));
    simulation.events.run_until(simulation.now() + 5_us);
  };
  for (unsigned i = 0; i < 3; ++i) {
    deliver();
  }
  EXPECT_EQ(b.engine.counters(0).events, 0U);
  deliver();
  EXPECT_EQ(b.engine.counters(0).events, 1U);
  b.engine.arm_cq(0, Node::uar, cq.number, 4, false, 0);
  deliver();
  EXPECT_EQ(b.engine.counters(0).events, 1U);
  simulation.events.run_until(simulation.now() + 200_us);
  EXPECT_EQ(b.engine.counters(0).events, 2U);
}

TEST_F(TypesTest, FirmwareEventsAndAFullQueue) {
  b.make_eq(0, 3, 2);
  Event event;
  event.type = 0x0a;
  event.subtype = 9;
  event.data[0] = std::byte{0x80};
  for (unsigned i = 0; i < 5; ++i) {
    EXPECT_EQ(b.engine.post_event(0, 0, event), ControlResult::ok);
  }
  run();
  EXPECT_EQ(b.engine.counters(0).events, 4U);
  EXPECT_EQ(b.engine.counters(0).events_lost, 1U);
  EXPECT_EQ(b.memory.at(b.eq_ring)[1], std::byte{0x0a});
  EXPECT_EQ(b.memory.at(b.eq_ring)[3], std::byte{9});
  EXPECT_EQ(b.memory.at(b.eq_ring)[0x20], std::byte{0x80});
  b.engine.update_eq(0, Node::uar, 0, 4, true);
  EXPECT_EQ(b.engine.post_event(0, 0, event), ControlResult::ok);
  run();
  EXPECT_EQ(b.memory.at(b.eq_ring)[63], std::byte{1});  // second pass
  EXPECT_EQ(b.memory.interrupts, std::vector<unsigned>{3});
  EXPECT_EQ(b.engine.post_event(0, 1, event), ControlResult::bad_index);
}

}  // namespace
}  // namespace orrery::test::verbs_types_test
