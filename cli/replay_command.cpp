#include "cli/replay_command.h"

#include <memory>
#include <string>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/replayer.h"
#include "common/error.h"

namespace orrery::cli {

namespace {

struct ReplayCommandOptions {
  std::string file;
  std::string trace;
  bool json = false;
};

void replay(const ReplayCommandOptions& options) {
  if (!options.trace.empty()) {
    require_other_file(options.trace, options.file);
  }
  Replayer replayer(options.file);
  if (!options.trace.empty()) {
    replayer.write_trace(options.trace);
  }
  const ReplayResult result = replayer.run();
  if (options.json) {
    nlohmann::ordered_json json{{"stimuli", result.stimuli},
                                {"simulated_ps", result.time.count},
                                {"tlps", result.trace_records},
                                {"trace_hash", fmt::format("{:016x}", result.trace_hash)}};
    if (result.recorded_complete) {
      json["recorded_hash"] = fmt::format("{:016x}", result.recorded_hash);
      json["matches"] = result.matches();
    }
    fmt::print("{}\n", json.dump());
  } else {
    fmt::print("{} stimuli, {} TLPs on links, {:.6f} s of simulated time\n", result.stimuli, result.trace_records,
               result.time.seconds());
    fmt::print("trace hash {:016x}\n", result.trace_hash);
  }
  if (!result.recorded_complete) {
    throw Error(options.file + " ends without a result: its run was cut off; there is no hash to compare with");
  }
  if (!result.matches()) {
    throw Error(fmt::format("{}: the recorded trace hash is {:016x}", options.file, result.recorded_hash),
                "the replay differs: was it recorded by this version (" + replayer.header().program_version + ")?");
  }
  if (!options.json) {
    fmt::print("equals the recorded hash\n");
  }
}

}  // namespace

void add_replay_command(CLI::App& app) {
  auto options = std::make_shared<ReplayCommandOptions>();
  CLI::App* command =
      app.add_subcommand("replay", "Repeat a recorded run without its guest and compare the trace hash");
  command->add_option("FILE", options->file, "Recording, as record.file of the configuration named it")->required();
  command->add_option("--trace", options->trace, "Write the replay's trace to this file");
  command->add_flag("--json", options->json, "Print the result as JSON");
  command->callback([options] { replay(*options); });
}

}  // namespace orrery::cli
