// The orrery program but for its main().
#pragma once

#include <exception>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace orrery::cli {

// Makes descriptors 0 to 2 safe: one that is closed would be given to the next file or socket that is opened, and what
// is printed would land in that. Writing to a pipe without a reader, or beyond a file size limit, becomes an error
// rather than the end of the process, so that what a command has set up is put away.
void prepare_process();

// Prints what was wrong with the command line and which --help says more; returns the exit status. Help and
// version, which CLI11 reports as errors too, go to stdout with status 0.
int report_usage(const CLI::App& app, const CLI::ParseError& error);

// Refuses an option without a value ("--config ''"): nearly always a script's variable that is not set. Throws Error.
void require_values(int argc, const char* const* argv);

// Parses, runs the subcommand, reports what it threw; returns the exit status: 1 for an Error, 2 for wrong usage,
// 128 + N after signal N (and after SIGPIPE's cause, a reader of stdout that has gone, which is reported to nobody).
int run_program(int argc, const char* const* argv);

}  // namespace orrery::cli
