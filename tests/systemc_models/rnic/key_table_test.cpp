// Keys and translation, alone.
#include "systemc_models/rnic/verbs/key_table.h"

#include <gtest/gtest.h>

#include <vector>

namespace orrery::rnic::key_table_test {
namespace {

class KeyTableTest : public testing::Test {
 protected:
  TranslationMemory memory{1U << 20};
  FunctionWindows windows;
  KeyTable keys{memory, windows};
  SegmentList segments;

  MkeyContext& key(std::uint32_t index, std::uint64_t start, std::uint64_t length) {
    MkeyContext& k = keys.make(index);
    k.state = KeyState::valid;
    k.pd = 1;
    k.access = 31;
    k.start = start;
    k.length = length;
    return k;
  }
  WalkStatus resolve(std::uint32_t number, std::uint64_t address, std::uint64_t length,
                     std::uint32_t access = key_local_write, bool reserved = false) {
    segments.clear();
    return keys
        .resolve({.pd = 1,
                  .qp = 5,
                  .key = number,
                  .address = address,
                  .length = length,
                  .access = access,
                  .reserved_allowed = reserved},
                 segments)
        .status;
  }
  void pages(std::uint32_t first, const std::vector<std::uint64_t>& entries) { memory.write(first, entries); }
};

TEST_F(KeyTableTest, PagesOfTheRegion) {
  MkeyContext& k = key(1, 0x10'0800, 0x3000);
  k.translation = 10;
  k.translation_count = 4;
  windows.set_device_windows(0, std::vector<pcie::PeerWindow>{{0x8'0000, 0x1000, 0x2000}});
  pages(10, {0x5000 | 3, 0x9000 | 3, 0xa000 | 3, windows.typed(0, 0x8'0000 | 3)});
  ASSERT_EQ(resolve(0x100, 0x10'0800, 0x3000), WalkStatus::ok);
  const auto all = segments.all();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].address, 0x5800U);
  EXPECT_EQ(all[0].length, 0x800U);
  EXPECT_EQ(all[1].address, 0x9000U);  // two neighbours are one
  EXPECT_EQ(all[1].length, 0x2000U);
  EXPECT_EQ(all[2].address, 0x2000U);
  EXPECT_EQ(all[2].length, 0x800U);
  EXPECT_EQ(all[2].at, pcie::AddressType::translated);
}

TEST_F(KeyTableTest, BoundsAreExact) {
  MkeyContext& k = key(1, 0x10'0800, 0x3000);
  k.translation = 10;
  k.translation_count = 4;
  pages(10, {0x5003, 0x6003, 0x7003, 0x8003});
  EXPECT_EQ(resolve(0x100, 0x10'37ff, 1), WalkStatus::ok);
  EXPECT_EQ(resolve(0x100, 0x10'3800, 1), WalkStatus::denied);
  EXPECT_EQ(resolve(0x100, 0x10'07ff, 1), WalkStatus::denied);
  EXPECT_EQ(resolve(0x100, 0x10'0800, 0x3001), WalkStatus::denied);
  EXPECT_EQ(resolve(0x100, ~std::uint64_t{0}, 2), WalkStatus::denied);
  EXPECT_EQ(resolve(0x100, 0, ~std::uint64_t{0}), WalkStatus::denied);
  EXPECT_EQ(resolve(0x999'00, 5, 0), WalkStatus::ok);  // nothing is checked for nothing
}

TEST_F(KeyTableTest, EveryFieldCounts) {
  MkeyContext& k = key(1, 0, 0x1000);
  k.translation = 10;
  k.translation_count = 1;
  pages(10, {0x5003});
  const MkeyContext good = k;
  ASSERT_EQ(resolve(0x100, 0, 8), WalkStatus::ok);
  EXPECT_EQ(resolve(0x101, 0, 8), WalkStatus::denied);
  EXPECT_EQ(resolve(0x200, 0, 8), WalkStatus::denied);
  k.pd = 2;
  EXPECT_EQ(resolve(0x100, 0, 8), WalkStatus::denied);
  k = good;
  k.function = 1;
  EXPECT_EQ(resolve(0x100, 0, 8), WalkStatus::denied);
  k = good;
  k.qp = 6;
  EXPECT_EQ(resolve(0x100, 0, 8), WalkStatus::denied);
  k.qp = 5;
  EXPECT_EQ(resolve(0x100, 0, 8), WalkStatus::ok);
  k.access = 31 & ~std::uint32_t{key_remote_read};
  EXPECT_EQ(resolve(0x100, 0, 8, key_remote_read), WalkStatus::denied);
  k = good;
  k.state = KeyState::free;
  EXPECT_EQ(resolve(0x100, 0, 8), WalkStatus::denied);
  k = good;
  k.page_shift = 80;
  EXPECT_EQ(resolve(0x100, 0, 8), WalkStatus::denied);
}

TEST_F(KeyTableTest, EntriesSayWhatIsThere) {
  MkeyContext& k = key(1, 0, 0x3000);
  k.translation = 10;
  k.translation_count = 3;
  pages(10, {0x5000 | translation::readable, 0x6000 | 3, 0});
  EXPECT_EQ(resolve(0x100, 0, 8, key_remote_read), WalkStatus::ok);
  EXPECT_EQ(resolve(0x100, 0, 8, key_remote_write), WalkStatus::denied);
  EXPECT_EQ(resolve(0x100, 0, 8, key_remote_atomic), WalkStatus::denied);
  segments.clear();
  const WalkResult result = keys.resolve(
      {.pd = 1, .qp = 5, .key = 0x100, .address = 0x1ff0, .length = 0x20, .access = key_local_write}, segments);
  EXPECT_EQ(result.status, WalkStatus::absent);
  EXPECT_EQ(result.offset, 0x10U);
}

TEST_F(KeyTableTest, PhysicalKeysStayInTheWindow) {
  MkeyContext& k = key(1, 0, 0);
  k.mode = KeyMode::physical;
  k.whole_space = 1;
  windows.at(0).iova_base = 0x4000'0000;
  windows.at(0).iova_limit = 0x1000'0000;
  ASSERT_EQ(resolve(0x100, 0xfff'f000, 0x1000), WalkStatus::ok);
  EXPECT_EQ(segments.all()[0].address, 0x4fff'f000U);
  EXPECT_EQ(resolve(0x100, 0xfff'f000, 0x1001), WalkStatus::denied);
  EXPECT_EQ(resolve(0x100, 0x1000'0000, 1), WalkStatus::denied);
  windows.at(0) = {.iova_base = ~std::uint64_t{0} - 0xfff};
  EXPECT_EQ(resolve(0x100, 0x1000, 1), WalkStatus::denied);  // base + address wraps
}

TEST_F(KeyTableTest, KeysWithoutAContext) {
  windows.at(0).iova_base = 0x4000'0000;
  EXPECT_EQ(resolve(reserved_key, 0x1000, 8), WalkStatus::denied);
  EXPECT_EQ(resolve(reserved_key, 0x1000, 8, key_remote_write, true), WalkStatus::denied);
  EXPECT_FALSE(keys.invalidate(0, 1, 5, reserved_key));
  ASSERT_EQ(resolve(reserved_key, 0x1000, 8, key_local_write, true), WalkStatus::ok);
  EXPECT_EQ(segments.all()[0].address, 0x4000'1000U);
  ASSERT_EQ(resolve(null_key, 0x1000, 8), WalkStatus::ok);
  EXPECT_TRUE(segments.all()[0].nothing);
  EXPECT_EQ(resolve(dump_fill_key, 0x1000, 8, key_remote_read), WalkStatus::denied);
}

TEST_F(KeyTableTest, ListsOfOtherKeys) {
  for (std::uint32_t i = 1; i <= 2; ++i) {
    MkeyContext& k = key(i, 0x1000ULL * i, 0x1000);
    k.translation = 10 * i;
    k.translation_count = 1;
    pages(10 * i, {(0x10000ULL * i) | 3});
  }
  MkeyContext& list = key(3, 0x8000, 0x180);
  list.mode = KeyMode::indirect;
  list.translation = 100;
  list.translation_count = 4;
  pages(100, {(0x100ULL << 32) | 0x100, 0x1040, (0x200ULL << 32) | 0x80, 0x2000});
  ASSERT_EQ(resolve(0x300, 0x80f0, 0x20), WalkStatus::ok);
  ASSERT_EQ(segments.all().size(), 2U);
  EXPECT_EQ(segments.all()[0].address, 0x1'0130U);
  EXPECT_EQ(segments.all()[0].length, 0x10U);
  EXPECT_EQ(segments.all()[1].address, 0x2'0000U);
  EXPECT_EQ(resolve(0x300, 0x8000, 0x181), WalkStatus::denied);
  // Fixed sizes: 4 KiB each.
  list.length = 0x2000;
  pages(100, {0x100ULL << 32, 0x1000, 0x200ULL << 32, 0x2000});
  ASSERT_EQ(resolve(0x300, 0x9000, 0x1000), WalkStatus::ok);
  EXPECT_EQ(segments.all()[0].address, 0x2'0000U);
  // Circular: ends.
  pages(100, {0x300ULL << 32, 0x8000, 0x300ULL << 32, 0x8000});
  EXPECT_EQ(resolve(0x300, 0x8000, 8), WalkStatus::denied);
}

TEST_F(KeyTableTest, TooManyPieces) {
  MkeyContext& k = key(1, 0, 0x1000);
  k.translation = 10;
  k.translation_count = 1;
  pages(10, {0x5003});
  MkeyContext& list = key(3, 0, 600);
  list.mode = KeyMode::indirect;
  list.translation = 1000;
  list.translation_count = 1200;
  for (std::uint32_t i = 0; i < 600; ++i) {
    pages(1000 + 2 * i, {(0x100ULL << 32) | 1, i * 2 % 4096});  // one byte each, no neighbours
  }
  EXPECT_EQ(resolve(0x300, 0, 256), WalkStatus::ok);
  EXPECT_EQ(resolve(0x300, 0, 257), WalkStatus::denied);
}

}  // namespace
}  // namespace orrery::rnic::key_table_test
