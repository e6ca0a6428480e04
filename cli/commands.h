// What the subcommands share: how one ends the program with a status of its own.
#pragma once

namespace orrery::cli {

// Thrown by a subcommand that has printed what it had to say; main() exits with it.
struct ExitStatus {
  int status = 1;
};

}  // namespace orrery::cli
