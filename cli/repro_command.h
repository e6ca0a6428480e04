// `orrery repro`: published figures on the emulated server.
#pragma once

namespace CLI {
class App;
}

namespace orrery::cli {

void add_repro_command(CLI::App& app);

}  // namespace orrery::cli
