#include "cli/program.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/boot_command.h"
#include "cli/commands.h"
#include "cli/config_command.h"
#include "cli/demo_command.h"
#include "cli/exec_command.h"
#include "cli/fw_command.h"
#include "cli/output.h"
#include "cli/replay_command.h"
#include "cli/repro_command.h"
#include "cli/serve_command.h"
#include "cli/topo_command.h"
#include "cli/trace_command.h"
#include "common/error.h"
#include "common/log.h"
#include "common/stop_signals.h"
#include "common/text.h"

namespace orrery::cli {

namespace {

// Options whose value may be empty: words that a script collects.
constexpr std::array<std::string_view, 2> free_options{"--append", "--qemu"};

bool may_be_empty(std::string_view option) {
  return std::find(free_options.begin(), free_options.end(), option) != free_options.end();
}

// "orrery trace show": as far as the command line names commands.
std::string command_of(const CLI::App& app) {
  std::string words = app.get_name();
  for (const CLI::App* level = &app; !level->get_subcommands().empty();) {
    level = level->get_subcommands().front();
    words += ' ' + level->get_name();
  }
  return words;
}

// The complaint about a command that is missing or that there isn't; empty if that is not what is wrong.
void explain_missing_command(const CLI::App& app, std::string& what, std::string& remedy) {
  const CLI::App* level = &app;
  while (!level->get_subcommands().empty()) {
    level = level->get_subcommands().front();
  }
  std::vector<std::string> commands;
  for (const CLI::App* command : level->get_subcommands([](const CLI::App*) { return true; })) {
    commands.push_back(command->get_name());
  }
  if (commands.empty()) {
    return;
  }
  const std::vector<std::string> extras = app.remaining(true);
  remedy = fmt::format("{} has {}", command_of(app), fmt::join(commands, ", "));
  if (extras.empty()) {
    what = "a command is missing";
    return;
  }
  what = fmt::format("there is no {} '{}'", extras.front().starts_with('-') ? "option" : "command",
                     printable(extras.front()));
  if (const std::string near = closest(extras.front(), commands); !near.empty()) {
    remedy = fmt::format("did you mean \"{}\"?", near);
  }
}

int run(CLI::App& app, int argc, const char* const* argv) {
  try {
    require_values(argc, argv);
    app.parse(argc, argv);
    flush_output();
    return 0;
  } catch (const CLI::ParseError& error) {
    return report_usage(app, error);
  } catch (const ExitStatus& exit) {
    flush_output();
    return exit.status;
  }
}

}  // namespace

void prepare_process() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
      // Takes the lowest free number, which is this one. Stdout stays one that can't be written: its loss is an error.
      [[maybe_unused]] const int opened = ::open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
    }
  }
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

int report_usage(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) {
    std::ostringstream text;
    app.exit(error, text, text);
    write_output(text.str());
    return 0;
  }
  std::string what = error.what();
  std::string remedy;
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError)) {
    explain_missing_command(app, what, remedy);
  } else if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError) &&
             command_of(app) == "orrery exec") {
    remedy = "a command with options goes after --, as in: orrery exec guest0 -- ls -l";
  }
  note("orrery: {}", what);
  if (!remedy.empty()) {
    note("        {}", remedy);
  }
  note("        see: {} --help", command_of(app));
  return 2;
}

void require_values(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--") {
      return;
    }
    const bool cut = word.starts_with("--") && word.find('=') == word.size() - 1;
    const std::string_view option = cut ? word.substr(0, word.size() - 1) : std::string_view(argv[i - 1]);
    if ((cut || word.empty()) && !may_be_empty(option)) {
      const bool of_option = cut || (i > 1 && option.starts_with('-'));
      throw Error(of_option ? fmt::format("{} has an empty value", option) : fmt::format("argument {} is empty", i),
                  "is a variable of your script not set? Leave out what has no value");
    }
  }
}

int run_program(int argc, const char* const* argv) {
  CLI::App app{"Orrery: a full-system emulator of a GPU server and its RNICs", "orrery"};
  app.require_subcommand(1);
  app.fallthrough();
  app.set_version_flag("--version", ORRERY_VERSION);
  std::string log_level = "info";
  app.add_option("--log-level", log_level, "trace, debug, info, warning, error or off (default: info)")
      ->each([](const std::string& level) { set_log_level(parse_log_level(level)); });
  add_demo_command(app);
  add_boot_command(app);
  add_exec_command(app);
  add_serve_command(app);
  add_fw_command(app);
  add_replay_command(app);
  add_repro_command(app);
  add_topo_command(app);
  add_trace_command(app);
  add_config_command(app);
  int status = 1;
  try {
    return run(app, argc, argv);
  } catch (const Error& error) {
    note("orrery: {}", error.what());
    if (!error.remedy().empty()) {
      note("        {}", error.remedy());
    }
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::broken_pipe) {
      status = 128 + SIGPIPE;  // as every program that `| head` ends
    } else {
      note("orrery: {}", error.what());
    }
  } catch (const std::exception& error) {
    note("orrery: {}", error.what());
  }
  return stop_signal() != 0 ? 128 + stop_signal() : status;
}

}  // namespace orrery::cli
