// Quantities as people read them.
#pragma once

#include <cstdint>
#include <string>

#include "common/time.h"

namespace orrery {

// "512 B", "1.50 KiB", "3.00 GiB": binary units, three significant digits from KiB on.
std::string format_bytes(std::uint64_t bytes);
// "850 ps", "484 ns", "1.09 us", "12.5 ms", "3.00 s": three significant digits, whole below 1000 of a unit.
std::string format_time(Picoseconds time);
// Decimal, as link rates are given: "31.5 GB/s".
std::string format_rate(double bytes_per_second);

}  // namespace orrery
