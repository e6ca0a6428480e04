// The in-guest program on a machine without Orrery's devices: wrong use, and no devices, are clear errors.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace orrery::test {
namespace {

struct Outcome {
  int status = -1;
  std::string text;
  std::vector<nlohmann::json> results;
};

Outcome run(const std::string& arguments) {
  Outcome outcome;
  FILE* pipe = ::popen((std::string(GUEST_DEMO) + " " + arguments + " 2>&1 </dev/null").c_str(), "r");
  if (pipe == nullptr) {
    return outcome;
  }
  char buffer[4096];
  while (std::fgets(buffer, sizeof(buffer), pipe) != nullptr) {
    const std::string line = buffer;
    const std::string prefix = "ORRERY-JSON ";
    if (line.starts_with(prefix)) {
      outcome.results.push_back(nlohmann::json::parse(line.substr(prefix.size())));  // throws: the test fails
    }
    outcome.text += line;
  }
  const int status = ::pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

TEST(GuestDemo, WrongUseIsExitStatus2AndSaysWhatWouldBeRight) {
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"", "usage:"},
      {"nonsense", "no command \"nonsense\""},
      {"--nonsense all", "usage:"},
      {"--size 0 copy", "--size 0: give a number from 1"},
      {"--size 4X copy", "--size 4X"},
      {"--size 99999999999999999999G copy", "give a number"},
      {"--size -1 copy", "give a number"},
      {"--window 1 copy", "--window 1: give a number from 4096"},
      {"--timeout 0 copy", "--timeout 0"},
  };
  for (const auto& [arguments, message] : rows) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_NE(outcome.text.find(message), std::string::npos) << arguments << "\n" << outcome.text;
    EXPECT_TRUE(outcome.results.empty()) << arguments;
  }
}

TEST(GuestDemo, HelpNamesEveryCommand) {
  const Outcome outcome = run("--help");
  EXPECT_EQ(outcome.status, 0);
  for (const char* command :
       {"topology", "outage", "memory", "copy", "allreduce", "interrupt", "unmap", "rnic", "plugins", "all"}) {
    EXPECT_NE(outcome.text.find(std::string("\n  ") + command), std::string::npos) << command;
  }
}

TEST(GuestDemo, AMachineWithoutDevicesFailsWithAResultForTheHost) {
  const Outcome topology = run("topology");
  EXPECT_EQ(topology.status, 1);
  ASSERT_EQ(topology.results.size(), 2U);
  EXPECT_EQ(topology.results[0]["test"], "topology");
  EXPECT_EQ(topology.results[0]["status"], "fail");
  EXPECT_EQ(topology.results[1]["test"], "summary");
  EXPECT_EQ(topology.results[1]["failed"], 1);

  for (const char* arguments : {"copy", "--no-vfio allreduce", "memory rnic"}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    ASSERT_EQ(outcome.results.size(), 2U) << arguments;
    EXPECT_EQ(outcome.results[0]["test"], "access");
    EXPECT_EQ(outcome.results[1]["status"], "fail");
  }
}

}  // namespace
}  // namespace orrery::test
