// Whether a file can be handed to dlopen() at all.
#pragma once

#include <string>

namespace orrery::models {

// dlopen() maps a file without looking at its length: one that was cut short (a full disk, a copy under way) kills
// the process with SIGBUS. Returns what is wrong with the file, or an empty text.
[[nodiscard]] std::string shared_object_problem(const std::string& path);

}  // namespace orrery::models
