// Learned addresses: capacity and age.
#include "fabric/mac_table.h"

#include <vector>

#include <gtest/gtest.h>

#include "common/rng.h"

namespace orrery::fabric::mac_table_test {
namespace {

constexpr std::uint64_t host_mac = 0x0200'0000'0000;

TEST(MacTable, ForgetsWhatIsOldAndReusesItsPlace) {
  MacTable table(4, {1000});
  for (std::uint64_t i = 1; i <= 4; ++i) {
    table.learn({host_mac + i}, static_cast<std::uint16_t>(i), {i});
  }
  table.learn({host_mac + 5}, 5, {10});  // full: not learned
  EXPECT_EQ(table.find({host_mac + 5}, {10}), -1);
  EXPECT_EQ(table.find({host_mac + 1}, {1000}), 1);
  EXPECT_EQ(table.find({host_mac + 1}, {1001}), -1);
  EXPECT_EQ(table.size(), 4U);
  table.learn({host_mac + 1}, 9, {1002});  // heard of again
  EXPECT_EQ(table.find({host_mac + 1}, {1002}), 9);
}

TEST(MacTable, HoldsItsCapacityOfAnyAddresses) {
  MacTable table(1000, {1'000'000});
  Rng random(1, 1);
  std::vector<std::uint64_t> addresses;
  for (int i = 0; i < 1000; ++i) {
    addresses.push_back((random.next64() & 0xfeff'ffff'ffffU) | 2);
    table.learn({addresses.back()}, static_cast<std::uint16_t>(i), {1});
  }
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(table.find({addresses[static_cast<std::size_t>(i)]}, {2}), i);
  }
  EXPECT_EQ(table.find({4}, {2}), -1);
}

}  // namespace
}  // namespace orrery::fabric::mac_table_test
