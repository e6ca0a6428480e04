// Small text helpers that error messages and exporters share.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

// Number of single-character insertions, deletions, substitutions and swaps of neighbours that turn `a`
// into `b` (optimal string alignment distance). Bytes, not characters. Inputs longer than 64 bytes count
// as infinitely far apart.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `word`, if it is near enough to be a likely slip: at most one third of the longer
// word's bytes differ. Empty if there is none; the first of equals.
std::string closest(std::string_view word, std::span<const std::string> candidates);

// "a", "a or b", "a, b or c".
std::string join_alternatives(std::span<const std::string> words);

// `text` as the inside of a JSON or TOML basic string, without the quotes: control characters, quote and
// backslash escaped, invalid UTF-8 replaced by U+FFFD.
std::string escape_json(std::string_view text);
// `text` as XML or HTML character data or attribute value.
std::string escape_xml(std::string_view text);
// `text` for a terminal: control characters and invalid UTF-8 become \xNN, at most `limit` bytes, then "…".
std::string printable(std::string_view text, std::size_t limit = 120);

// A whole unsigned number, decimal or 0x hexadecimal, nothing else around it; nullopt if it isn't one or
// doesn't fit 64 bits.
std::optional<std::uint64_t> parse_unsigned(std::string_view text);

// Without the blanks (space and tab) at its ends.
std::string_view trimmed(std::string_view text);

// "1 switch", "2 switches", "0 GPUs".
std::string counted(std::size_t count, std::string_view word);

// Pieces between separators; an empty text has one empty piece.
std::vector<std::string_view> split(std::string_view text, char separator);

}  // namespace orrery
