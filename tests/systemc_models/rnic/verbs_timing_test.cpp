// Time inside the RNIC (VerbsTiming): what each figure adds, to the picosecond, on a wire and a memory that take none.
#include "tests/systemc_models/rnic/verbs_rig.h"

namespace orrery::test::verbs_timing_test {
namespace {

constexpr Picoseconds microsecond{1'000'000};

class TimingTest : public testing::Test {
 protected:
  struct Pair {
    explicit Pair(const VerbsTiming& timing) : settings{.timing = timing} { DirectPort::connect(a.wire, b.wire); }
    // A second QP pair of the same nodes may send, too.
    void connect() {
      Node::connect(a, qa, b, qb);
      Node::connect(a, qc, b, qd);
    }
    Wqe write(std::uint32_t bytes) { return Wqe{.opcode = op::write}.remote(mb, kb).data({ma, bytes, ka}); }
    Wqe write_inline() {
      const std::uint64_t value = 0x1122334455667788;
      return Wqe{.opcode = op::write}.remote(mb, kb).inline_data(&value, 8);
    }
    Wqe read(std::uint32_t bytes) { return Wqe{.opcode = op::read}.remote(mb, kb).data({ma, bytes, ka}); }
    // Runs to the last of `count` completions; when it came.
    Picoseconds complete(unsigned count) {
      unsigned done = 0;
      while (done < count && simulation.events.run_one()) {
        while (const std::optional<Cqe> cqe = a.poll(ca)) {
          EXPECT_EQ(cqe->opcode, cqe::request);
          ++done;
        }
      }
      EXPECT_EQ(done, count);
      return simulation.now();
    }
    // Both queues of `a` are given that many WRITEs, then rung.
    void load(int each, std::uint32_t bytes) {
      for (int i = 0; i < each; ++i) {
        a.put(qa, write(bytes));
        a.put(qc, write(bytes));
      }
      a.ring(qa);
      a.ring(qc);
    }
    VerbsSettings settings;
    pcie::Simulation simulation;
    fabric::PacketPool pool;
    Node a{simulation, pool, 0, settings};
    Node b{simulation, pool, 1, settings};
    GuestCq ca = a.make_cq(8);
    GuestCq cb = b.make_cq(8);
    GuestQp qa = a.make_qp(QpType::rc, ca);
    GuestQp qb = b.make_qp(QpType::rc, cb);
    GuestQp qc = a.make_qp(QpType::rc, ca);
    GuestQp qd = b.make_qp(QpType::rc, cb);
    std::uint64_t ma = a.allocate(1U << 20);
    std::uint64_t mb = b.allocate(1U << 20);
    std::uint32_t ka = a.make_key(ma, 1U << 20);
    std::uint32_t kb = b.make_key(mb, 1U << 20);
  };
  // From the doorbell of one request to its completion.
  template <class MakeWqe>
  static Picoseconds one(const VerbsTiming& timing, MakeWqe make) {
    Pair pair(timing);
    pair.connect();
    const Picoseconds start = pair.simulation.now();
    pair.a.post(pair.qa, make(pair));
    const Picoseconds end = pair.complete(1);
    return end - start;
  }
  static Wqe write_4k(Pair& pair) { return pair.write(1024); }
  static Wqe write_inline(Pair& pair) { return pair.write_inline(); }
  static Wqe read_1k(Pair& pair) { return pair.read(1024); }
};

TEST_F(TimingTest, AWriteAndItsAcknowledgePassThePipelinesOnceEach) {
  EXPECT_EQ(one({.pipeline = microsecond}, write_4k) - one({}, write_4k), 2 * microsecond);
  EXPECT_EQ(one({.pipeline = microsecond}, write_inline) - one({}, write_inline), 2 * microsecond);
}

TEST_F(TimingTest, PayloadIsGatheredOnceAndInlineDataNever) {
  EXPECT_EQ(one({.gather = microsecond}, write_4k) - one({}, write_4k), microsecond);
  EXPECT_EQ(one({.gather = microsecond}, write_inline), one({}, write_inline));
  EXPECT_EQ(one({.gather = microsecond}, read_1k) - one({}, read_1k), microsecond);  // by the responder
}

TEST_F(TimingTest, TheFirstMessageDoesNotWaitForTheEngine) {
  EXPECT_EQ(one({.message = microsecond}, write_4k), one({}, write_4k));
}

// One engine for all queues: n messages end n - 1 times its occupancy after the first.
TEST_F(TimingTest, TheSendEngineBoundsTheMessageRateOfAllQueues) {
  const Picoseconds alone = one({.message = microsecond}, write_4k);
  Pair pair({.message = microsecond});
  pair.connect();
  const Picoseconds start = pair.simulation.now();
  pair.load(5, 1024);
  EXPECT_EQ(pair.complete(10) - start, alone + 9 * microsecond);
}

// In the order of asking: the queue that came first has one message more under way, and stays at that.
TEST_F(TimingTest, QueuesTakeTurnsAtTheEngine) {
  Pair pair({.message = microsecond});
  pair.connect();
  pair.load(8, 8);
  int ahead = 0;
  for (int done = 0; done < 16 && pair.simulation.events.run_one();) {
    while (const std::optional<Cqe> cqe = pair.a.poll(pair.ca)) {
      ahead += cqe->qp == pair.qa.number ? 1 : -1;
      EXPECT_GE(ahead, 0);
      EXPECT_LE(ahead, 2);
      ++done;
    }
  }
  EXPECT_EQ(ahead, 0);
}

// A queue in error leaves the line; the other's messages go on.
TEST_F(TimingTest, AQueueThatFailsWhileItWaitsHoldsNobodyUp) {
  Pair pair({.message = microsecond});
  pair.connect();
  pair.load(4, 8);
  pair.simulation.events.run_until(pair.simulation.now() + Picoseconds{500'000});
  pair.qc.context.state = QpState::error;
  pair.a.write(ContextKind::qp, pair.qc.number, pair.qc.context);
  unsigned good = 0;
  unsigned flushed = 0;
  while (pair.simulation.events.run_one()) {
    while (const std::optional<Cqe> cqe = pair.a.poll(pair.ca)) {
      (cqe->qp == pair.qa.number ? good : flushed) += 1;
      EXPECT_EQ(cqe->opcode, cqe->qp == pair.qa.number ? cqe::request : cqe::request_error);
    }
  }
  EXPECT_EQ(good, 4U);
  EXPECT_EQ(flushed, 4U);
}

}  // namespace
}  // namespace orrery::test::verbs_timing_test
