// What [[network.link]] must be besides what each key says.
#pragma once

#include <cstdint>
#include <vector>

#include "common/config.h"
#include "fabric/instance_link/link_options.h"
#include "systemc_models/server/server_config.h"
#include "systemc_models/server/topology.h"

namespace orrery::models {

// RNICs of one server that have addresses of their own among linked servers (rnic::give_identity).
inline constexpr unsigned most_linked_rnics = 64;

// Adds what is wrong with links, and with the server's index, to `problems`. Files aren't looked at.
void check_links(const ServerConfig& config, const Topology& topology, ConfigProblems& problems);

// The links of a configuration that check_links() has nothing against.
std::vector<instance_link::LinkOptions> link_options(const NetworkConfig& network);

}  // namespace orrery::models
