// `orrery config defaults | show | check`.
#pragma once

namespace CLI {
class App;
}

namespace orrery::cli {

void add_config_command(CLI::App& app);

}  // namespace orrery::cli
