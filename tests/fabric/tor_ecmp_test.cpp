// Equal-cost paths: what a switch's choice must look like in numbers (facts §4, oracles 3 to 6).
#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "tests/fabric/rack.h"

namespace orrery::fabric::tor_ecmp_test {
namespace {

using testing::Rack;
using testing::run_all;

TEST(Ecmp, EcmpSpreadsByHashAndKeepsAFlowTogether) {
  Rack rack({.ports = 9, .seed = 3});
  const unsigned uplinks[] = {1, 2, 3, 4, 5, 6, 7, 8};
  rack.tor.set_default_route(uplinks);
  for (std::uint32_t i = 0; i < 8000; ++i) {
    Packet p;
    p.source = 0;
    p.destination = 1'000'000;
    p.entropy = static_cast<std::uint16_t>(0xc000 + i / 2);
    p.psn = i;
    p.wire_bytes = 64;
    rack.send(0, p);
    run_all(rack.events);
  }
  std::set<std::uint16_t> seen;
  for (unsigned i = 1; i <= 8; ++i) {
    EXPECT_NEAR(static_cast<double>(rack.hosts[i]->packets.size()), 1000, 5 * std::sqrt(2 * 4000 * 7.0 / 64));
    for (std::size_t k = 0; k < rack.hosts[i]->packets.size(); k += 2) {
      EXPECT_EQ(rack.hosts[i]->packets[k].entropy, rack.hosts[i]->packets[k + 1].entropy);
      EXPECT_TRUE(seen.insert(rack.hosts[i]->packets[k].entropy).second);
    }
  }
}

// Facts §4 oracle 4: N random entropy values cover m (1 - (1 - 1/m)^N) of m ports.
TEST(Ecmp, EntropyCoverageIsTheCouponCollectors) {
  constexpr unsigned m = 60;
  for (const unsigned n : {4U, 16U, 64U, 128U, 256U}) {
    double covered = 0;
    constexpr int trials = 100;
    for (int trial = 0; trial < trials; ++trial) {
      Rack rack({.ports = m + 1, .seed = static_cast<std::uint64_t>(trial)});
      std::vector<unsigned> uplinks;
      uplinks.reserve(m);
      for (unsigned i = 1; i <= m; ++i) {
        uplinks.push_back(i);
      }
      rack.tor.set_default_route(uplinks);
      for (unsigned i = 0; i < n; ++i) {
        Packet p;
        p.source = 5;
        p.destination = 6;
        p.entropy = static_cast<std::uint16_t>(0xc000 + i);
        p.wire_bytes = 64;
        rack.send(0, p);
      }
      run_all(rack.events);
      for (unsigned i = 1; i <= m; ++i) {
        covered += rack.hosts[i]->packets.empty() ? 0 : 1;
      }
    }
    EXPECT_NEAR(covered / trials, m * (1 - std::pow(1 - 1.0 / m, n)), 1.5) << n;
  }
}

TEST(Ecmp, DirectAndLeastLoadedChoices) {
  const unsigned uplinks[] = {1, 2, 3};
  {
    Rack rack({.ports = 4, .ecmp = EcmpMode::direct});
    rack.tor.set_default_route(uplinks);
    for (std::uint32_t i = 0; i < 9; ++i) {
      Packet p;
      p.destination = 1;
      p.entropy = static_cast<std::uint16_t>(0xc000 + i);
      p.wire_bytes = 64;
      rack.send(0, p);
    }
    run_all(rack.events);
    for (unsigned i = 0; i < 3; ++i) {
      ASSERT_EQ(rack.hosts[i + 1]->packets.size(), 3U);
      for (const Packet& p : rack.hosts[i + 1]->packets) {
        EXPECT_EQ((p.entropy - 0xc000U) % 3, i);
      }
    }
  }
  Rack rack({.ports = 4, .ecmp = EcmpMode::least_loaded});
  rack.tor.set_default_route(uplinks);
  for (int i = 0; i < 9; ++i) {
    Packet p;
    p.destination = 1;
    p.entropy = 0xc000;
    p.wire_bytes = 9000;
    rack.tor.set_default_route(uplinks);
    rack.send(0, p);
  }
  run_all(rack.events);
  EXPECT_EQ(rack.hosts[1]->packets.size() + rack.hosts[2]->packets.size() + rack.hosts[3]->packets.size(), 9U);
}

// Packets for each of `uplinks` ports, of `flows` sources with `values` entropy values each.
std::vector<unsigned> spread(unsigned uplinks, unsigned flows, unsigned values, std::uint64_t seed) {
  Rack rack(
      {.ports = uplinks + 1, .port_limit_bytes = 1'000'000'000, .shared_buffer_bytes = 1'000'000'000, .seed = seed});
  std::vector<unsigned> ports;
  ports.reserve(uplinks);
  for (unsigned i = 1; i <= uplinks; ++i) {
    ports.push_back(i);
  }
  rack.tor.set_default_route(ports);
  for (unsigned flow = 0; flow < flows; ++flow) {
    for (unsigned value = 0; value < values; ++value) {
      Packet p;
      p.source = flow;
      p.destination = 1'000'000 + flow;
      p.entropy = static_cast<std::uint16_t>(0xc000 + (flow * 977 + value) % 0x4000);
      p.wire_bytes = 64;
      rack.send(0, p);
    }
  }
  run_all(rack.events);
  std::vector<unsigned> counts;
  counts.reserve(uplinks);
  for (unsigned i = 1; i <= uplinks; ++i) {
    counts.push_back(static_cast<unsigned>(rack.tor.counters(i).out_packets));
  }
  return counts;
}

// Oracle 3: n flows on n links don't collide with probability n! / n^n: 9.4 % for 4.
TEST(Ecmp, FlowsCollideAsBirthdaysDo) {
  constexpr int trials = 2'000;
  int without = 0;
  for (int trial = 0; trial < trials; ++trial) {
    const std::vector<unsigned> counts = spread(4, 4, 1, static_cast<std::uint64_t>(trial));
    without += *std::max_element(counts.begin(), counts.end()) == 1 ? 1 : 0;
  }
  const double p = 24.0 / 256;
  EXPECT_NEAR(static_cast<double>(without) / trials, p, 4 * std::sqrt(p * (1 - p) / trials));
}

// Oracle 3: links that stay idle, (1 - 1/60)^60 = 36.5 %.
TEST(Ecmp, AThirdOfTheLinksStaysIdle) {
  double idle = 0;
  constexpr int trials = 100;
  for (int trial = 0; trial < trials; ++trial) {
    const std::vector<unsigned> counts = spread(60, 60, 1, static_cast<std::uint64_t>(trial));
    idle += static_cast<double>(std::count(counts.begin(), counts.end(), 0U)) / 60;
  }
  EXPECT_NEAR(idle / trials, std::pow(59.0 / 60, 60), 0.02);
}

// Oracle 6: 128 sources over 60 uplinks, each over N random entropy values; the busiest uplink's load over the mean.
// The expected values are those of independent uniform draws, made here by another generator; for N = 1, 3.11.
TEST(Ecmp, TheBusiestUplinkCarriesWhatIndependentDrawsWould) {
  std::mt19937_64 random(12);
  for (const unsigned values : {1U, 4U, 16U, 128U}) {
    const int trials = values > 16 ? 10 : 60;
    double measured = 0;
    double expected = 0;
    for (int trial = 0; trial < trials; ++trial) {
      std::vector<unsigned> counts = spread(60, 128, values, static_cast<std::uint64_t>(trial));
      measured += *std::max_element(counts.begin(), counts.end());
    }
    for (int trial = 0; trial < 300; ++trial) {
      std::vector<unsigned> counts(60);
      for (unsigned i = 0; i < 128 * values; ++i) {
        ++counts[random() % 60];
      }
      expected += *std::max_element(counts.begin(), counts.end());
    }
    const double mean = 128.0 * values / 60;
    EXPECT_NEAR(measured / trials / mean, expected / 300 / mean, values == 1 ? 0.25 : 0.06) << values;
    if (values == 1) {
      EXPECT_NEAR(measured / trials / mean, 3.11, 0.25);
    }
  }
}

}  // namespace
}  // namespace orrery::fabric::tor_ecmp_test
