#include "common/units.h"

#include <array>
#include <cstddef>

#include <fmt/format.h>

namespace orrery {
namespace {

std::string three_digits(double value, const char* unit) {
  const int decimals = value < 9.995 ? 2 : (value < 99.95 ? 1 : 0);
  return fmt::format("{:.{}f} {}", value, decimals, unit);
}

}  // namespace

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array<const char*, 7> units{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) {
    return fmt::format("{} B", bytes);
  }
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1023.5 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  return three_digits(value, units[unit]);
}

std::string format_time(Picoseconds time) {
  constexpr std::array<const char*, 5> units{"ps", "ns", "us", "ms", "s"};
  if (time.count < 1000) {
    return fmt::format("{} ps", time.count);
  }
  double value = static_cast<double>(time.count);
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < units.size()) {
    value /= 1000;
    ++unit;
  }
  return three_digits(value, units[unit]);
}

std::string format_rate(double bytes_per_second) {
  constexpr std::array<const char*, 6> units{"B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s"};
  double value = bytes_per_second;
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < units.size()) {
    value /= 1000;
    ++unit;
  }
  return three_digits(value, units[unit]);
}

}  // namespace orrery
