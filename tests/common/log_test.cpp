#include "common/log.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "common/error.h"

namespace orrery::log_test {
namespace {

class LogTest : public ::testing::Test {
 protected:
  LogTest() {
    std::remove(path_.c_str());
    set_log_file(path_);
  }
  ~LogTest() override {
    set_log_file("");
    set_log_level(LogLevel::info);
    std::remove(path_.c_str());
  }
  [[nodiscard]] std::string text() const {
    std::ifstream file(path_);
    std::stringstream all;
    all << file.rdbuf();
    return all.str();
  }
  std::string path_ = ::testing::TempDir() + "orrery_log_test.txt";
};

TEST_F(LogTest, PrefixesLevelAndSimulatedTime) {
  log(LogLevel::warning, "{}: fault at {:#x}", "gpu3", 0x7f001000);
  log_at(Picoseconds{12'345'678}, LogLevel::info, "done");
  EXPECT_EQ(text(), "orrery: warning: gpu3: fault at 0x7f001000\norrery: info: [12.345678 us] done\n");
}

TEST_F(LogTest, AMessageIsOneLineWhateverAGuestSent) {
  log(LogLevel::error, "name {}", "a\nb\x1b[31m");
  EXPECT_EQ(text(), "orrery: error: name a\\x0ab\\x1b[31m\n");
}

TEST_F(LogTest, LevelsFilter) {
  log(LogLevel::debug, "not shown");
  set_log_level(LogLevel::error);
  log(LogLevel::warning, "not shown");
  set_log_level(LogLevel::off);
  log(LogLevel::error, "not shown");
  EXPECT_EQ(text(), "");
  set_log_level(LogLevel::trace);
  log(LogLevel::trace, "shown");
  EXPECT_EQ(text(), "orrery: trace: shown\n");
}

struct Countdown {
  mutable int* formatted;
};

}  // namespace
}  // namespace orrery::log_test

template <>
struct fmt::formatter<orrery::log_test::Countdown> {
  constexpr auto parse(format_parse_context& context) { return context.begin(); }
  template <class Context>
  auto format(const orrery::log_test::Countdown& value, Context& context) const {
    ++*value.formatted;
    return context.out();
  }
};

namespace orrery::log_test {
namespace {

TEST_F(LogTest, ArgumentsOfASilentLevelAreNotFormatted) {
  int formatted = 0;
  log(LogLevel::debug, "{}", Countdown{&formatted});
  EXPECT_EQ(formatted, 0);
  log(LogLevel::info, "{}", Countdown{&formatted});
  EXPECT_EQ(formatted, 1);
}

TEST(LogLevelWord, ParsesAndRefuses) {
  EXPECT_EQ(parse_log_level("debug"), LogLevel::debug);
  EXPECT_EQ(parse_log_level("off"), LogLevel::off);
  try {
    parse_log_level("loud");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "\"loud\" is no log level");
    EXPECT_EQ(error.remedy(), "use trace, debug, info, warning, error or off");
  }
}

TEST(LogFile, UnwritablePathIsAnError) {
  EXPECT_THROW(set_log_file("/proc/orrery/none/log"), Error);
}

}  // namespace
}  // namespace orrery::log_test
