// What a user is told when a plug-in can't be used. Each test makes one platform in a process of its own.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "common/error.h"
#include "plugin_host.h"
#include "systemc_models/plugin/plugin.h"
#include "systemc_models/plugin/shared_object.h"

namespace orrery::test {
namespace {

using testing::HasSubstr;

const std::string plugins = ORRERY_TEST_PLUGINS;

// Expects an Error whose text and remedy hold the two pieces.
void expect_error(const std::string& model, const std::string& params, const std::string& what,
                  const std::string& remedy) {
  try {
    PluginHost host(model, "functional", params);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("dut"));
    EXPECT_THAT(error.what(), HasSubstr(what));
    EXPECT_THAT(error.remedy(), HasSubstr(remedy));
  }
}

void expect_fault(const std::string& how, const std::string& what, const std::string& remedy,
                  const std::string& more = "") {
  expect_error(plugins + "/faulty_plugin_0.so", "how = \"" + how + "\"" + more, what, remedy);
}

TEST(PluginLoader, MissingFile) {
  expect_error("/nowhere/model.so", "", "/nowhere/model.so: no such file", "path");
}

TEST(PluginLoader, DirectoryInsteadOfFile) {
  expect_error(plugins + "/", "", "no such file", "path");
}

TEST(PluginLoader, BareNameThatNobodyHas) {
  unsetenv("ORRERY_PLUGIN_PATH");
  expect_error("gpuu", "", "ORRERY_PLUGIN_PATH (not set)", "\"gpu\"");
}

TEST(PluginLoader, FindsBareNamesInThePath) {
  setenv("ORRERY_PLUGIN_PATH", (":/nowhere:" + plugins + ":").c_str(), 1);
  EXPECT_EQ(models::find_plugin("dut", "faulty_plugin_0.so"), plugins + "/faulty_plugin_0.so");
  EXPECT_THROW(static_cast<void>(models::find_plugin("dut", "no_such_plugin.so")), Error);
  setenv("ORRERY_PLUGIN_PATH", "", 1);
  EXPECT_THROW(static_cast<void>(models::find_plugin("dut", "faulty_plugin_0.so")), Error);
}

TEST(PluginLoader, NoSharedObject) {
  const std::string path = testing::TempDir() + "/orrery_no_elf.so";
  std::ofstream(path) << "not a shared object\n";
  expect_error(path, "", "no shared object", "Orrery::plugin");
}

// dlopen() dies of SIGBUS on such a file.
TEST(PluginLoader, TruncatedSharedObject) {
  const std::string whole = plugins + "/faulty_plugin_0.so";
  EXPECT_EQ(models::shared_object_problem(whole), "");
  std::ifstream file(whole, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  ASSERT_GT(bytes.size(), 10'000U);
  const std::string path = testing::TempDir() + "/orrery_truncated_" + std::to_string(getpid()) + ".so";
  for (const std::size_t length : {0UL, 1UL, 63UL, 64UL, 500UL, 2000UL, 9000UL}) {
    std::ofstream(path, std::ios::binary | std::ios::trunc).write(bytes.data(), static_cast<std::streamsize>(length));
    EXPECT_NE(models::shared_object_problem(path), "") << length;
  }
  expect_error(path, "", "cut short at 9000 bytes", "Orrery::plugin");
  unlink(path.c_str());
}

TEST(PluginLoader, ProgramInsteadOfASharedObject) {
  expect_error("/bin/sh", "", "can't be loaded", "Orrery::plugin");
}

TEST(PluginLoader, NoEntryPoint) {
  expect_error(plugins + "/faulty_plugin_1.so", "", "no symbol orrery_tlm_device", "ORRERY_TLM_DEVICE");
}
TEST(PluginLoader, OtherInterface) {
  expect_error(plugins + "/faulty_plugin_2.so", "", "built for plug-in interface", "rebuild");
}
TEST(PluginLoader, OtherSystemc) {
  expect_error(plugins + "/faulty_plugin_3.so", "", "SystemC 2.3.2", "rebuild");
}
TEST(PluginLoader, UnresolvedSymbol) {
  expect_error(plugins + "/faulty_plugin_4.so", "", "nobody_defines_this", "Orrery::plugin");
}

TEST(PluginLoader, FactoryThrows) {
  expect_fault("runtime_error", "failed: out of paint", "");
}
TEST(PluginLoader, FactoryThrowsSystemcReport) {
  expect_fault("systemc", "a report of SystemC", "");
}
TEST(PluginLoader, FactoryThrowsAnything) {
  expect_fault("int", "no std::exception", "");
}
TEST(PluginLoader, FactoryReturnsNothing) {
  expect_fault("null", "returned no model", "");
}
TEST(PluginLoader, FactorysOwnErrorPasses) {
  try {
    PluginHost host(plugins + "/faulty_plugin_0.so", "functional", "how = \"error\"");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "the model's own words");
    EXPECT_EQ(error.remedy(), "the model's own remedy");
  }
}

TEST(PluginLoader, UnknownParameter) {
  expect_fault("", "params.hwo", "it takes: how", ", hwo = 1");
}
TEST(PluginLoader, IntegerTooLarge) {
  expect_fault("integer", "params.value = 11", "1 to 10", ", value = 11");
}
TEST(PluginLoader, IntegerTooSmall) {
  expect_fault("integer", "params.value = 0", "1 to 10", ", value = 0");
}
TEST(PluginLoader, IntegerWithASign) {
  expect_fault("integer", "params.value = -3", "1 to 10", ", value = -3");
}
TEST(PluginLoader, IntegerThatIsText) {
  expect_fault("integer", "params.value = 7x", "integer", ", value = \"7x\"");
}
TEST(PluginLoader, IntegerOver64Bits) {
  expect_fault("integer", "18446744073709551616", "1 to 10", ", value = \"18446744073709551616\"");
}
TEST(PluginLoader, IntegerAsEmptyHexadecimal) {
  expect_fault("integer", "0x", "integer", ", value = \"0x\"");
}
TEST(PluginLoader, NumberOutOfRange) {
  expect_fault("number", "1.5", "number from", ", value = 1.5");
}
TEST(PluginLoader, NumberThatIsNone) {
  expect_fault("number", "nan", "number from", ", value = \"nan\"");
}
TEST(PluginLoader, BooleanThatIsNone) {
  expect_fault("boolean", "yes", "true or false", ", value = \"yes\"");
}

TEST(PluginLoader, UnboundBar) {
  expect_fault("unbound", "BAR0 and binds no socket", "bind_bar()");
}
TEST(PluginLoader, BarWithoutSize) {
  expect_fault("no size", "gives it no size", "function.bars[0].size");
}
TEST(PluginLoader, BarBoundTwice) {
  expect_fault("twice", "BAR0 twice", "");
}
TEST(PluginLoader, BarThatNoFunctionHas) {
  expect_fault("bar 6", "BAR6", "BAR0 to BAR5");
}
TEST(PluginLoader, BarOfOddSize) {
  expect_fault("odd size", "BAR", "");
}
TEST(PluginLoader, AccessWidth) {
  expect_fault("width", "max_access = 16", "1, 2, 4 or 8");
}
TEST(PluginLoader, NoDeviceId) {
  expect_fault("no id", "device ID", "function.identity");
}
TEST(PluginLoader, ClassCode) {
  expect_fault("class", "0x1000000", "24 bits");
}
TEST(PluginLoader, TooManyVectors) {
  expect_fault("vectors", "2049 MSI-X vectors", "2048");
}
TEST(PluginLoader, IrqBeyondTheLastVector) {
  expect_fault("irq", "irq(2048)", "2047");
}

TEST(PluginLoader, TheSameObjectWithoutAFaultWorks) {
  PluginHost host(plugins + "/faulty_plugin_0.so", "functional", "how = \"integer\", value = 0xa");
  EXPECT_EQ(host.config_read32(0), 0x0eff'1234U);
  EXPECT_EQ(host.device->msix_vectors(), 0U);
  EXPECT_EQ(host.read32(0), 0U);
}

}  // namespace
}  // namespace orrery::test
