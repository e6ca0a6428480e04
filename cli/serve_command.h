// `orrery serve`: the emulated server alone, for people who start QEMU or libvirt themselves.
#pragma once

namespace CLI {
class App;
}

namespace orrery::cli {

void add_serve_command(CLI::App& app);

}  // namespace orrery::cli
