// Topologies that several tests use.
#pragma once

#include <string>

#include "qemu_bridge/launcher/guest_spec.h"

namespace orrery::bridge::testing {

// Two root complexes × `switches` × (1 RNIC + 2 GPUs), named and socketed in order.
inline GuestTopology server_topology(TopologyShape shape = TopologyShape::switched, unsigned switches = 2,
                                     std::uint64_t gpu_bytes = 256ULL << 20) {
  GuestTopology topology;
  topology.shape = shape;
  unsigned rnic = 0;
  unsigned gpu = 0;
  for (unsigned complex = 0; complex < 2; ++complex) {
    GuestRootComplex root{complex, 64 + 64 * complex, {}};
    for (unsigned i = 0; i < switches; ++i) {
      GuestSwitch a_switch{"switch" + std::to_string(rnic), {}, {}};
      const auto add = [&](const std::string& name, std::uint64_t bytes) {
        GuestEndpoint endpoint;
        endpoint.name = name;
        endpoint.socket_path = "/run/orrery/" + name + ".sock";
        endpoint.prefetchable_bytes = bytes;
        a_switch.endpoints.push_back(endpoint);
      };
      add("rnic" + std::to_string(rnic++), 0);
      add("gpu" + std::to_string(gpu++), gpu_bytes);
      add("gpu" + std::to_string(gpu++), gpu_bytes);
      root.switches.push_back(a_switch);
    }
    topology.root_complexes.push_back(root);
  }
  return topology;
}

// The smallest guest: one CPU, nothing optional.
inline GuestSpec bare_guest() {
  GuestSpec spec;
  spec.name = "g";
  spec.kernel = "/k/vmlinuz";
  spec.cpus = 1;
  spec.memory_mib = 512;
  spec.numa_nodes = 1;
  spec.network = GuestNetwork::none;
  spec.viommu = VirtualIommu::none;
  spec.agent = false;
  spec.gdb = false;
  return spec;
}

inline GuestPaths paths_in(const std::string& directory) {
  return {directory + "/g.qmp", directory + "/g.agent", directory + "/g.console", directory + "/g.log",
          directory + "/g.gdb", directory + "/g.share", directory + "/g.vars"};
}

}  // namespace orrery::bridge::testing
