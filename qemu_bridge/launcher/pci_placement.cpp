#include "qemu_bridge/launcher/pci_placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <set>

#include "common/error.h"

namespace orrery::bridge {

namespace {

constexpr unsigned devices_per_bus = 32;

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Buses that one root complex needs: its root bus and one below every port.
unsigned buses_needed(const GuestRootComplex& complex, TopologyShape shape) {
  unsigned buses = 1;
  for (const GuestSwitch& a_switch : complex.switches) {
    const auto endpoints = static_cast<unsigned>(a_switch.endpoints.size());
    buses += shape == TopologyShape::switched ? 2 + endpoints : endpoints;
  }
  return buses;
}

void check_link(const std::string& of, const PcieLinkSpec& link) {
  static constexpr std::array<std::string_view, 6> speeds{"2_5", "5", "8", "16", "32", "64"};
  static constexpr std::array<unsigned, 7> widths{1, 2, 4, 8, 12, 16, 32};
  if (std::find(speeds.begin(), speeds.end(), link.speed) == speeds.end()) {
    throw Error(
        fmt::format("guest topology: {}: link speed '{}' GT/s is not one that QEMU's ports have", of, link.speed),
        "use one of 2_5, 5, 8, 16, 32, 64");
  }
  if (std::find(widths.begin(), widths.end(), link.width) == widths.end()) {
    throw Error(fmt::format("guest topology: {}: link width x{} is not one that QEMU's ports have", of, link.width),
                "use one of 1, 2, 4, 8, 12, 16, 32 lanes");
  }
}

class Checker {
 public:
  explicit Checker(TopologyShape shape) : shape_(shape) {}

  void check(const GuestRootComplex& complex) {
    unsigned ports = 0;
    for (const GuestSwitch& a_switch : complex.switches) {
      check(a_switch);
      ports += shape_ == TopologyShape::switched ? 1 : static_cast<unsigned>(a_switch.endpoints.size());
    }
    if (ports > devices_per_bus) {
      throw Error(
          fmt::format("guest topology: the root complex at bus {} has {} root ports; a bus has {} device numbers",
                      complex.bus_number, ports, devices_per_bus),
          "spread the endpoints over more root complexes or switches");
    }
    slots_ += ports;
    if (slots_ > 255) {
      throw Error(fmt::format("guest topology: more than 255 ports"), "use fewer endpoints in one guest");
    }
  }

 private:
  void check(const GuestSwitch& a_switch) {
    name(a_switch.name, "switch");
    check_link(a_switch.name, a_switch.uplink);
    if (a_switch.endpoints.size() > devices_per_bus) {
      throw Error(fmt::format("guest topology: {} has {} downstream ports; a bus has {} device numbers", a_switch.name,
                              a_switch.endpoints.size(), devices_per_bus),
                  "spread the endpoints over more switches");
    }
    if (shape_ == TopologyShape::switched) {
      slots_ += static_cast<unsigned>(a_switch.endpoints.size());
    }
    for (const GuestEndpoint& endpoint : a_switch.endpoints) {
      name(endpoint.name, "endpoint");
      check_link(endpoint.name, endpoint.link);
      if (endpoint.stand_in.empty()) {
        if (endpoint.socket_path.empty()) {
          throw Error(fmt::format("guest topology: endpoint {} has no vfio-user socket", endpoint.name));
        }
        if (!sockets_.insert(endpoint.socket_path).second) {
          throw Error(fmt::format("guest topology: endpoint {}: socket {} belongs to another endpoint too",
                                  endpoint.name, endpoint.socket_path),
                      "each function has a socket of its own");
        }
      }
    }
  }

  void name(const std::string& value, std::string_view what) {
    if (!is_device_id(value)) {
      throw Error(fmt::format("guest topology: {} name '{}' can't be a QEMU device id", what, value),
                  "use a letter, then letters, digits, '-' or '_', at most 32 in all");
    }
    if (!names_.insert(value).second) {
      throw Error(fmt::format("guest topology: two devices are named '{}'", value), "give each a name of its own");
    }
  }

  TopologyShape shape_;
  unsigned slots_ = 0;
  std::set<std::string> names_;
  std::set<std::string> sockets_;
};

}  // namespace

bool is_device_id(const std::string& name) {
  if (name.empty() || name.size() > 32 || !is_letter(name.front())) {
    return false;
  }
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '_'; });
}

