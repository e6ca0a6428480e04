// `orrery exec GUEST -- CMD`: a command in a running guest.
#pragma once

namespace CLI {
class App;
}

namespace orrery::cli {

void add_exec_command(CLI::App& app);

}  // namespace orrery::cli
