// `orrery topo`: the topology of a configuration as text, JSON or SVG.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace orrery::models {
struct Topology;
}

namespace orrery::cli {

void add_topo_command(CLI::App& app);

// A tree for a terminal (UTF-8).
std::string topology_text(const models::Topology& topology);
std::string topology_json(const models::Topology& topology);
// A drawing, complete in itself: no script, no font, nothing fetched.
std::string topology_svg(const models::Topology& topology);

}  // namespace orrery::cli
