#include "cli/config_options.h"

#include <CLI/CLI.hpp>

namespace orrery::cli {

void add_config_options(CLI::App& command, ConfigOptions& options, bool positional) {
  command.add_option(positional ? "FILE" : "-c,--config", options.file,
                     "server configuration (TOML); without it, the defaults of `orrery config defaults`");
  command.add_option("--set", options.sets, "change one key, e.g. --set topology.switches=1; may be repeated")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);
}

LoadedConfig load(const ConfigOptions& options) {
  LoadedConfig loaded;
  loaded.config = models::load_server_config(options.file, options.sets, &loaded.origins);
  return loaded;
}

}  // namespace orrery::cli