void validate_topology(const GuestTopology& topology, unsigned numa_nodes) {
  if (topology.root_complexes.size() > max_root_complexes) {
    throw Error(fmt::format("guest topology: {} root complexes; a guest takes at most {}",
                            topology.root_complexes.size(), max_root_complexes));
  }
  Checker checker(topology.shape);
  unsigned next_free_bus = 1;
  for (const GuestRootComplex& complex : topology.root_complexes) {
    if (complex.numa_node >= numa_nodes) {
      throw Error(fmt::format("guest topology: the root complex at bus {} is on NUMA node {}, the guest has {} node(s)",
                              complex.bus_number, complex.numa_node, numa_nodes),
                  fmt::format("use a node from 0 to {}", numa_nodes - 1));
    }
    checker.check(complex);
    const unsigned needed = buses_needed(complex, topology.shape);
    if (complex.bus_number < next_free_bus || complex.bus_number + needed > 256) {
      throw Error(
          fmt::format("guest topology: the root complex at bus {} needs buses {} to {}; bus {} is the first free one "
                      "and 255 the last",
                      complex.bus_number, complex.bus_number, complex.bus_number + needed - 1, next_free_bus),
          "give root complexes rising bus numbers, far enough apart");
    }
    next_free_bus = complex.bus_number + needed;
  }
}

std::vector<PlacedDevice> place_devices(const GuestTopology& topology) {
  using Kind = PlacedDevice::Kind;
  std::vector<PlacedDevice> placed;
  unsigned slot = 1;
  unsigned index = 0;
  for (const GuestRootComplex& complex : topology.root_complexes) {
    const std::string expander = fmt::format("pxb{}", index);
    placed.push_back({.kind = Kind::expander,
                      .id = expander,
                      .bus = "pcie.0",
                      .device = first_expander + index,
                      .bus_number = complex.bus_number,
                      .numa_node = complex.numa_node,
                      .slot = 0,
                      .link = {},
                      .endpoint = nullptr});
    ++index;
    const auto add = [&](Kind kind, std::string id, std::string bus, unsigned device, const PcieLinkSpec& link,
                         const GuestEndpoint* endpoint) {
      const bool has_slot = kind == Kind::root_port || kind == Kind::downstream_port;
      placed.push_back({.kind = kind,
                        .id = std::move(id),
                        .bus = std::move(bus),
                        .device = device,
                        .bus_number = 0,
                        .numa_node = 0,
                        .slot = has_slot ? slot++ : 0,
                        .link = link,
                        .endpoint = endpoint});
    };
    unsigned root_ports = 0;
    for (const GuestSwitch& a_switch : complex.switches) {
      const bool switched = topology.shape == TopologyShape::switched;
      const std::string upstream = a_switch.name + ".up";
      if (switched) {
        const std::string root_port = a_switch.name + ".root";
        add(Kind::root_port, root_port, expander, root_ports++, a_switch.uplink, nullptr);
        add(Kind::upstream_port, upstream, root_port, 0, {}, nullptr);
      }
      unsigned downstream_ports = 0;
      for (const GuestEndpoint& endpoint : a_switch.endpoints) {
        const std::string port = endpoint.name + ".port";
        if (switched) {
          add(Kind::downstream_port, port, upstream, downstream_ports++, {}, nullptr);
        } else {
          add(Kind::root_port, port, expander, root_ports++, endpoint.link, nullptr);
        }
        add(Kind::endpoint, endpoint.name, port, 0, {}, &endpoint);
      }
    }
  }
  return placed;
}

std::string bus_of_endpoint(const GuestTopology& topology, const std::string& endpoint) {
  for (const PlacedDevice& device : place_devices(topology)) {
    if (device.endpoint != nullptr && device.id == endpoint) {
      return device.bus;
    }
  }
  throw Error(fmt::format("the guest has no endpoint named '{}'", endpoint));
}

std::uint64_t pci_window_mib(const GuestTopology& topology) {
  constexpr std::uint64_t least = 32 * 1024;
  constexpr std::uint64_t most = std::uint64_t{1} << 40;  // MiB: far above any processor's address width
  std::uint64_t sum = 0;
  for (const GuestRootComplex& complex : topology.root_complexes) {
    for (const GuestSwitch& a_switch : complex.switches) {
      for (const GuestEndpoint& endpoint : a_switch.endpoints) {
        // BARs are naturally aligned: round the sum up, as the bridge's window will be.
        const std::uint64_t mib =
            (endpoint.prefetchable_bytes >> 20) + ((endpoint.prefetchable_bytes & 0xfffff) != 0 ? 1 : 0);
        sum = std::min(most, sum + (mib == 0 ? 0 : std::bit_ceil(std::min(most, mib))));
      }
    }
  }
  // Twice the sum: firmware also sets room aside for hot-plug behind every port, and OVMF drops the largest
  // BARs when a window that fits exactly doesn't hold that too.
  return std::max(least, 2 * std::bit_ceil(sum));
}

}  // namespace orrery::bridge
