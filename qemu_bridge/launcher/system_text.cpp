#include "qemu_bridge/launcher/system_text.h"

#include <algorithm>
#include <system_error>

namespace orrery::bridge {

namespace {

// Length of the escape sequence that starts at text[0] (ESC), as ECMA-48 has them: CSI … final byte,
// OSC … BEL or ST, or ESC intermediates final. An unfinished one reaches to the end.
std::size_t escape_length(std::string_view text) {
  if (text.size() < 2) {
    return text.size();
  }
  if (text[1] == '[') {
    std::size_t at = 2;
    while (at < text.size() && (text[at] < '@' || text[at] > '~')) {
      ++at;
    }
    return std::min(at + 1, text.size());
  }
  if (text[1] == ']') {
    for (std::size_t at = 2; at < text.size(); ++at) {
      if (text[at] == '\a') {
        return at + 1;
      }
      if (text[at] == '\x1b') {
        return std::min(at + 2, text.size());
      }
    }
    return text.size();
  }
  std::size_t at = 1;
  while (at < text.size() && text[at] >= ' ' && text[at] <= '/') {
    ++at;
  }
  return std::min(at + 1, text.size());
}

}  // namespace

std::string system_text(int error_number) {
  return std::generic_category().message(error_number);
}

std::string printable(std::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '\x1b') {
      at += escape_length(text.substr(at));
      continue;
    }
    ++at;
    if (c == '\r') {
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    const bool control = (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f;
    shown += control ? '?' : c;
  }
  return shown;
}

std::vector<std::string> last_lines(std::string_view text, std::size_t count) {
  std::vector<std::string> lines;
  std::size_t end = text.size();
  while (lines.size() < count) {
    const std::size_t newline = end == 0 ? std::string_view::npos : text.rfind('\n', end - 1);
    const std::size_t start = newline == std::string_view::npos ? 0 : newline + 1;
    const std::string_view line = text.substr(start, end - start);
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) {
      lines.emplace_back(line);
    }
    if (newline == std::string_view::npos) {
      break;
    }
    end = newline;
  }
  std::reverse(lines.begin(), lines.end());
  return lines;
}

}  // namespace orrery::bridge
