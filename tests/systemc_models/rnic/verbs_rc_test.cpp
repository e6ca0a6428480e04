// Reliable connections end to end: two engines back to back.
#include "tests/systemc_models/rnic/verbs_rig.h"

namespace orrery::test::verbs_rc_test {
namespace {

class RcTest : public QpPairTest {
 protected:
  RcTest() { Node::connect(a, qa, b, qb); }
  Wqe send(std::uint64_t offset, std::uint32_t bytes) { return Wqe{}.data({ma + offset, bytes, ka}); }
  Wqe write(std::uint64_t from, std::uint64_t to, std::uint32_t bytes) {
    return Wqe{.opcode = op::write}.remote(mb + to, kb).data({ma + from, bytes, ka});
  }
  Wqe read(std::uint64_t into, std::uint64_t from, std::uint32_t bytes) {
    return Wqe{.opcode = op::read}.remote(mb + from, kb).data({ma + into, bytes, ka});
  }
};

TEST_F(RcTest, SendArrivesWithItsCompletions) {
  b.post_receive(qb, {{mb + 3, 5000, kb}});
  Wqe wqe = send(1, 3000);
  wqe.opcode = op::send_immediate;
  wqe.immediate = 0xabcd1234;
  wqe.solicited = true;
  a.post(qa, wqe);
  run();
  const Cqe received = expect(b, cb);
  EXPECT_EQ(received.opcode, cqe::receive_immediate);
  EXPECT_EQ(received.bytes, 3000U);
  EXPECT_EQ(received.immediate, 0xabcd1234U);
  EXPECT_EQ(received.user_index, qb.context.user_index);
  EXPECT_TRUE(received.solicited);
  EXPECT_TRUE(same(a, ma + 1, b, mb + 3, 3000));
  const Cqe sent = expect(a, ca);
  EXPECT_EQ(sent.opcode, cqe::request);
  EXPECT_EQ(sent.send_opcode, op::send_immediate);
  EXPECT_EQ(sent.qp, qa.number);
  expect_none(a, ca);
  expect_none(b, cb);
  EXPECT_EQ(b.count(EventCode::communication), 0U);  // it was in rts before the first packet
}

// A header in the WQE, a payload in memory, a trailer in the WQE: one message over several packets, in order.
TEST_F(RcTest, InlineDataAndPointersMakeOneMessage) {
  const std::uint32_t payload = 2 * qa.context.mtu + 100;
  b.post_receive(qb, {{mb, 8 * qa.context.mtu, kb}});
  const char header[] = "header of 19 bytes";
  const char trailer[] = "and a trailer";
  Wqe wqe;
  wqe.inline_data(header, sizeof(header)).data({ma + 7, payload, ka}).inline_data(trailer, sizeof(trailer));
  a.post(qa, wqe);
  run();
  EXPECT_EQ(expect(a, ca).opcode, cqe::request);
  EXPECT_EQ(expect(b, cb).bytes, sizeof(header) + payload + sizeof(trailer));
  EXPECT_EQ(std::memcmp(b.memory.at(mb), header, sizeof(header)), 0);
  EXPECT_TRUE(same(a, ma + 7, b, mb + sizeof(header), payload));
  EXPECT_EQ(std::memcmp(b.memory.at(mb + sizeof(header) + payload), trailer, sizeof(trailer)), 0);
}

TEST_F(RcTest, WriteReadAndAtomics) {
  a.post(qa, write(0, 100'000, 10'000));
  a.post(qa, read(200'000, 300'000, 9'001));
  std::uint64_t word = 40;
  std::memcpy(b.memory.at(mb + 8), &word, 8);
  a.post(qa, Wqe{.opcode = op::fetch_add}.remote(mb + 8, kb).atomic(2, 0).data({ma + 500'000, 8, ka}));
  a.post(qa, Wqe{.opcode = op::compare_swap}.remote(mb + 8, kb).atomic(7, 42).data({ma + 500'008, 8, ka}));
  a.post(qa, Wqe{.opcode = op::compare_swap}.remote(mb + 8, kb).atomic(9, 42).data({ma + 500'016, 8, ka}));
  run();
  for (unsigned i = 0; i < 5; ++i) {
    EXPECT_EQ(expect(a, ca).opcode, cqe::request) << i;
  }
  expect_none(b, cb);
  EXPECT_TRUE(same(a, ma, b, mb + 100'000, 10'000));
  EXPECT_TRUE(same(a, ma + 200'000, b, mb + 300'000, 9'001));
  std::uint64_t results[3];
  std::memcpy(results, a.memory.at(ma + 500'000), 24);
  EXPECT_EQ(results[0], 40U);
  EXPECT_EQ(results[1], 42U);
  EXPECT_EQ(results[2], 7U);
  std::memcpy(&word, b.memory.at(mb + 8), 8);
  EXPECT_EQ(word, 7U);
}

TEST_F(RcTest, InlineManyEntriesAndUnsignalled) {
  b.post_receive(qb, {{mb, 10, kb}, {mb + 100, 2000, kb}});
  b.post_receive(qb, {{mb + 4000, 100, kb}});
  Wqe list{.signalled = false};
  for (unsigned i = 0; i < 20; ++i) {
    list.data({ma + 1000ULL * i, 50, ka});
  }
  a.put(qa, list);
  a.put(qa, Wqe{}.inline_data("hello, peer", 11));
  a.ring(qa);
  run();
  EXPECT_EQ(expect(b, cb).bytes, 1000U);
  EXPECT_EQ(expect(b, cb).bytes, 11U);
  EXPECT_EQ(std::memcmp(b.memory.at(mb + 4000), "hello, peer", 11), 0);
  EXPECT_TRUE(same(a, ma, b, mb, 10));
  EXPECT_TRUE(same(a, ma + 10, b, mb + 100, 40));
  EXPECT_TRUE(same(a, ma + 19'000, b, mb + 100 + 940, 50));
  const Cqe only = expect(a, ca);
  EXPECT_EQ(only.counter, 6U);  // 21 segments of 16 bytes are six blocks
  expect_none(a, ca);
}

TEST_F(RcTest, QueuesWrapManyTimes) {
  unsigned received = 0;
  for (unsigned round = 0; round < 300; ++round) {
    for (unsigned i = 0; i < 16; ++i) {
      b.post_receive(qb, {{mb + 64ULL * i, 64, kb}});
      a.put(qa, send(64ULL * (round + i), 1 + (round + i) % 64));
    }
    a.ring(qa);
    run();
    for (unsigned i = 0; i < 16; ++i) {
      const Cqe cqe = expect(b, cb);
      ASSERT_EQ(cqe.opcode, cqe::receive);
      ASSERT_EQ(cqe.bytes, 1 + (round + i) % 64);
      ASSERT_EQ(cqe.counter, (received++ & 0xffffU));
      ASSERT_EQ(expect(a, ca).opcode, cqe::request);
    }
  }
}

TEST_F(RcTest, ZeroLengthMessagesNeedNoKey) {
  b.post_receive(qb, {});
  a.post(qa, Wqe{});
  a.post(qa, Wqe{.opcode = op::write}.remote(0, 0));
  a.post(qa, Wqe{.opcode = op::read}.remote(0, 0));
  run();
  EXPECT_EQ(expect(b, cb).bytes, 0U);
  for (unsigned i = 0; i < 3; ++i) {
    EXPECT_EQ(expect(a, ca).opcode, cqe::request);
  }
}

TEST_F(RcTest, WriteWithImmediateTakesAReceive) {
  Wqe wqe = write(0, 5000, 2500);
  wqe.opcode = op::write_immediate;
  wqe.immediate = 77;
  a.post(qa, wqe);
  simulation.events.run_until(simulation.now() + 50_us);  // it would ask for ever
  EXPECT_GE(b.engine.counters(0).rnr_naks_sent, 1U);
  b.post_receive(qb, {});
  run();
  const Cqe cqe = expect(b, cb);
  EXPECT_EQ(cqe.opcode, cqe::write_immediate);
  EXPECT_EQ(cqe.bytes, 2500U);
  EXPECT_EQ(cqe.immediate, 77U);
  EXPECT_TRUE(same(a, ma, b, mb + 5000, 2500));
  EXPECT_EQ(expect(a, ca).opcode, cqe::request);
}

TEST_F(RcTest, SendWithInvalidateEndsTheKey) {
  const std::uint32_t victim = b.make_key(mb, 4096);
  b.post_receive(qb, {{mb, 100, kb}});
  Wqe wqe = send(0, 10);
  wqe.opcode = op::send_invalidate;
  wqe.immediate = victim;
  a.post(qa, wqe);
  run();
  const Cqe cqe = expect(b, cb);
  EXPECT_EQ(cqe.opcode, cqe::receive_invalidate);
  EXPECT_EQ(cqe.immediate, victim);
  EXPECT_EQ(b.read<MkeyContext>(ContextKind::mkey, victim >> 8).state, KeyState::free);
}

// Loss, repetition, reordering and slow memory at once: everything is there once, completions in order.
TEST_F(RcTest, SurvivesABadWire) {
  std::mt19937_64 random{7};
  const auto fate = [&](fabric::Packet& packet) {
    packet.ecn = random() % 10 == 0 ? fabric::Ecn::ce : packet.ecn;
    const auto dice = random() % 100;
    return dice < 5 ? 0U : (dice < 10 ? 2U : 1U);
  };
  for (Node* node : {&a, &b}) {
    node->wire.fate = fate;
    node->wire.delay = 1'000'000_ps;
    node->wire.jitter = 3'000'000;
    node->memory.max_delay = 1'000'000;
  }
  std::uint64_t sum = 0;
  const std::uint64_t zero = 0;
  std::memcpy(b.memory.at(mb + 900'000), &zero, 8);
  for (unsigned round = 0; round < 40; ++round) {
    const std::uint64_t at = round * 8000ULL;
    b.post_receive(qb, {{mb + at, 4000, kb}});
    a.put(qa, send(at, 3000 + round));
    a.put(qa, write(at + 4000, at + 4000, 4000));
    a.put(qa, read(500'000 + at, at + 4000, 2000));
    a.put(qa, Wqe{.opcode = op::fetch_add}.remote(mb + 900'000, kb).atomic(round, 0).data({ma + 950'000, 8, ka}));
    Wqe last = write(at, 700'000, 100);
    last.fence = true;
    a.put(qa, last);
    a.ring(qa);
    sum += round;
    if (round % 4 == 3) {
      run();
    }
  }
  run();
  for (unsigned round = 0; round < 40; ++round) {
    const std::uint64_t at = round * 8000ULL;
    const Cqe received = expect(b, cb);
    ASSERT_EQ(received.opcode, cqe::receive);
    ASSERT_EQ(received.bytes, 3000 + round);
    ASSERT_EQ(received.counter, round);
    ASSERT_TRUE(same(a, ma + at, b, mb + at, 3000 + round)) << round;
    ASSERT_TRUE(same(a, ma + at + 4000, b, mb + at + 4000, 4000)) << round;
    ASSERT_TRUE(same(a, ma + 500'000 + at, b, mb + at + 4000, 2000)) << round;
    for (unsigned i = 0; i < 5; ++i) {
      ASSERT_EQ(expect(a, ca).opcode, cqe::request) << round << " " << i;
    }
  }
  std::uint64_t total = 0;
  std::memcpy(&total, b.memory.at(mb + 900'000), 8);
  EXPECT_EQ(total, sum);
  expect_none(a, ca);
  expect_none(b, cb);
}

// Repeated requests ask for more or fewer responses than the one that was lost: the responder must take in as new
// what is new in them, or it waits for ever for what nobody will ask for again.
TEST_F(RcTest, ReadsSurviveAVeryBadWire) {
  for (unsigned seed = 1; seed <= 4; ++seed) {
    std::mt19937_64 random{seed};
    for (Node* node : {&a, &b}) {
      node->wire.fate = [&random](fabric::Packet&) { return random() % 100 < 20 ? 0U : 1U; };
      node->wire.delay = 1'000'000_ps;
      node->wire.jitter = 3'000'000;
    }
    for (unsigned batch = 0; batch < 6; ++batch) {
      fill(b, mb, 960'000, 100 * batch + seed);
      for (unsigned round = 0; round < 16; ++round) {
        a.put(qa, read(round * 60'000ULL, round * 60'000ULL, 60'000));
      }
      a.ring(qa);
      run();
      for (unsigned round = 0; round < 16; ++round) {
        const Cqe cqe = expect(a, ca);
        ASSERT_EQ(cqe.opcode, cqe::request) << "seed " << seed << ", READ " << round << ", syndrome " << cqe.syndrome;
      }
      ASSERT_TRUE(same(a, ma, b, mb, 960'000)) << seed;
    }
  }
}

TEST_F(RcTest, LongReadTakesSeveralRequests) {
  a.post(qa, read(0, 0, 900'000));
  run();
  EXPECT_EQ(expect(a, ca).opcode, cqe::request);
  EXPECT_TRUE(same(a, ma, b, mb, 900'000));
}

TEST_F(RcTest, BothDirectionsToOneself) {
  GuestQp q1 = a.make_qp(QpType::rc, ca);
  GuestQp q2 = a.make_qp(QpType::rc, ca);
  Node::connect(a, q1, a, q2);
  const auto sent = a.wire.sent;
  a.post_receive(q2, {{ma + 100'000, 5000, ka}});
  a.post(q1, send(0, 5000));
  run();
  EXPECT_TRUE(same(a, ma, a, ma + 100'000, 5000));
  EXPECT_LT(simulation.events.dispatched(), 1000U);
  EXPECT_EQ(a.wire.sent, sent);  // it did not leave the RNIC
  EXPECT_TRUE(a.poll(ca).has_value());
  EXPECT_TRUE(a.poll(ca).has_value());
}

TEST_F(RcTest, NullKeyReadsZeroesAndDropsWrites) {
  b.post_receive(qb, {{mb, 100, kb}, {0, 1000, null_key}, {mb + 200, 100, kb}});
  a.post(qa, Wqe{}.data({ma, 50, ka}).data({0, 100, null_key}).data({ma + 50, 1000, ka}));
  run();
  EXPECT_EQ(expect(b, cb).bytes, 1150U);
  EXPECT_TRUE(same(a, ma, b, mb, 50));
  for (unsigned i = 50; i < 100; ++i) {
    ASSERT_EQ(b.memory.at(mb)[i], std::byte{0});
  }
  EXPECT_TRUE(same(a, ma + 1000, b, mb + 200, 50));
  EXPECT_EQ(expect(a, ca).opcode, cqe::request);
}

TEST_F(RcTest, GpuMemoryGoesTranslated) {
  // Page entries in windows of device memory: AT = 10b, at the host's address.
  MkeyContext key;
  key.state = KeyState::valid;
  key.pd = Node::pd;
  key.access = Node::all_access;
  key.start = 0x7000'0000;
  key.length = 8192;
  key.translation = 0x8000;
  key.translation_count = 2;
  key.variant = 1;
  const pcie::PeerWindow windows[] = {{0x6'0000, 0x1000, 0x4000}, {0x7'0000, 0x1000, 0x9000}};
  b.engine.set_peer_windows(0, windows);
  std::uint64_t pages[] = {0x6'0000 | 3, 0x7'0000 | 3};
  ASSERT_EQ(b.engine.write_pages(0, 0x8000, pages), ControlResult::ok);
  b.write(ContextKind::mkey, 0x777, key);
  a.post(qa, Wqe{.opcode = op::write}.remote(0x7000'0800, 0x777'01).data({ma, 6000, ka}));
  run();
  EXPECT_EQ(expect(a, ca).opcode, cqe::request);
  EXPECT_EQ(std::memcmp(b.memory.device_at(0x4800), a.memory.at(ma), 0x800), 0);
  EXPECT_EQ(std::memcmp(b.memory.device_at(0x9000), a.memory.at(ma + 0x800), 6000 - 0x800), 0);
  EXPECT_GT(b.memory.translated, 0U);
}

}  // namespace
}  // namespace orrery::test::verbs_rc_test
