// `orrery trace summary | show | export`.
#pragma once

#include <cstdint>
#include <string>

namespace CLI {
class App;
}

namespace orrery::cli {

void add_trace_command(CLI::App& app);

// Writes a trace file as Chrome JSON ("-": to stdout); returns the number of records. What a truncated trace
// holds is written before the Error that says so. Throws Error.
std::uint64_t export_trace(const std::string& trace_file, const std::string& json_file);

}  // namespace orrery::cli
