// `orrery replay FILE`: repeats a recorded run without its guest.
#pragma once

namespace CLI {
class App;
}

namespace orrery::cli {

void add_replay_command(CLI::App& app);

}  // namespace orrery::cli
