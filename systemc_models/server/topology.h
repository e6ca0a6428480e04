// The shape of a server: what hangs where, under which name and which bus number.
//
// A pure description, derived from a ServerConfig; the server assembles its models from it, the launcher
// writes QEMU's arguments from it, `orrery topo` draws it. Order is fixed: equal configurations have equal
// topologies, component by component.
//
// Bus numbers are given as firmware gives them: each socket has one root bus (the first of its share of
// the 256 buses), and below it depth first, in order of slots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/config.h"
#include "pcie/link.h"
#include "pcie/tlp.h"
#include "systemc_models/server/server_config.h"

namespace orrery::models {

enum class EndpointKind : std::uint8_t { rnic, gpu, plugin };
const char* name(EndpointKind kind);

struct Topology {
  // Most endpoints or switches at one root bus: device 0 is the host bridge.
  static constexpr unsigned max_root_ports = 31;
  // Most downstream ports of a switch: devices of its internal bus.
  static constexpr unsigned max_downstream_ports = 32;

  struct Socket {
    unsigned index = 0;
    unsigned numa_node = 0;  // equal to the index
    unsigned root_bus = 0;
    unsigned last_bus = 0;  // of its share
    std::vector<std::size_t> root_ports;
  };

  struct RootPort {
    std::string name;  // "socket0.port0"
    std::size_t socket = 0;
    unsigned slot = 0;  // n of "socket0.slotn"; device number n + 1
    pcie::Bdf bdf;
    unsigned secondary_bus = 0;
    unsigned subordinate_bus = 0;
    pcie::LinkSettings link;
    std::optional<std::size_t> switch_index;  // exactly one of the two is set
    std::optional<std::size_t> endpoint;
  };

  struct DownstreamPort {
    std::string name;   // "switch0.port2"
    unsigned slot = 0;  // n of "switch0.slotn"; also its device number
    pcie::Bdf bdf;
    unsigned secondary_bus = 0;  // also its subordinate bus
    pcie::LinkSettings link;
    std::size_t endpoint = 0;
    // Bit p: requests to the switch's port p are blocked under Egress Control. Ports are numbered as
    // pcie::Switch does: downstream_ports[i] is port i + 1.
    std::uint64_t egress_vector = 0;
  };

  struct Switch {
    std::string name;  // "switch0"
    std::size_t root_port = 0;
    std::size_t socket = 0;
    pcie::Bdf bdf;               // of the upstream port
    unsigned secondary_bus = 0;  // the switch's internal bus
    unsigned subordinate_bus = 0;
    Picoseconds latency;
    std::uint16_t acs = 0;
    std::vector<DownstreamPort> downstream_ports;
  };

  struct Endpoint {
    std::string name;  // "rnic0", "gpu3", or as [[device]] says
    EndpointKind kind = EndpointKind::gpu;
    unsigned ordinal = 0;  // among its kind: gpu3 has 3
    std::string slot;      // "switch0.slot2", "socket1.slot0"
    std::size_t socket = 0;
    std::optional<std::size_t> switch_index;  // none: at a root port
    std::size_t port = 0;                     // index into the switch's downstream_ports, or into root_ports
    pcie::Bdf bdf;
    pcie::LinkSettings link;
    std::string model;  // plug-in: path of the shared object; else "rnic" or "gpu"
    std::map<std::string, std::string> params;
  };

  std::string server_name;
  std::vector<Socket> sockets;
  std::vector<RootPort> root_ports;
  std::vector<Switch> switches;
  std::vector<Endpoint> endpoints;  // in order of bus numbers

  [[nodiscard]] const Endpoint* find(std::string_view wanted) const;
  [[nodiscard]] std::vector<std::string> endpoint_names() const;

  // Throws Error with every reason why the configuration is no possible server.
  static Topology from(const ServerConfig& config);
  // The same, reporting to `problems` (their places come from its origins). The result is only
  // meaningful if nothing was added.
  static Topology from(const ServerConfig& config, ConfigProblems& problems);
};

// The guests of a configuration with "all" resolved to names; without [[guest]], one guest with every
// device. The configuration must be valid.
std::vector<GuestConfig> guests_of(const ServerConfig& config, const Topology& topology);

}  // namespace orrery::models
