#include "cli/topo_command.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/config_options.h"
#include "cli/output.h"
#include "common/text.h"
#include "systemc_models/server/topology.h"

namespace orrery::cli {
namespace {

using models::Topology;

std::string link_text(const pcie::LinkSettings& link) {
  return fmt::format("Gen{} x{}", link.generation, link.width);
}

std::string endpoint_text(const Topology::Endpoint& endpoint) {
  std::string text = fmt::format("{} {}", endpoint.bdf.text(), endpoint.name);
  if (endpoint.kind == models::EndpointKind::plugin) {
    text += fmt::format(" ({})", endpoint.model);
  }
  return text;
}

}  // namespace

std::string topology_text(const Topology& topology) {
  std::string out =
      fmt::format("{}: {}, {}, {}\n", topology.server_name, counted(topology.sockets.size(), "socket"),
                  counted(topology.switches.size(), "switch"), counted(topology.endpoints.size(), "endpoint"));
  for (const Topology::Socket& socket : topology.sockets) {
    out += fmt::format("socket{}: NUMA node {}, root bus {:02x} (buses {:02x}-{:02x})\n", socket.index,
                       socket.numa_node, socket.root_bus, socket.root_bus, socket.last_bus);
    for (std::size_t i = 0; i < socket.root_ports.size(); ++i) {
      const Topology::RootPort& port = topology.root_ports[socket.root_ports[i]];
      const bool last = i + 1 == socket.root_ports.size();
      out += fmt::format("{} {} {} ─ {} ─ ", last ? "└─" : "├─", port.bdf.text(), port.name, link_text(port.link));
      if (port.endpoint) {
        out += endpoint_text(topology.endpoints[*port.endpoint]) + "\n";
        continue;
      }
      const Topology::Switch& node = topology.switches[*port.switch_index];
      out += fmt::format("{} {} ({:g} ns, ACS {:#04x}, buses {:02x}-{:02x})\n", node.bdf.text(), node.name,
                         node.latency.nanoseconds(), node.acs, node.secondary_bus, node.subordinate_bus);
      for (std::size_t d = 0; d < node.downstream_ports.size(); ++d) {
        const Topology::DownstreamPort& down = node.downstream_ports[d];
        out += fmt::format("{}  {} {} slot{} ─ {} ─ {}\n", last ? " " : "│",
                           d + 1 == node.downstream_ports.size() ? "└─" : "├─", down.bdf.text(), down.slot,
                           link_text(down.link), endpoint_text(topology.endpoints[down.endpoint]));
      }
    }
  }
  return out;
}

std::string topology_json(const Topology& topology) {
  using Json = nlohmann::ordered_json;
  const auto link = [](const pcie::LinkSettings& l) {
    return Json{{"generation", l.generation},
                {"width", l.width},
                {"bytes_per_second", pcie::raw_bytes_per_second(l.generation, l.width)},
                {"propagation_ps", l.propagation.count}};
  };
  Json root{{"server", topology.server_name},
            {"sockets", Json::array()},
            {"root_ports", Json::array()},
            {"switches", Json::array()},
            {"endpoints", Json::array()}};
  for (const Topology::Socket& socket : topology.sockets) {
    root["sockets"].push_back({{"name", fmt::format("socket{}", socket.index)},
                               {"numa_node", socket.numa_node},
                               {"root_bus", socket.root_bus},
                               {"last_bus", socket.last_bus}});
  }
  for (const Topology::RootPort& port : topology.root_ports) {
    root["root_ports"].push_back({{"name", port.name},
                                  {"socket", fmt::format("socket{}", port.socket)},
                                  {"bdf", port.bdf.text()},
                                  {"secondary_bus", port.secondary_bus},
                                  {"subordinate_bus", port.subordinate_bus},
                                  {"link", link(port.link)},
                                  {"child", port.endpoint ? topology.endpoints[*port.endpoint].name
                                                          : topology.switches[*port.switch_index].name}});
  }
  for (const Topology::Switch& node : topology.switches) {
    Json ports = Json::array();
    for (const Topology::DownstreamPort& port : node.downstream_ports) {
      ports.push_back({{"name", port.name},
                       {"slot", port.slot},
                       {"bdf", port.bdf.text()},
                       {"secondary_bus", port.secondary_bus},
                       {"link", link(port.link)},
                       {"child", topology.endpoints[port.endpoint].name}});
    }
    root["switches"].push_back({{"name", node.name},
                                {"bdf", node.bdf.text()},
                                {"root_port", topology.root_ports[node.root_port].name},
                                {"secondary_bus", node.secondary_bus},
                                {"subordinate_bus", node.subordinate_bus},
                                {"latency_ps", node.latency.count},
                                {"acs", node.acs},
                                {"downstream_ports", std::move(ports)}});
  }
  for (const Topology::Endpoint& endpoint : topology.endpoints) {
    root["endpoints"].push_back({{"name", endpoint.name},
                                 {"kind", models::name(endpoint.kind)},
                                 {"model", endpoint.model},
                                 {"slot", endpoint.slot},
                                 {"bdf", endpoint.bdf.text()},
                                 {"numa_node", topology.sockets[endpoint.socket].numa_node},
                                 {"link", link(endpoint.link)}});
  }
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

namespace {

struct TopoCommandOptions {
  ConfigOptions config;
  bool json = false;
  std::string format = "text";
  std::string output;
};

void write_file(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  bool good = file != nullptr;
  int reason = errno;
  if (good) {
    good = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    reason = errno;
    if (std::fclose(file) != 0) {
      reason = good ? errno : reason;
      good = false;
    }
  }
  if (!good) {
    if (file != nullptr) {
      discard_file(path);
    }
    throw Error(fmt::format("{}: cannot write: {}", path, std::strerror(reason)), "check the path and free space");
  }
}

void topo(const TopoCommandOptions& options) {
  const Topology topology = Topology::from(load(options.config).config);
  const std::string format = options.json ? "json" : options.format;
  const std::string text = format == "json"  ? topology_json(topology)
                           : format == "svg" ? topology_svg(topology)
                                             : topology_text(topology);
  if (options.output.empty() || options.output == "-") {
    fmt::print("{}", text);
  } else {
    require_other_file(options.output, options.config.file);
    write_file(options.output, text);
  }
}

}  // namespace

void add_topo_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("topo", "draw the topology of a configuration");
  const auto options = std::make_shared<TopoCommandOptions>();
  add_config_options(*command, options->config, true);
  command->add_option("--format", options->format, "text, json or svg")->check(CLI::IsMember({"text", "json", "svg"}));
  command->add_flag("--json", options->json, "the same as --format json")->excludes("--format");
  command->add_option("-o,--output", options->output, "file to write instead of the terminal");
  command->callback([options] { topo(*options); });
}

}  // namespace orrery::cli
