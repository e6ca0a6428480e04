#include "cli/guest_report.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "systemc_models/device_identity.h"

namespace orrery::cli {

namespace {

std::string text_of(const nlohmann::json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_string() ? at->get<std::string>() : std::string{};
}

std::uint64_t number_of(const nlohmann::json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_number_unsigned() ? at->get<std::uint64_t>() : 0;
}

const nlohmann::json* list_of(const nlohmann::json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_array() ? &*at : nullptr;
}

std::string serial_text(const models::Topology::Endpoint& endpoint, const models::ServerConfig& config) {
  if (endpoint.kind == models::EndpointKind::gpu) {
    return fmt::format("{:016x}", orrery_serial(ORRERY_SERIAL_KIND_GPU, 0, endpoint.ordinal));
  }
  const bool mlx5 = config.rnic.personality == models::RnicPersonality::mlx5;
  return fmt::format("{:016x}", orrery_serial(ORRERY_SERIAL_KIND_RNIC, mlx5 ? config.server_index : 0,
                                              mlx5 ? endpoint.ordinal << 8 : endpoint.ordinal));
}

// BDFs of the ports above a function, from the root port down.
std::vector<std::string> parents_of(const nlohmann::json& result) {
  std::vector<std::string> parents;
  if (const nlohmann::json* list = list_of(result, "parents")) {
    for (const nlohmann::json& parent : *list) {
      if (parent.is_object()) {
        parents.push_back(text_of(parent, "bdf"));
      }
    }
  }
  return parents;
}

const char* const endpoint_kind = "endpoints found as configured: NUMA node, switch, BARs, alone in their IOMMU group";

std::uint64_t bar_size(const nlohmann::json& result, std::uint64_t index) {
  if (const nlohmann::json* list = list_of(result, "bars")) {
    for (const nlohmann::json& bar : *list) {
      if (bar.is_object() && number_of(bar, "index") == index) {
        return number_of(bar, "size");
      }
    }
  }
  return 0;
}

}  // namespace

std::vector<nlohmann::json> guest_results(std::string_view output) {
  constexpr std::string_view marker = "ORRERY-JSON ";
  std::vector<nlohmann::json> results;
  while (!output.empty()) {
    const std::size_t end = std::min(output.find('\n'), output.size());
    const std::string_view line = output.substr(0, end);
    output.remove_prefix(std::min(end + 1, output.size()));
    if (const std::size_t at = line.find(marker); at != std::string_view::npos) {
      nlohmann::json result = nlohmann::json::parse(line.substr(at + marker.size()), nullptr, false);
      if (result.is_object()) {
        results.push_back(std::move(result));
      }
    }
  }
  return results;
}

std::vector<Check> check_topology(const std::vector<nlohmann::json>& results, const models::Topology& topology,
                                  const models::ServerConfig& config, const models::GuestConfig& guest) {
  std::vector<Check> checks;
  std::map<std::string, std::string> switch_above;  // endpoint: BDF of the guest's upstream port above it
  for (const models::Topology::Endpoint& endpoint : topology.endpoints) {
    if (endpoint.kind == models::EndpointKind::plugin ||
        std::find(guest.devices.begin(), guest.devices.end(), endpoint.name) == guest.devices.end()) {
      continue;
    }
    const std::string serial = serial_text(endpoint, config);
    const nlohmann::json* found = nullptr;
    unsigned times = 0;
    for (const nlohmann::json& result : results) {
      if (text_of(result, "test") == "topology" && text_of(result, "serial_number") == serial) {
        found = &result;
        ++times;
      }
    }
    if (times != 1) {
      checks.push_back({false, endpoint_kind, fmt::format("{}: the guest sees it {} times", endpoint.name, times)});
      continue;
    }
    std::vector<std::string> wrong;
    const auto expect = [&](bool right, std::string what) {
      if (!right) {
        wrong.push_back(std::move(what));
      }
    };
    const auto node = found->find("numa_node");
    expect(node != found->end() && node->is_number_integer() &&
               node->get<std::int64_t>() == static_cast<std::int64_t>(topology.sockets[endpoint.socket].numa_node),
           "NUMA node");
    if (endpoint.kind == models::EndpointKind::gpu) {
      expect(bar_size(*found, 2) == config.gpu.bar_mib << 20, "BAR2 size");
    }
    const std::vector<std::string> parents = parents_of(*found);
    const std::size_t depth = endpoint.switch_index ? 3 : 1;  // root port, upstream port, downstream port
    expect(parents.size() == depth, fmt::format("{} ports above it instead of {}", parents.size(), depth));
    if (endpoint.switch_index && parents.size() == depth) {
      switch_above[endpoint.name] = parents[1];
    }
    std::set<std::string> group;
    if (const nlohmann::json* members = list_of(*found, "group_members")) {
      for (const nlohmann::json& member : *members) {
        group.insert(member.is_string() ? member.get<std::string>() : std::string{});
      }
    }
    std::set<std::string> expected{text_of(*found, "name")};
    if (endpoint.switch_index && !parents.empty()) {
      expected.insert(parents.back());
    }
    // Behind a root port with ACS of its own a function may even be alone.
    expect(group == expected || (!endpoint.switch_index && group == std::set<std::string>{text_of(*found, "name")}),
           "IOMMU group");
    std::string problem;
    for (const std::string& what : wrong) {
      problem += (problem.empty() ? "" : ", ") + what;
    }
    checks.push_back({wrong.empty(), endpoint_kind,
                      wrong.empty() ? fmt::format("{} is {} in the guest, NUMA node {}, alone in its IOMMU group",
                                                  endpoint.name, text_of(*found, "name"), endpoint.socket)
                                    : fmt::format("{} ({} in the guest): wrong {}", endpoint.name,
                                                  text_of(*found, "name"), problem)});
  }
  // Endpoints share a switch in the guest exactly if they share one on the platform.
  bool grouped = true;
  for (const auto& [a, above_a] : switch_above) {
    for (const auto& [b, above_b] : switch_above) {
      grouped = grouped && (above_a == above_b) == (topology.find(a)->switch_index == topology.find(b)->switch_index);
    }
  }
  if (!switch_above.empty()) {
    checks.push_back(
        {grouped, "switches of the guest group endpoints as configured", "endpoints share switches as configured"});
  }
  return checks;
}

std::uint64_t hop_total(const nlohmann::json& hops) {
  std::uint64_t sum = 0;
  if (hops.is_array()) {
    for (const nlohmann::json& hop : hops) {
      if (hop.is_object()) {
        for (const char* key : {"queue_ps", "credit_ps", "serialise_ps", "propagate_ps", "process_ps"}) {
          sum += number_of(hop, key);
        }
      }
    }
  }
  return sum;
}

std::string hop_summary(const nlohmann::json& hops, const pcie::ComponentNames& names) {
  // By component, in order of first appearance: a request and its completion cross many of them twice.
  std::vector<std::pair<std::string, std::uint64_t>> rows;
  if (hops.is_array()) {
    for (const nlohmann::json& hop : hops) {
      if (!hop.is_object()) {
        continue;
      }
      std::string name = names[static_cast<pcie::ComponentId>(number_of(hop, "component"))];
      for (const char* direction : {".up", ".down"}) {
        if (name.ends_with(direction)) {
          name.resize(name.size() - std::string_view(direction).size());
        }
      }
      const std::uint64_t ps = hop_total(nlohmann::json::array({hop}));
      const auto row = std::find_if(rows.begin(), rows.end(), [&](const auto& r) { return r.first == name; });
      if (row == rows.end()) {
        rows.emplace_back(name, ps);
      } else {
        row->second += ps;
      }
    }
  }
  std::string text;
  for (const auto& [name, ps] : rows) {
    text += fmt::format("{}{} {:.1f}", text.empty() ? "" : " + ", name, static_cast<double>(ps) / 1e3);
  }
  return text;
}

}  // namespace orrery::cli
