// The orrery program. Every subcommand is a file of its own.
#include <cstdio>
#include <exception>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/commands.h"
#include "common/error.h"

int main(int argc, char* argv[]) {
  CLI::App app{"Orrery: a full-system emulator of a GPU server and its RNICs", "orrery"};
  app.require_subcommand(1);
  app.fallthrough();
  app.set_version_flag("--version", ORRERY_VERSION);
  int status = 0;
  orrery::cli::add_serve_command(app, status);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const orrery::Error& error) {
    fmt::print(stderr, "orrery: {}\n", error.what());
    if (!error.remedy().empty()) {
      fmt::print(stderr, "        {}\n", error.remedy());
    }
    return 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "orrery: {}\n", error.what());
    return 1;
  }
  return status;
}
