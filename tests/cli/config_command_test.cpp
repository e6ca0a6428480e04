#include "cli/config_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "systemc_models/server/server_config.h"
#include "tests/cli/commands_test.h"
#include "tests/common/temporary_file.h"

namespace orrery::cli::config_command_test {
namespace {

using orrery::test::TemporaryFile;
using ::testing::HasSubstr;

test::Outcome config(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "config");
  return test::run(add_config_command, std::move(arguments));
}

TEST(ConfigCommand, DefaultsCheckAndShowAsTheyArePrinted) {
  const test::Outcome defaults = config({"defaults"});
  ASSERT_EQ(defaults.status, 0);
  EXPECT_EQ(defaults.out, models::to_toml(models::ServerConfig{}));
  const TemporaryFile file;
  file.write(defaults.out);
  EXPECT_EQ(config({"check", file.path()}).status, 0);
  EXPECT_EQ(config({"check", file.path()}).out, file.path() + ": good: 2 sockets, 4 switches, 12 endpoints\n");
}

TEST(ConfigCommand, ShowNamesFileLineAndOption) {
  const TemporaryFile file;
  file.write("[topology]\nswitches = 2\n");
  const test::Outcome shown = config({"show", file.path(), "--set", "topology.sockets=1", "--set", "time.mode=timed"});
  EXPECT_EQ(shown.status, 0);
  EXPECT_THAT(shown.out, HasSubstr("switches = 2  # " + file.path() + ":2\n"));
  EXPECT_THAT(shown.out, HasSubstr("sockets = 1  # --set topology.sockets=1\n"));
  EXPECT_THAT(shown.out, HasSubstr("mode = \"timed\"  # --set time.mode=timed\n"));
  EXPECT_THAT(shown.out, HasSubstr("tags = 256  # default\n"));
}

TEST(ConfigCommand, SetTakesValuesWithBracketsAndCommas) {
  const test::Outcome shown = config({"show", "--set", "guest.0.devices=[\"gpu0\", \"gpu1\"]"});
  EXPECT_EQ(shown.status, 0) << shown.error;
  EXPECT_THAT(shown.out, HasSubstr("devices = [\"gpu0\", \"gpu1\"]"));
}

TEST(ConfigCommand, JsonHoldsEveryKey) {
  const auto shown = nlohmann::json::parse(config({"show", "--json", "--set", "switch.acs=0x5d"}).out);
  EXPECT_EQ(shown["switch.acs"]["value"], "0x5d");
  EXPECT_EQ(shown["switch.acs"]["origin"], "--set switch.acs=0x5d");
  EXPECT_EQ(shown["topology.switches"]["origin"], "default");
  const auto defaults = nlohmann::json::parse(config({"defaults", "--json"}).out);
  EXPECT_TRUE(defaults.contains("guest.0.cpus"));
  EXPECT_TRUE(defaults["switch.override.0.acs"]["value"].is_null());
  const auto check = nlohmann::json::parse(config({"check", "--json"}).out);
  EXPECT_EQ(check["endpoints"], 12);
}

TEST(ConfigCommand, WrongConfigurationsFail) {
  const TemporaryFile file;
  file.write("[topology]\nswitches = 2\nswitchs = 3\n");
  const test::Outcome outcome = config({"check", file.path()});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.error, file.path() + ":3: topology.switchs: unknown key");
  EXPECT_EQ(outcome.remedy, "did you mean \"switches\"?");
  EXPECT_EQ(config({"show", "/nonexistent"}).status, 1);
  EXPECT_EQ(config({"check", "/nonexistent", "--json"}).status, 1);
  EXPECT_EQ(config({"check", "--set", "topology.switches"}).status, 1);
}

TEST(ConfigCommand, WrongUsageIsRefused) {
  EXPECT_EQ(config({}).status, 2);
  EXPECT_EQ(config({"print"}).status, 2);
  EXPECT_EQ(config({"show", "a", "b"}).status, 2);
  EXPECT_EQ(config({"check", "--set"}).status, 2);
  EXPECT_EQ(config({"show", "--help"}).status, 0);
}

}  // namespace
}  // namespace orrery::cli::config_command_test
