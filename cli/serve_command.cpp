#include "cli/serve_command.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/config_options.h"
#include "cli/guest_run.h"
#include "cli/output.h"
#include "cli/run_files.h"
#include "cli/server_host.h"
#include "cli/stop_watch.h"
#include "common/error.h"
#include "qemu_bridge/launcher/libvirt_xml.h"
#include "qemu_bridge/launcher/qemu_command_line.h"
#include "qemu_bridge/launcher/qemu_program.h"
#include "qemu_bridge/launcher/run_directory.h"

namespace orrery::cli {

namespace {

struct ServeCommandOptions {
  ConfigOptions config;
  GuestOptions guest;
  std::string directory;
  std::string format = "qemu";
  bool poll = false;
  bool json = false;
};

namespace fs = std::filesystem;

// The server's directory, with one folder for each guest's sockets. Takes back on its way out what is its own; the
// directory stays, it was named by the user.
class ServerDirectory {
 public:
  explicit ServerDirectory(const std::string& name) : path_(fs::absolute(name)) { make(path_); }
  ~ServerDirectory() {
    std::error_code ignored;
    if (published_) {
      fs::remove(path_ / "server.json", ignored);
    }
    for (const fs::path& folder : folders_) {
      if (published_) {
        fs::remove(folder / launcher_lock, ignored);
      }
      fs::remove(folder, ignored);  // not if another server's sockets are in it
    }
  }
  ServerDirectory(const ServerDirectory&) = delete;
  ServerDirectory& operator=(const ServerDirectory&) = delete;

  [[nodiscard]] const fs::path& path() const { return path_; }
  void add_folder(const std::string& guest) {
    make(path_ / guest);
    folders_.push_back(path_ / guest);
    std::error_code ignored;  // whose directory it is, the sockets' owner asks
    fs::permissions(path_ / guest, fs::perms::owner_all, ignored);
  }
  void publish() {
    publish_server(path_);
    published_ = true;
  }

 private:
  static void make(const fs::path& directory) {
    std::error_code failed;
    fs::create_directories(directory, failed);
    if (failed) {
      throw Error(fmt::format("directory {} can't be made: {}", directory.string(), failed.message()),
                  "name one that you may write to");
    }
  }

  fs::path path_;
  std::vector<fs::path> folders_;
  bool published_ = false;
};

void print_guest(const ServeCommandOptions& options, const PreparedGuest& guest) {
  if (options.format == "libvirt") {
    fmt::print("{}\n", bridge::libvirt_domain_xml(guest.spec, guest.topology, guest.qemu));
  } else {
    fmt::print("# {}\n{}\n", guest.spec.name,
               bridge::as_shell_script(guest.qemu.program,
                                       bridge::qemu_arguments(guest.spec, guest.topology, guest.paths, guest.qemu)));
  }
}

void serve(const ServeCommandOptions& options) {
  const models::ServerConfig config = load(options.config).config;
  const models::Topology topology = models::Topology::from(config);
  const StopSignals stop_signals;
  ServerDirectory directory(options.directory);
  for (const models::GuestConfig& guest : models::guests_of(config, topology)) {
    directory.add_folder(guest.name);
  }
  ServerHost host(config, {directory.path(), options.poll});
  directory.publish();
  // Everything that a QEMU started by hand needs (a joined initrd, OVMF's variables, its own sockets).
  const bridge::RunDirectory run(fmt::format("serve-{}", getpid()));
  if (options.json) {
    nlohmann::ordered_json json;
    for (const auto& endpoint : topology.endpoints) {
      json["sockets"][endpoint.name] = host.socket(endpoint.name).string();
    }
    if (!host.firmware().empty()) {
      json["firmware"] = firmware_json(host);
    }
    fmt::print("{}\n", json.dump());
  } else {
    note_firmware(host);
    for (const models::GuestConfig& guest : host.guests()) {
      print_guest(options, prepare_guest(run, topology, config, guest, options.guest,
                                         [&](const std::string& endpoint) { return host.socket(endpoint).string(); }));
    }
  }
  flush_output();
  if (!options.json) {
    // Not to standard output: that may go into a file for a shell or for libvirt.
    fmt::print(stderr, "serving {} functions in {}; Ctrl-C ends it\n", topology.endpoints.size(),
               directory.path().string());
  }
  const StopWatch stop_watch(host.io(), stop_signals, [&] { host.stop(); });
  host.run();
  host.close();
}

}  // namespace

void add_serve_command(CLI::App& app) {
  auto options = std::make_shared<ServeCommandOptions>();
  CLI::App* command =
      app.add_subcommand("serve", "Run the emulated server; print what starts QEMU or libvirt on its sockets");
  add_config_options(*command, options->config);
  add_guest_options(*command, options->guest);
  command->add_option("--directory", options->directory, "Directory for the sockets; made if it isn't there")
      ->required();
  command->add_option("--format", options->format, "What to print: qemu (a shell command) or libvirt (domain XML)")
      ->check(CLI::IsMember({"qemu", "libvirt"}));
  command->add_flag("--poll", options->poll, "Spin instead of sleeping: lower latency, a whole core");
  command->add_flag("--json", options->json, "Print the sockets as JSON instead");
  command->callback([options] { serve(*options); });
}

}  // namespace orrery::cli
