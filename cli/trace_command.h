// `orrery trace summary | show | export`.
#pragma once

namespace CLI {
class App;
}

namespace orrery::cli {

void add_trace_command(CLI::App& app);

}  // namespace orrery::cli
