// `orrery fw`: the RNIC's firmware: run, watch, disturb, debug and test it.
#pragma once

namespace CLI {
class App;
}

namespace orrery::cli {

void add_fw_command(CLI::App& app);
// Of `orrery fw`.
void add_fw_run_command(CLI::App& app);
void add_fw_test_command(CLI::App& app);

}  // namespace orrery::cli
