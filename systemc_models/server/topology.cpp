#include "systemc_models/server/topology.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "common/text.h"

namespace orrery::models {

const char* name(EndpointKind kind) {
  switch (kind) {
    case EndpointKind::rnic:
      return "rnic";
    case EndpointKind::gpu:
      return "gpu";
    case EndpointKind::plugin:
      return "plugin";
  }
  return "?";
}

namespace {

constexpr unsigned bus_count = 256;

// What is put into a slot, before bus numbers are given.
struct Occupant {
  std::string name;
  EndpointKind kind = EndpointKind::gpu;
  unsigned ordinal = 0;
  std::string model;
  std::map<std::string, std::string> params;
};

using Slots = std::map<unsigned, Occupant>;

struct Layout {
  unsigned sockets = 0;
  std::vector<std::vector<unsigned>> socket_switches;  // by socket, in order of slots from 0
  std::vector<Slots> socket_slots;                     // endpoints at root ports; slots after the switches
  std::vector<Slots> switch_slots;                     // by switch
  unsigned rnics = 0;
  unsigned gpus = 0;
};

// Item `index` of `count`, spread over the sockets in order and as evenly as can be.
unsigned socket_of(unsigned index, unsigned count, unsigned sockets) {
  return index * sockets / count;
}

Occupant builtin(Layout& layout, EndpointKind kind) {
  Occupant occupant;
  occupant.kind = kind;
  occupant.ordinal = kind == EndpointKind::rnic ? layout.rnics++ : layout.gpus++;
  occupant.model = name(kind);
  occupant.name = fmt::format("{}{}", name(kind), occupant.ordinal);
  return occupant;
}

Layout base_layout(const TopologyConfig& shape) {
  Layout layout;
  layout.sockets = shape.sockets;
  layout.socket_switches.resize(shape.sockets);
  layout.socket_slots.resize(shape.sockets);
  layout.switch_slots.resize(shape.switches);
  for (unsigned s = 0; s < shape.switches; ++s) {
    layout.socket_switches[socket_of(s, shape.switches, shape.sockets)].push_back(s);
    unsigned slot = 0;
    for (unsigned i = 0; i < shape.rnics_per_switch; ++i) {
      layout.switch_slots[s][slot++] = builtin(layout, EndpointKind::rnic);
    }
    for (unsigned i = 0; i < shape.gpus_per_switch; ++i) {
      layout.switch_slots[s][slot++] = builtin(layout, EndpointKind::gpu);
    }
  }
  if (shape.switches == 0) {
    const auto place = [&](unsigned index, unsigned count, EndpointKind kind) {
      Slots& slots = layout.socket_slots[socket_of(index, count, shape.sockets)];
      slots[static_cast<unsigned>(slots.size())] = builtin(layout, kind);
    };
    for (unsigned i = 0; i < shape.rnics; ++i) {
      place(i, shape.rnics, EndpointKind::rnic);
    }
    for (unsigned i = 0; i < shape.gpus; ++i) {
      place(i, shape.gpus, EndpointKind::gpu);
    }
  }
  return layout;
}

// "switch2.slot0" or "socket1.slot3".
struct SlotName {
  bool at_switch = false;
  unsigned holder = 0;
  unsigned slot = 0;
};

std::optional<unsigned> number_after(std::string_view text, std::string_view prefix) {
  if (!text.starts_with(prefix)) {
    return std::nullopt;
  }
  text.remove_prefix(prefix.size());
  const std::optional<std::uint64_t> number = parse_unsigned(text);
  // "01" or "0x1" would be a second name of slot 1.
  if (!number || *number > 255 || fmt::format("{}", *number) != text) {
    return std::nullopt;
  }
  return static_cast<unsigned>(*number);
}

std::optional<SlotName> parse_slot(std::string_view text) {
  const std::vector<std::string_view> parts = split(text, '.');
  if (parts.size() != 2) {
    return std::nullopt;
  }
  SlotName slot;
  slot.at_switch = parts[0].starts_with("switch");
  const std::optional<unsigned> holder = number_after(parts[0], slot.at_switch ? "switch" : "socket");
  const std::optional<unsigned> number = number_after(parts[1], "slot");
  if (!holder || !number) {
    return std::nullopt;
  }
  slot.holder = *holder;
  slot.slot = *number;
  return slot;
}

void place_devices(Layout& layout, const ServerConfig& config, ConfigProblems& problems) {
  std::set<std::string, std::less<>> slots_taken;
  for (std::size_t i = 0; i < config.devices.size(); ++i) {
    const DeviceConfig& device = config.devices[i];
    const std::string path = fmt::format("device.{}.slot", i);
    const std::optional<SlotName> where = parse_slot(device.slot);
    if (!where) {
      problems.add(path, fmt::format("\"{}\" is no slot", printable(device.slot)),
                   "write \"switchN.slotM\" or \"socketN.slotM\", numbers from 0");
      continue;
    }
    if (!slots_taken.insert(device.slot).second) {
      problems.add(path, fmt::format("{} is taken by an earlier [[device]]", device.slot), "choose another slot");
      continue;
    }
    const std::size_t holders = where->at_switch ? layout.switch_slots.size() : layout.sockets;
    if (where->holder >= holders) {
      const char* what = where->at_switch ? "switch" : "socket";
      problems.add(path, fmt::format("there is no {}{}", what, where->holder),
                   holders == 0 ? "with topology.switches = 0 slots are \"socketN.slotM\""
                                : fmt::format("use {}0 to {}{}", what, what, holders - 1));
      continue;
    }
    const std::size_t switches_here = where->at_switch ? 0 : layout.socket_switches[where->holder].size();
    const unsigned limit = where->at_switch ? Topology::max_downstream_ports : Topology::max_root_ports;
    if (where->slot >= limit) {
      problems.add(path, fmt::format("there is no slot {}", where->slot),
                   fmt::format("use slot0 to slot{}", limit - 1));
      continue;
    }
    if (where->slot < switches_here) {
      problems.add(
          path, fmt::format("{} holds a switch", device.slot),
          fmt::format("use socket{}.slot{} or a later one, or a slot of the switch", where->holder, switches_here));
      continue;
    }
    Occupant occupant;
    if (device.model == "gpu" || device.model == "rnic") {
      occupant = builtin(layout, device.model == "gpu" ? EndpointKind::gpu : EndpointKind::rnic);
    } else {
      occupant.kind = EndpointKind::plugin;
      occupant.ordinal = static_cast<unsigned>(i);
    }
    occupant.name = device.name;
    occupant.model = device.model;
    occupant.params = device.params;
    (where->at_switch ? layout.switch_slots : layout.socket_slots)[where->holder][where->slot] = std::move(occupant);
  }
}

pcie::LinkSettings link_of(EndpointKind kind, const LinksConfig& links) {
  return kind == EndpointKind::rnic ? links.rnic : links.gpu;
}

std::string counts_text(const TopologyConfig& shape) {
  if (shape.switches == 0) {
    return shape.sockets == 1 ? "topology.rnics or topology.gpus, or raise topology.sockets to 2"
                              : "topology.rnics or topology.gpus";
  }
  return "topology.switches, topology.rnics_per_switch or topology.gpus_per_switch";
}

// Gives bus numbers, and makes the description.
class Builder {
 public:
  Builder(const ServerConfig& config, const Layout& layout) : config_(config), layout_(layout) {
    topology_.server_name = config.name;
  }

