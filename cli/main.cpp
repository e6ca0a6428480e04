// The orrery program. Every subcommand is a file of its own.
#include <cstdio>
#include <exception>
#include <string>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/boot_command.h"
#include "cli/commands.h"
#include "cli/config_command.h"
#include "cli/demo_command.h"
#include "cli/exec_command.h"
#include "cli/replay_command.h"
#include "cli/serve_command.h"
#include "cli/topo_command.h"
#include "cli/trace_command.h"
#include "common/error.h"
#include "common/log.h"

int main(int argc, char* argv[]) {
  CLI::App app{"Orrery: a full-system emulator of a GPU server and its RNICs", "orrery"};
  app.require_subcommand(1);
  app.fallthrough();
  app.set_version_flag("--version", ORRERY_VERSION);
  std::string log_level = "info";
  app.add_option("--log-level", log_level, "trace, debug, info, warning, error or off (default: info)")
      ->each([](const std::string& level) { orrery::set_log_level(orrery::parse_log_level(level)); });
  orrery::cli::add_demo_command(app);
  orrery::cli::add_boot_command(app);
  orrery::cli::add_exec_command(app);
  orrery::cli::add_serve_command(app);
  orrery::cli::add_replay_command(app);
  orrery::cli::add_topo_command(app);
  orrery::cli::add_trace_command(app);
  orrery::cli::add_config_command(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const orrery::cli::ExitStatus& exit) {
    return exit.status;
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
  return 0;
}
