#include "cli/boot_command.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/config_options.h"
#include "cli/console_stream.h"
#include "cli/guest_run.h"
#include "cli/output.h"
#include "cli/run_files.h"
#include "cli/server_host.h"
#include "cli/server_relays.h"
#include "cli/stop_watch.h"
#include "common/error.h"
#include "common/file_descriptor.h"
#include "common/stop_signals.h"
#include "qemu_bridge/launcher/run_directory.h"

namespace orrery::cli {

namespace {

struct BootCommandOptions {
  ConfigOptions config;
  GuestOptions guest;
  std::string run;
  std::string server;  // directory of a running `orrery serve`
  bool keep_guest = false;
  std::string only;  // name of one guest
  bool poll = false;
  bool no_console = false;
  bool json = false;
};

constexpr std::chrono::milliseconds monitor_limit{60'000};
constexpr std::chrono::milliseconds power_off_grace{8'000};
constexpr std::chrono::milliseconds server_check_interval{300};

ServerIdentity require_server(const std::filesystem::path& directory) {
  const std::optional<ServerIdentity> server = running_server(directory);
  if (!server) {
    throw Error(fmt::format("no server is running in {}", directory.string()),
                "start it: orrery serve --directory " + directory.string());
  }
  return *server;
}

// Looks after guests whose devices another process serves: when that process has died and another serves
// the sockets again, the guests are started anew on it. (QEMU's vfio-user client never reconnects, and plugging
// a dead function out to plug it in again is no way: QEMU up to 11.1 ends itself with an assertion when a
// vfio-user function with MSI-X goes, whether its server lives or not.)
class ServerWatch {
 public:
  ServerWatch(boost::asio::io_context& io, std::filesystem::path directory,
              const std::vector<std::unique_ptr<GuestRun>>& guests)
      : timer_(io), directory_(std::move(directory)), guests_(guests), known_(require_server(directory_)) {
    check_later();
  }

 private:
  void check_later() {
    timer_.expires_after(server_check_interval);
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) {
        check();
        check_later();
      }
    });
  }

  void check() {
    const std::optional<ServerIdentity> now = running_server(directory_);
    if (!now && !lost_) {
      lost_ = true;
      note("orrery: the server in {} has gone; when it is back its guests will be started anew", directory_.string());
    }
    if (now && *now != known_) {
      known_ = *now;
      lost_ = false;
      for (const auto& guest : guests_) {
        if (!guest->end()) {
          guest->restart();
          note("orrery: {}: started anew", guest->name());
        }
      }
    }
  }

