// `orrery demo`: the main job, start to end: a stock Debian guest uses the emulated server.
#pragma once

namespace CLI {
class App;
}

namespace orrery::cli {

void add_demo_command(CLI::App& app);

}  // namespace orrery::cli
