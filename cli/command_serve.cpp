// orrery serve: the emulated server alone, for people who start QEMU or libvirt themselves.
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/server_host.h"
#include "common/error.h"

namespace orrery::cli {

namespace {

struct ServeOptions {
  std::string config;
  std::vector<std::string> sets;
  std::string directory;
  bool poll = false;
};

void serve(const ServeOptions& options) {
  const models::ServerConfig config = models::load_server_config(options.config, options.sets);
  ServerHostOptions host_options;
  host_options.socket_directory = options.directory;
  host_options.poll = options.poll;
  for (const auto& guest : models::guests_of(config, models::Topology::from(config))) {
    std::filesystem::create_directories(host_options.socket_directory / guest.name);
    std::filesystem::permissions(host_options.socket_directory / guest.name, std::filesystem::perms::owner_all);
  }
  ServerHost host(config, host_options);
  for (const auto& endpoint : host.platform().topology().endpoints) {
    const auto socket = host.socket(endpoint.name);
    if (!socket.empty()) {
      fmt::print("{:8} {}\n", endpoint.name, socket.string());
    }
  }
  std::fflush(stdout);
  boost::asio::signal_set signals(host.io(), SIGINT, SIGTERM);
  signals.async_wait([&](const boost::system::error_code& error, int /*signal*/) {
    if (!error) {
      host.stop();
    }
  });
  host.run();
}

}  // namespace

void add_serve_command(CLI::App& app, int& status) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* command = app.add_subcommand("serve", "Run the emulated server; you start QEMU or libvirt yourself");
  command->add_option("--config", options->config, "Server configuration (TOML)");
  command->add_option("--set", options->sets, "Override a key: --set time.mode=timed");
  command->add_option("--directory", options->directory, "Where the sockets go")->required();
  command->add_flag("--poll", options->poll, "Spin instead of sleeping");
  command->callback([options, &status] {
    serve(*options);
    status = 0;
  });
}

}  // namespace orrery::cli