  Topology build(ConfigProblems& problems) {
    const unsigned share = bus_count / layout_.sockets;
    for (unsigned s = 0; s < layout_.sockets; ++s) {
      Topology::Socket socket;
      socket.index = s;
      socket.numa_node = s;
      socket.root_bus = s * share;
      socket.last_bus = socket.root_bus + share - 1;
      topology_.sockets.push_back(std::move(socket));
      next_bus_ = s * share + 1;
      add_root_ports(s);
      const unsigned used = next_bus_ - s * share;
      if (used > share) {
        problems.add("topology",
                     fmt::format("socket {} needs {} bus numbers and has {} of the {}", s, used, share, bus_count),
                     fmt::format("lower {}", counts_text(config_.topology)));
      }
    }
    return std::move(topology_);
  }

 private:
  void add_root_ports(unsigned s) {
    const std::vector<unsigned>& switches = layout_.socket_switches[s];
    for (unsigned slot = 0; slot < switches.size(); ++slot) {
      Topology::RootPort& port = add_root_port(s, slot, config_.links.upstream);
      port.switch_index = switches[slot];
      const std::size_t index = topology_.root_ports.size() - 1;
      add_switch(switches[slot], index);
      topology_.root_ports[index].subordinate_bus = next_bus_ - 1;
    }
    for (const auto& [slot, occupant] : layout_.socket_slots[s]) {
      const pcie::LinkSettings link = link_of(occupant.kind, config_.links);
      Topology::RootPort& port = add_root_port(s, slot, link);
      port.endpoint = topology_.endpoints.size();
      Topology::Endpoint endpoint = make_endpoint(occupant, s, link);
      endpoint.slot = fmt::format("socket{}.slot{}", s, slot);
      endpoint.port = topology_.root_ports.size() - 1;
      endpoint.bdf = pcie::Bdf::of(port.secondary_bus, 0, 0);
      topology_.endpoints.push_back(std::move(endpoint));
    }
  }

