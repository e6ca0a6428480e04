#include "cli/serve_command.h"

#include <boost/asio/signal_set.hpp>
#include <csignal>
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
#include "cli/run_files.h"
#include "cli/server_host.h"
#include "common/error.h"
#include "qemu_bridge/launcher/libvirt_xml.h"
#include "qemu_bridge/launcher/qemu_command_line.h"
#include "qemu_bridge/launcher/qemu_program.h"
#include "qemu_bridge/launcher/run_directory.h"

namespace orrery::cli {

namespace {

struct Options {
  ConfigOptions config;
  GuestOptions guest;
  std::string directory;
  std::string format = "qemu";
  bool poll = false;
  bool json = false;
};

std::filesystem::path private_directory(const std::string& name) {
  std::filesystem::path directory = std::filesystem::absolute(name);
  std::error_code failed;
  std::filesystem::create_directories(directory, failed);
  if (failed) {
    throw Error(fmt::format("directory {} can't be made: {}", directory.string(), failed.message()),
                "name one that you may write to");
  }
  return directory;
}

void print_guest(const Options& options, const PreparedGuest& guest) {
  if (options.format == "libvirt") {
    fmt::print("{}\n", bridge::libvirt_domain_xml(guest.spec, guest.topology, guest.qemu));
  } else {
    fmt::print("# {}\n{}\n", guest.spec.name,
               bridge::as_shell_script(guest.qemu.program,
                                       bridge::qemu_arguments(guest.spec, guest.topology, guest.paths, guest.qemu)));
  }
}

void serve(const Options& options) {
  const models::ServerConfig config = load(options.config).config;
  const std::filesystem::path directory = private_directory(options.directory);
  const models::Topology topology = models::Topology::from(config);
  for (const models::GuestConfig& guest : models::guests_of(config, topology)) {
    std::filesystem::create_directories(directory / guest.name);
    std::filesystem::permissions(directory / guest.name, std::filesystem::perms::owner_all);
  }
  ServerHost host(config, {directory, options.poll});
  publish_server(directory);
  // Everything that a QEMU started by hand needs (a joined initrd, OVMF's variables, its own sockets).
  const bridge::RunDirectory run(fmt::format("serve-{}", getpid()));
  if (options.json) {
    nlohmann::ordered_json json;
    for (const auto& endpoint : topology.endpoints) {
      json["sockets"][endpoint.name] = host.socket(endpoint.name).string();
    }
    fmt::print("{}\n", json.dump());
  } else {
    for (const models::GuestConfig& guest : host.guests()) {
      print_guest(options, prepare_guest(run, topology, config, guest, options.guest,
                                         [&](const std::string& endpoint) { return host.socket(endpoint).string(); }));
    }
    fmt::print("# serving {} functions in {}; Ctrl-C ends it\n", topology.endpoints.size(), directory.string());
  }
  std::fflush(stdout);
  boost::asio::signal_set signals(host.io(), SIGINT, SIGTERM, SIGHUP);
  signals.async_wait([&](const boost::system::error_code& error, int /*signal*/) {
    if (!error) {
      host.stop();
    }
  });
  host.run();
  host.close();
  std::filesystem::remove(directory / "server.json");
}

}  // namespace

void add_serve_command(CLI::App& app) {
  auto options = std::make_shared<Options>();
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
