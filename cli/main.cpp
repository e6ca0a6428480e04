// The orrery program. Every subcommand is a file of its own.
#include "cli/program.h"

int main(int argc, char* argv[]) {
  orrery::cli::prepare_process();
  return orrery::cli::run_program(argc, argv);
}
