// The drawing of `orrery topo --format svg`: sockets above, a column for each switch, endpoints below it.
#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "cli/topo_command.h"
#include "common/text.h"
#include "common/units.h"
#include "systemc_models/server/topology.h"

namespace orrery::cli {
namespace {

using models::Topology;

// All in CSS pixels.
constexpr int margin = 24;
constexpr int title_height = 44;
constexpr int heading_character = 14;  // at most, of 20 px bold DejaVu Sans but for m, w and capitals
constexpr int column_width = 216;
constexpr int column_gap = 20;
constexpr int socket_gap = 72;
constexpr int socket_height = 64;
constexpr int link_height = 56;
constexpr int switch_height = 56;
constexpr int endpoint_height = 46;
constexpr int endpoint_gap = 12;
constexpr int trunk_inset = 18;
constexpr int endpoint_inset = 44;

// What hangs in one column: a switch, or the endpoints at a socket's own root ports.
struct Column {
  std::optional<std::size_t> switch_index;
  std::vector<std::size_t> endpoints;
};

const char* fill_of(models::EndpointKind kind) {
  switch (kind) {
    case models::EndpointKind::rnic:
      return "#fde3c8";
    case models::EndpointKind::gpu:
      return "#d5ecd4";
    case models::EndpointKind::plugin:
      return "#ead9f2";
  }
  return "#ffffff";
}

const char* stroke_of(models::EndpointKind kind) {
  switch (kind) {
    case models::EndpointKind::rnic:
      return "#c26a1a";
    case models::EndpointKind::gpu:
      return "#3f8440";
    case models::EndpointKind::plugin:
      return "#7d4a99";
  }
  return "#000000";
}

class Drawing {
 public:
  explicit Drawing(const Topology& topology) : topology_(topology) {}

  std::string svg() {
    int x = margin;
    const int top = margin + title_height;
    for (const Topology::Socket& socket : topology_.sockets) {
      if (socket.index != 0) {
        const int y = top + socket_height / 2;
        line(x - socket_gap, y, x, y, 3);
        text(x - socket_gap / 2, y - 8, "socket link", "small", "middle");
      }
      x = draw_socket(socket, x, top) + socket_gap;
    }
    // A narrow server may have a longer heading.
    const int width =
        std::max(x - socket_gap, margin + static_cast<int>(heading().size()) * heading_character) + margin;
    const int height = bottom_ + 44;
    legend(height - 20);
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\">\n"
        "<title>{2}</title>\n"
        "<style>text{{font-family:system-ui,'DejaVu Sans',Arial,sans-serif;fill:#1c2430}}.title{{font-size:20px;"
        "font-weight:600}}.name{{font-size:14px;font-weight:600}}.small{{font-size:11px;fill:#4a5666}}</style>\n"
        "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n"
        "<text x=\"{3}\" y=\"{4}\" class=\"title\">{2}</text>\n{5}{6}</svg>\n",
        width, height, escape_xml(heading()), margin, margin + 18, lines_, boxes_);
  }

 private:
  [[nodiscard]] std::string heading() const {
    std::size_t rnics = 0;
    std::size_t gpus = 0;
    for (const Topology::Endpoint& endpoint : topology_.endpoints) {
      rnics += endpoint.kind == models::EndpointKind::rnic ? 1 : 0;
      gpus += endpoint.kind == models::EndpointKind::gpu ? 1 : 0;
    }
    const std::size_t others = topology_.endpoints.size() - rnics - gpus;
    std::string words = fmt::format("{}: {}, {}", topology_.server_name, counted(rnics, "RNIC"), counted(gpus, "GPU"));
    if (others != 0) {
      words += fmt::format(", {} plug-in", others);
    }
    return words;
  }

  [[nodiscard]] std::vector<Column> columns_of(const Topology::Socket& socket) const {
    std::vector<Column> columns;
    Column direct;
    for (const std::size_t index : socket.root_ports) {
      const Topology::RootPort& port = topology_.root_ports[index];
      if (port.endpoint) {
        direct.endpoints.push_back(*port.endpoint);
        continue;
      }
      Column column;
      column.switch_index = port.switch_index;
      for (const Topology::DownstreamPort& down : topology_.switches[*port.switch_index].downstream_ports) {
        column.endpoints.push_back(down.endpoint);
      }
      columns.push_back(std::move(column));
    }
    if (!direct.endpoints.empty()) {
      columns.push_back(std::move(direct));
    }
    return columns;
  }

  // Returns the x where it ends.
  int draw_socket(const Topology::Socket& socket, int x, int top) {
    const std::vector<Column> columns = columns_of(socket);
    const int count = std::max(1, static_cast<int>(columns.size()));
    const int width = count * column_width + (count - 1) * column_gap;
    box(x, top, width, socket_height, "#dbe7f6", "#33629a");
    text(x + width / 2, top + 27, fmt::format("socket{}", socket.index), "name", "middle");
    text(x + width / 2, top + 46,
         fmt::format("NUMA node {} · buses {:02x}–{:02x}", socket.numa_node, socket.root_bus, socket.last_bus), "small",
         "middle");
    bottom_ = std::max(bottom_, top + socket_height);
    for (std::size_t i = 0; i < columns.size(); ++i) {
      draw_column(columns[i], x + static_cast<int>(i) * (column_width + column_gap), top + socket_height);
    }
    return x + width;
  }

