#include "cli/config_command.h"

#include <cstdio>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/config_options.h"
#include "common/config_writer.h"
#include "common/text.h"
#include "systemc_models/server/topology.h"

namespace orrery::cli {
namespace {

struct ConfigCommandOptions {
  ConfigOptions config;
  bool json = false;
};

// Every key with value, origin, rule, meaning and source. Values are TOML texts: integers in hexadecimal and
// picoseconds keep their form.
nlohmann::ordered_json keys(models::ServerConfig config, const ConfigOrigins* origins, bool examples) {
  ConfigLister lister(origins, examples);
  models::describe(lister, config);
  nlohmann::ordered_json all = nlohmann::ordered_json::object();
  for (const ConfigItem& item : lister.items()) {
    all[item.path] = {{"value", item.value.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(item.value)},
                      {"origin", item.origin},
                      {"rule", item.rule},
                      {"meaning", item.meaning},
                      {"source", item.source}};
  }
  return all;
}

void print(const nlohmann::ordered_json& json) {
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void defaults(const ConfigCommandOptions& options) {
  if (options.json) {
    print(keys({}, nullptr, true));
  } else {
    fmt::print("{}", models::to_toml(models::ServerConfig{}));
  }
}

void show(const ConfigCommandOptions& options) {
  const LoadedConfig loaded = load(options.config);
  if (options.json) {
    print(keys(loaded.config, &loaded.origins, false));
  } else {
    fmt::print("{}", models::to_toml(loaded.config, loaded.origins));
  }
}

void check(const ConfigCommandOptions& options) {
  const LoadedConfig loaded = load(options.config);
  const models::Topology topology = models::Topology::from(loaded.config);
  const std::string file = options.config.file.empty() ? "defaults" : options.config.file;
  if (options.json) {
    print({{"ok", true},
           {"file", file},
           {"sockets", topology.sockets.size()},
           {"switches", topology.switches.size()},
           {"endpoints", topology.endpoints.size()}});
  } else {
    fmt::print("{}: good: {}, {}, {}\n", file, counted(topology.sockets.size(), "socket"),
               counted(topology.switches.size(), "switch"), counted(topology.endpoints.size(), "endpoint"));
  }
}

}  // namespace

void add_config_command(CLI::App& app) {
  CLI::App* config = app.add_subcommand("config", "print, explain and check server configurations");
  config->require_subcommand(1);
  const auto options = std::make_shared<ConfigCommandOptions>();

  CLI::App* defaults_command =
      config->add_subcommand("defaults", "print a complete configuration with every key explained");
  defaults_command->add_flag("--json", options->json, "as JSON: value, range, meaning and source of each key");
  defaults_command->callback([options] { defaults(*options); });

  CLI::App* show_command =
      config->add_subcommand("show", "print the effective configuration and where each value comes from");
  add_config_options(*show_command, options->config, true);
  show_command->add_flag("--json", options->json, "as JSON");
  show_command->callback([options] { show(*options); });

  CLI::App* check_command =
      config->add_subcommand("check", "check a configuration; exit code 1 and every problem if it is wrong");
  add_config_options(*check_command, options->config, true);
  check_command->add_flag("--json", options->json, "as JSON");
  check_command->callback([options] { check(*options); });
}

}  // namespace orrery::cli
