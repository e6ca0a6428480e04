// Messages for people, on stderr: one line each.
//
//   orrery: warning: gpu3: DMA fault at 0x7f001000
//   orrery: debug: [12.345678 us] switch0: ...        with simulated time, where the caller has it
//
// spdlog underneath (thread-safe); the header keeps it out of callers.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "common/time.h"

namespace orrery {

enum class LogLevel : std::uint8_t { trace, debug, info, warning, error, off };

// "trace", "debug", "info", "warning", "error", "off". Throws Error for another word.
LogLevel parse_log_level(std::string_view word);
// Any thread. Default: info.
void set_log_level(LogLevel level);
// Writes to a file instead of stderr (tests, --log-file); an empty path returns to stderr. Throws Error.
void set_log_file(const std::string& path);

namespace log_detail {
inline std::atomic<LogLevel> threshold{LogLevel::info};
void write(LogLevel level, std::string_view message, const Picoseconds* time);
template <class... Args>
[[gnu::noinline, gnu::cold]] void format(LogLevel level, const Picoseconds* time, fmt::format_string<Args...> text,
                                         Args&&... args) {
  write(level, fmt::format(text, std::forward<Args>(args)...), time);
}
}  // namespace log_detail

// For the rare case that building an argument costs something.
inline bool log_enabled(LogLevel level) {
  return level >= log_detail::threshold.load(std::memory_order_relaxed);
}

// A level that is off costs one load and one comparison; arguments are not formatted.
template <class... Args>
void log(LogLevel level, fmt::format_string<Args...> text, Args&&... args) {
  if (log_enabled(level)) [[unlikely]] {
    log_detail::format(level, nullptr, text, std::forward<Args>(args)...);
  }
}
template <class... Args>
void log_at(Picoseconds time, LogLevel level, fmt::format_string<Args...> text, Args&&... args) {
  if (log_enabled(level)) [[unlikely]] {
    log_detail::format(level, &time, text, std::forward<Args>(args)...);
  }
}

}  // namespace orrery
