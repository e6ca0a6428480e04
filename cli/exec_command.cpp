#include "cli/exec_command.h"

#include <unistd.h>

#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/output.h"
#include "common/error.h"
#include "qemu_bridge/launcher/guest_agent.h"
#include "qemu_bridge/launcher/run_directory.h"

namespace orrery::cli {

namespace {

struct ExecCommandOptions {
  std::string guest;
  std::vector<std::string> command;
  unsigned seconds = 600;
  bool input = false;
  bool json = false;
};

int exec(const ExecCommandOptions& options) {
  const bridge::RunningGuest guest = bridge::RunDirectory::find_guest(options.guest);
  std::string input;
  if (options.input) {
    input.assign(std::istreambuf_iterator<char>(std::cin), {});
  }
  boost::asio::io_context io;
  bridge::GuestAgent agent(io, guest.paths.agent_socket);
  std::optional<bridge::GuestExecResult> result;
  agent.exec(options.command, input, std::chrono::seconds(options.seconds),
             [&](const bridge::GuestExecResult& r) { result = r; });
  io.run();
  if (!result) {
    throw Error(guest.name + ": the guest agent's connection was lost");
  }
  if (!result->failure.empty()) {
    throw Error(guest.name + ": " + result->failure, result->remedy);
  }
  if (options.json) {
    const nlohmann::ordered_json json{{"exit_code", result->exit_code},
                                      {"stdout", result->output},
                                      {"stderr", result->errors},
                                      {"stdout_truncated", result->output_truncated},
                                      {"stderr_truncated", result->errors_truncated}};
    fmt::print("{}\n", json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    return result->exit_code;
  }
  write_output(result->output);
  std::fwrite(result->errors.data(), 1, result->errors.size(), stderr);
  if (result->output_truncated || result->errors_truncated) {
    note("orrery: the guest's agent keeps 16 MiB of the output; the rest is lost. Write it to a file in a --share");
  }
  return result->exit_code;
}

}  // namespace

void add_exec_command(CLI::App& app) {
  auto options = std::make_shared<ExecCommandOptions>();
  CLI::App* command = app.add_subcommand("exec", "Run a command in a running guest; its exit status is the program's");
  command->add_option("guest", options->guest, "Name of the guest, or run/guest")->required();
  command->add_option("command", options->command, "The command and its arguments, after --")->required();
  command->add_option("--timeout", options->seconds, "Seconds after which the command is killed")
      ->check(CLI::Range(1, 86400));
  command->add_flag("--stdin", options->input, "Give the command this program's standard input");
  command->add_flag("--json", options->json, "Print exit code and output as JSON");
  command->callback([options] {
    if (const int status = exec(*options); status != 0) {
      throw ExitStatus{status};
    }
  });
}

}  // namespace orrery::cli
