// Simulated time as an integer number of picoseconds.
//
// Every timed result of Orrery is a count of picoseconds, so that a run is exact and repeatable.
// SystemC time converts losslessly (sc_time::from_value at the default resolution of 1 ps).
#pragma once

#include <compare>
#include <cstdint>
#include <limits>

namespace orrery {

// A point in simulated time, or a span of it; range 0 … 2^64-1 ps (213 days). Plain value, any thread.
struct Picoseconds {
  std::uint64_t count = 0;

  constexpr auto operator<=>(const Picoseconds&) const = default;
  constexpr Picoseconds& operator+=(Picoseconds other) {
    count += other.count;
    return *this;
  }
  constexpr Picoseconds& operator-=(Picoseconds other) {
    count -= other.count;
    return *this;
  }
  friend constexpr Picoseconds operator+(Picoseconds a, Picoseconds b) { return {a.count + b.count}; }
  friend constexpr Picoseconds operator-(Picoseconds a, Picoseconds b) { return {a.count - b.count}; }
  friend constexpr Picoseconds operator*(Picoseconds a, std::uint64_t n) { return {a.count * n}; }
  friend constexpr Picoseconds operator*(std::uint64_t n, Picoseconds a) { return {a.count * n}; }

  [[nodiscard]] constexpr double nanoseconds() const { return static_cast<double>(count) / 1e3; }
  [[nodiscard]] constexpr double seconds() const { return static_cast<double>(count) / 1e12; }

  static constexpr Picoseconds max() { return {std::numeric_limits<std::uint64_t>::max()}; }
};

constexpr Picoseconds max(Picoseconds a, Picoseconds b) {
  return a < b ? b : a;
}
constexpr Picoseconds min(Picoseconds a, Picoseconds b) {
  return b < a ? b : a;
}

inline namespace time_literals {
constexpr Picoseconds operator""_ps(unsigned long long n) {
  return {n};
}
constexpr Picoseconds operator""_ns(unsigned long long n) {
  return {n * 1'000};
}
constexpr Picoseconds operator""_us(unsigned long long n) {
  return {n * 1'000'000};
}
constexpr Picoseconds operator""_ms(unsigned long long n) {
  return {n * 1'000'000'000};
}
constexpr Picoseconds operator""_s(unsigned long long n) {
  return {n * 1'000'000'000'000};
}
}  // namespace time_literals

}  // namespace orrery
