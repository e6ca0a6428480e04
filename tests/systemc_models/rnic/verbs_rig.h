// Two nodes on one wire, and what tests of the data path ask of them.
#pragma once

#include <gtest/gtest.h>

#include "tests/systemc_models/rnic/verbs_node.h"

namespace orrery::test {

// CQE opcodes and syndromes of the mlx5 formats.
namespace cqe {
constexpr unsigned request = 0, write_immediate = 1, receive = 2, receive_immediate = 3, receive_invalidate = 4,
                   request_error = 0xd, receive_error = 0xe;
constexpr unsigned local_length = 1, local_qp_operation = 2, local_protection = 4, flushed = 5, bind = 6,
                   bad_response = 0x10, local_access = 0x11, remote_invalid = 0x12, remote_access = 0x13,
                   remote_operation = 0x14, retry_exceeded = 0x15, rnr_exceeded = 0x16;
}  // namespace cqe
namespace op {
constexpr std::uint8_t nop = 0, send_invalidate = 1, write = 8, write_immediate = 9, send = 0xa, send_immediate = 0xb,
                       read = 0x10, compare_swap = 0x11, fetch_add = 0x12, umr = 0x25;
}  // namespace op

class VerbsTest : public testing::Test {
 protected:
  // Packets are held by the pool and transfers by the simulation: both outlive the nodes.
  pcie::Simulation simulation;
  fabric::PacketPool pool;
  Node a{simulation, pool, 0};
  Node b{simulation, pool, 1};
  VerbsTest() { DirectPort::connect(a.wire, b.wire); }

  void TearDown() override {
    run();
    EXPECT_EQ(a.memory.stray, 0U);
    EXPECT_EQ(b.memory.stray, 0U);
  }

  // Until nothing is left to do; fails if that takes for ever.
  void run(std::uint64_t limit = 5'000'000) {
    for (std::uint64_t i = 0; i < limit; ++i) {
      if (!simulation.events.run_one()) {
        return;
      }
    }
    ADD_FAILURE() << "still busy after " << limit << " events";
  }
  void fill(Node& node, std::uint64_t address, std::uint64_t bytes, unsigned seed) {
    std::mt19937_64 random{seed};
    for (std::uint64_t i = 0; i < bytes; ++i) {
      node.memory.at(address)[i] = static_cast<std::byte>(random());
    }
  }
  static bool same(Node& x, std::uint64_t at_x, Node& y, std::uint64_t at_y, std::uint64_t bytes) {
    return std::memcmp(x.memory.at(at_x), y.memory.at(at_y), bytes) == 0;
  }
  // The next completion, which must be there.
  Cqe expect(Node& node, GuestCq& cq) {
    const std::optional<Cqe> cqe = node.poll(cq);
    EXPECT_TRUE(cqe.has_value()) << "no completion";
    return cqe.value_or(Cqe{});
  }
  void expect_none(Node& node, GuestCq& cq) { EXPECT_FALSE(node.poll(cq).has_value()); }
};

// An RC QP on each node, not yet connected, and memory that each may have touched by the other.
class QpPairTest : public VerbsTest {
 protected:
  static constexpr std::uint64_t area = 1U << 20;
  GuestCq ca = a.make_cq(8);
  GuestCq cb = b.make_cq(8);
  GuestQp qa = a.make_qp(QpType::rc, ca);
  GuestQp qb = b.make_qp(QpType::rc, cb);
  std::uint64_t ma = a.allocate(area);
  std::uint64_t mb = b.allocate(area);
  std::uint32_t ka = a.make_key(ma, area);
  std::uint32_t kb = b.make_key(mb, area);

  QpPairTest() {
    fill(a, ma, area, 1);
    fill(b, mb, area, 2);
  }
};

}  // namespace orrery::test
