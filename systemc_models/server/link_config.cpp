#include "systemc_models/server/link_config.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/error.h"

namespace orrery::models {

namespace {

// Unicast LIDs (IBTA §4.1.3), and how many each RNIC keeps for its functions: rnic::give_identity.
constexpr unsigned unicast_lids = 0xbf00;
constexpr unsigned lids_per_rnic = 64;

void check_link(const NetworkConfig& network, std::size_t index, ConfigProblems& problems) {
  const InstanceLinkConfig& link = network.links[index];
  const std::string path = fmt::format("network.link.{}", index);
  try {
    static_cast<void>(instance_link::parse_endpoint(link.address));
  } catch (const Error& error) {
    problems.add(path + ".address", error.what(), error.remedy());
  }
  for (const std::uint64_t plane : link.planes) {
    if (plane >= network.ports) {
      problems.add(path + ".planes", fmt::format("there is no plane {}", plane),
                   fmt::format("network.ports = {}: planes 0 to {}", network.ports, network.ports - 1));
    }
  }
}

}  // namespace

void check_links(const ServerConfig& config, const Topology& topology, ConfigProblems& problems) {
  const auto rnics = static_cast<unsigned>(
      std::count_if(topology.endpoints.begin(), topology.endpoints.end(),
                    [](const Topology::Endpoint& endpoint) { return endpoint.kind == EndpointKind::rnic; }));
  const bool infiniband = config.rnic.port_type == RnicPortType::infiniband;
  if (infiniband && (config.server_index * most_linked_rnics + rnics) * lids_per_rnic > unicast_lids) {
    problems.add("server.index", fmt::format("found {}: there are not so many LIDs", config.server_index),
                 fmt::format("with rnic.port_type = \"infiniband\" give a number from 0 to {}",
                             (unicast_lids / lids_per_rnic - rnics) / most_linked_rnics));
  }
  if (config.network.links.empty()) {
    return;
  }
  if (config.time_mode == TimeMode::timed) {
    problems.add("network.link", "two servers can't be linked in timed mode yet",
                 "use time.mode = \"functional\": a CPU's read of a register runs this server's clock on to its "
                 "completion, and would have to hold it at what the other's allows");
  }
  if (rnics > most_linked_rnics) {
    problems.add("network.link", fmt::format("a linked server with {} RNICs", rnics),
                 fmt::format("at most {} have addresses that no other server has", most_linked_rnics));
  }
  for (std::size_t i = 0; i < config.network.links.size(); ++i) {
    check_link(config.network, i, problems);
  }
}

std::vector<instance_link::LinkOptions> link_options(const NetworkConfig& network) {
  std::vector<instance_link::LinkOptions> options;
  for (std::size_t i = 0; i < network.links.size(); ++i) {
    const InstanceLinkConfig& link = network.links[i];
    instance_link::LinkOptions option;
    option.key = fmt::format("network.link.{}", i);
    option.listen = link.listen;
    option.endpoint = instance_link::parse_endpoint(link.address);
    option.token_file = link.token_file;
    option.peer = link.peer;
    option.planes = link.planes.empty() ? static_cast<std::uint8_t>((1U << network.ports) - 1) : std::uint8_t{0};
    for (const std::uint64_t plane : link.planes) {
      option.planes |= static_cast<std::uint8_t>(1U << plane);
    }
    options.push_back(std::move(option));
  }
  return options;
}

}  // namespace orrery::models
