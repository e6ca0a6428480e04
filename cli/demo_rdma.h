// What the demonstration shows of the RNICs: two guests' stock drivers and programs move data between them.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/demo_guests.h"
#include "cli/guest_report.h"
#include "cli/latency_breakdown.h"
#include "systemc_models/server/server_config.h"
#include "systemc_models/server/topology.h"

namespace orrery::cli {

// Two guests of the default configuration: the second gets the last RNIC of the server, the first everything else. Both
// get a virtio network between them, over which the programs find each other.
std::vector<models::GuestConfig> demo_guests(const models::ServerConfig& config, const models::Topology& topology);
std::vector<std::string> demo_network_arguments(const bridge::RunDirectory& run, unsigned guest);

class DemoRdma {
 public:
  // Names of the second guest's RNIC, and of the first guest's: which of those is its mlx5_0, its kernel decides.
  DemoRdma(ServerHost& host, DemoGuests& guests, std::string requester, std::vector<std::string> responders)
      : host_(host), guests_(guests), requester_(std::move(requester)), responders_(std::move(responders)) {}

  // Brings the RNICs up and runs the programs; `step` says what is under way.
  void run(const std::function<void(const std::string&)>& step);
  void print() const;
  [[nodiscard]] const std::vector<Check>& checks() const { return checks_; }
  [[nodiscard]] nlohmann::json json() const;

 private:
  struct Row {
    std::string program;
    std::string what;
    std::string result;  // in the guest's own words
  };
  void bring_up();
  // Runs a program as server in the first and as client in the second guest, on mlx5_0 of both; a check. `gid_option`
  // is how the program is told the source GID, which it needs on an Ethernet port.
  DemoGuests::PairOutcome pair(const std::vector<std::string>& program, const char* gid_option,
                               const std::string& what);
  DemoGuests::PairOutcome commands_pair(const std::vector<std::string>& server, const std::vector<std::string>& client,
                                        const std::string& what);
  void write_to_gpu();
  [[nodiscard]] bool ethernet() const {
    return host_.platform().config().rnic.port_type == models::RnicPortType::ethernet;
  }
  void measure_read();
  [[nodiscard]] RnicLink link_of(const std::string& rnic) const;

  ServerHost& host_;
  DemoGuests& guests_;
  std::string requester_;
  std::vector<std::string> responders_;
  std::array<std::string, 2> gid_index_;  // of mlx5_0: RoCE v2 with its IPv4 address
  std::string responder_;                 // the one that answered
  std::vector<Check> checks_;
  std::vector<Row> rows_;
  std::optional<LatencyBreakdown> breakdown_;
};

}  // namespace orrery::cli
