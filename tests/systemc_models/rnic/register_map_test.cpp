// A register map from a file: what its registers do, and what is said about a file that makes no sense.
#include <gtest/gtest.h>

#include <map>

#include "common/error.h"
#include "firmware/interface/registers.h"
#include "systemc_models/rnic/register_map.h"
#include "systemc_models/rnic/register_names.h"

namespace orrery::test::register_map_test {
namespace {

namespace reg = rnic::reg;

// The block's side: words that are kept, and who wrote what.
class Block final : public firmware::RegisterAccess {
 public:
  std::uint32_t read32(std::uint32_t offset) override { return words[offset]; }
  void write32(std::uint32_t offset, std::uint32_t value) override {
    words[offset] = value;
    written.emplace_back(offset, value);
  }
  std::map<std::uint32_t, std::uint32_t> words;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> written;
};

constexpr const char* example = R"(
bar_bytes = 0x1000
[[register]]
name = "MODE"
offset = 0x10
reset = 0xa5
writable = 0x0f
[[register]]
name = "CAUSE"
offset = 0x14
access = "w1c"
reset = 0xff
[[register]]
name = "REVISION"
offset = 0x00
access = "ro"
reset = 7
[[register]]
name = "GO"
offset = 0x20
access = "wo"
[[register.effect]]
on = "dma_local.1"
pass = true
shift = 8
[[register.effect]]
on = "dma_control.1"
when = 0x1
value = 2
[[register]]
name = "STATE"
offset = 0x24
access = "ro"
[[register.source]]
on = "dma_status.1"
high = 5
low = 4
[[register.field]]
name = "DMA"
high = 5
low = 4
[[register]]
name = "RAM"
offset = 0x100
count = 4
on = "sram.2"
)";

class Map : public testing::Test {
 protected:
  Block block;
  rnic::RegisterMap map{rnic::parse_register_map(example, "example.toml"), block};
};

TEST_F(Map, StorageKeepsItsWritableBits) {
  EXPECT_EQ(map.read32(0x10), 0xa5U);
  map.write32(0x10, 0xffff'fff2);
  EXPECT_EQ(map.read32(0x10), 0xa2U);
  map.write32(0x14, 0x0f);
  EXPECT_EQ(map.read32(0x14), 0xf0U);
  map.reset();
  EXPECT_EQ(map.read32(0x10), 0xa5U);
  EXPECT_EQ(map.read32(0x14), 0xffU);
}

TEST_F(Map, WhatMayNotBeWrittenOrIsNotThere) {
  map.write32(0x00, 1);
  EXPECT_EQ(map.read32(0x00), 7U);
  EXPECT_EQ(map.read32(0x18), 0U);
  map.write32(0xffc, 1);
  EXPECT_EQ(map.refused(), 3U);
  EXPECT_TRUE(block.written.empty());
}

TEST_F(Map, EffectsInOrderAndOnlyIfTheirBitsAreSet) {
  map.write32(0x20, 0x1200);
  EXPECT_EQ(block.written, (std::vector<std::pair<std::uint32_t, std::uint32_t>>{{reg::dma_local + 0x20, 0x12}}));
  block.written.clear();
  map.write32(0x20, 0x3401);
  EXPECT_EQ(block.written, (std::vector<std::pair<std::uint32_t, std::uint32_t>>{{reg::dma_local + 0x20, 0x34},
                                                                                 {reg::dma_control + 0x20, 2}}));
  EXPECT_EQ(map.read32(0x20), 0U);
}

TEST_F(Map, SourcesAndBoundRegistersShowTheBlock) {
  block.words[reg::dma_status + 0x20] = 3;
  EXPECT_EQ(map.read32(0x24), 0x30U);
  map.write32(0x10c, 0x1234);
  EXPECT_EQ(block.words[reg::sram + 5 * 4], 0x1234U);
  EXPECT_EQ(map.read32(0x10c), 0x1234U);
}

TEST_F(Map, NamesFieldsAndUse) {
  EXPECT_EQ(map.name(0x24), "STATE");
  EXPECT_EQ(map.name(0x108), "RAM.2");
  EXPECT_EQ(map.name(0x44), "0x44");
  EXPECT_EQ(map.fields(0x24, 0x20), "DMA=0x2");
  EXPECT_EQ(map.fields(0x10, 0x20), "");
  map.write32(0x10, 1);
  static_cast<void>(map.read32(0x104));
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> use;
  for (const rnic::RegisterUse& one : map.use()) {
    use[one.name] = {one.reads, one.writes};
  }
  EXPECT_EQ(use.at("MODE"), (std::pair<std::uint64_t, std::uint64_t>{0, 1}));
  EXPECT_EQ(use.at("RAM"), (std::pair<std::uint64_t, std::uint64_t>{1, 0}));
  EXPECT_EQ(use.at("GO"), (std::pair<std::uint64_t, std::uint64_t>{0, 0}));
}

TEST_F(Map, FaultsAreByItsOwnOffsets) {
  ASSERT_TRUE(map.faults().add(rnic::RegisterFault{.offset = 0x00, .value = 9, .count = 1}));
  EXPECT_EQ(map.read32(0x00), 9U);
  EXPECT_EQ(map.read32(0x00), 7U);
}

std::string complaint(const std::string& text) {
  try {
    static_cast<void>(rnic::parse_register_map(text, "my.toml"));
  } catch (const Error& error) {
    return std::string(error.what()) + "\n" + error.remedy();
  }
  return {};
}

TEST(RegisterMapFile, ProblemsNameFileAndKey) {
  const auto says = [](const std::string& text, const std::string& words) {
    EXPECT_NE(complaint(text).find(words), std::string::npos) << complaint(text);
  };
  says("", "my.toml");
  says("bar_bytes = 5000\n", "bar_bytes");
  says("[[register]]\noffset = 4\n", "register.0.name");
  says("[[register]]\nname = \"A\"\n[[register.field]]\nhigh = 3\n", "register.0.field.0.name");
  says("[[register]]\nname = \"A\"\noffset = 2\n", "register.0.offset");
  says("[[register]]\nname = \"A\"\noffset = 0x10000\n", "register.0.offset");
  says("[[register]]\nname = \"A\"\n[[register]]\nname = \"A\"\noffset = 4\n", "A is there already");
  says("[[register]]\nname = \"A\"\ncount = 2\n[[register]]\nname = \"B\"\noffset = 4\n", "B lies over A");
  says("[[register]]\nname = \"A\"\non = \"dma_control.9\"\n", "no register \"dma_control.9\"");
  says("[[register]]\nname = \"A\"\non = \"crash_record.63\"\ncount = 2\n", "more than there are");
  says("[[register]]\nname = \"A\"\naccess = \"rwx\"\n", "access");
  says("[[register]]\nname = \"A\"\nofset = 4\n", "did you mean \"offset\"?");
  says("[[register]]\nname = \"A\"\n[[register.field]]\nname = \"F\"\nhigh = 1\nlow = 2\n", "register.0.field.0");
  says("[[register]]\nname = \"A\"\n[[register.effect]]\non = \"go\"\n", "no register \"go\"");
  says("[[register]]\nname = \"A\"\nreset = 0x100000000\n", "reset");
}

TEST(RegisterNames, GoBothWays) {
  EXPECT_EQ(rnic::register_offset("ready"), reg::ready);
  EXPECT_EQ(rnic::register_offset("dma_control.3"), reg::dma_control + 3 * reg::dma_stride);
  EXPECT_EQ(rnic::register_offset("sram.1"), reg::sram + 4);
  EXPECT_EQ(rnic::register_offset("dma_control.4"), std::nullopt);
  EXPECT_EQ(rnic::register_offset("dma_control.x"), std::nullopt);
  EXPECT_EQ(rnic::register_offset(""), std::nullopt);
  EXPECT_EQ(rnic::register_name(reg::wait), "wait");
  EXPECT_EQ(rnic::register_name(reg::command_queue_high + 8), "command_queue_high.1");
  EXPECT_EQ(rnic::register_name(0x00a4), "0xa4");
}

}  // namespace
}  // namespace orrery::test::register_map_test
