// What `orrery fw` may ask a server to do, and what a server makes of other requests.
#include <gtest/gtest.h>

#include "cli/firmware_control.h"

namespace orrery::test::firmware_control_test {
namespace {

using cli::FirmwareRequests;
using nlohmann::json;

class Requests : public testing::Test {
 protected:
  Requests() : requests({{"rnic0", "native", &first, {}, {}, {}}, {"rnic1", "native", &second, {}, {}, {}}}) {}
  json ask(const json& request) { return json(requests.answer(request)); }
  bool refused(const json& request) {
    const json answer = ask(request);
    EXPECT_TRUE(answer.contains("ok") != answer.contains("error")) << answer;
    EXPECT_TRUE(answer.contains("ok") || !answer.at("remedy").get<std::string>().empty());
    return answer.contains("error");
  }

  rnic::ManagementBlock first{rnic::ManagementSettings{}};
  rnic::ManagementBlock second{rnic::ManagementSettings{}};
  FirmwareRequests requests;
};

TEST_F(Requests, StatusOfAllOrOne) {
  EXPECT_EQ(ask({{"do", "status"}}).at("firmware").size(), 2U);
  const json one = ask({{"do", "status"}, {"rnic", "rnic1"}}).at("firmware");
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].at("rnic"), "rnic1");
  EXPECT_EQ(one[0].at("ready"), false);
  EXPECT_FALSE(one[0].contains("last_crash"));
}

TEST_F(Requests, FailGoesIntoTheRegisters) {
  EXPECT_FALSE(refused({{"do", "fail"}, {"rnic", "rnic1"}, {"opcode", 0x400}, {"status", 0xf}, {"count", 2}}));
  EXPECT_EQ(second.read32(rnic::reg::fault_opcode), 0x400U);
  EXPECT_EQ(second.read32(rnic::reg::fault_status), 0xfU);
  EXPECT_EQ(second.read32(rnic::reg::fault_syndrome), 0xfffU);
  EXPECT_EQ(second.read32(rnic::reg::fault_count), 2U);
  EXPECT_EQ(first.read32(rnic::reg::fault_count), 0U);
  EXPECT_FALSE(refused({{"do", "clear_faults"}}));
  EXPECT_EQ(second.read32(rnic::reg::fault_count), 0U);
}

TEST_F(Requests, RegisterFaultChangesWhatIsRead) {
  EXPECT_FALSE(refused(
      {{"do", "register_fault"}, {"rnic", "rnic0"}, {"offset", 0}, {"mask", 0xff}, {"value", 0x11}, {"count", 1}}));
  EXPECT_EQ(first.read32(rnic::reg::id), (rnic::reg::id_value & ~0xffU) | 0x11U);
  EXPECT_EQ(first.read32(rnic::reg::id), rnic::reg::id_value);
  EXPECT_EQ(second.read32(rnic::reg::id), rnic::reg::id_value);
  EXPECT_EQ(ask({{"do", "status"}, {"rnic", "rnic0"}}).at("firmware")[0].at("faults_struck"), 1);
}

TEST_F(Requests, WhatMakesNoSense) {
  EXPECT_TRUE(refused(json::object()));
  EXPECT_TRUE(refused({{"do", 7}}));
  EXPECT_TRUE(refused({{"do", "format"}}));
  EXPECT_TRUE(refused({{"do", "status"}, {"rnic", "rnic9"}}));
  EXPECT_TRUE(refused({{"do", "fail"}}));
  EXPECT_TRUE(refused({{"do", "fail"}, {"opcode", 0x10000}}));
  EXPECT_TRUE(refused({{"do", "fail"}, {"opcode", -1}}));
  EXPECT_TRUE(refused({{"do", "fail"}, {"opcode", "0x400"}}));
  EXPECT_TRUE(refused({{"do", "fail"}, {"opcode", 1}, {"status", 0}}));
  EXPECT_TRUE(refused({{"do", "fail"}, {"opcode", 1}, {"count", 0}}));
  EXPECT_TRUE(refused({{"do", "fail"}, {"opcode", 1}, {"count", 1e300}}));
  EXPECT_TRUE(refused({{"do", "register_fault"}}));
  EXPECT_TRUE(refused({{"do", "register_fault"}, {"offset", 2}}));
  EXPECT_TRUE(refused({{"do", "register_fault"}, {"offset", 0x20'0000}}));
  EXPECT_TRUE(refused({{"do", "dma_fault"}, {"channel", 4}}));
  EXPECT_FALSE(first.faults().any());
  EXPECT_EQ(first.read32(rnic::reg::fault_count), 0U);
}

TEST_F(Requests, FaultsAreLimited) {
  for (std::size_t i = 0; i < rnic::ManagementFaults::most; ++i) {
    EXPECT_FALSE(refused({{"do", "dma_fault"}, {"rnic", "rnic0"}, {"channel", 1}}));
  }
  EXPECT_TRUE(refused({{"do", "dma_fault"}, {"rnic", "rnic0"}, {"channel", 1}}));
}

TEST(DescribeCommand, NamesTheOpcode) {
  rnic::CommandRecord record;
  record.time = Picoseconds{5'000'000};
  record.waited = Picoseconds{1'000'000};
  record.handled = Picoseconds{1'500'000};
  record.opcode = 0x400;
  record.status = 0xf;
  const json command(cli::describe_command("rnic0", record));
  EXPECT_EQ(command.at("name"), "CREATE_CQ");
  EXPECT_EQ(command.at("time_us"), 5.0);
  EXPECT_EQ(command.at("waited_us"), 1.0);
  EXPECT_EQ(command.at("handled_us"), 1.5);
  record.opcode = 0xfff;
  EXPECT_EQ(json(cli::describe_command("rnic0", record)).at("name"), "unknown");
}

}  // namespace
}  // namespace orrery::test::firmware_control_test
