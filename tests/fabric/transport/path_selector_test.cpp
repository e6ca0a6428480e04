// Path selection: distribution, rounds, and the map to UDP source ports.
#include "fabric/transport/path_selector.h"

#include <cmath>
#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "common/error.h"

namespace orrery::fabric::path_selector_test {
namespace {

TEST(EntropyMap, IsABijectionIntoTheRocePorts) {
  for (std::uint64_t stream = 0; stream < 50; ++stream) {
    for (const bool consecutive : {true, false}) {
      const EntropyMap map({.paths = 256, .consecutive_ports = consecutive, .seed = 5, .stream = stream});
      std::set<std::uint16_t> ports;
      for (unsigned path = 0; path < 256; ++path) {
        const std::uint16_t port = map.port(path);
        EXPECT_GE(port, 0xc000);
        EXPECT_EQ(map.path(port), path);
        ports.insert(port);
      }
      EXPECT_EQ(ports.size(), 256U);
      unsigned mine = 0;
      for (unsigned port = 0; port <= 0xffff; ++port) {
        mine += map.path(static_cast<std::uint16_t>(port)) < 256 ? 1U : 0U;
      }
      EXPECT_EQ(mine, 256U);
    }
  }
}

TEST(EntropyMap, ConnectionsBeginAtDifferentPorts) {
  std::set<std::uint16_t> first;
  for (std::uint64_t stream = 0; stream < 100; ++stream) {
    first.insert(EntropyMap({.paths = 1, .seed = 5, .stream = stream}).port(0));
  }
  EXPECT_GT(first.size(), 95U);
}

TEST(PathSelector, SingleHasOnePathAndStaysOnIt) {
  const auto selector = make_path_selector({.policy = PathPolicy::single, .paths = 128});
  EXPECT_EQ(selector->paths(), 1U);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(selector->next({}, 4096), 0U);
  }
  EXPECT_EQ(selector->next_other({}, 4096, 0), 0U);
}

TEST(PathSelector, ObsIsUniform) {
  const auto selector = make_path_selector({.policy = PathPolicy::obs, .paths = 128, .seed = 3});
  std::vector<double> counts(128);
  constexpr double n = 256'000;
  for (int i = 0; i < static_cast<int>(n); ++i) {
    counts[selector->next({}, 4096)] += 1;
  }
  double chi_squared = 0;
  for (const double count : counts) {
    chi_squared += (count - n / 128) * (count - n / 128) / (n / 128);
  }
  EXPECT_LT(chi_squared, 127 + 5 * std::sqrt(2 * 127.0));
  EXPECT_GT(chi_squared, 127 - 5 * std::sqrt(2 * 127.0));
}

// Facts §4 oracle 4: N draws of 60 cover 60 (1 - (1 - 1/60)^N) on average.
TEST(PathSelector, ObsCoversPathsAsTheCouponCollector) {
  for (const unsigned n : {4U, 16U, 64U, 128U, 256U}) {
    double covered = 0;
    constexpr int trials = 400;
    for (std::uint64_t stream = 0; stream < trials; ++stream) {
      const auto selector = make_path_selector({.policy = PathPolicy::obs, .paths = 60, .seed = 1, .stream = stream});
      std::set<unsigned> seen;
      for (unsigned i = 0; i < n; ++i) {
        seen.insert(selector->next({}, 4096));
      }
      covered += static_cast<double>(seen.size());
    }
    EXPECT_NEAR(covered / trials, 60 * (1 - std::pow(59.0 / 60, n)), 0.6) << n;
  }
}

TEST(PathSelector, WithoutReplacementVisitsEveryPathOnceARound) {
  const auto selector = make_path_selector({.policy = PathPolicy::obs_without_replacement, .paths = 64, .seed = 2});
  std::set<std::vector<unsigned>> orders;
  for (int round = 0; round < 50; ++round) {
    std::vector<unsigned> order;
    order.reserve(64);
    for (int i = 0; i < 64; ++i) {
      order.push_back(selector->next({}, 4096));
    }
    EXPECT_EQ(std::set<unsigned>(order.begin(), order.end()).size(), 64U);
    for (unsigned i = 1; i < 64; ++i) {
      EXPECT_EQ(order[i] ^ order[0], i);  // (i xor x)
    }
    orders.insert(order);
  }
  EXPECT_GT(orders.size(), 25U);
}

TEST(PathSelector, RoundRobinGoesRoundFromARandomStart) {
  std::set<unsigned> starts;
  for (std::uint64_t stream = 0; stream < 50; ++stream) {
    const auto selector = make_path_selector({.policy = PathPolicy::round_robin, .paths = 7, .stream = stream});
    unsigned path = selector->next({}, 4096);
    starts.insert(path);
    for (int i = 0; i < 20; ++i) {
      const unsigned following = selector->next({}, 4096);
      EXPECT_EQ(following, (path + 1) % 7);
      path = following;
    }
  }
  EXPECT_EQ(starts.size(), 7U);
}

TEST(PathSelector, ARetransmissionTakesAnotherPath) {
  for (const PathPolicy policy : {PathPolicy::obs, PathPolicy::obs_without_replacement, PathPolicy::round_robin}) {
    for (const unsigned paths : {2U, 4U, 128U}) {
      const auto selector = make_path_selector({.policy = policy, .paths = paths});
      for (unsigned i = 0; i < 1'000; ++i) {
        const unsigned other = selector->next_other({}, 4096, i % paths);
        EXPECT_NE(other, i % paths);
        EXPECT_LT(other, paths);
      }
    }
    EXPECT_EQ(make_path_selector({.policy = policy, .paths = 1})->next_other({}, 4096, 0), 0U);
  }
}

TEST(PathSelector, RefusesSettingsThatMakeNoSense) {
  EXPECT_THROW(make_path_selector({.paths = 0}), Error);
  EXPECT_THROW(make_path_selector({.paths = 257}), Error);
  EXPECT_THROW(make_path_selector({.policy = PathPolicy::obs_without_replacement, .paths = 60}), Error);
  EXPECT_THROW(EntropyMap({.paths = 1'000}), Error);
}

}  // namespace
}  // namespace orrery::fabric::path_selector_test