  Topology::RootPort& add_root_port(unsigned s, unsigned slot, const pcie::LinkSettings& link) {
    Topology::RootPort port;
    port.name = fmt::format("socket{}.port{}", s, slot);
    port.socket = s;
    port.slot = slot;
    port.bdf = pcie::Bdf::of(topology_.sockets[s].root_bus, slot + 1, 0);
    port.secondary_bus = next_bus_++;
    port.subordinate_bus = port.secondary_bus;
    port.link = link;
    topology_.sockets[s].root_ports.push_back(topology_.root_ports.size());
    return topology_.root_ports.emplace_back(std::move(port));
  }

  void add_switch(unsigned index, std::size_t root_port) {
    Topology::Switch node;
    node.name = fmt::format("switch{}", index);
    node.root_port = root_port;
    node.socket = topology_.root_ports[root_port].socket;
    node.bdf = pcie::Bdf::of(topology_.root_ports[root_port].secondary_bus, 0, 0);
    node.secondary_bus = next_bus_++;
    node.latency = config_.switch_latency(index);
    node.acs = config_.switch_acs(index);
    for (const auto& [slot, occupant] : layout_.switch_slots[index]) {
      Topology::DownstreamPort port;
      port.name = fmt::format("{}.port{}", node.name, slot);
      port.slot = slot;
      port.bdf = pcie::Bdf::of(node.secondary_bus, slot, 0);
      port.secondary_bus = next_bus_++;
      port.link = link_of(occupant.kind, config_.links);
      port.endpoint = topology_.endpoints.size();
      Topology::Endpoint endpoint = make_endpoint(occupant, node.socket, port.link);
      endpoint.slot = fmt::format("{}.slot{}", node.name, slot);
      endpoint.switch_index = index;
      endpoint.port = node.downstream_ports.size();
      endpoint.bdf = pcie::Bdf::of(port.secondary_bus, 0, 0);
      topology_.endpoints.push_back(std::move(endpoint));
      node.downstream_ports.push_back(std::move(port));
    }
    node.subordinate_bus = next_bus_ - 1;
    set_egress_vectors(index, node);
    topology_.switches.push_back(std::move(node));
  }

  // From numbers by slot to port numbers.
  void set_egress_vectors(unsigned index, Topology::Switch& node) {
    const auto found = config_.switches.overrides.find(index);
    if (found == config_.switches.overrides.end()) {
      return;
    }
    const std::vector<std::uint64_t>& by_slot = found->second.egress;
    for (Topology::DownstreamPort& port : node.downstream_ports) {
      const std::uint64_t blocked = port.slot < by_slot.size() ? by_slot[port.slot] : 0;
      for (std::size_t other = 0; other < node.downstream_ports.size(); ++other) {
        port.egress_vector |= ((blocked >> node.downstream_ports[other].slot) & 1U) << (other + 1);
      }
    }
  }

