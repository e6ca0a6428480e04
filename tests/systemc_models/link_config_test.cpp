// [[network.link]] and server.index: what is taken, and what is refused before anything is started.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/error.h"
#include "systemc_models/server/link_config.h"

namespace orrery::models::link_config_test {
namespace {

using ::testing::HasSubstr;

constexpr const char* good = R"(
[server]
index = 3
[rnic]
personality = "mlx5"
[[network.link]]
listen = true
address = "tcp:4000"
token_file = "token"
peer = "right"
[[network.link]]
address = "unix:/tmp/link"
token_file = "other"
planes = [1]
)";

// What is said about the configuration with some keys changed; empty: nothing.
std::string complaint(std::vector<std::string> sets) {
  try {
    static_cast<void>(parse_server_config(good, "test.toml", sets));
    return {};
  } catch (const Error& error) {
    return std::string(error.what()) + "\n" + error.remedy();
  }
}

TEST(LinkConfig, BecomesLinks) {
  const ServerConfig config = parse_server_config(good, "test.toml");
  EXPECT_EQ(config.server_index, 3U);
  const auto links = link_options(config.network);
  ASSERT_EQ(links.size(), 2U);
  EXPECT_EQ(links[0].key, "network.link.0");
  EXPECT_TRUE(links[0].listen);
  EXPECT_EQ(links[0].endpoint.text(), "tcp:127.0.0.1:4000");
  EXPECT_EQ(links[0].token_file, "token");
  EXPECT_EQ(links[0].peer, "right");
  EXPECT_EQ(links[0].planes, 3U);
  EXPECT_FALSE(links[1].listen);
  EXPECT_EQ(links[1].planes, 2U);
  EXPECT_EQ(complaint({"network.ports=1", "network.link.1.planes=[0]"}), "");
}

TEST(LinkConfig, WhatCantBeIsSaidByKey) {
  const std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>> rows = {
      {{"network.link.1.address=nowhere"}, {"network.link.1.address", "'nowhere'", "unix:PATH"}},
      {{"network.link.0.address=tcp:99999"}, {"network.link.0.address", "'tcp:99999'"}},
      {{"network.link.0.address="}, {"network.link.0.address"}},
      {{"network.link.0.token_file="}, {"network.link.0.token_file"}},
      {{"network.link.1.planes=[2]"}, {"network.link.1.planes"}},
      {{"network.ports=1"}, {"network.link.1.planes", "there is no plane 1", "planes 0 to 0"}},
      {{"time.mode=timed"}, {"network.link", "timed mode", "functional"}},
      {{"server.index=256"}, {"server.index", "0 to 255"}},
      {{"server.index=12", "rnic.port_type=infiniband"}, {"server.index", "LIDs", "0 to 11"}},
      {{"topology.switches=8", "topology.rnics_per_switch=9"}, {"72 RNICs", "at most 64"}},
  };
  for (const auto& [sets, words] : rows) {
    const std::string said = complaint(sets);
    for (const std::string& word : words) {
      EXPECT_THAT(said, HasSubstr(word)) << sets[0];
    }
  }
  EXPECT_EQ(complaint({"server.index=11", "rnic.port_type=infiniband"}), "");
  EXPECT_EQ(complaint({"server.index=255"}), "");
}

}  // namespace
}  // namespace orrery::models::link_config_test