  boost::asio::steady_timer timer_;
  std::filesystem::path directory_;
  const std::vector<std::unique_ptr<GuestRun>>& guests_;
  ServerIdentity known_;
  bool lost_ = false;
};

// The folders of a server's guests, held for one launcher. A socket serves one client at a time: the QEMU of a second
// launcher would wait for it, for ever and without a word.
class ServedGuests {
 public:
  // Throws Error if another launcher has the guest, or the server has another configuration.
  void hold(const std::filesystem::path& directory, const models::GuestConfig& guest) {
    const std::filesystem::path folder = directory / guest.name;
    // A file of our own: the server locks the folder itself. It goes with the folder.
    FileDescriptor lock(::open((folder / launcher_lock).c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (lock && ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
      throw Error(fmt::format("{} of the server in {} is run by another `orrery boot`", guest.name, directory.string()),
                  "end that one, or start a server in another directory");
    }
    for (const std::string& device : guest.devices) {
      if (!std::filesystem::exists(folder / (device + ".sock"))) {
        throw Error(fmt::format("the server in {} has no {} for {}", directory.string(), device, guest.name),
                    "give the same --config and --set to `orrery boot` as to `orrery serve`");
      }
    }
    locks_.push_back(std::move(lock));
  }

 private:
  std::vector<FileDescriptor> locks_;
};

// The exit status that one of our own images reports for orrery.run=; none if the guest ran no such thing.
std::optional<int> reported_status(const std::string& console_log) {
  std::ifstream file(console_log);
  std::optional<int> status;
  for (std::string line; std::getline(file, line);) {
    constexpr std::string_view marker = "orrery-guest: exit ";
    if (const auto at = line.find(marker); at != std::string::npos) {
      status = std::atoi(line.c_str() + at + marker.size());
    }
  }
  return status;
}

void print_started(const BootCommandOptions& options, const bridge::RunDirectory& run, const ServerHost* host,
                   const std::vector<std::unique_ptr<GuestRun>>& guests) {
  if (options.json) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const auto& guest : guests) {
      all.push_back({{"name", guest->name()},
                     {"run", run.name()},
                     {"pid", guest->qemu().pid()},
                     {"console_log", guest->guest().paths.console_log},
                     {"console_socket", guest->guest().paths.console_socket},
                     {"gdb_socket", guest->guest().paths.gdb_socket},
                     {"monitor_socket", guest->guest().paths.qmp_socket},
                     {"ssh_port", guest->guest().spec.ssh_port}});
    }
    nlohmann::ordered_json json{{"guests", all}};
    if (host != nullptr && !host->firmware().empty()) {
      json["firmware"] = firmware_json(*host);
    }
    fmt::print("{}\n", json.dump());
  } else {
    if (host != nullptr) {
      note_firmware(*host);
    }
    for (const auto& guest : guests) {
      note("orrery: {}: {} CPUs, {} MiB, {}", guest->name(), guest->guest().spec.cpus, guest->guest().spec.memory_mib,
           guest->guest().accelerator_note.empty() ? "KVM" : guest->guest().accelerator_note);
      note("orrery: {}: console {}; gdb {}", guest->name(), guest->guest().paths.console_log,
           guest->guest().paths.gdb_socket);
      if (guest->guest().spec.ssh_port != 0) {
        note("orrery: {}: ssh -p {} root@127.0.0.1", guest->name(), guest->guest().spec.ssh_port);
      }
      note("orrery: {0}: run commands with: orrery exec {0} -- CMD", guest->name());
    }
  }
  flush_output();
}

int boot(const BootCommandOptions& options) {
  const models::ServerConfig config = load(options.config).config;
  const models::Topology topology = models::Topology::from(config);
  std::vector<models::GuestConfig> configured = models::guests_of(config, topology);
  if (!options.only.empty()) {
    std::erase_if(configured, [&](const models::GuestConfig& guest) { return guest.name != options.only; });
    if (configured.empty()) {
      throw Error("no guest named " + options.only + " in the configuration", "see: orrery config show");
    }
  }
  ServedGuests served;
  if (!options.server.empty()) {
    if (!running_server(options.server)) {
      throw Error(fmt::format("no server is running in {}", options.server),
                  "start it: orrery serve --directory " + options.server);
    }
    for (const models::GuestConfig& guest : configured) {
      served.hold(options.server, guest);
    }
  }
  const StopSignals stop_signals;
  const bridge::RunDirectory run(options.run);

  std::unique_ptr<ServerHost> host;
  boost::asio::io_context own_io;
  std::optional<ServerRelays> relays;
  std::function<std::string(const std::string&, const std::string&)> socket;
  if (options.server.empty()) {
    for (const models::GuestConfig& guest : models::guests_of(config, topology)) {
      std::filesystem::create_directory(run.path() / guest.name);
      std::filesystem::permissions(run.path() / guest.name, std::filesystem::perms::owner_all);
    }
    host = std::make_unique<ServerHost>(config, ServerHostOptions{run.path(), options.poll});
    socket = [&](const std::string& /*guest*/, const std::string& endpoint) { return host->socket(endpoint).string(); };
  } else {
    require_server(options.server);
    if (options.keep_guest) {
      relays.emplace(own_io, options.server, run);
    }
    socket = [&](const std::string& guest, const std::string& endpoint) {
      const auto path = std::filesystem::absolute(std::filesystem::path(options.server) / guest / (endpoint + ".sock"));
      return relays ? relays->add(guest, endpoint, path) : path.string();
    };
  }
  boost::asio::io_context& io = host != nullptr ? host->io() : own_io;

  std::vector<std::unique_ptr<GuestRun>> guests;
  guests.reserve(configured.size());
  for (const models::GuestConfig& guest : configured) {
    guests.push_back(std::make_unique<GuestRun>(
        io, run, prepare_guest(run, topology, config, guest, options.guest, [&](const std::string& endpoint) {
          return socket(guest.name, endpoint);
        })));
  }
  std::optional<ServerWatch> watch;
  if (host == nullptr && !relays) {
    watch.emplace(io, options.server, guests);
  }
  print_started(options, run, host.get(), guests);

  bool stopping = false;
  for (const auto& guest : guests) {
    guest->qemu().connect_monitor(monitor_limit, [&stopping, name = guest->name()](const std::string& failure) {
      if (!failure.empty() && !stopping) {
        note("orrery: {}: QEMU's monitor can't be used, so the guest can't be powered off in order: {}", name, failure);
      }
    });
  }
  const auto stop_all = [&] {
    if (!stopping) {
      note("orrery: powering off; once more ends it at once");
    }
    for (const auto& guest : guests) {
      guest->qemu().stop(stopping ? std::chrono::milliseconds(0) : power_off_grace);
    }
    stopping = true;
  };
  const StopWatch stop_watch(io, stop_signals, stop_all);
  std::optional<ConsoleStream> console;
  if (guests.size() == 1 && !options.no_console && !options.json) {
    console.emplace(io, guests.front()->guest().paths.console_socket, isatty(STDIN_FILENO) != 0, stop_all);
  }

  const auto all_ended = [&] {
    return std::all_of(guests.begin(), guests.end(), [](const auto& guest) { return guest->end().has_value(); });
  };
  while (!all_ended()) {
    if (host != nullptr) {
      host->run_until(all_ended, std::chrono::milliseconds(1000));
    } else {
      io.run_one_for(std::chrono::milliseconds(200));
    }
  }
  console.reset();
  int status = 0;
  std::optional<Error> failure;  // the first; thrown once trace and recording are complete
  for (const auto& guest : guests) {
    const std::optional<int> reported = reported_status(guest->guest().paths.console_log);
    try {
      if (!stopping) {
        guest->require_orderly_end(reported.has_value());
      } else if (!reported && guest->was_to_report()) {
        throw Error(guest->name() + ": powered off before it reported the exit status of its program");
      }
    } catch (const Error& error) {
      failure = failure.value_or(error);
    }
    status = std::max(status, reported.value_or(0));
  }
  guests.clear();
  if (host != nullptr) {
    host->close();
    if (host->trace() != nullptr && !options.json) {
      note("orrery: trace hash {:016x} over {} TLPs", host->trace()->hash(), host->trace()->count());
    }
  }
  if (failure) {
    throw Error(*failure);
  }
  return status;
}

}  // namespace

