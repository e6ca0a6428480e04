// The second-stage page table, decoded from memory by a reader written from the entry format alone.
#include "pcie/page_table.h"

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "common/error.h"
#include "pcie/page_table_pool.h"

namespace orrery::pcie::page_table_test {
namespace {

constexpr std::uint64_t KiB4 = 0x1000;
constexpr std::uint64_t MiB2 = 0x20'0000;
constexpr std::uint64_t GiB1 = 0x4000'0000;
constexpr DmaAccess read_write{.read = true, .write = true};
constexpr DmaAccess read_only{.read = true, .write = false};
constexpr DmaAccess write_only{.read = false, .write = true};

struct PageTableTest : ::testing::Test {
  static constexpr std::uint32_t pool_pages = 4096;
  PageTablePool memory{Hpa{0x1'0000'0000}, pool_pages};
  PageTable table{memory, {}};

  // The translation of one address as the entry format says: the reader of an independent walker.
  // Entry index at level l (4 … 1) is bits 12+9(l-1)+8 : 12+9(l-1) of the address.
  struct Decoded {
    std::uint64_t hpa;
    unsigned shift;
    std::uint64_t entry;
  };
  std::optional<Decoded> decode(std::uint64_t iova) {
    std::optional<Hpa> at = table.root();
    if (!at) {
      return std::nullopt;
    }
    std::uint64_t base = at->value;
    for (const unsigned shift : {39U, 30U, 21U, 12U}) {
      const std::uint64_t entry = memory.read64(Hpa{base + ((iova >> shift) % 512) * 8}).value();
      if ((entry & 0b11U) == 0) {
        return std::nullopt;
      }
      const bool page_size = ((entry >> 7U) & 1U) != 0;
      const std::uint64_t field = entry & 0x000f'ffff'ffff'f000U;
      if (shift == 12 || page_size) {
        return Decoded{field + (iova & ((std::uint64_t{1} << shift) - 1)), shift, entry};
      }
      base = field;
    }
    return std::nullopt;
  }

