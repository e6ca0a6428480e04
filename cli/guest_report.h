// What orrery-guest-demo reports from inside a guest, read by the host and held against the configuration.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "pcie/simulation.h"
#include "systemc_models/server/server_config.h"
#include "systemc_models/server/topology.h"

namespace orrery::cli {

// The results in a program's output: the object behind "ORRERY-JSON " of each line that has one. A line that is
// no valid object is passed over: the guest is not trusted.
std::vector<nlohmann::json> guest_results(std::string_view output);

// A verdict of the host or of the guest.
struct Check {
  bool passed = false;
  std::string kind;  // what many of them have in common
  std::string what;
};

// Holds the guest's "topology" results against the configuration, endpoint by endpoint: found once by its
// serial number, right NUMA node, right BARs, below the switch that it shares with the right others, alone
// in its IOMMU group but for its port. `guest`: whose devices they are.
std::vector<Check> check_topology(const std::vector<nlohmann::json>& results, const models::Topology& topology,
                                  const models::ServerConfig& config, const models::GuestConfig& guest);

// Of a "copy" result with a profile: "switch0 210.0, link 16.2, …": where the last TLP's time went, by component,
// in nanoseconds.
std::string hop_summary(const nlohmann::json& hops, const pcie::ComponentNames& names);
// Sum of all hops in picoseconds.
std::uint64_t hop_total(const nlohmann::json& hops);

}  // namespace orrery::cli
