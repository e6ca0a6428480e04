// Text that came from outside, made fit to be shown.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace orrery::bridge {

// The system's words for an errno value; thread-safe.
[[nodiscard]] std::string system_text(int error_number);

// Without terminal escape sequences and carriage returns, other control characters as '?': what a guest
// or a child wrote must not drive the user's terminal. Line ends and tabs stay.
[[nodiscard]] std::string printable(std::string_view text);

// The last `count` lines that aren't blank.
[[nodiscard]] std::vector<std::string> last_lines(std::string_view text, std::size_t count);

}  // namespace orrery::bridge