void add_boot_command(CLI::App& app) {
  auto options = std::make_shared<BootCommandOptions>();
  CLI::App* command = app.add_subcommand("boot", "Boot guests on an emulated server and stay with them until they end");
  command->footer(
      "Your own image:   orrery boot --disk my.qcow2 --firmware ovmf\n"
      "Your own kernel:  orrery boot --kernel bzImage --initrd initrd.img --append 'console=ttyS0'\n"
      "A Debian guest:   orrery boot --kernel 6.12-cloud        (root shell on the console; Ctrl-] ends it)\n"
      "A whole Debian:   orrery boot --disk root --ssh\n"
      "The exit status is that of the command given with --append orrery.run=PATH, if there is one.");
  add_config_options(*command, options->config);
  add_guest_options(*command, options->guest);
  command->add_option("--run", options->run, "Name of the run (default: run-PID)");
  CLI::Option* server =
      command->add_option("--server", options->server, "Use the sockets of an `orrery serve --directory DIR`");
  command
      ->add_flag("--keep-guest", options->keep_guest,
                 "Keep guests running when that server is killed: until it is started again their devices read as all "
                 "ones, then they are devices that were reset. Without it such guests are started anew. Costs "
                 "latency, and peers can't reach each other's BARs")
      ->needs(server);
  command->add_option("--guest", options->only, "Boot only this guest of the configuration");
  command->add_flag("--poll", options->poll, "The server spins instead of sleeping");
  command->add_flag("--no-console", options->no_console, "Don't show the guest's console");
  command->add_flag("--json", options->json, "Print one JSON object about the running guests, and no console");
  command->callback([options] {
    if (const int status = boot(*options); status != 0) {
      throw ExitStatus{status};
    }
  });
}

}  // namespace orrery::cli
