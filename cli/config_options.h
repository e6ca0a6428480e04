// The options by which subcommands take a server configuration: [FILE], --set KEY=VALUE.
#pragma once

#include <string>
#include <vector>

#include "systemc_models/server/server_config.h"

namespace CLI {
class App;
}

namespace orrery::cli {

struct ConfigOptions {
  std::string file;               // empty: defaults
  std::vector<std::string> sets;  // in order
};

struct LoadedConfig {
  models::ServerConfig config;
  ConfigOrigins origins;
};

// Adds --config FILE (or, if `positional`, an optional FILE) and --set. `options` outlives the parsing.
void add_config_options(CLI::App& command, ConfigOptions& options, bool positional = false);
// Throws Error.
LoadedConfig load(const ConfigOptions& options);

}  // namespace orrery::cli
