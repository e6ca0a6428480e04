// The subcommands of orrery. Each function adds one to the app; its callback sets `status`, the program's exit
// status, or throws Error.
#pragma once

#include <CLI/App.hpp>

namespace orrery::cli {

void add_serve_command(CLI::App& app, int& status);

}  // namespace orrery::cli
