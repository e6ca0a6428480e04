#include "systemc_models/server/server_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <sstream>

#include "common/config_writer.h"
#include "systemc_models/server/topology.h"

namespace orrery::models::server_config_test {
namespace {

using ::testing::HasSubstr;

ServerConfig parse(std::string_view text, const std::vector<std::string>& sets = {}) {
  return parse_server_config(text, "server.toml", sets);
}

std::string error_of(std::string_view text, const std::vector<std::string>& sets = {}) {
  try {
    parse(text, sets);
    return "";
  } catch (const Error& error) {
    return std::string(error.what()) + " | " + error.remedy();
  }
}

// Every key with its value, for comparing two configurations.
std::map<std::string, std::string> values(ServerConfig config) {
  ConfigLister lister;
  describe(lister, config);
  std::map<std::string, std::string> all;
  for (const ConfigItem& item : lister.items()) {
    all[item.path] = item.value;
  }
  return all;
}

// The examples of empty lists, uncommented.
std::string with_examples(const std::string& text) {
  return std::regex_replace(text, std::regex("(^|\n)#([a-z_]+ = |\\[)"), "$1$2");
}

TEST(ServerConfig, DefaultsParseBackToThemselves) {
  const std::string text = to_toml(ServerConfig{});
  EXPECT_EQ(values(parse(text)), values(ServerConfig{}));
  EXPECT_EQ(to_toml(parse(text)), text);
  EXPECT_EQ(values(parse(to_plain_toml(ServerConfig{}))), values(ServerConfig{}));
  EXPECT_EQ(values(parse("")), values(ServerConfig{}));
}

TEST(ServerConfig, ExamplesInTheDefaultsAreValid) {
  const std::string text = with_examples(to_toml(ServerConfig{}));
  EXPECT_THAT(text, HasSubstr("\n[[guest]]\n"));
  EXPECT_THAT(text, HasSubstr("\n[[device]]\n"));
  EXPECT_THAT(text, HasSubstr("\n[switch.override.0]\n"));
  const ServerConfig config = parse(text);
  EXPECT_EQ(config.guests.size(), 1U);
  EXPECT_EQ(config.devices.size(), 1U);
  EXPECT_EQ(config.switches.overrides.size(), 1U);
}

TEST(ServerConfig, AChangedConfigurationParsesBack) {
  ServerConfig config = parse(R"(
[server]
name = "lab-7"
seed = 9223372036854775807
[time]
mode = "timed"
pace = 0.001
[pcie]
completion_chunk = "rcb"
[link.rnic]
generation = 4
propagation_ps = 0
[switch]
latency_ns = 104.5
[switch.override.2]
acs = 0x5d
egress = [0x6, 0]
[[device]]
slot = "switch1.slot2"
name = "dma"
model = "./libdma.so"
params = { depth = 4 }
[[guest]]
name = "a"
devices = ["rnic0", "dma"]
[[guest]]
name = "b"
devices = ["gpu0"]
firmware = "ovmf"
)");
  EXPECT_EQ(config.switches.latency.count, 104'500U);
  EXPECT_EQ(config.pcie.completion_unit(), 64U);
  EXPECT_EQ(config.switch_acs(2), 0x5d);
  EXPECT_EQ(config.switch_acs(1), 0x5d);
  EXPECT_EQ(config.switch_latency(2).count, 104'500U);
  EXPECT_EQ(config.devices[0].params.at("depth"), "4");
  EXPECT_EQ(config.guests[1].firmware, GuestFirmware::ovmf);
  EXPECT_EQ(values(parse(to_toml(config))), values(config));
  EXPECT_EQ(values(parse(to_plain_toml(config))), values(config));
}

TEST(ServerConfig, EveryKeyHasMeaningRuleAndSource) {
  ConfigLister lister(nullptr, true);
  ServerConfig config;
  describe(lister, config);
  EXPECT_GT(lister.items().size(), 50U);
  const std::regex source("^(choice|estimate|specification: |measured: |vendor: |paper: ).*");
  for (const ConfigItem& item : lister.items()) {
    EXPECT_FALSE(item.meaning.empty()) << item.path;
    EXPECT_FALSE(item.rule.empty()) << item.path;
    EXPECT_TRUE(std::regex_match(item.source, source)) << item.path << ": " << item.source;
  }
}

TEST(ServerConfig, EveryTimeKeyNamesItsUnit) {
  ConfigLister lister(nullptr, true);
  ServerConfig config;
  describe(lister, config);
  for (const ConfigItem& item : lister.items()) {
    if (item.meaning.find("latency") != std::string::npos || item.path.find("propagation") != std::string::npos) {
      EXPECT_TRUE(std::regex_search(item.path, std::regex("_(ns|ps|mib|gib|bytes)$|mode$"))) << item.path;
    }
  }
}

TEST(ServerConfig, TheUsersPageNamesEveryKey) {
  std::ifstream file(ORRERY_SOURCE_DIR "/docs/configuration.md");
  std::stringstream page;
  page << file.rdbuf();
  ConfigLister lister(nullptr, true);
  ServerConfig config;
  describe(lister, config);
  for (const ConfigItem& item : lister.items()) {
    const std::string key = std::regex_replace(item.path, std::regex("\\.0\\."), ".N.");
    EXPECT_THAT(page.str(), HasSubstr("`" + key + "`"));
  }
}

TEST(ServerConfig, WrongValuesNameFileLineKeyAndRange) {
  EXPECT_EQ(error_of("[topology]\nswiches = 4"),
            "server.toml:2: topology.swiches: unknown key | did you mean \"switches\"?");
  EXPECT_EQ(error_of("[topology]\nswitches = 9"),
            "server.toml:2: topology.switches: found 9 | give a whole number from 0 to 8");
  EXPECT_EQ(error_of("[topology]\nswitches = \"4\""),
            "server.toml:2: topology.switches: found the text \"4\" | give a whole number from 0 to 8");
  EXPECT_EQ(error_of("[time]\npace = 0"), "server.toml:2: time.pace: found 0 | give a number above 0 and at most 1000");
  EXPECT_EQ(error_of("[time]\nmode = \"fast\""),
            "server.toml:2: time.mode: found the text \"fast\" | give \"functional\" or \"timed\"");
  EXPECT_EQ(error_of("[pcie]\nmps_bytes = 384"),
            "server.toml:2: pcie.mps_bytes: found 384 | give 128, 256, 512, 1024, 2048 or 4096");
  EXPECT_EQ(error_of("[link.gpu]\nwidth = 3"),
            "server.toml:2: link.gpu.width: found 3 | give 1, 2, 4, 8, 12, 16 or 32");
  EXPECT_EQ(error_of("[link.gpu]\ngeneration = 6"),
            "server.toml:2: link.gpu.generation: found 6 | give a whole number from 1 to 5");
  EXPECT_EQ(error_of("[switch]\nacs = 0x80"),
            "server.toml:2: switch.acs: found 128 | give a whole number from 0x0 to 0x7f");
  EXPECT_EQ(error_of("[gpu]\nbar_mib = 300"),
            "server.toml:2: gpu.bar_mib: found 300 | give a power of two from 1 to 131072");
  EXPECT_THAT(error_of("[link.nic]\nwidth = 4"), HasSubstr("link.nic: unknown table | did you mean \"rnic\"?"));
}

// What a configuration may say of a guest, QEMU takes (qemu_bridge/launcher/qemu_command_line.cpp has the same limits).
TEST(ServerConfig, GuestsAndDevicesAreOnesThatCanBeBooted) {
  for (const char* name : {"1a", "a.b", "a b", "", "aaaaaaaaaabbbbbbbbbbccccccccccddd"}) {
    const std::string quoted = std::string("name = \"") + name + "\"\n";
    EXPECT_THAT(error_of("[[guest]]\n" + quoted), HasSubstr("server.toml:2: guest.0.name: found")) << name;
    EXPECT_THAT(error_of("[[device]]\n" + quoted), HasSubstr("server.toml:2: device.0.name: found")) << name;
  }
  EXPECT_EQ(error_of("[[guest]]\nname = \"Left-1_b\"\ncpus = 8\nmemory_mib = 1048576\n"), "");
  EXPECT_THAT(error_of("[[guest]]\ncpus = 9"), HasSubstr("guest.0.cpus: found 9 | give a whole number from 1 to 8"));
  EXPECT_THAT(error_of("[[guest]]\nmemory_mib = 255"), HasSubstr("give a whole number from 256 to 1048576"));
  EXPECT_THAT(error_of("[gpu]\nmemory_ns = 2000000"), HasSubstr("a time from 0 ns to 1000000 ns"));
}

TEST(ServerConfig, OriginsSayWhereAValueComesFrom) {
  ConfigOrigins origins;
  const std::vector<std::string> sets{"gpu.bar_mib=512"};
  const ServerConfig config = parse_server_config("[topology]\n\nswitches = 2\n", "server.toml", sets, &origins);
  const std::string text = to_toml(config, origins);
  EXPECT_THAT(text, HasSubstr("switches = 2  # server.toml:3\n"));
  EXPECT_THAT(text, HasSubstr("bar_mib = 512  # --set gpu.bar_mib=512\n"));
  EXPECT_THAT(text, HasSubstr("sockets = 2  # default\n"));
  EXPECT_EQ(values(parse(text)), values(config));
}

TEST(ServerConfig, MissingFileIsAnError) {
  EXPECT_THROW(load_server_config("/nonexistent/server.toml"), Error);
  EXPECT_EQ(values(load_server_config("")), values(ServerConfig{}));
}

// The estimates are calibrated against public measurements: hold them to it (facts: Gen3 x8 adapters on Xeon
// E5 v1 to v4 read 64 B of DRAM in 480 … 495 ns, remote socket +100 … +115 ns; a second switch and the
// root complex add 335 … 440 ns to a write).
TEST(ServerConfig, DefaultLatenciesAddUpToWhatWasMeasured) {
  const ServerConfig c;
  const double gen3_x8 = 63.015 / 8;  // bytes per ns
  const double read = 2 * c.links.rnic.propagation.nanoseconds() + 2 * c.root_complex.latency.nanoseconds() +
                      c.memory.latency.nanoseconds() + (24 + 84) / gen3_x8;
  EXPECT_NEAR(read, 487.5, 487.5 * 0.05);
  EXPECT_GE(c.memory.remote_socket.nanoseconds(), 100);
  EXPECT_LE(c.memory.remote_socket.nanoseconds(), 115);
  const double gen5_x16 = 63.015;
  const double extra = c.switches.latency.nanoseconds() + c.root_complex.latency.nanoseconds() +
                       2 * (c.links.upstream.propagation.nanoseconds() + 28 / gen5_x16);
  EXPECT_GE(extra, 335);
  EXPECT_LE(extra, 440);
}

}  // namespace
}  // namespace orrery::models::server_config_test
