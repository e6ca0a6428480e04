// Links against closed formulas (bits / rate + propagation) and conservation laws.
#include "fabric/link.h"

#include <cmath>

#include <gtest/gtest.h>

#include "common/error.h"
#include "common/rng.h"
#include "tests/fabric/support.h"

namespace orrery::fabric::link_test {
namespace {

using testing::Collector;
using testing::run_all;

struct TwoEnds {
  explicit TwoEnds(const LinkSettings& settings = {}) : link(events, pool, settings), a(events, pool), b(events, pool) {
    link.end(0).attach(a);
    link.end(1).attach(b);
  }
  Packet packet(std::uint32_t wire_bytes, std::uint32_t number = 0) {
    Packet p;
    p.wire_bytes = wire_bytes;
    p.psn = number;
    p.content = pool.make();
    return p;
  }
  EventQueue events;
  PacketPool pool;
  Link link;
  Collector a;
  Collector b;
};

TEST(Link, ZeroLoadLatencyIsExact) {
  // 200 Gb/s is 40 ps a byte; 25 Gb/s is 320; 800 Gb/s is 10; 100 Gb/s is 80.
  const std::pair<std::uint64_t, std::uint64_t> rates[] = {
      {200'000'000'000, 40}, {25'000'000'000, 320}, {800'000'000'000, 10}, {100'000'000'000, 80}};
  for (const auto& [rate, picoseconds_per_byte] : rates) {
    for (const std::uint32_t bytes : {64U, 1518U, 4162U, 9218U}) {
      TwoEnds ends({.bits_per_second = rate, .propagation = {123'457}});
      const Picoseconds left = ends.link.end(0).send(ends.packet(bytes));
      EXPECT_EQ(left.count, (bytes + 20) * picoseconds_per_byte);
      run_all(ends.events);
      ASSERT_EQ(ends.b.times.size(), 1U);
      EXPECT_EQ(ends.b.times[0].count, (bytes + 20) * picoseconds_per_byte + 123'457);
      EXPECT_EQ(ends.b.packets[0].hops, 1);
      EXPECT_EQ(ends.pool.outstanding(), 0U);
    }
  }
}

TEST(Link, ABusyPeriodDoesNotDrift) {
  // 300 Gb/s: 26 2/3 ps a byte. n packets of 1004 + 20 bytes take ceil(n * 1024 * 80 / 3) ps, whatever n is.
  TwoEnds ends({.bits_per_second = 300'000'000'000, .propagation = {0}});
  for (std::uint64_t n = 1; n <= 100'000; ++n) {
    const Picoseconds left = ends.link.end(0).send(ends.packet(1004));
    ASSERT_EQ(left.count, (n * 1024 * 80 + 2) / 3);
    run_all(ends.events);
  }
}

TEST(Link, DirectionsAreIndependentAndOrderIsKept) {
  TwoEnds ends;
  for (std::uint32_t i = 0; i < 100; ++i) {
    ends.link.end(0).send(ends.packet(64 + i, i));
  }
  const Picoseconds other = ends.link.end(1).send(ends.packet(64));
  EXPECT_EQ(other, ends.link.occupancy(64));
  run_all(ends.events);
  ASSERT_EQ(ends.b.packets.size(), 100U);
  for (std::uint32_t i = 0; i < 100; ++i) {
    EXPECT_EQ(ends.b.packets[i].psn, i);
  }
  EXPECT_EQ(ends.a.packets.size(), 1U);
  EXPECT_EQ(ends.link.counters(0).busy.count, ends.link.end(0).free_at().count);
}

TEST(Link, ADelayedPacketWaitsAndOccupiesFromThen) {
  TwoEnds ends;
  const Picoseconds left = ends.link.end(0).send_after(ends.packet(980), {5'000'000});
  EXPECT_EQ(left.count, 5'000'000U + 40'000);
  EXPECT_EQ(ends.link.end(0).send_after(ends.packet(980), {5'000'000}).count, 5'080'000U);
}

TEST(Link, NotifiesOnceWhenAllHasLeft) {
  TwoEnds ends;
  ends.link.end(0).notify_when_free();  // free already: at once
  run_all(ends.events);
  EXPECT_EQ(ends.a.ready, std::vector<Picoseconds>{{0}});
  ends.link.end(0).send(ends.packet(64));
  ends.link.end(0).notify_when_free();
  ends.link.end(0).notify_when_free();
  const Picoseconds last = ends.link.end(0).send(ends.packet(64));
  run_all(ends.events);
  EXPECT_EQ(ends.a.ready, (std::vector<Picoseconds>{{0}, last}));
  EXPECT_TRUE(ends.b.ready.empty());
}

TEST(Link, ALinkThatGoesDownLosesWhatIsOnIt) {
  TwoEnds ends;
  ends.link.end(0).send(ends.packet(1000, 1));
  ends.events.run_until({300'000});
  ends.link.set_up(false);
  ends.link.end(0).send(ends.packet(1000, 2));
  ends.link.set_up(true);
  ends.link.end(0).send(ends.packet(1000, 3));
  run_all(ends.events);
  ASSERT_EQ(ends.b.packets.size(), 1U);
  EXPECT_EQ(ends.b.packets[0].psn, 3U);
  EXPECT_EQ(ends.link.counters(0).down, 2U);
  EXPECT_EQ(ends.pool.outstanding(), 0U);
}

TEST(Link, FlappingConservesPackets) {
  TwoEnds ends({.impairments = {.loss = 0.1, .duplication = 0.2, .reordering = 0.5, .reorder_delay = {1'000'000}}});
  Rng random(3, 3);
  for (std::uint32_t i = 0; i < 5'000; ++i) {
    ends.link.end(0).send(ends.packet(64 + random.below(1'000), i));
    ends.events.run_until(ends.events.now() + Picoseconds{random.below(100'000)});
    ends.link.set_up(random.below(10) != 0);
    const LinkCounters& c = ends.link.counters(0);
    ASSERT_EQ(c.sent_packets + c.duplicated, c.delivered_packets + c.lost + c.down + ends.link.in_flight(0));
  }
  run_all(ends.events);
  EXPECT_EQ(ends.b.packets.size(), ends.link.counters(0).delivered_packets);
  EXPECT_GT(ends.link.counters(0).delivered_packets, 100U);
  EXPECT_GT(ends.link.counters(0).down, 100U);
  EXPECT_EQ(ends.link.in_flight(0), 0U);
  EXPECT_EQ(ends.pool.outstanding(), 0U);
}

TEST(Link, NobodyAtTheFarEndLosesPackets) {
  EventQueue events;
  PacketPool pool;
  Link link(events, pool, {});
  Packet p;
  p.wire_bytes = 64;
  p.content = pool.make();
  link.end(0).send(p);
  link.end(0).notify_when_free();
  run_all(events);
  EXPECT_EQ(link.counters(0).down, 1U);
  EXPECT_EQ(pool.outstanding(), 0U);
}

TEST(Link, ImpairmentsConservePacketsAndHitTheirShare) {
  LinkSettings settings;
  settings.impairments = {.loss = 0.05,
                          .corruption = 0.02,
                          .icrc_corruption = 0.01,
                          .duplication = 0.03,
                          .reordering = 0.1,
                          .reorder_delay = {1'000'000}};
  settings.seed = 9;
  TwoEnds ends(settings);
  constexpr std::uint32_t n = 100'000;
  for (std::uint32_t i = 0; i < n; ++i) {
    ends.link.end(0).send(ends.packet(1000, i));
    if (i % 50 == 49) {
      run_all(ends.events);
      const LinkCounters& c = ends.link.counters(0);
      ASSERT_EQ(c.sent_packets + c.duplicated, c.delivered_packets + c.lost + c.down + ends.link.in_flight(0));
    }
  }
  run_all(ends.events);
  const LinkCounters& c = ends.link.counters(0);
  EXPECT_EQ(c.sent_packets, n);
  EXPECT_EQ(ends.b.packets.size(), c.delivered_packets);
  EXPECT_EQ(c.delivered_bytes, 1000 * c.delivered_packets);
  EXPECT_EQ(ends.link.in_flight(0), 0U);
  EXPECT_EQ(ends.pool.outstanding(), 0U);
  // Five standard deviations of a binomial count.
  const auto near = [](std::uint64_t count, double p) {
    return std::abs(static_cast<double>(count) - n * p) < 5 * std::sqrt(n * p * (1 - p));
  };
  EXPECT_TRUE(near(c.lost, 0.05)) << c.lost;
  EXPECT_TRUE(near(c.duplicated, 0.95 * 0.03)) << c.duplicated;
  EXPECT_TRUE(near(c.reordered, 0.95 * 0.1)) << c.reordered;
  EXPECT_TRUE(near(c.corrupted, 0.95 * (1 - 0.98 * 0.99))) << c.corrupted;
}

TEST(Link, TheSameSeedSuffersTheSameAndAnotherStreamDoesNot) {
  const auto lost = [](std::uint64_t seed, std::uint64_t stream) {
    TwoEnds ends({.impairments = {.loss = 0.5}, .seed = seed, .stream = stream});
    for (std::uint32_t i = 0; i < 64; ++i) {
      ends.link.end(0).send(ends.packet(64, i));
    }
    run_all(ends.events);
    std::uint64_t arrived = 0;
    for (const Packet& p : ends.b.packets) {
      arrived |= std::uint64_t{1} << p.psn;
    }
    return arrived;
  };
  EXPECT_EQ(lost(1, 1), lost(1, 1));
  EXPECT_NE(lost(1, 1), lost(1, 2));
  EXPECT_NE(lost(1, 1), lost(2, 1));
}

TEST(Link, CertainCorruptionFlagsEveryPacket) {
  TwoEnds ends;
  ends.link.set_impairments(0, {.corruption = 1});
  ends.link.end(0).send(ends.packet(64));
  ends.link.end(1).send(ends.packet(64));
  run_all(ends.events);
  EXPECT_EQ(ends.b.packets[0].flags, packet_flag::bad_fcs);
  EXPECT_EQ(ends.a.packets[0].flags, 0);
}

TEST(Link, RefusesSettingsThatMakeNoSense) {
  EventQueue events;
  PacketPool pool;
  for (const std::uint64_t rate :
       {std::uint64_t{0}, std::uint64_t{999'999}, std::uint64_t{1'500'000}, std::uint64_t{200'000'000'000'000}}) {
    EXPECT_THROW(Link(events, pool, {.bits_per_second = rate}), Error) << rate;
  }
  EXPECT_THROW(Link(events, pool, {.impairments = {.loss = 1.5}}), Error);
  Link link(events, pool, {});
  EXPECT_THROW(link.set_impairments(0, {.reordering = -0.1}), Error);
  EXPECT_THROW(link.set_impairments(0, {.duplication = std::nan("")}), Error);
}

}  // namespace
}  // namespace orrery::fabric::link_test
