#include "cli/server_host.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/fw_client.h"
#include "cli/output.h"
#include "cli/platform_trace.h"
#include "cli/trace_command.h"
#include "common/log.h"
#include "qemu_bridge/launcher/qemu_program.h"
#include "systemc_models/server/link_config.h"

namespace orrery::cli {

namespace {

// Events between two looks at the clients. A functional event may move 1 MiB, but most are packets of 4 KiB or less: a
// look after every fourth took a third of the time. A timed event is a TLP.
constexpr std::uint64_t functional_budget = 64;
constexpr std::uint64_t timed_budget = 512;
// A wait shorter than this is spun through: a sleep would overshoot it.
constexpr std::chrono::microseconds shortest_sleep{60};
// How often, in turns, a polling loop looks at every client and at the io_context.
constexpr std::uint64_t turns_between_full_polls = 16;

// A run writes the compact form; Perfetto's is made from it at the end.
std::string binary_trace_file(const models::ServerConfig& config) {
  return config.trace_format == models::TraceFormat::perfetto ? config.trace_file + ".binary" : config.trace_file;
}

}  // namespace

ServerHost::ServerHost(const models::ServerConfig& config, ServerHostOptions options) : options_(std::move(options)) {
  platform_ = std::make_unique<models::Platform>(config);
  const models::Topology& topology = platform_->topology();
  if (config.time_mode == models::TimeMode::timed || !config.trace_file.empty()) {
    trace_ = make_platform_trace(*platform_);
    if (!config.trace_file.empty()) {
      trace_->open(binary_trace_file(config));
    }
  }
  guests_ = models::guests_of(config, topology);
  if (!config.record_file.empty()) {
    recorder_ = std::make_unique<Recorder>(*platform_, config.record_file);
  }
  bridge::SessionOptions session;
  // A recording must see every access.
  session.allow_bar_mapping = config.gpu.map_bars && recorder_ == nullptr;
  for (const models::GuestConfig& guest : guests_) {
    for (const std::string& device : guest.devices) {
      const models::Topology::Endpoint* endpoint = topology.find(device);
      const auto index = static_cast<std::size_t>(endpoint - topology.endpoints.data());
      platform_->assign(index, guest.name);
      bridge::ServerOptions server;
      server.socket = options_.socket_directory / guest.name / (device + ".sock");
      server.session = session;
      pcie::FunctionAccess& function = recorder_ != nullptr ? recorder_->function(index) : platform_->function(index);
      servers_[device] = std::make_unique<bridge::Server>(io_, function, server);
      polled_.push_back(servers_[device].get());
    }
  }
  start_firmware();
  platform_->settle();
  if (!config.network.links.empty()) {
    if (config.rnic.personality != models::RnicPersonality::mlx5) {
      log(LogLevel::warning, "network.link: with rnic.personality = \"self-test\" no RNIC sends anything over it");
    }
    links_ = std::make_unique<instance_link::Sockets>(io_, *platform_->uplinks(), models::link_options(config.network));
  }
  wall_start_ = Clock::now();
  simulated_start_ = platform_->now();
}

// Every RNIC with a management block can be watched and disturbed; those on target riscv64 get their machine.
void ServerHost::start_firmware() {
  const models::ServerConfig& config = platform_->config();
  const bool machines = config.rnic.firmware == models::RnicFirmware::riscv64;
  std::string elf;
  std::string program;
  const std::filesystem::path directory = options_.socket_directory / firmware_folder;
  const models::Topology& topology = platform_->topology();
  std::vector<ControlledFirmware> controlled;
  for (std::size_t i = 0; i < topology.endpoints.size(); ++i) {
    rnic::ManagementBlock* block = platform_->management(i);
    if (block == nullptr) {
      continue;
    }
    if (controlled.empty()) {
      if (machines) {
        elf = firmware_elf(config.rnic.firmware_elf);
        program = bridge::find_qemu_riscv();
      }
      std::filesystem::create_directories(directory);
      std::filesystem::permissions(directory, std::filesystem::perms::owner_all);
    }
    ControlledFirmware one{topology.endpoints[i].name, {}, block, {}, {}, {}};
    one.target = machines ? "riscv64" : config.rnic.firmware == models::RnicFirmware::native ? "native" : "none";
    if (machines) {
      firmware_.push_back(std::make_unique<FirmwareHost>(
          io_, *block,
          FirmwareHostOptions{one.rnic, directory, program, elf, options_.stop_firmware, config.rnic.firmware_map,
                              options_.firmware_once, options_.firmware_code_logs}));
      polled_.push_back(&firmware_.back()->server());
      one.elf = elf;
      one.console_log = firmware_.back()->spec().console_log;
      one.gdb_socket = firmware_.back()->spec().gdb_socket;
    }
    controlled.push_back(std::move(one));
  }
  if (!controlled.empty()) {
    firmware_control_ =
        std::make_unique<FirmwareControl>(io_, directory / firmware_control_socket, std::move(controlled));
  }
}

void ServerHost::stop_firmware() {
  if (firmware_control_ != nullptr) {
    firmware_control_.reset();
    firmware_.clear();
    std::error_code ignored;
    std::filesystem::remove(options_.socket_directory / firmware_folder, ignored);
  }
}

ServerHost::~ServerHost() {
  servers_.clear();
  stop_firmware();
  platform_->simulation().observer = nullptr;
}

void ServerHost::close() {
  if (links_ != nullptr) {
    links_->report();
    links_.reset();
  }
  // Disconnects the clients; what that does to the platform still belongs to trace and recording.
  polled_.clear();
  servers_.clear();
  stop_firmware();
  platform_->settle();
  if (recorder_ != nullptr) {
    recorder_->close(trace_->count(), trace_->hash());
  }
  if (trace_ != nullptr) {
    platform_->simulation().observer = nullptr;
    trace_->close();
    const models::ServerConfig& config = platform_->config();
    if (!config.trace_file.empty() && config.trace_format == models::TraceFormat::perfetto) {
      const std::string binary = binary_trace_file(config);
      export_trace(binary, config.trace_file);
      std::filesystem::remove(binary);
    }
  }
}

std::filesystem::path ServerHost::socket(const std::string& endpoint) const {
  const auto server = servers_.find(endpoint);
  return server == servers_.end() ? std::filesystem::path{} : server->second->socket();
}

bool ServerHost::connected(const std::string& endpoint) const {
  const auto server = servers_.find(endpoint);
  return server != servers_.end() && server->second->connected();
}

Picoseconds ServerHost::target_time() {
  const auto wall = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - wall_start_).count();
  const models::ServerConfig& config = platform_->config();
  const double pace = config.time_mode == models::TimeMode::timed ? config.pace : 1.0;
  return simulated_start_ + Picoseconds{static_cast<std::uint64_t>(static_cast<double>(wall) * 1e3 * pace)};
}

