// `orrery fw run`: a server for its firmware's sake, without a guest until one is attached.
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <boost/asio/steady_timer.hpp>
#include <nlohmann/json.hpp>

#include "cli/config_options.h"
#include "cli/fw_command.h"
#include "cli/output.h"
#include "cli/run_files.h"
#include "cli/server_host.h"
#include "cli/stop_watch.h"
#include "common/error.h"
#include "qemu_bridge/launcher/run_directory.h"

namespace orrery::cli {

namespace {

struct FwRunOptions {
  ConfigOptions config;
  std::string target = "riscv64";
  std::string elf;
  std::string map;
  std::string run;
  bool stopped = false;
  bool json = false;
};

// What the firmware's consoles say, line by line, with their RNIC's name.
class ConsoleTail {
 public:
  explicit ConsoleTail(ServerHost& host) : timer_(host.io()) {
    for (const auto& firmware : host.firmware()) {
      logs_.push_back({firmware->name(), firmware->spec().console_log, 0, {}});
    }
    later();
  }

 private:
  struct Log {
    std::string name;
    std::string path;
    std::uint64_t read;
    std::string line;
  };
  void later() {
    timer_.expires_after(std::chrono::milliseconds(200));
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) {
        look();
        later();
      }
    });
  }
  void look() {
    for (Log& log : logs_) {
      std::error_code failed;
      const std::uint64_t size = std::filesystem::file_size(log.path, failed);
      if (failed || size == log.read) {
        continue;
      }
      log.read = size < log.read ? 0 : log.read;  // a new machine writes a new log
      std::ifstream file(log.path, std::ios::binary);
      file.seekg(static_cast<std::streamoff>(log.read));
      for (char c = 0; file.get(c); ++log.read) {
        if (c == '\n') {
          note("{}: {}", log.name, log.line);
          log.line.clear();
        } else if (c >= ' ' && c < 127 && log.line.size() < 1000) {
          log.line += c;
        }
      }
    }
  }

  boost::asio::steady_timer timer_;
  std::vector<Log> logs_;
};

void fw_run(FwRunOptions options) {
  if (!options.elf.empty() && options.target != "riscv64") {
    throw Error("an ELF file needs a machine", "leave --target out");
  }
  std::vector<std::string> ours{"rnic.personality=\"mlx5\"", "rnic.firmware=\"" + options.target + "\""};
  if (!options.elf.empty()) {
    ours.push_back("rnic.firmware_elf=" + nlohmann::json(std::filesystem::absolute(options.elf).string()).dump());
  }
  if (!options.map.empty()) {
    ours.push_back("rnic.firmware_map=" + nlohmann::json(std::filesystem::absolute(options.map).string()).dump());
  }
  options.config.sets.insert(options.config.sets.begin(), ours.begin(), ours.end());
  const models::ServerConfig config = load(options.config).config;
  const StopSignals stop_signals;
  const bridge::RunDirectory run(options.run);
  for (const models::GuestConfig& guest : models::guests_of(config, models::Topology::from(config))) {
    std::filesystem::create_directory(run.path() / guest.name);
    std::filesystem::permissions(run.path() / guest.name, std::filesystem::perms::owner_all);
  }
  ServerHost host(config, ServerHostOptions{run.path(), false, options.stopped});
  publish_server(run.path());
  if (options.json) {
    const nlohmann::ordered_json about{
        {"run", run.name()}, {"directory", run.path().string()}, {"firmware", firmware_json(host)}};
    fmt::print("{}\n", about.dump());
    flush_output();
  } else {
    note_firmware(host);
    note("orrery: run {}; attach guests with: orrery boot --server {} --set rnic.personality=mlx5", run.name(),
         run.path().string());
    if (options.stopped) {
      note("orrery: the firmware waits for a debugger: orrery fw gdb {} --rnic rnic0", run.name());
    }
  }
  const ConsoleTail console(host);
  const StopWatch stop_watch(host.io(), stop_signals, [&] { host.stop(); });
  host.run();
  host.close();
}

}  // namespace

void add_fw_run_command(CLI::App& app) {
  auto options = std::make_shared<FwRunOptions>();
  CLI::App* command = app.add_subcommand("run", "Run a server with the firmware of choice; Ctrl-C ends it");
  command->footer(
      "Ours, to be debugged from its first instruction:   orrery fw run --stopped\n"
      "Your own, on our registers:                        orrery fw run --elf my.elf\n"
      "Your own, on your own:                             orrery fw run --elf my.elf --map my.toml");
  add_config_options(*command, options->config);
  command->add_option("--target", options->target, "riscv64 (default) or native")
      ->check(CLI::IsMember({"riscv64", "native"}));
  command->add_option("--elf", options->elf, "Run this ELF file instead of Orrery's firmware");
  command->add_option("--map", options->map, "… on the register map that this file describes")->needs("--elf");
  command->add_option("--run", options->run, "Name of the run (default: run-PID)");
  command->add_flag("--stopped", options->stopped, "Wait for a debugger before the first instruction");
  command->add_flag("--json", options->json, "Print one JSON object about the sockets");
  command->callback([options] { fw_run(*options); });
}

}  // namespace orrery::cli
