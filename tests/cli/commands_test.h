// Runs a subcommand in this process, as main() would.
#pragma once

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "common/error.h"

namespace orrery::cli::test {

struct Outcome {
  int status = 0;     // 0, 1: Error, 2: wrong usage
  std::string out;    // stdout
  std::string error;  // what() of the Error or of the usage error
  std::string remedy;
};

inline Outcome run(void (*add)(CLI::App&), std::vector<std::string> arguments) {
  CLI::App app{"orrery"};
  app.require_subcommand(1);
  app.fallthrough();
  add(app);
  Outcome outcome;
  ::testing::internal::CaptureStdout();
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // CLI11 takes them last first
  } catch (const CLI::ParseError& error) {
    outcome.status = error.get_exit_code() == 0 ? 0 : 2;
    outcome.error = error.what();
  } catch (const Error& error) {
    outcome.status = 1;
    outcome.error = error.what();
    outcome.remedy = error.remedy();
  }
  outcome.out = ::testing::internal::GetCapturedStdout();
  return outcome;
}

}  // namespace orrery::cli::test
