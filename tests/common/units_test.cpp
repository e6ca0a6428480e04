#include "common/units.h"

#include <gtest/gtest.h>

#include <limits>

namespace orrery::units_test {
namespace {

TEST(FormatBytes, Edges) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes((1U << 20) - 1), "1.00 MiB");  // never "1024 KiB"
  EXPECT_EQ(format_bytes(256U << 20), "256 MiB");
  EXPECT_EQ(format_bytes(std::numeric_limits<std::uint64_t>::max()), "16.0 EiB");
}

TEST(FormatTime, Edges) {
  EXPECT_EQ(format_time({0}), "0 ps");
  EXPECT_EQ(format_time({999}), "999 ps");
  EXPECT_EQ(format_time({1000}), "1.00 ns");
  EXPECT_EQ(format_time({484'000}), "484 ns");
  EXPECT_EQ(format_time({999'999}), "1.00 us");
  EXPECT_EQ(format_time({12'500'000'000}), "12.5 ms");
  EXPECT_EQ(format_time({3'000'000'000'000}), "3.00 s");
  EXPECT_EQ(format_time(Picoseconds::max()), "18446744 s");
}

TEST(FormatRate, DecimalUnits) {
  EXPECT_EQ(format_rate(31.508e9), "31.5 GB/s");
  EXPECT_EQ(format_rate(999.6e9), "1.00 TB/s");
  EXPECT_EQ(format_rate(0), "0.00 B/s");
}

}  // namespace
}  // namespace orrery::units_test