  void expect_all_freed() {
    EXPECT_EQ(table.mapped_bytes(), 0U);
    EXPECT_EQ(table.table_pages(), 0U);
    EXPECT_EQ(memory.pages_in_use(), 0U);
    EXPECT_FALSE(table.root());
  }
};

TEST_F(PageTableTest, EntriesAreThoseOfTheSecondStageFormat) {
  const std::uint64_t iova = (3ULL << 39) | (5ULL << 30) | (7ULL << 21) | (9ULL << 12);
  ASSERT_EQ(table.map(Iova{iova}, Hpa{0xabc'def0'5000}, KiB4, read_only), PageTableStatus::ok);
  // Level by level: index 3 in the root, 5, 7 and 9 below it; tables grant both rights, the leaf one.
  std::uint64_t base = table.root().value().value;
  for (const unsigned index : {3U, 5U, 7U}) {
    const std::uint64_t entry = memory.read64(Hpa{base + index * 8}).value();
    EXPECT_EQ(entry & 0xfffU, 0b11U);
    EXPECT_EQ(entry >> 52U, 0U);
    base = entry & ~std::uint64_t{0xfff};
  }
  EXPECT_EQ(memory.read64(Hpa{base + 9 * 8}).value(), 0xabc'def0'5001U);
  EXPECT_EQ(table.table_pages(), 4U);

  ASSERT_EQ(table.map(Iova{2 * MiB2 + GiB1}, Hpa{6 * MiB2}, MiB2, write_only), PageTableStatus::ok);
  EXPECT_EQ(decode(2 * MiB2 + GiB1)->entry, 6 * MiB2 | 0x82U);
  ASSERT_EQ(table.map(Iova{4 * GiB1}, Hpa{8 * GiB1}, GiB1, read_write), PageTableStatus::ok);
  EXPECT_EQ(decode(4 * GiB1)->entry, 8 * GiB1 | 0x83U);
}

TEST_F(PageTableTest, LargestPagesThatAlignmentAllows) {
  // 4 KiB before a 2 MiB boundary, then 2 MiB pages up to a 1 GiB boundary, 1 GiB pages, and down again.
  const std::uint64_t iova = GiB1 - 2 * MiB2 - 3 * KiB4;
  const std::uint64_t size = 3 * KiB4 + 2 * MiB2 + 2 * GiB1 + MiB2 + 5 * KiB4;
  const std::uint64_t hpa = 64 * GiB1 + iova;
  ASSERT_EQ(table.map(Iova{iova}, Hpa{hpa}, size, read_write), PageTableStatus::ok);
  const struct {
    std::uint64_t at;
    unsigned shift;
  } expected[] = {{iova, 12},           {iova + 3 * KiB4, 21}, {GiB1 - 1, 21},        {GiB1, 30},
                  {2 * GiB1 + 123, 30}, {3 * GiB1, 21},        {3 * GiB1 + MiB2, 12}, {iova + size - 1, 12}};
  for (const auto& e : expected) {
    const auto decoded = decode(e.at);
    ASSERT_TRUE(decoded) << std::hex << e.at;
    EXPECT_EQ(decoded->shift, e.shift) << std::hex << e.at;
    EXPECT_EQ(decoded->hpa, hpa + (e.at - iova));
  }
  EXPECT_FALSE(decode(iova - 1));
  EXPECT_FALSE(decode(iova + size));
  EXPECT_EQ(table.mapped_bytes(), size);

  // Aligned IOVA, but not congruent host address: small pages only.
  ASSERT_EQ(table.map(Iova{16 * GiB1}, Hpa{32 * GiB1 + KiB4}, MiB2, read_write), PageTableStatus::ok);
  EXPECT_EQ(decode(16 * GiB1)->shift, 12U);
}

TEST_F(PageTableTest, LargestPageIsConfigurable) {
  for (const unsigned shift : {12U, 21U, 30U}) {
    PageTable limited(memory, {.host_address_bits = 52, .largest_page_shift = shift});
    ASSERT_EQ(limited.map(Iova{0}, Hpa{GiB1}, GiB1, read_write), PageTableStatus::ok);
    EXPECT_EQ(limited.walk(Iova{0x1234'5678}, 1, DmaDirection::read).page_shift, shift);
    EXPECT_EQ(limited.walk(Iova{0x1234'5678}, 1, DmaDirection::read).address.value, GiB1 + 0x1234'5678);
    // 4 reads for a 4 KiB page, 3 for 2 MiB, 2 for 1 GiB.
    EXPECT_EQ(limited.walk(Iova{0x1234'5678}, 1, DmaDirection::read).steps, 4 - (shift - 12) / 9);
  }
  EXPECT_EQ(memory.pages_in_use(), 0U) << "a table gives its pages back when it dies";
}

TEST_F(PageTableTest, UnmapOnePageInTheMiddleOfAGibibyte) {
  const std::uint64_t iova = 8 * GiB1;
  const std::uint64_t hpa = 40 * GiB1;
  ASSERT_EQ(table.map(Iova{iova}, Hpa{hpa}, GiB1, read_only), PageTableStatus::ok);
  ASSERT_EQ(decode(iova)->shift, 30U);
  const std::uint64_t hole = iova + GiB1 / 2 + 77 * KiB4;
  std::uint64_t unmapped = 0;
  ASSERT_EQ(table.unmap(Iova{hole}, KiB4, &unmapped), PageTableStatus::ok);
  EXPECT_EQ(unmapped, KiB4);
  EXPECT_EQ(table.mapped_bytes(), GiB1 - KiB4);
  for (std::uint64_t at = iova; at < iova + GiB1; at += KiB4) {
    const auto decoded = decode(at);
    const WalkResult walk = table.walk(Iova{at + 5}, 1, DmaDirection::read);
    if (at == hole) {
      ASSERT_FALSE(decoded);
      ASSERT_EQ(walk.fault, WalkFault::not_present);
      continue;
    }
    ASSERT_TRUE(decoded) << std::hex << at;
    ASSERT_EQ(decoded->hpa, hpa + (at - iova));
    ASSERT_EQ(decoded->entry & 0xfffU, decoded->shift == 12 ? 0x001U : 0x081U) << "rights survive the split";
    ASSERT_EQ(walk.address.value, hpa + (at - iova) + 5);
  }
  // Only the 2 MiB with the hole became small pages.
  EXPECT_EQ(decode(iova)->shift, 21U);
  EXPECT_EQ(decode(hole + KiB4)->shift, 12U);
  EXPECT_EQ(table.table_pages(), 4U);
  ASSERT_EQ(table.unmap(Iova{iova}, GiB1, &unmapped), PageTableStatus::ok);
  EXPECT_EQ(unmapped, GiB1);
  expect_all_freed();
}

TEST_F(PageTableTest, UnmapAcrossTheEdgesOfTwoLargePages) {
  ASSERT_EQ(table.map(Iova{0}, Hpa{GiB1}, 2 * GiB1, read_write), PageTableStatus::ok);
  std::uint64_t unmapped = 0;
  ASSERT_EQ(table.unmap(Iova{GiB1 - KiB4}, 2 * KiB4, &unmapped), PageTableStatus::ok);
  EXPECT_EQ(unmapped, 2 * KiB4);
  EXPECT_TRUE(decode(GiB1 - KiB4 - 1));
  EXPECT_FALSE(decode(GiB1 - KiB4));
  EXPECT_FALSE(decode(GiB1 + KiB4 - 1));
  EXPECT_EQ(decode(GiB1 + KiB4)->hpa, 2 * GiB1 + KiB4);
  ASSERT_EQ(table.unmap(Iova{0}, std::uint64_t{1} << 48), PageTableStatus::ok);
  expect_all_freed();
}

TEST_F(PageTableTest, BothEndsOfTheAddressSpace) {
  const std::uint64_t last = (std::uint64_t{1} << 48) - KiB4;
  ASSERT_EQ(table.map(Iova{last}, Hpa{0}, KiB4, read_write), PageTableStatus::ok);
  ASSERT_EQ(table.map(Iova{0}, Hpa{(std::uint64_t{1} << 52) - KiB4}, KiB4, read_write), PageTableStatus::ok);
  EXPECT_EQ(table.walk(Iova{last + 0xfff}, 1, DmaDirection::write).address.value, 0xfffU);
  EXPECT_EQ(table.walk(Iova{last + 0xfff}, 0xffff'ffff'ffff'ffff, DmaDirection::write).bytes, 1U);
  EXPECT_EQ(table.walk(Iova{last + KiB4}, 1, DmaDirection::read).fault, WalkFault::address_width);
  EXPECT_EQ(table.walk(Iova{~std::uint64_t{0}}, 1, DmaDirection::read).fault, WalkFault::address_width);
  EXPECT_EQ(table.walk(Iova{0}, 1, DmaDirection::read).address.value, (std::uint64_t{1} << 52) - KiB4);
}

TEST_F(PageTableTest, RefusesWhatIsNotPagesOrDoesNotFit) {
  const std::uint64_t top = std::uint64_t{1} << 48;
  EXPECT_EQ(table.map(Iova{0}, Hpa{0}, 0, read_write), PageTableStatus::invalid);
  EXPECT_EQ(table.map(Iova{1}, Hpa{0}, KiB4, read_write), PageTableStatus::invalid);
  EXPECT_EQ(table.map(Iova{0}, Hpa{8}, KiB4, read_write), PageTableStatus::invalid);
  EXPECT_EQ(table.map(Iova{0}, Hpa{0}, KiB4 + 1, read_write), PageTableStatus::invalid);
  EXPECT_EQ(table.map(Iova{0}, Hpa{0}, KiB4, {}), PageTableStatus::invalid);
  EXPECT_EQ(table.map(Iova{top - KiB4}, Hpa{0}, 2 * KiB4, read_write), PageTableStatus::invalid);
  EXPECT_EQ(table.map(Iova{top}, Hpa{0}, KiB4, read_write), PageTableStatus::invalid);
  EXPECT_EQ(table.map(Iova{~std::uint64_t{0xfff}}, Hpa{0}, 2 * KiB4, read_write), PageTableStatus::invalid);
  EXPECT_EQ(table.map(Iova{KiB4}, Hpa{0}, ~std::uint64_t{0xfff}, read_write), PageTableStatus::invalid);
  EXPECT_EQ(table.map(Iova{0}, Hpa{(std::uint64_t{1} << 52) - KiB4}, 2 * KiB4, read_write), PageTableStatus::invalid);
  EXPECT_EQ(table.map(Iova{0}, Hpa{~std::uint64_t{0xfff}}, 2 * KiB4, read_write), PageTableStatus::invalid);
  EXPECT_EQ(table.unmap(Iova{0}, 0), PageTableStatus::invalid);
  EXPECT_EQ(table.unmap(Iova{12}, KiB4), PageTableStatus::invalid);
  EXPECT_EQ(table.unmap(Iova{0}, ~std::uint64_t{0xfff}), PageTableStatus::invalid);
  EXPECT_EQ(table.unmap(Iova{0}, KiB4), PageTableStatus::ok) << "a hole is no error";
  expect_all_freed();

  PageTable narrow(memory, {.host_address_bits = 40, .largest_page_shift = 30});
  EXPECT_EQ(narrow.map(Iova{0}, Hpa{std::uint64_t{1} << 40}, KiB4, read_write), PageTableStatus::invalid);
  EXPECT_EQ(narrow.map(Iova{0}, Hpa{(std::uint64_t{1} << 40) - KiB4}, KiB4, read_write), PageTableStatus::ok);
  EXPECT_THROW(PageTable(memory, {.host_address_bits = 53, .largest_page_shift = 30}), Error);
  EXPECT_THROW(PageTable(memory, {.host_address_bits = 31, .largest_page_shift = 30}), Error);
  EXPECT_THROW(PageTable(memory, {.host_address_bits = 52, .largest_page_shift = 13}), Error);
}

TEST_F(PageTableTest, OverlapChangesNothing) {
  ASSERT_EQ(table.map(Iova{4 * MiB2}, Hpa{0}, MiB2, read_write), PageTableStatus::ok);
  const std::uint32_t pages = memory.pages_in_use();
  // A range over all of it, into it from either side, inside it, and the page itself.
  const struct {
    std::uint64_t at;
    std::uint64_t size;
  } ranges[] = {{0, 16 * MiB2},
                {4 * MiB2 - KiB4, 2 * KiB4},
                {5 * MiB2 - KiB4, 2 * KiB4},
                {4 * MiB2 + 8 * KiB4, KiB4},
                {4 * MiB2, MiB2}};
  for (const auto& range : ranges) {
    EXPECT_EQ(table.map(Iova{range.at}, Hpa{64 * GiB1}, range.size, read_only), PageTableStatus::overlap);
  }
  EXPECT_EQ(memory.pages_in_use(), pages);
  EXPECT_EQ(table.mapped_bytes(), MiB2);
  EXPECT_FALSE(decode(4 * MiB2 - KiB4));
  EXPECT_FALSE(decode(5 * MiB2));
  EXPECT_EQ(decode(4 * MiB2)->entry, 0x83U);
  // Right beside it there is room.
  EXPECT_EQ(table.map(Iova{5 * MiB2}, Hpa{0}, KiB4, read_write), PageTableStatus::ok);
  EXPECT_EQ(table.map(Iova{4 * MiB2 - KiB4}, Hpa{0}, KiB4, read_write), PageTableStatus::ok);
}

// For every size of a memory that is too small: nothing stays mapped, no page is lost, and what was there is unharmed.
TEST(PageTableMemoryLimit, MapIsAllOrNothing) {
  // Crosses a 512 GiB boundary with 4 KiB pages: 2 tables of every level, 7 pages with the root.
  const std::uint64_t iova = (std::uint64_t{1} << 39) - KiB4;
  for (std::uint32_t pages = 0; pages <= 7; ++pages) {
    PageTablePool memory(Hpa{0}, pages == 0 ? 1 : pages);
    if (pages == 0) {
      static_cast<void>(memory.allocate_page());
    }
    const std::uint32_t before = memory.pages_in_use();
    PageTable table(memory, {});
    const PageTableStatus status = table.map(Iova{iova}, Hpa{0}, 2 * KiB4, read_write);
    EXPECT_EQ(status, pages < 7 ? PageTableStatus::out_of_memory : PageTableStatus::ok) << pages;
    EXPECT_EQ(memory.pages_in_use(), pages < 7 ? before : 7U) << pages;
    EXPECT_EQ(table.mapped_bytes(), pages < 7 ? 0 : 2 * KiB4);
    EXPECT_EQ(table.table_pages(), pages < 7 ? 0U : 7U);
  }
}

TEST(PageTableMemoryLimit, FailedMapLeavesNeighboursAlone) {
  PageTablePool memory(Hpa{0}, 5);
  PageTable table(memory, {});
  ASSERT_EQ(table.map(Iova{0}, Hpa{GiB1}, KiB4, read_write), PageTableStatus::ok);
  // One more table fits; the second doesn't.
  EXPECT_EQ(table.map(Iova{MiB2 - KiB4}, Hpa{0}, MiB2 + 2 * KiB4, read_write), PageTableStatus::out_of_memory);
  EXPECT_EQ(memory.pages_in_use(), 4U);
  EXPECT_EQ(table.walk(Iova{0}, 1, DmaDirection::read).address.value, GiB1);
  EXPECT_EQ(table.walk(Iova{MiB2 - KiB4}, 1, DmaDirection::read).fault, WalkFault::not_present);
  EXPECT_EQ(table.mapped_bytes(), KiB4);
}

TEST(PageTableMemoryLimit, SplitWithoutMemoryUnmapsNothing) {
  for (std::uint32_t spare = 0; spare <= 4; ++spare) {
    PageTablePool memory(Hpa{0}, 2 + spare);
    PageTable table(memory, {});
    ASSERT_EQ(table.map(Iova{0}, Hpa{0}, 4 * GiB1, read_write), PageTableStatus::ok);
    std::uint64_t unmapped = 0;
    // Both ends lie inside a 1 GiB page: 2 tables each.
    const PageTableStatus status = table.unmap(Iova{GiB1 - KiB4}, GiB1 + 2 * KiB4, &unmapped);
    EXPECT_EQ(status, spare < 4 ? PageTableStatus::out_of_memory : PageTableStatus::ok) << spare;
    EXPECT_EQ(unmapped, spare < 4 ? 0 : GiB1 + 2 * KiB4);
    for (std::uint64_t at = 0; at < 4 * GiB1; at += MiB2 / 2) {
      const WalkResult walk = table.walk(Iova{at}, 1, DmaDirection::read);
      const bool hole = spare == 4 && at >= GiB1 - KiB4 && at < 2 * GiB1 + KiB4;
      ASSERT_EQ(walk.ok(), !hole) << std::hex << at;
      ASSERT_TRUE(hole || walk.address.value == at);
    }
  }
}

TEST_F(PageTableTest, WalkJoinsContiguousPages) {
  ASSERT_EQ(table.map(Iova{KiB4}, Hpa{0x10'0000}, 4 * KiB4, read_write), PageTableStatus::ok);
  ASSERT_EQ(table.map(Iova{5 * KiB4}, Hpa{0x10'4000}, KiB4, read_only), PageTableStatus::ok);  // contiguous, read-only
  ASSERT_EQ(table.map(Iova{6 * KiB4}, Hpa{0x20'0000}, 2 * KiB4, read_write), PageTableStatus::ok);  // a jump
  const auto bytes = [this](std::uint64_t at, std::uint64_t length, DmaDirection direction) {
    return table.walk(Iova{at}, length, direction).bytes;
  };
  EXPECT_EQ(bytes(KiB4 + 0x10, 1, DmaDirection::read), 1U);
  EXPECT_EQ(bytes(KiB4 + 0x10, 0, DmaDirection::read), 1U) << "a zero-length read needs its page";
  EXPECT_EQ(bytes(KiB4 + 0x10, 0x10000, DmaDirection::read), 5 * KiB4 - 0x10);
  EXPECT_EQ(bytes(KiB4 + 0x10, 0x10000, DmaDirection::write), 4 * KiB4 - 0x10);
  EXPECT_EQ(bytes(KiB4 + 0x10, 2 * KiB4, DmaDirection::write), 2 * KiB4);
  EXPECT_EQ(bytes(6 * KiB4, 0x10000, DmaDirection::read), 2 * KiB4) << "ends at the hole";
  EXPECT_EQ(bytes(5 * KiB4, 1, DmaDirection::write), 0U);
  EXPECT_EQ(bytes(8 * KiB4, 1, DmaDirection::read), 0U);

  // Not over the end of a table, and not from 2 MiB pages into smaller ones.
  ASSERT_EQ(table.map(Iova{GiB1 - MiB2}, Hpa{GiB1 - MiB2}, MiB2 + KiB4, read_write), PageTableStatus::ok);
  EXPECT_EQ(bytes(GiB1 - MiB2 + 1, GiB1, DmaDirection::read), MiB2 - 1);
  ASSERT_EQ(table.map(Iova{2 * GiB1}, Hpa{2 * GiB1}, 3 * MiB2 + KiB4, read_write), PageTableStatus::ok);
  EXPECT_EQ(bytes(2 * GiB1, GiB1, DmaDirection::read), 3 * MiB2);
}

TEST_F(PageTableTest, LargePagesThatSomeoneElseWroteInTheMiddle) {
  // A table may be handed entries by other software: a table right after a large page is no large page.
  ASSERT_EQ(table.map(Iova{0}, Hpa{MiB2}, MiB2, read_write), PageTableStatus::ok);
  ASSERT_EQ(table.map(Iova{MiB2}, Hpa{GiB1}, KiB4, read_write), PageTableStatus::ok);
  const auto first = table.walk(Iova{0}, GiB1, DmaDirection::read);
  EXPECT_EQ(first.bytes, MiB2);
}

struct MalformedEntry : PageTableTest {
  // Address of the entry at `level` (4 … 1) on the path of IOVA 0.
  Hpa entry_at(unsigned level) {
    std::uint64_t base = table.root().value().value;
    for (unsigned l = 4; l > level; --l) {
      base = memory.read64(Hpa{base}).value() & 0x000f'ffff'ffff'f000U;
    }
    return Hpa{base};
  }
  WalkFault fault_with(unsigned level, std::uint64_t entry) {
    const Hpa at = entry_at(level);
    const std::uint64_t good = memory.read64(at).value();
    memory.write64(at, entry);
    const WalkResult walk = table.walk(Iova{0x123}, 1, DmaDirection::read);
    EXPECT_TRUE(walk.ok() || walk.bytes == 0);
    EXPECT_EQ(walk.steps, 5 - level) << "one read per level down to the entry";
    memory.write64(at, good);
    return walk.fault;
  }
};

TEST_F(MalformedEntry, ReservedBitsAtEachLevel) {
  ASSERT_EQ(table.map(Iova{0}, Hpa{GiB1}, KiB4, read_write), PageTableStatus::ok);
  EXPECT_EQ(fault_with(4, memory.read64(entry_at(4)).value() | 0x80U), WalkFault::malformed_entry) << "512 GiB page";
  EXPECT_EQ(fault_with(4, std::uint64_t{1} << 39U | 0x83U), WalkFault::malformed_entry) << "an aligned one";
  EXPECT_EQ(fault_with(3, GiB1 | 0x1000U | 0x83U), WalkFault::malformed_entry) << "bit 12 of a 1 GiB page";
  EXPECT_EQ(fault_with(3, GiB1 | 0x2000'0000U | 0x83U), WalkFault::malformed_entry) << "bit 29 of a 1 GiB page";
  EXPECT_EQ(fault_with(3, GiB1 | 0x83U), WalkFault::none);
  EXPECT_EQ(fault_with(2, MiB2 | 0x1000U | 0x83U), WalkFault::malformed_entry) << "bit 12 of a 2 MiB page";
  EXPECT_EQ(fault_with(2, MiB2 | 0x10'0000U | 0x83U), WalkFault::malformed_entry) << "bit 20 of a 2 MiB page";
  EXPECT_EQ(fault_with(2, MiB2 | 0x83U), WalkFault::none);
  EXPECT_EQ(fault_with(1, GiB1 | 0x83U), WalkFault::none) << "bit 7 of a last-level entry is ignored";
  // Ignored bits 62:52 and 63, and the snoop and memory-type bits, change nothing.
  EXPECT_EQ(fault_with(1, GiB1 | 0xfff0'0000'0000'0000U | 0x87bU), WalkFault::none);
  EXPECT_EQ(fault_with(1, 0xfff0'0000'0000'0000U | GiB1), WalkFault::not_present);
}

TEST_F(MalformedEntry, AddressBeyondTheHostsWidth) {
  PageTable narrow(memory, {.host_address_bits = 46, .largest_page_shift = 30});
  ASSERT_EQ(narrow.map(Iova{0}, Hpa{GiB1}, KiB4, read_write), PageTableStatus::ok);
  const Hpa root = narrow.root().value();
  const std::uint64_t good = memory.read64(root).value();
  for (const unsigned bit : {46U, 51U}) {
    memory.write64(root, good | std::uint64_t{1} << bit);
    EXPECT_EQ(narrow.walk(Iova{0}, 1, DmaDirection::read).fault, WalkFault::malformed_entry) << bit;
  }
  memory.write64(root, good | std::uint64_t{1} << 52U);
  EXPECT_TRUE(narrow.walk(Iova{0}, 1, DmaDirection::read).ok());
  memory.write64(root, good);
}

TEST_F(MalformedEntry, JoiningStopsAtTheEndOfTheHostsAddresses) {
  PageTable narrow(memory, {.host_address_bits = 46, .largest_page_shift = 30});
  const std::uint64_t end = std::uint64_t{1} << 46U;
  ASSERT_EQ(narrow.map(Iova{0}, Hpa{end - KiB4}, KiB4, read_write), PageTableStatus::ok);
  ASSERT_EQ(narrow.map(Iova{KiB4}, Hpa{0}, KiB4, read_write), PageTableStatus::ok);
  std::uint64_t last_table = narrow.root().value().value;
  for (unsigned level = 4; level > 1; --level) {
    last_table = memory.read64(Hpa{last_table}).value() & 0x000f'ffff'ffff'f000U;
  }
  memory.write64(Hpa{last_table + 8}, end | 3U);  // contiguous, but beyond what the host has
  EXPECT_EQ(narrow.walk(Iova{0}, 2 * KiB4, DmaDirection::read).bytes, KiB4);
  EXPECT_EQ(narrow.walk(Iova{KiB4}, 1, DmaDirection::read).fault, WalkFault::malformed_entry);
}

TEST_F(MalformedEntry, TableOutsideMemory) {
  ASSERT_EQ(table.map(Iova{0}, Hpa{GiB1}, KiB4, read_write), PageTableStatus::ok);
  const Hpa at = entry_at(3);
  const std::uint64_t good = memory.read64(at).value();
  const std::uint64_t beyond = memory.base().value + memory.size();
  memory.write64(at, beyond | 3U);
  const WalkResult walk = table.walk(Iova{0}, 1, DmaDirection::read);
  EXPECT_EQ(walk.fault, WalkFault::table_access);
  EXPECT_EQ(walk.steps, 3U) << "the read that failed counts";
  memory.write64(at, good);
}

TEST_F(MalformedEntry, RightsAreTheAndOverAllLevels) {
  ASSERT_EQ(table.map(Iova{0}, Hpa{GiB1}, KiB4, read_write), PageTableStatus::ok);
  for (unsigned level = 4; level >= 1; --level) {
    const Hpa at = entry_at(level);
    const std::uint64_t good = memory.read64(at).value();
    memory.write64(at, (good & ~std::uint64_t{3}) | 1U);
    EXPECT_TRUE(table.walk(Iova{0}, 1, DmaDirection::read).ok());
    EXPECT_FALSE(table.walk(Iova{0}, 1, DmaDirection::read).writable);
    EXPECT_EQ(table.walk(Iova{0}, 1, DmaDirection::write).fault, WalkFault::write_permission) << level;
    memory.write64(at, (good & ~std::uint64_t{3}) | 2U);
    EXPECT_TRUE(table.walk(Iova{0}, 1, DmaDirection::write).ok());
    EXPECT_EQ(table.walk(Iova{0}, 1, DmaDirection::read).fault, WalkFault::read_permission) << level;
    memory.write64(at, good & ~std::uint64_t{3});
    EXPECT_EQ(table.walk(Iova{0}, 1, DmaDirection::read).fault, WalkFault::not_present) << level;
    memory.write64(at, good);
  }
}

// A million operations against a map of single pages, written from the rules of map and unmap alone.
TEST_F(PageTableTest, RandomOperationsAgainstAnOracle) {
  struct Page {
    std::uint64_t hpa;
    bool read;
    bool write;
  };
  std::map<std::uint64_t, Page> oracle;  // by IOVA page number
  std::mt19937_64 random(20240607);
  // A small set of pages around the boundaries where levels change, so that operations meet.
  const std::uint64_t bases[] = {0, GiB1 - 4 * MiB2, (std::uint64_t{1} << 39) - 2 * MiB2,
                                 (std::uint64_t{1} << 48) - 4 * MiB2};
  const auto pick = [&](std::uint64_t n) { return random() % n; };
  const auto pick_start = [&] {
    const std::uint64_t granule = pick(3) == 0 ? MiB2 : KiB4;
    return bases[pick(4)] + pick(4 * MiB2 / granule) * granule;
  };
  const auto pick_size = [&]() -> std::uint64_t {
    switch (pick(8)) {
      case 0:
        return MiB2;
      case 1:
        return MiB2 + pick(8) * KiB4;
      case 2:
        return pick(600) * KiB4 + KiB4;
      default:
        return pick(4) * KiB4 + KiB4;
    }
  };
  const std::uint64_t end = std::uint64_t{1} << 48;
  std::uint64_t outcomes[4] = {};
  for (unsigned op = 0; op < 1'000'000; ++op) {
    const std::uint64_t iova = pick_start();
    const std::uint64_t size = pick_size();
    const std::uint64_t first = iova / KiB4;
    const std::uint64_t last = (iova + size - 1) / KiB4;
    const unsigned kind = static_cast<unsigned>(pick(100));
    if (kind < 3) {
      const std::uint64_t hpa =
          (pick(2) == 0 ? iova + 32 * GiB1 : pick(1 << 20) * KiB4) & ((std::uint64_t{1} << 52) - 1);
      const bool readable = pick(3) != 0;
      const bool writable = !readable || pick(2) != 0;
      PageTableStatus expected = PageTableStatus::ok;
      if (iova + size > end) {
        expected = PageTableStatus::invalid;
      } else if (const auto it = oracle.lower_bound(first); it != oracle.end() && it->first <= last) {
        expected = PageTableStatus::overlap;
      }
      ASSERT_EQ(table.map(Iova{iova}, Hpa{hpa}, size, {.read = readable, .write = writable}), expected) << op;
      if (expected == PageTableStatus::ok) {
        for (std::uint64_t page = first; page <= last; ++page) {
          oracle[page] = {hpa + (page - first) * KiB4, readable, writable};
        }
      }
      ++outcomes[expected == PageTableStatus::ok ? 0 : 1];
    } else if (kind < 6) {
      if (iova + size > end) {
        ASSERT_EQ(table.unmap(Iova{iova}, size), PageTableStatus::invalid);
        continue;
      }
      const auto from = oracle.lower_bound(first);
      const auto to = oracle.upper_bound(last);
      const auto expected = static_cast<std::uint64_t>(std::distance(from, to)) * KiB4;
      oracle.erase(from, to);
      std::uint64_t unmapped = 0;
      ASSERT_EQ(table.unmap(Iova{iova}, size, &unmapped), PageTableStatus::ok);
      ASSERT_EQ(unmapped, expected) << op;
      ++outcomes[2];
    } else {
      const std::uint64_t at = iova + pick(KiB4);
      const bool write = pick(2) == 0;
      const std::uint64_t length = pick(4) == 0 ? pick(4 * KiB4) + 1 : 1;
      const WalkResult walk = table.walk(Iova{at}, length, write ? DmaDirection::write : DmaDirection::read);
      const auto it = oracle.find(first);
      if (it == oracle.end()) {
        ASSERT_EQ(walk.fault, WalkFault::not_present) << op;
        continue;
      }
      if (!(write ? it->second.write : it->second.read)) {
        ASSERT_EQ(walk.fault, write ? WalkFault::write_permission : WalkFault::read_permission) << op;
        continue;
      }
      ASSERT_TRUE(walk.ok()) << op;
      ASSERT_EQ(walk.address.value, it->second.hpa + at % KiB4) << op;
      ASSERT_EQ(walk.readable, it->second.read);
      ASSERT_EQ(walk.writable, it->second.write);
      ASSERT_GE(walk.bytes, std::min<std::uint64_t>(length, KiB4 - at % KiB4)) << "at least the page's rest";
      ASSERT_LE(walk.bytes, length);
      // Every byte promised must be right.
      const std::uint64_t last_byte = at + walk.bytes - 1;
      for (std::uint64_t page = first; page <= last_byte / KiB4; ++page) {
        const auto each = oracle.find(page);
        ASSERT_NE(each, oracle.end()) << op;
        ASSERT_TRUE(write ? each->second.write : each->second.read) << op;
        ASSERT_EQ(each->second.hpa, it->second.hpa + (page - first) * KiB4) << op;
      }
      ++outcomes[3];
    }
    if (op % 4096 == 0) {
      ASSERT_EQ(table.mapped_bytes(), oracle.size() * KiB4);
      ASSERT_EQ(table.table_pages(), memory.pages_in_use());
    }
  }
  for (const std::uint64_t count : outcomes) {
    EXPECT_GT(count, 5'000U) << "every kind of outcome was met often";
  }
  // All pages once more, with the reader that shares nothing with the walker.
  for (const auto& [page, value] : oracle) {
    const auto decoded = decode(page * KiB4);
    ASSERT_TRUE(decoded);
    ASSERT_EQ(decoded->hpa, value.hpa);
  }
  ASSERT_EQ(table.unmap(Iova{0}, end), PageTableStatus::ok);
  expect_all_freed();
}

TEST(PageTablePool, BoundsAndReuse) {
  EXPECT_THROW(PageTablePool(Hpa{0x10}, 1), Error);
  EXPECT_THROW(PageTablePool(Hpa{0}, 0), Error);
  EXPECT_THROW(PageTablePool(Hpa{~std::uint64_t{0xfff}}, 2), Error);
  PageTablePool pool(Hpa{0x8000}, 2);
  const Hpa first = pool.allocate_page().value();
  const Hpa second = pool.allocate_page().value();
  EXPECT_EQ(first.value, 0x8000U);
  EXPECT_EQ(second.value, 0x9000U);
  EXPECT_FALSE(pool.allocate_page());
  pool.write64(first + 8, 42);
  EXPECT_EQ(pool.read64(first + 8), 42U);
  EXPECT_EQ(pool.read64(Hpa{0x7ff8}), std::nullopt);
  EXPECT_EQ(pool.read64(Hpa{0xa000}), std::nullopt);
  EXPECT_EQ(pool.read64(Hpa{~std::uint64_t{7}}), std::nullopt);
  pool.free_page(second);
  pool.free_page(first);
  EXPECT_EQ(pool.pages_in_use(), 0U);
  EXPECT_EQ(pool.allocate_page(), first) << "lowest first";
  EXPECT_EQ(pool.read64(first + 8), 0U) << "zeroed";
}

}  // namespace
}  // namespace orrery::pcie::page_table_test
