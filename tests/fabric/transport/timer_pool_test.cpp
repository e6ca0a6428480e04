// Deadlines that move, and owners that go.
#include "fabric/transport/timer_pool.h"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "fabric/transport/psn.h"

namespace orrery::fabric::timer_pool_test {
namespace {

struct Client final : TimerClient {
  explicit Client(TimerPool& its_pool) : pool(its_pool), timer(its_pool.add(*this)) {}
  ~Client() { pool.remove(timer); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  void on_timer() override {
    EXPECT_EQ(pool.deadline(timer), Picoseconds::max());
    times.push_back(pool.now());
    if (again.count != 0) {
      pool.arm(timer, pool.now() + again);
      again = {};
    }
  }
  TimerPool& pool;
  std::uint32_t timer;
  Picoseconds again;
  std::vector<Picoseconds> times;
};

struct Timers : ::testing::Test {
  EventQueue events;
  TimerPool pool{events};
};

TEST_F(Timers, FireOnceAtTheDeadline) {
  Client client(pool);
  pool.arm(client.timer, {100});
  events.run_until({1'000});
  EXPECT_EQ(client.times, std::vector<Picoseconds>{{100}});
}

TEST_F(Timers, ADeadlineThatMovesLaterCostsNoEvent) {
  Client client(pool);
  pool.arm(client.timer, {100});
  for (std::uint64_t i = 101; i < 10'000; ++i) {
    pool.arm(client.timer, {i});
  }
  EXPECT_EQ(events.pending(), 1U);
  events.run_until({100'000});
  EXPECT_EQ(client.times, std::vector<Picoseconds>{{9'999}});
}

TEST_F(Timers, ADeadlineThatMovesEarlierIsKept) {
  Client client(pool);
  pool.arm(client.timer, {100});
  pool.arm(client.timer, {50});
  pool.arm(client.timer, {70});
  events.run_until({1'000});
  EXPECT_EQ(client.times, std::vector<Picoseconds>{{70}});
}

TEST_F(Timers, DisarmedTimersDoNotFireAndCanBeArmedAgain) {
  Client client(pool);
  pool.arm(client.timer, {100});
  pool.disarm(client.timer);
  events.run_until({50});
  EXPECT_TRUE(client.times.empty());
  pool.arm(client.timer, {100});
  events.run_until({1'000});
  EXPECT_EQ(client.times, std::vector<Picoseconds>{{100}});
}

TEST_F(Timers, MayBeArmedFromTheirOwnCallAndForThePast) {
  Client client(pool);
  client.again = {5};
  events.run_until({10});
  pool.arm(client.timer, {3});
  events.run_until({100});
  EXPECT_EQ(client.times, (std::vector<Picoseconds>{{10}, {15}}));
}

TEST_F(Timers, AnOwnerMayGoAndItsPlaceIsUsedAgain) {
  auto first = std::make_unique<Client>(pool);
  const std::uint32_t timer = first->timer;
  pool.arm(timer, {100});
  first.reset();
  Client second(pool);
  EXPECT_EQ(second.timer, timer);
  events.run_until({150});
  EXPECT_TRUE(second.times.empty());
  pool.arm(second.timer, {200});
  events.run_until({300});
  EXPECT_EQ(second.times, std::vector<Picoseconds>{{200}});
}

TEST(Psn, OrdersWithinHalfTheSpace) {
  constexpr Psn top{0xff'ffff};
  static_assert(top + 1 == Psn{0});
  static_assert(Psn{0} - 1 == top);
  EXPECT_EQ(distance(top, Psn{0}), 1);
  EXPECT_EQ(distance(Psn{0}, top), -1);
  EXPECT_TRUE(before(top, Psn{5}));
  EXPECT_FALSE(before(Psn{5}, top));
  EXPECT_FALSE(before(top, top));
  EXPECT_EQ(distance(Psn{0}, Psn{psn_half_space - 1}), 0x7f'ffff);
  EXPECT_EQ(distance(Psn{0}, Psn{psn_half_space}), -0x80'0000);
  EXPECT_EQ(distance(Psn{0x90'0000}, Psn{0x10'0000}), -0x80'0000);
}

}  // namespace
}  // namespace orrery::fabric::timer_pool_test
