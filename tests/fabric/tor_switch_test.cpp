// The switch: forwarding, limits, marking; and queueing theory as an oracle.
#include "fabric/tor_switch.h"

#include <cmath>
#include <memory>

#include <gtest/gtest.h>

#include "common/error.h"
#include "common/rng.h"
#include "fabric/link.h"
#include "tests/fabric/rack.h"

namespace orrery::fabric::tor_switch_test {
namespace {

using testing::Collector;
using testing::host_mac;
using testing::Rack;
using testing::run_all;

TEST(TorSwitch, ZeroLoadLatencyIsExact) {
  Rack rack({.ports = 4, .latency = {350'000}}, {.bits_per_second = 100'000'000'000, .propagation = {7'777}});
  rack.teach();
  const Picoseconds start = rack.events.now();
  rack.send(2, rack.frame(2, 3, 4162));
  run_all(rack.events);
  ASSERT_EQ(rack.hosts[3]->times.size(), 1U);
  EXPECT_EQ((rack.hosts[3]->times[0] - start).count, 2 * (4182 * 80 + 7'777) + 350'000U);
  EXPECT_EQ(rack.hosts[3]->packets[0].hops, 2);
}

TEST(TorSwitch, LearnsWhereHostsAreAndFloodsWhatItDoesNotKnow) {
  Rack rack({.ports = 4});
  rack.send(0, rack.frame(0, 1));
  run_all(rack.events);
  EXPECT_EQ(rack.tor.port_of({host_mac}), 0);
  EXPECT_EQ(rack.tor.port_of({host_mac + 1}), -1);
  for (unsigned i = 0; i < 4; ++i) {
    EXPECT_EQ(rack.hosts[i]->packets.size(), i == 0 ? 0U : 1U);
  }
  rack.send(1, rack.frame(1, 0));
  run_all(rack.events);
  EXPECT_EQ(rack.hosts[0]->packets.size(), 1U);
  EXPECT_EQ(rack.hosts[2]->packets.size(), 1U);
  EXPECT_EQ(rack.pool.outstanding(), 0U);
}

TEST(TorSwitch, AHostThatMovesIsLearnedAnew) {
  Rack rack({.ports = 3});
  rack.teach();
  rack.send(2, rack.frame(0, 1));  // host 0's address, from port 2
  run_all(rack.events);
  EXPECT_EQ(rack.tor.port_of({host_mac}), 2);
}

TEST(TorSwitch, BroadcastAndMulticastReachAllOthersAlthoughKnown) {
  Rack rack({.ports = 4});
  rack.teach();
  for (const std::uint64_t group : {0xffff'ffff'ffffU, 0x3333'0000'0001U}) {
    Packet p = rack.frame(1, 0);
    p.destination_mac = {group};
    rack.send(1, p);
  }
  run_all(rack.events);
  EXPECT_EQ(rack.hosts[0]->packets.size(), 2U);
  EXPECT_EQ(rack.hosts[1]->packets.size(), 0U);
  EXPECT_EQ(rack.hosts[3]->packets.size(), 2U);
  EXPECT_EQ(rack.pool.outstanding(), 0U);
}

TEST(TorSwitch, GroupAddressesAreNeverLearned) {
  Rack rack({.ports = 2});
  Packet p = rack.frame(0, 1);
  p.source_mac = {0x0100'5e00'0001U};
  rack.send(0, p);
  run_all(rack.events);
  EXPECT_EQ(rack.tor.port_of({0x0100'5e00'0001U}), -1);
}

TEST(TorSwitch, DropsWhatIsDamagedOrGoesBackWhereItCameFrom) {
  Rack rack({.ports = 2});
  rack.teach();
  Packet p = rack.frame(0, 1);
  p.flags = packet_flag::bad_fcs;
  rack.send(0, p);
  rack.send(0, rack.frame(0, 0));
  Packet icrc = rack.frame(0, 1);
  icrc.flags = packet_flag::bad_icrc;  // an Ethernet switch doesn't see it
  rack.send(0, icrc);
  run_all(rack.events);
  EXPECT_EQ(rack.tor.counters(0).drops[static_cast<unsigned>(DropReason::bad_fcs)], 1U);
  EXPECT_EQ(rack.tor.counters(0).drops[static_cast<unsigned>(DropReason::same_port)], 1U);
  EXPECT_EQ(rack.hosts[1]->packets.size(), 1U);
  EXPECT_EQ(rack.tor.drops(), 2U);
  EXPECT_EQ(rack.pool.outstanding(), 0U);
}

TEST(TorSwitch, APortThatNobodyUsesDrops) {
  EventQueue events;
  PacketPool pool;
  TorSwitch tor(events, pool, {.ports = 3});
  Link link(events, pool, {});
  Collector host(events, pool);
  link.end(0).attach(host);
  tor.attach(0, link.end(1));
  const unsigned unused[] = {2};
  tor.set_route(7, unused);
  Packet routed;
  routed.wire_bytes = 64;
  routed.destination = 7;
  routed.content = pool.make();
  link.end(0).send(routed);
  Packet unknown = routed;
  unknown.destination = no_endpoint;
  unknown.destination_mac = {host_mac};
  unknown.content = pool.make();
  link.end(0).send(unknown);
  run_all(events);
  EXPECT_EQ(tor.counters(2).drops[static_cast<unsigned>(DropReason::no_port)], 1U);
  EXPECT_EQ(tor.counters(0).drops[static_cast<unsigned>(DropReason::no_port)], 1U);
  EXPECT_EQ(pool.outstanding(), 0U);
}

TEST(TorSwitch, AFullPortDropsAndRecovers) {
  Rack rack({.ports = 3, .latency = {0}, .port_limit_bytes = 10'000});
  rack.teach();
  for (int i = 0; i < 20; ++i) {  // two hosts at full rate into one port: half must be dropped once it is full
    rack.send(0, rack.frame(0, 2));
    rack.send(1, rack.frame(1, 2));
  }
  run_all(rack.events);
  const TorPortCounters& c = rack.tor.counters(2);
  const std::uint64_t drops = c.drops[static_cast<unsigned>(DropReason::port_limit)];
  EXPECT_GT(drops, 5U);
  EXPECT_EQ(rack.hosts[2]->packets.size() + drops, 40U);
  EXPECT_LE(c.peak_queue_bytes, 10'000U);
  EXPECT_EQ(rack.tor.queued_bytes(2), 0U);
  rack.send(0, rack.frame(0, 2));
  run_all(rack.events);
  EXPECT_EQ(rack.tor.counters(2).drops[static_cast<unsigned>(DropReason::port_limit)], drops);
}

TEST(TorSwitch, TheSharedBufferIsSharedByWhatIsQueuedNow) {
  // 4 hosts into port 4 and, much earlier, a burst into port 5 that has long left: it must not count any more.
  Rack rack({.ports = 6, .latency = {0}, .shared_buffer_bytes = 5'000});
  rack.teach();
  for (int i = 0; i < 3; ++i) {
    rack.send(5, rack.frame(5, 4));
    rack.send(4, rack.frame(4, 5));
  }
  run_all(rack.events);
  EXPECT_EQ(rack.tor.drops(), 0U);
  for (unsigned host = 0; host < 4; ++host) {
    rack.send(host, rack.frame(host, 4));
  }
  run_all(rack.events);
  EXPECT_EQ(rack.tor.drops(), 0U);
  for (unsigned host = 0; host < 4; ++host) {
    rack.send(host, rack.frame(host, 4));
    rack.send(host, rack.frame(host, 5));
    rack.send(host, rack.frame(host, 5));
  }
  run_all(rack.events);
  EXPECT_GT(rack.tor.drops(), 0U);
  EXPECT_EQ(rack.tor.drops(), rack.tor.counters(4).drops[static_cast<unsigned>(DropReason::shared_buffer)] +
                                  rack.tor.counters(5).drops[static_cast<unsigned>(DropReason::shared_buffer)]);
  EXPECT_EQ(rack.pool.outstanding(), 0U);
}

TEST(TorSwitch, AThresholdMarksExactlyWhatQueuesBehindIt) {
  Rack rack(
      {.ports = 3, .latency = {0}, .ecn = {.enabled = true, .kmin_bytes = 3'000, .kmax_bytes = 3'000, .pmax = 1}});
  rack.teach();
  // Two arrive in each packet time and one leaves: before the k-th pair's packets, k - 1 and k packets are queued.
  for (std::uint32_t i = 0; i < 16; ++i) {
    Packet p = rack.frame(i % 2, 2);
    p.ecn = i == 15 ? Ecn::not_ect : i == 14 ? Ecn::ect1 : Ecn::ect0;
    p.psn = i;
    rack.send(i % 2, p);
  }
  run_all(rack.events);
  ASSERT_EQ(rack.hosts[2]->packets.size(), 16U);
  for (const Packet& p : rack.hosts[2]->packets) {
    const bool over = p.psn / 2 + p.psn % 2 > 3;
    EXPECT_EQ(p.ecn == Ecn::ce, over && p.psn != 15) << p.psn;
  }
  EXPECT_EQ(rack.tor.counters(2).marked, 8U);
}

TEST(TorSwitch, RedMarksWithTheProbabilityOfTheQueue) {
  // The egress link is so slow that its queue is what we make it: half way between kmin and kmax, marked with pmax / 2.
  EventQueue events;
  PacketPool pool;
  TorSwitch tor(
      events, pool,
      {.ports = 2, .latency = {0}, .ecn = {.enabled = true, .kmin_bytes = 0, .kmax_bytes = 20'000, .pmax = 0.5}});
  Link in(events, pool, {.bits_per_second = 800'000'000'000, .propagation = {0}});
  Link out(events, pool, {.bits_per_second = 1'000'000'000, .propagation = {0}});
  Collector source(events, pool);
  Collector sink(events, pool);
  in.end(0).attach(source);
  out.end(0).attach(sink);
  tor.attach(0, in.end(1));
  tor.attach(1, out.end(1));
  const unsigned route[] = {1};
  tor.set_route(0, route);
  const auto send = [&](Ecn ecn) {
    Packet p;
    p.destination = 0;
    p.wire_bytes = 1000;
    p.ecn = ecn;
    in.end(0).send(p);
    events.run_until(events.now() + Picoseconds{20'000});
  };
  constexpr int rounds = 4000;
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < 10; ++i) {
      send(Ecn::not_ect);
    }
    const std::uint64_t queued = tor.queued_bytes(1);
    ASSERT_EQ(queued, 10'000U);
    send(Ecn::ect0);
    run_all(events);
  }
  const double expected = rounds * 0.25;
  EXPECT_NEAR(static_cast<double>(tor.counters(1).marked), expected, 5 * std::sqrt(expected * 0.75));
}

TEST(TorSwitch, ARouteMayBeTakenBack) {
  Rack rack({.ports = 3});
  rack.teach();
  const unsigned two[] = {2};
  rack.tor.set_route(4, two);
  Packet p = rack.frame(0, 1);
  p.destination = 4;
  rack.send(0, p);
  run_all(rack.events);
  EXPECT_EQ(rack.hosts[2]->packets.size(), 1U);
  rack.tor.set_route(4, {});
  p.content = rack.pool.make();
  rack.send(0, p);
  run_all(rack.events);
  EXPECT_EQ(rack.hosts[1]->packets.size(), 1U);
}

// Facts §4 oracle 2: Poisson arrivals of equal packets wait ρ / (2 (1 - ρ)) service times on average (M/D/1); and
// Little's law ties the counter of waiting to the queue's time average, which is sampled independently.
TEST(TorSwitch, QueuesObeyMD1AndLittlesLaw) {
  for (const auto& [load, packets] : {std::pair{0.5, 100'000}, {0.8, 200'000}, {0.9, 300'000}}) {
    EventQueue events;
    PacketPool pool;
    constexpr unsigned sources = 8;
    TorSwitch tor(events, pool,
                  {.ports = sources + 1,
                   .latency = {0},
                   .port_limit_bytes = 1'000'000'000,
                   .shared_buffer_bytes = 1'000'000'000});
    std::vector<std::unique_ptr<Link>> links;
    Collector sink(events, pool);
    Collector source(events, pool);
    for (unsigned i = 0; i <= sources; ++i) {
      // Sources are so fast that their own serialisation doesn't shape the arrivals.
      links.push_back(std::make_unique<Link>(
          events, pool,
          LinkSettings{.bits_per_second = i == sources ? 100'000'000'000U : 100'000'000'000'000U, .propagation = {0}}));
      links[i]->end(0).attach(i == sources ? sink : source);
      tor.attach(i, links[i]->end(1));
    }
    const unsigned route[] = {sources};
    tor.set_route(0, route);
    constexpr std::uint32_t bytes = 980;
    const auto service = static_cast<double>(links[sources]->occupancy(bytes).count);  // 80,000 ps
    Rng random(17, 1);
    double at = 0;
    double queued_area = 0;  // bytes * ps, sampled at Poisson instants (PASTA), before each arrival
    for (int i = 0; i < packets; ++i) {
      at -= std::log(1 - random.uniform()) * service / load;
      events.run_until({static_cast<std::uint64_t>(at)});
      queued_area += static_cast<double>(tor.queued_bytes(sources));
      Packet p;
      p.destination = 0;
      p.wire_bytes = bytes;
      links[random.below(sources)]->end(0).send(p);
    }
    run_all(events);
    const TorPortCounters& c = tor.counters(sources);
    ASSERT_EQ(c.out_packets, static_cast<std::uint64_t>(packets));
    const double mean_wait = static_cast<double>(c.queueing.count) / packets / service;
    const double theory = load / (2 * (1 - load));
    EXPECT_NEAR(mean_wait, theory, 0.05 * theory + 0.01) << load;
    const double mean_in_system = queued_area / packets / bytes;
    EXPECT_NEAR(mean_in_system, load * (theory + 1), 0.05 * (theory + 1)) << load;
  }
}

TEST(TorSwitch, PacketsAndBytesAreConserved) {
  Rack rack({.ports = 8, .port_limit_bytes = 20'000, .shared_buffer_bytes = 60'000},
            {.impairments = {.loss = 0.01, .corruption = 0.01, .duplication = 0.01, .reordering = 0.05}});
  Rng random(5, 5);
  for (int i = 0; i < 20'000; ++i) {
    const unsigned from = random.below(8);
    rack.send(from, rack.frame(from, random.below(4), 64 + random.below(9000)));
    rack.events.run_until(rack.events.now() + Picoseconds{random.below(100'000)});
  }
  run_all(rack.events);
  std::uint64_t in = 0;
  std::uint64_t delivered_in = 0;
  std::uint64_t out = 0;
  std::uint64_t sent_out = 0;
  for (unsigned i = 0; i < 8; ++i) {
    in += rack.tor.counters(i).in_packets;
    out += rack.tor.counters(i).out_packets;
    delivered_in += rack.links[i]->counters(0).delivered_packets;
    sent_out += rack.links[i]->counters(1).sent_packets;
    EXPECT_EQ(rack.tor.queued_bytes(i), 0U);
    EXPECT_EQ(rack.tor.counters(i).out_bytes, rack.links[i]->counters(1).sent_bytes);
  }
  EXPECT_EQ(in, delivered_in);
  EXPECT_EQ(out, sent_out);
  EXPECT_GE(out + rack.tor.drops(), in);  // floods multiply
  EXPECT_GT(rack.tor.drops(), 0U);
  EXPECT_EQ(rack.pool.outstanding(), 0U);
}

TEST(TorSwitch, RefusesSettingsThatMakeNoSense) {
  EventQueue events;
  PacketPool pool;
  EXPECT_THROW(TorSwitch(events, pool, {.ports = 0}), Error);
  EXPECT_THROW(TorSwitch(events, pool, {.ports = 1025}), Error);
  EXPECT_THROW(TorSwitch(events, pool, {.ecn = {.kmin_bytes = 5, .kmax_bytes = 4}}), Error);
  EXPECT_THROW(TorSwitch(events, pool, {.ecn = {.pmax = 2}}), Error);
  TorSwitch tor(events, pool, {.ports = 2});
  Link link(events, pool, {});
  EXPECT_THROW(tor.attach(2, link.end(0)), Error);
  tor.attach(1, link.end(0));
  EXPECT_THROW(tor.attach(1, link.end(1)), Error);
  const unsigned ports[] = {0, 2};
  EXPECT_THROW(tor.set_route(0, ports), Error);
  EXPECT_THROW(tor.set_route(no_endpoint, std::span(ports).first(1)), Error);
}

}  // namespace
}  // namespace orrery::fabric::tor_switch_test