bool ServerHost::poll_servers() {
  if (polled_.empty()) {
    return false;
  }
  if (turns_ % turns_between_full_polls != 0) {
    return polled_[last_active_]->poll();
  }
  bool any = false;
  for (std::size_t i = 0; i < polled_.size(); ++i) {
    if (polled_[i]->poll()) {
      last_active_ = i;
      any = true;
    }
  }
  return any;
}

bool ServerHost::look_on(bool active) {
  const Clock::time_point now = Clock::now();
  if (active) {
    wait_.ended(now - silent_since_);
    silent_since_ = now;
    return true;
  }
  return now - silent_since_ < wait_.wait() && spare_core_.spare(now);
}

void ServerHost::turn(std::chrono::microseconds longest) {
  ++turns_;
  if (links_ != nullptr) {
    links_->resume();
  }
  bool active = false;
  if (options_.poll) {
    active = poll_servers();
    if (!active && turns_ % turns_between_full_polls == 0) {
      active = io_.poll() != 0;
    }
  } else {
    active = io_.poll() != 0;
  }
  if (io_.stopped()) {
    io_.restart();
  }

  const bool timed = platform_->config().time_mode == models::TimeMode::timed;
  const Picoseconds target = target_time();
  const Picoseconds due = platform_->next_activity();
  if (due <= target || platform_->now() < target) {
    platform_->advance(max(target, platform_->now()), timed ? timed_budget : functional_budget);
  }
  if (timed && platform_->now() < target && platform_->next_activity() <= target) {
    // More to simulate than time for it: the backlog is not made up for, simulated time just runs later.
    wall_start_ = Clock::now();
    simulated_start_ = platform_->now();
  }
  if (options_.poll || stopped_ || look_on(active)) {
    return;
  }
  const Picoseconds next = platform_->next_activity();
  auto sleep = std::chrono::duration_cast<std::chrono::microseconds>(longest);
  if (next != Picoseconds::max()) {
    const double pace = timed ? platform_->config().pace : 1.0;
    const Picoseconds from = platform_->now();
    const double micros = next <= from ? 0.0 : static_cast<double>((next - from).count) / 1e6 / pace;
    sleep = std::min(sleep, std::chrono::microseconds(static_cast<std::int64_t>(std::min(micros, 1e6))));
  }
  if (sleep >= shortest_sleep) {
    if (io_.run_one_for(sleep) != 0) {
      look_on(true);
    }
    if (io_.stopped()) {
      io_.restart();
    }
  }
}

void ServerHost::run() {
  stopped_ = false;
  while (!stopped_) {
    turn(std::chrono::milliseconds(200));
  }
}

bool ServerHost::run_until(const std::function<bool()>& done, std::chrono::milliseconds limit) {
  const Clock::time_point end = Clock::now() + limit;
  while (!done()) {
    if (Clock::now() >= end) {
      return false;
    }
    turn(std::chrono::milliseconds(20));
  }
  return true;
}

nlohmann::ordered_json firmware_json(const ServerHost& host) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const auto& firmware : host.firmware()) {
    const bridge::FirmwareMachineSpec& spec = firmware->spec();
    all.push_back({{"rnic", spec.name},
                   {"elf", spec.elf},
                   {"console_log", spec.console_log},
                   {"console_socket", spec.console_socket},
                   {"gdb_socket", spec.gdb_socket},
                   {"monitor_socket", spec.qmp_socket}});
  }
  return all;
}

void note_firmware(const ServerHost& host) {
  for (const auto& firmware : host.firmware()) {
    note("orrery: {}: firmware {}; console {}; gdb {}", firmware->name(), firmware->spec().elf,
         firmware->spec().console_log, firmware->spec().gdb_socket);
  }
}

}  // namespace orrery::cli
