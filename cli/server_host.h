// A running server: the platform, its vfio-user sockets, and the loop that gives both their time.
//
// One thread alternates between the io_context (clients' messages) and the SystemC kernel. In functional
// mode simulated time follows the monotonic clock; in timed mode it is paced: never ahead of
// wall time x pace, and behind it for as long as there is more to simulate than time for it.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "cli/adaptive_wait.h"
#include "cli/firmware_control.h"
#include "cli/firmware_host.h"
#include "cli/recorder.h"
#include "cli/spare_core.h"
#include "fabric/instance_link/sockets.h"
#include "pcie/tlp_trace.h"
#include "qemu_bridge/server.h"
#include "systemc_models/server/platform.h"
#include "systemc_models/server/server_config.h"

namespace orrery::cli {

struct ServerHostOptions {
  std::filesystem::path socket_directory;  // exists, private; a socket per function is made in it
  bool poll = false;                       // spin instead of sleeping: lower latency, a whole core
  bool stop_firmware = false;              // of target riscv64: it waits for a debugger before its first instruction
  // See FirmwareHostOptions::once.
  std::function<void(int status, const std::string& sentence)> firmware_once = {};
  // Directory for logs of the firmware's code that ran (bridge::FirmwareMachineSpec); empty: none.
  std::string firmware_code_logs = {};
};

class ServerHost {
 public:
  // Throws Error if the configuration can't be built, or a socket or a link's token can't be had.
  ServerHost(const models::ServerConfig& config, ServerHostOptions options);
  ~ServerHost();
  ServerHost(const ServerHost&) = delete;
  ServerHost& operator=(const ServerHost&) = delete;

  [[nodiscard]] boost::asio::io_context& io() { return io_; }
  [[nodiscard]] models::Platform& platform() { return *platform_; }
  [[nodiscard]] const std::vector<models::GuestConfig>& guests() const { return guests_; }
  // Socket of an endpoint, by its name; empty for an endpoint that no guest has.
  [[nodiscard]] std::filesystem::path socket(const std::string& endpoint) const;
  [[nodiscard]] bool connected(const std::string& endpoint) const;
  // Of RNICs whose firmware has a processor of its own.
  [[nodiscard]] const std::vector<std::unique_ptr<FirmwareHost>>& firmware() const { return firmware_; }
  // Every TLP so far, in order. Kept in timed mode, and in functional mode if a trace file is written.
  [[nodiscard]] pcie::TlpTrace* trace() { return trace_.get(); }
  // Disconnects the clients and completes trace and recording; throws Error if they couldn't be written.
  // Afterwards only trace() may be asked. Without it the files are left as a killed process leaves them.
  void close();

  // Runs until stop() is called from a handler. Exceptions of handlers leave it.
  void run();
  // Runs until `done` says so (asked after each turn) or the time is up; false: time is up.
  bool run_until(const std::function<bool()>& done, std::chrono::milliseconds limit);
  void stop() { stopped_ = true; }

 private:
  using Clock = std::chrono::steady_clock;
  // One turn: what clients sent, what is due; sleeps until there is more, at most `longest`.
  void turn(std::chrono::microseconds longest);
  [[nodiscard]] Picoseconds target_time();
  bool poll_servers();
  // True: the next message is likely to come before a sleeping thread could have been woken, and no core is missed.
  bool look_on(bool active);
  void start_firmware();
  void stop_firmware();

  boost::asio::io_context io_;
  ServerHostOptions options_;
  std::unique_ptr<models::Platform> platform_;
  std::unique_ptr<instance_link::Sockets> links_;  // null: none
  std::unique_ptr<pcie::TlpTrace> trace_;
  std::unique_ptr<Recorder> recorder_;
  std::vector<models::GuestConfig> guests_;
  std::map<std::string, std::unique_ptr<bridge::Server>> servers_;
  std::vector<std::unique_ptr<FirmwareHost>> firmware_;
  std::unique_ptr<FirmwareControl> firmware_control_;
  std::vector<bridge::Server*> polled_;
  std::size_t last_active_ = 0;
  std::uint64_t turns_ = 0;
  AdaptiveWait wait_{std::chrono::microseconds(10), std::chrono::microseconds(100)};
  Clock::time_point silent_since_;
  SpareCore spare_core_;
  Clock::time_point wall_start_;
  Picoseconds simulated_start_;
  bool stopped_ = false;
};

// Where the firmware's machines are reached: as JSON, or said to the user.
[[nodiscard]] nlohmann::ordered_json firmware_json(const ServerHost& host);
void note_firmware(const ServerHost& host);

}  // namespace orrery::cli