  static Topology::Endpoint make_endpoint(const Occupant& occupant, std::size_t socket, pcie::LinkSettings link) {
    Topology::Endpoint endpoint;
    endpoint.name = occupant.name;
    endpoint.kind = occupant.kind;
    endpoint.ordinal = occupant.ordinal;
    endpoint.socket = socket;
    endpoint.link = link;
    endpoint.model = occupant.model;
    endpoint.params = occupant.params;
    return endpoint;
  }

  const ServerConfig& config_;
  const Layout& layout_;
  Topology topology_;
  unsigned next_bus_ = 0;
};

// Counts that no bus has room for; false if the layout can't be made at all.
bool check_counts(const ServerConfig& config, ConfigProblems& problems) {
  const TopologyConfig& shape = config.topology;
  bool good = true;
  if (shape.switches != 0 && shape.rnics_per_switch + shape.gpus_per_switch > Topology::max_downstream_ports) {
    problems.add("topology.gpus_per_switch",
                 fmt::format("{} RNICs and {} GPUs below one switch", shape.rnics_per_switch, shape.gpus_per_switch),
                 fmt::format("a switch's internal bus has {} device numbers: at most {} endpoints",
                             Topology::max_downstream_ports, Topology::max_downstream_ports));
    good = false;
  }
  return good;
}

void check_layout(const Layout& layout, const ServerConfig& config, ConfigProblems& problems) {
  std::size_t endpoints = 0;
  for (std::size_t s = 0; s < layout.switch_slots.size(); ++s) {
    endpoints += layout.switch_slots[s].size();
    if (layout.switch_slots[s].empty()) {
      problems.add("topology", fmt::format("switch{} has no endpoint", s),
                   "set topology.rnics_per_switch or topology.gpus_per_switch, or put a [[device]] into a slot of it");
    }
  }
  for (std::size_t s = 0; s < layout.socket_slots.size(); ++s) {
    endpoints += layout.socket_slots[s].size();
    const std::size_t ports = layout.socket_slots[s].size() + layout.socket_switches[s].size();
    if (ports > Topology::max_root_ports) {
      problems.add("topology", fmt::format("socket {} needs {} root ports", s, ports),
                   fmt::format("a root bus has {} device numbers for them: lower {}", Topology::max_root_ports,
                               counts_text(config.topology)));
    }
  }
  if (endpoints == 0 && layout.switch_slots.empty()) {
    problems.add("topology", "a server without any endpoint", "set topology.rnics or topology.gpus");
  }
}

void check_overrides(const ServerConfig& config, ConfigProblems& problems) {
  for (const auto& entry : config.switches.overrides) {
    if (entry.first >= config.topology.switches) {
      problems.add(fmt::format("switch.override.{}", entry.first), fmt::format("there is no switch {}", entry.first),
                   config.topology.switches == 0
                       ? std::string("topology.switches is 0: remove the table")
                       : fmt::format("use a number from 0 to {}", config.topology.switches - 1));
    }
  }
  if (config.gpu.bar_mib > config.gpu.memory_mib) {
    problems.add("gpu.bar_mib",
                 fmt::format("the BAR has {} MiB, the memory {}", config.gpu.bar_mib, config.gpu.memory_mib),
                 fmt::format("give at most gpu.memory_mib, or raise it to {}", config.gpu.bar_mib));
  }
  if (!config.record_file.empty() && config.record_file == config.trace_file) {
    problems.add("record.file", "the same file as trace.file", "give each a file of its own");
  }
  if (!config.record_file.empty() && config.rnic.personality == RnicPersonality::mlx5 &&
      config.rnic.firmware == RnicFirmware::riscv64) {
    problems.add("record.file",
                 "a firmware on a processor of its own can't be replayed: it takes the time that it takes",
                 "record with rnic.firmware = \"native\"");
  }
  if (!config.rnic.firmware_map.empty() && config.rnic.firmware_elf.empty()) {
    problems.add("rnic.firmware_map", "Orrery's firmware knows its own register map only",
                 "name the firmware for this one: rnic.firmware_elf");
  }
}

void check_names(const Topology& topology, ConfigProblems& problems, const ServerConfig& config) {
  std::set<std::string, std::less<>> names;
  for (const Topology::Endpoint& endpoint : topology.endpoints) {
    if (names.insert(endpoint.name).second) {
      continue;
    }
    for (std::size_t i = 0; i < config.devices.size(); ++i) {
      if (config.devices[i].name == endpoint.name) {
        problems.add(fmt::format("device.{}.name", i),
                     fmt::format("\"{}\" is the name of another endpoint", endpoint.name), "choose another name");
        break;
      }
    }
  }
  if (names.contains("all")) {
    problems.add("device", "\"all\" cannot be the name of an endpoint", "choose another name");
  }
}

void check_guests(const ServerConfig& config, const Topology& topology, ConfigProblems& problems) {
  std::map<std::string, std::string, std::less<>> owner;  // endpoint to guest
  std::set<std::string, std::less<>> guests;
  const std::vector<std::string> known = topology.endpoint_names();
  for (std::size_t g = 0; g < config.guests.size(); ++g) {
    const GuestConfig& guest = config.guests[g];
    if (!guests.insert(guest.name).second) {
      problems.add(fmt::format("guest.{}.name", g), fmt::format("a second guest \"{}\"", guest.name),
                   "give each guest a name of its own");
    }
    const std::string path = fmt::format("guest.{}.devices", g);
    const bool all = std::find(guest.devices.begin(), guest.devices.end(), "all") != guest.devices.end();
    if (all && guest.devices.size() > 1) {
      problems.add(path, "\"all\" beside other names", "give \"all\" alone, or names");
      continue;
    }
    for (const std::string& device : all ? known : guest.devices) {
      if (topology.find(device) == nullptr) {
        const std::string suggestion = closest(device, known);
        problems.add(path, fmt::format("there is no endpoint \"{}\"", printable(device)),
                     suggestion.empty() ? "`orrery topo` lists them" : fmt::format("did you mean \"{}\"?", suggestion));
        continue;
      }
      const auto [entry, fresh] = owner.emplace(device, guest.name);
      if (!fresh) {
        problems.add(path, fmt::format("\"{}\" belongs to guest \"{}\" already", device, entry->second),
                     "a function belongs to one guest");
        if (all) {
          break;
        }
      }
    }
  }
}

}  // namespace

const Topology::Endpoint* Topology::find(std::string_view wanted) const {
  for (const Endpoint& endpoint : endpoints) {
    if (endpoint.name == wanted) {
      return &endpoint;
    }
  }
  return nullptr;
}

std::vector<std::string> Topology::endpoint_names() const {
  std::vector<std::string> names;
  for (const Endpoint& endpoint : endpoints) {
    names.push_back(endpoint.name);
  }
  return names;
}

Topology Topology::from(const ServerConfig& config, ConfigProblems& problems) {
  if (!check_counts(config, problems)) {
    return {};
  }
  Layout layout = base_layout(config.topology);
  place_devices(layout, config, problems);
  check_layout(layout, config, problems);
  check_overrides(config, problems);
  Topology topology = Builder(config, layout).build(problems);
  check_names(topology, problems, config);
  check_guests(config, topology, problems);
  return topology;
}

Topology Topology::from(const ServerConfig& config) {
  ConfigProblems problems;
  Topology topology = from(config, problems);
  problems.throw_if_any();
  return topology;
}

std::vector<GuestConfig> guests_of(const ServerConfig& config, const Topology& topology) {
  std::vector<GuestConfig> guests = config.guests;
  if (guests.empty()) {
    guests.emplace_back();
  }
  for (GuestConfig& guest : guests) {
    if (guest.devices == std::vector<std::string>{"all"}) {
      guest.devices = topology.endpoint_names();
    }
  }
  return guests;
}

}  // namespace orrery::models
