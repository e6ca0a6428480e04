// The transport across two switches: paths, loss on one of them, incast, congestion control in closed loop.
#include "tests/fabric/transport/two_racks.h"

#include <algorithm>
#include <cmath>

#include "fabric/wire_codec.h"

namespace orrery::fabric::two_racks_test {
namespace {

using testing::Fabric;
using testing::Flow;
using testing::full_packet;
using testing::Hosts;

SenderSettings settings_of(std::uint32_t flow, PathPolicy policy, CongestionAlgorithm algorithm) {
  SenderSettings settings;
  settings.paths = {.policy = policy, .paths = 128, .seed = 21, .stream = flow};
  settings.congestion.algorithm = algorithm;
  settings.congestion.base_rtt = {5'000'000};
  settings.congestion.mtu_bytes = full_packet;
  return settings;
}

// Every host of the first rack sends to the one opposite.
void permutation(Fabric& fabric, Hosts& hosts, PathPolicy policy, CongestionAlgorithm algorithm,
                 std::uint64_t packets) {
  for (unsigned i = 0; i < fabric.settings.hosts; ++i) {
    hosts.add(
        std::make_unique<Flow>(fabric, i, i, fabric.settings.hosts + i, settings_of(i, policy, algorithm), packets));
  }
  for (const auto& flow : hosts.flows) {
    flow->start();
  }
}

void expect_exactly_once(const Hosts& hosts) {
  for (const auto& flow : hosts.flows) {
    EXPECT_TRUE(flow->done()) << flow->number;
    EXPECT_EQ(flow->receiver.counters().fresh, flow->total);
  }
}

TEST(TwoRacks, OnePathKeepsTheOrder) {
  Fabric fabric({});
  Hosts hosts(fabric);
  permutation(fabric, hosts, PathPolicy::single, CongestionAlgorithm::fixed, 2'000);
  fabric.events.run_until({1'000'000'000'000});
  expect_exactly_once(hosts);
  for (const auto& flow : hosts.flows) {
    EXPECT_EQ(flow->receiver.counters().out_of_order, 0U);
  }
}

TEST(TwoRacks, SprayingUsesAllUplinksEvenly) {
  Fabric fabric({});
  Hosts hosts(fabric);
  permutation(fabric, hosts, PathPolicy::obs, CongestionAlgorithm::fixed, 10'000);
  fabric.events.run_until({1'000'000'000'000});
  expect_exactly_once(hosts);
  std::uint64_t least = ~std::uint64_t{0};
  std::uint64_t most = 0;
  std::uint64_t out_of_order = 0;
  for (unsigned i = 0; i < 8; ++i) {
    least = std::min(least, fabric.uplink(i).counters(0).sent_packets);
    most = std::max(most, fabric.uplink(i).counters(0).sent_packets);
  }
  for (const auto& flow : hosts.flows) {
    out_of_order += flow->receiver.counters().out_of_order;
  }
  // 8 flows x 128 entropy values over 8 links by hash: 128 values a link, standard deviation about 8 %.
  EXPECT_GT(static_cast<double>(least), 10'000 * 0.68);
  EXPECT_LT(static_cast<double>(most), 10'000 * 1.32);
  EXPECT_GT(out_of_order, 0U);
}

// Facts §4 oracle 8: with loss p on one of 8 links, packets * p / 8 are lost, and only those are sent again.
TEST(TwoRacks, ALossyLinkCostsWhatItLoses) {
  Fabric fabric({.tor = {.port_limit_bytes = 100'000'000, .shared_buffer_bytes = 1'000'000'000}});
  fabric.uplink(3).set_impairments(0, {.loss = 0.03});
  Hosts hosts(fabric);
  permutation(fabric, hosts, PathPolicy::obs, CongestionAlgorithm::fixed, 10'000);
  fabric.events.run_until({1'000'000'000'000});
  expect_exactly_once(hosts);
  const std::uint64_t lost = fabric.uplink(3).counters(0).lost;
  std::uint64_t again = 0;
  for (const auto& flow : hosts.flows) {
    again += flow->sender.counters().retransmissions;
  }
  EXPECT_EQ(again, lost);
  EXPECT_NEAR(static_cast<double>(lost), 80'000 * 0.03 / 8, 80'000 * 0.03 / 8 * 0.35);
}

TEST(TwoRacks, ADeadLinkIsSprayedAround) {
  Fabric fabric({});
  fabric.uplink(5).set_up(false);  // the switches don't know: only another path helps
  Hosts hosts(fabric);
  permutation(fabric, hosts, PathPolicy::obs, CongestionAlgorithm::fixed, 500);
  fabric.events.run_until({1'000'000'000'000});
  expect_exactly_once(hosts);
}

// Facts §4 oracle 9: an incast of n senders ends after n S / C + RTT. (Fixed windows, buffers that hold them.)
TEST(TwoRacks, IncastTakesTheTimeOfItsBytes) {
  Fabric fabric({.tor = {.port_limit_bytes = 100'000'000, .shared_buffer_bytes = 1'000'000'000}});
  Hosts hosts(fabric);
  constexpr std::uint64_t packets = 500;
  for (unsigned i = 0; i < 8; ++i) {
    SenderSettings settings = settings_of(i, PathPolicy::obs, CongestionAlgorithm::fixed);
    settings.rto = {100'000'000'000};
    hosts.add(std::make_unique<Flow>(fabric, i, i, 8, settings, packets));
  }
  for (const auto& flow : hosts.flows) {
    flow->start();
  }
  fabric.events.run_until({1'000'000'000'000});
  expect_exactly_once(hosts);
  Picoseconds end;
  for (const auto& flow : hosts.flows) {
    end = max(end, flow->arrived_at);
  }
  const Picoseconds one = fabric.host_link(0).occupancy(full_packet);
  const Picoseconds first = 3 * (one + fabric.settings.link.propagation) + 2 * fabric.settings.tor.latency;
  const Picoseconds ideal = one * (8 * packets - 1) + first;
  EXPECT_GE(end, ideal);
  EXPECT_LE(end.count, ideal.count + ideal.count / 50);  // the acknowledges share no link with the data
}

// window_ecn_rtt keeps an incast's queue far below what full windows would pile up, drops nothing, is fair, and
// leaves the port busy.
TEST(TwoRacks, WindowControlTamesAnIncast) {
  const auto run = [](CongestionAlgorithm algorithm) {
    auto fabric = std::make_unique<Fabric>(
        Fabric::Settings{.tor = {.port_limit_bytes = 20'000'000,
                                 .ecn = {.enabled = true, .kmin_bytes = 50'000, .kmax_bytes = 200'000, .pmax = 0.2}}});
    Hosts hosts(*fabric);
    constexpr std::uint64_t packets = 4'000;
    for (unsigned i = 0; i < 8; ++i) {
      SenderSettings settings = settings_of(i, PathPolicy::obs, algorithm);
      settings.congestion.max_window_bytes = 1'000'000;
      settings.rto = {10'000'000'000};
      hosts.add(std::make_unique<Flow>(*fabric, i, i, 8, settings, packets));
    }
    for (const auto& flow : hosts.flows) {
      flow->start();
    }
    fabric->events.run_until({1'000'000'000});
    // In the second millisecond, when the windows have settled:
    std::vector<std::uint64_t> before;
    for (const auto& flow : hosts.flows) {
      before.push_back(flow->receiver.counters().fresh);
    }
    std::uint64_t peak = 0;
    for (int i = 0; i < 1'000; ++i) {
      fabric->events.run_until(fabric->events.now() + Picoseconds{200'000});
      peak = std::max(peak, fabric->tors[1]->queued_bytes(0));
    }
    std::uint64_t sum = 0;
    std::uint64_t least = ~std::uint64_t{0};
    for (std::size_t i = 0; i < hosts.flows.size(); ++i) {
      const std::uint64_t got = hosts.flows[i]->receiver.counters().fresh - before[i];
      sum += got;
      least = std::min(least, got);
    }
    const double line_rate = 200e6 / static_cast<double>(fabric->host_link(0).occupancy(full_packet).count);
    fabric->events.run_until({1'000'000'000'000});
    expect_exactly_once(hosts);
    EXPECT_EQ(fabric->tors[1]->drops() + fabric->tors[0]->drops(), 0U);
    EXPECT_GT(static_cast<double>(sum), 0.95 * line_rate);
    EXPECT_GT(static_cast<double>(least), 0.4 * line_rate / 8);
    return peak;
  };
  const std::uint64_t fixed = run(CongestionAlgorithm::fixed);
  const std::uint64_t controlled = run(CongestionAlgorithm::window_ecn_rtt);
  EXPECT_GT(fixed, 7'000'000U);  // 8 windows of 1 MB
  EXPECT_LT(controlled, fixed / 8);
}

TEST(TwoRacks, TheSameSeedGivesTheSameRun) {
  const auto run = [] {
    Fabric fabric({.link = {.impairments = {.loss = 0.01}}, .tor = {.ecn = {.enabled = true}}});
    Hosts hosts(fabric);
    permutation(fabric, hosts, PathPolicy::obs, CongestionAlgorithm::window_ecn_rtt, 1'000);
    fabric.events.run_until({1'000'000'000'000});
    expect_exactly_once(hosts);
    std::vector<std::uint64_t> result{fabric.events.dispatched()};
    for (const auto& flow : hosts.flows) {
      result.push_back(flow->arrived_at.count);
    }
    return result;
  };
  EXPECT_EQ(run(), run());
}

}  // namespace
}  // namespace orrery::fabric::two_racks_test
