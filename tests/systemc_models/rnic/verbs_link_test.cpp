// The data path on a link that takes time and loses packets: simulated time, shares, recovery.
#include "fabric/link.h"
#include "tests/systemc_models/rnic/verbs_rig.h"

namespace orrery::test::verbs_link_test {
namespace {

class LinkTest : public testing::Test {
 protected:
  static constexpr std::uint64_t area = 4U << 20;
  pcie::Simulation simulation;
  fabric::PacketPool pool;
  fabric::LinkSettings wire{.bits_per_second = 100'000'000'000, .propagation = {500'000}};
  fabric::Link link{simulation.events, pool, wire};
  Node a{simulation, pool, 0};
  Node b{simulation, pool, 1};
  GuestCq ca = a.make_cq(8);
  GuestCq cb = b.make_cq(8);
  std::uint64_t ma = a.allocate(area);
  std::uint64_t mb = b.allocate(area);
  std::uint32_t ka = a.make_key(ma, area);
  std::uint32_t kb = b.make_key(mb, area);

  LinkTest() {
    simulation.timed = true;
    a.engine.attach(link.end(0), pool);
    b.engine.attach(link.end(1), pool);
    for (std::uint64_t i = 0; i < area; i += 8) {
      const std::uint64_t word = i * 0x9e37'79b9'7f4a'7c15U;
      std::memcpy(a.memory.at(ma + i), &word, 8);
    }
  }
  std::pair<GuestQp, GuestQp> pair() {
    GuestQp x = a.make_qp(QpType::rc, ca);
    GuestQp y = b.make_qp(QpType::rc, cb);
    x.context.mtu = y.context.mtu = 4096;
    Node::connect(a, x, b, y);
    return {x, y};
  }
  Wqe write(std::uint32_t bytes) { return Wqe{.opcode = op::write}.remote(mb, kb).data({ma, bytes, ka}); }
};

TEST_F(LinkTest, OneWriteTakesItsTimeOnTheWire) {
  auto [x, y] = pair();
  simulation.events.run_until(10_us);
  a.post(x, write(4096));
  std::optional<Cqe> cqe;
  while (!(cqe = a.poll(ca)) && simulation.events.run_one()) {
  }
  ASSERT_TRUE(cqe.has_value());
  // Memory costs nothing here: the packet and its acknowledge, each serialised at 80 ps a byte and 500 ns under way.
  const std::uint64_t data = link.counters(0).sent_bytes + 20;
  const std::uint64_t ack = link.counters(1).sent_bytes + 20;
  EXPECT_EQ(link.counters(0).sent_packets, 1U);
  EXPECT_EQ(simulation.now().count, 10'000'000 + (data + ack) * 80 + 1'000'000);
}

TEST_F(LinkTest, TwoQpsShareTheLink) {
  auto [x1, y1] = pair();
  auto [x2, y2] = pair();
  static_cast<void>(y1), static_cast<void>(y2);
  unsigned done[2] = {};
  for (GuestQp* qp : {&x1, &x2}) {
    for (unsigned i = 0; i < 40; ++i) {
      a.put(*qp, write(256U << 10));
    }
    a.ring(*qp);
  }
  simulation.events.run_until(800_us);
  while (const auto cqe = a.poll(ca)) {
    ++done[cqe->qp == x1.number ? 0 : 1];
  }
  // 10 MB in 800 us at 12.5 GB/s, of which headers take 2 %: about 37 messages, half each.
  EXPECT_NEAR(done[0], done[1], 1);
  EXPECT_GE(done[0] + done[1], 35U);
  EXPECT_GE(link.counters(0).busy.count, 790'000'000U);
}

TEST_F(LinkTest, LossIsRepaired) {
  fabric::Impairments bad;
  bad.loss = 0.02;
  bad.corruption = 0.01;
  bad.icrc_corruption = 0.01;
  bad.duplication = 0.01;
  bad.reordering = 0.05;
  link.set_impairments(0, bad);
  link.set_impairments(1, bad);
  auto [x, y] = pair();
  for (unsigned i = 0; i < 4; ++i) {
    const std::uint64_t at = std::uint64_t{i} << 20;
    a.put(x, Wqe{.opcode = op::write}.remote(mb + at, kb).data({ma + at, 1U << 20, ka}));
  }
  a.ring(x);
  b.put(y, Wqe{.opcode = op::read}.remote(ma + 100, ka).data({mb, 1U << 20, kb}));
  while (simulation.events.run_one()) {
  }
  for (unsigned i = 0; i < 4; ++i) {
    ASSERT_EQ(a.poll(ca).value_or(Cqe{.opcode = 99}).opcode, cqe::request);
  }
  EXPECT_EQ(std::memcmp(a.memory.at(ma), b.memory.at(mb), area), 0);
  b.ring(y);
  while (simulation.events.run_one()) {
  }
  ASSERT_EQ(b.poll(cb).value_or(Cqe{.opcode = 99}).opcode, cqe::request);
  EXPECT_EQ(std::memcmp(a.memory.at(ma + 100), b.memory.at(mb), 1U << 20), 0);
  EXPECT_EQ(pool.outstanding(), 0U);
}

}  // namespace
}  // namespace orrery::test::verbs_link_test
