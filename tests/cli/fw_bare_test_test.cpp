// What a bare-metal test program's console comes to.
#include <gtest/gtest.h>

#include "cli/fw_bare_test.h"

namespace orrery::test::fw_bare_test_test {
namespace {

using cli::FwBareResult;

TEST(BareTest, LinesOfTheConsole) {
  const std::vector<FwBareResult> results = cli::bare_test_results(
      "hello\nPASS one\r\nFAIL two: because: of it\nFAIL three\nPASSED four\n PASS five\nPASS six");
  ASSERT_EQ(results.size(), 4U);
  EXPECT_EQ(results[0].name, "one");
  EXPECT_TRUE(results[0].passed);
  EXPECT_EQ(results[1].name, "two");
  EXPECT_EQ(results[1].why, "because: of it");
  EXPECT_FALSE(results[1].passed);
  EXPECT_EQ(results[2].name, "three");
  EXPECT_EQ(results[2].why, "");
  EXPECT_EQ(results[3].name, "six");
}

TEST(BareTest, Bounded) {
  std::string console;
  for (int i = 0; i < 20'000; ++i) {
    console += "PASS x\n";
  }
  EXPECT_EQ(cli::bare_test_results(console).size(), 10'000U);
  EXPECT_TRUE(cli::bare_test_results({}).empty());
}

TEST(BareTest, Xml) {
  const std::string xml = cli::bare_test_xml("a<b", {{"one", true, ""}, {"t\"w\x01o", false, "1 & 2"}}, "killed");
  EXPECT_EQ(xml,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<testsuite name=\"a&lt;b\" tests=\"2\" failures=\"1\" errors=\"1\">\n"
            "  <testcase classname=\"a&lt;b\" name=\"one\"/>\n"
            "  <testcase classname=\"a&lt;b\" name=\"t&quot;w?o\">\n"
            "    <failure message=\"1 &amp; 2\"/>\n"
            "  </testcase>\n"
            "  <system-err>killed</system-err>\n"
            "</testsuite>\n");
}

}  // namespace
}  // namespace orrery::test::fw_bare_test_test
