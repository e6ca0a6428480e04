// What the program says on its standard streams, and what it does when they can't be written.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace orrery::cli {

// A line on stderr. A stderr that can't be written loses it: that must not disturb what is reported on.
void note_line(std::string_view line);
template <class... Arguments>
void note(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  note_line(fmt::format(format, std::forward<Arguments>(arguments)...));
}

// Writes what stdout still holds. Throws std::system_error if stdout can't be written, or couldn't be before.
void flush_output();
// Bytes to stdout at once. Throws as flush_output().
void write_output(std::string_view bytes);

// Throws Error if both paths name the same file: writing `output` would destroy `input` before it is read.
void require_other_file(const std::string& output, const std::string& input);
// Removes a file whose writing has failed; a device or a pipe stays.
void discard_file(const std::string& path) noexcept;

}  // namespace orrery::cli