  void draw_column(const Column& column, int x, int y) {
    int below = y;
    if (column.switch_index) {
      const Topology::Switch& node = topology_.switches[*column.switch_index];
      const Topology::RootPort& port = topology_.root_ports[node.root_port];
      const int middle = x + column_width / 2;
      line(middle, y, middle, y + link_height, 3);
      text(middle + 8, y + 23, link_label(port.link), "small", "start");
      text(middle + 8, y + 39, fmt::format("port {}", port.bdf.text()), "small", "start");
      box(x, y + link_height, column_width, switch_height, "#eef0f3", "#5b6675");
      text(middle, y + link_height + 23, node.name, "name", "middle");
      text(middle, y + link_height + 42,
           fmt::format("{} · {:g} ns · ACS {:#04x}", node.bdf.text(), node.latency.nanoseconds(), node.acs), "small",
           "middle");
      below = y + link_height + switch_height;
    }
    int last = below;
    for (std::size_t i = 0; i < column.endpoints.size(); ++i) {
      const int box_y = below + 20 + static_cast<int>(i) * (endpoint_height + endpoint_gap);
      const int box_middle = box_y + endpoint_height / 2;
      line(x + trunk_inset, box_middle, x + endpoint_inset, box_middle, 2);
      draw_endpoint(topology_.endpoints[column.endpoints[i]], x + endpoint_inset, box_y);
      last = box_middle;
    }
    line(x + trunk_inset, below, x + trunk_inset, last, 2);
    bottom_ = std::max(bottom_, last + endpoint_height / 2);
  }

  void draw_endpoint(const Topology::Endpoint& endpoint, int x, int y) {
    const int width = column_width - endpoint_inset;
    box(x, y, width, endpoint_height, fill_of(endpoint.kind), stroke_of(endpoint.kind));
    // The slot's own part, "slot2": the column says of what.
    const std::string slot = endpoint.slot.substr(endpoint.slot.find('.') + 1);
    text(x + 10, y + 19, shortened(endpoint.name, 16), "name", "start");
    text(x + 10, y + 36, fmt::format("{} · {} · {}", endpoint.bdf.text(), slot, link_short(endpoint.link)), "small",
         "start");
  }

  void legend(int y) {
    int x = margin;
    for (const models::EndpointKind kind :
         {models::EndpointKind::rnic, models::EndpointKind::gpu, models::EndpointKind::plugin}) {
      const bool present = std::any_of(topology_.endpoints.begin(), topology_.endpoints.end(),
                                       [kind](const Topology::Endpoint& e) { return e.kind == kind; });
      if (!present) {
        continue;
      }
      boxes_ += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" rx=\"2\" fill=\"{}\" stroke=\"{}\"/>\n",
                            x, y - 10, fill_of(kind), stroke_of(kind));
      const char* label = kind == models::EndpointKind::rnic  ? "RNIC"
                          : kind == models::EndpointKind::gpu ? "GPU"
                                                              : "plug-in model";
      text(x + 18, y, label, "small", "start");
      x += 84;
    }
  }

  static std::string link_short(const pcie::LinkSettings& link) {
    return fmt::format("Gen{} x{}", link.generation, link.width);
  }
  static std::string link_label(const pcie::LinkSettings& link) {
    return fmt::format("{} · {}", link_short(link),
                       format_rate(pcie::raw_bytes_per_second(link.generation, link.width)));
  }
  static std::string shortened(const std::string& name, std::size_t limit) {
    return name.size() <= limit ? name : name.substr(0, limit - 1) + "…";
  }

  void line(int x1, int y1, int x2, int y2, int width) {
    lines_ += fmt::format("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"#5b6675\" stroke-width=\"{}\"/>\n",
                          x1, y1, x2, y2, width);
  }
  void box(int x, int y, int width, int height, const char* fill, const char* stroke) {
    boxes_ += fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"6\" fill=\"{}\" stroke=\"{}\" "
        "stroke-width=\"1.5\"/>\n",
        x, y, width, height, fill, stroke);
  }
  void text(int x, int y, const std::string& words, const char* style, const char* anchor) {
    boxes_ += fmt::format("<text x=\"{}\" y=\"{}\" class=\"{}\" text-anchor=\"{}\">{}</text>\n", x, y, style, anchor,
                          escape_xml(words));
  }

  const Topology& topology_;
  std::string lines_;  // below the boxes
  std::string boxes_;
  int bottom_ = 0;
};

}  // namespace

std::string topology_svg(const Topology& topology) {
  return Drawing(topology).svg();
}

}  // namespace orrery::cli
