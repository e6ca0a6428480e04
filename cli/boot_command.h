// `orrery boot`: guests on an emulated server, from your own kernel, initrd or disk image.
#pragma once

namespace CLI {
class App;
}

namespace orrery::cli {

void add_boot_command(CLI::App& app);

}  // namespace orrery::cli
