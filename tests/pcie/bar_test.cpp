// Base address registers: sizing, as a kernel does it, and decoding.
#include "pcie/bar.h"

#include <linux/pci_regs.h>

#include <gtest/gtest.h>

#include "common/error.h"
#include "pcie/capabilities.h"

namespace orrery::pcie::bar_test {
namespace {

constexpr std::uint64_t MiB = 1U << 20;
constexpr std::uint64_t GiB = 1U << 30;

// Follows a function's decoding through its callbacks, as an endpoint does.
struct Function final : ConfigObserver {
  ConfigSpace space{HeaderType::endpoint, {.vendor_id = 0x1d1d, .device_id = 1, .class_code = 0x030200}};
  std::uint16_t pm = 0;
  BarSet bars;

  explicit Function(const BarDescriptions& descriptions) : bars(space, descriptions) {
    define_bars(space, descriptions);
    CapabilityBuilder builder(space);
    pm = builder.add(PowerManagementCapability{});
    builder.add(PciExpressCapability{});
    space.set_observer(this);
  }
  void on_command(std::uint16_t, std::uint16_t) override { bars.refresh(); }
  void on_bars() override { bars.refresh(); }
  void on_power_state(PowerState, PowerState) override { bars.refresh(); }
  void on_reset(ResetKind) override { bars.refresh(); }

  void enable(bool on) { space.write_dword(PCI_COMMAND, on ? PCI_COMMAND_MEMORY : 0, 0b0011); }
  void place64(unsigned bar, std::uint64_t address) {
    space.write_dword(PCI_BASE_ADDRESS_0 + 4 * bar, static_cast<std::uint32_t>(address));
    space.write_dword(PCI_BASE_ADDRESS_0 + 4 * bar + 4, static_cast<std::uint32_t>(address >> 32U));
  }
  // The size that software works out: __pci_read_base() in Linux.
  std::uint64_t sized(unsigned bar) {
    const std::uint32_t at = PCI_BASE_ADDRESS_0 + 4 * bar;
    const std::uint32_t saved = space.read_dword(at);
    space.write_dword(at, 0xffff'ffff);
    std::uint64_t size = space.read_dword(at);
    space.write_dword(at, saved);
    if ((saved & PCI_BASE_ADDRESS_MEM_TYPE_MASK) == PCI_BASE_ADDRESS_MEM_TYPE_64) {
      const std::uint32_t upper = space.read_dword(at + 4);
      space.write_dword(at + 4, 0xffff'ffff);
      size |= static_cast<std::uint64_t>(space.read_dword(at + 4)) << 32U;
      space.write_dword(at + 4, upper);
    } else if (size != 0) {
      size |= 0xffff'ffff'0000'0000;
    }
    size &= ~std::uint64_t{0xf};
    return size & (~size + 1);
  }
};

BarDescriptions typical() {
  BarDescriptions bars;
  bars[0] = {.size = 64 * 1024};
  bars[1] = {.size = 256 * MiB, .is_64bit = true, .prefetchable = true};
  bars[3] = {.size = 128 * GiB, .is_64bit = true, .prefetchable = true};
  bars[5] = {.size = 128};
  return bars;
}

TEST(Bar, SizesAsSoftwareFindsThem) {
  Function f(typical());
  EXPECT_EQ(f.sized(0), 64U * 1024);
  EXPECT_EQ(f.sized(1), 256 * MiB);
  EXPECT_EQ(f.sized(3), 128 * GiB);
  EXPECT_EQ(f.sized(5), 128U);
  EXPECT_EQ(f.space.read32(PCI_BASE_ADDRESS_0), 0U) << "32-bit, not prefetchable";
  EXPECT_EQ(f.space.read32(PCI_BASE_ADDRESS_1), 0xcU) << "64-bit, prefetchable";
  for (const unsigned bar : {0U, 1U, 3U, 5U}) {
    const BarRegister reg = bar_register(f.space, PCI_BASE_ADDRESS_0 + 4 * bar);
    EXPECT_EQ(reg.size, typical()[bar].size);
    EXPECT_EQ(reg.is_64bit, typical()[bar].is_64bit);
    EXPECT_FALSE(reg.assigned);
  }
  const ConfigSpace bare(HeaderType::endpoint, {});
  EXPECT_EQ(bar_register(bare, PCI_BASE_ADDRESS_0).size, 0U);
}

TEST(Bar, AddressIsAlignedToTheSize) {
  Function f(typical());
  f.enable(true);
  f.space.write_dword(PCI_BASE_ADDRESS_0, 0xe001'2345);
  EXPECT_EQ(f.bars.base(0), 0xe001'0000U);
  f.place64(1, 0x38'1234'5678);
  EXPECT_EQ(f.bars.base(1), 0x38'1000'0000U);
  f.place64(3, 0x12'3456'789a'bcde);
  EXPECT_EQ(f.bars.base(3), 0x12'3440'0000'0000U);
}

TEST(Bar, FindsTheBarAndTheOffset) {
  Function f(typical());
  f.space.write_dword(PCI_BASE_ADDRESS_0, 0xe000'0000);
  f.place64(1, 0x38'0000'0000);
  f.place64(3, 0x40'0000'0000);
  f.space.write_dword(PCI_BASE_ADDRESS_5, 0xe001'0000);
  EXPECT_FALSE(f.bars.find(0xe000'0000, 4)) << "memory space is off";
  f.enable(true);

  const auto expect = [&](std::uint64_t address, std::uint64_t length, unsigned bar, std::uint64_t offset) {
    const auto hit = f.bars.find(address, length);
    ASSERT_TRUE(hit) << std::hex << address;
    EXPECT_EQ(hit->bar, bar);
    EXPECT_EQ(hit->offset, offset);
  };
  expect(0xe000'0000, 1, 0, 0);
  expect(0xe000'ffff, 1, 0, 0xffff);
  expect(0xe000'0000, 0x10000, 0, 0);
  expect(0xe001'0000, 128, 5, 0);
  expect(0x38'0fff'ffff, 1, 1, 0xfff'ffff);
  expect(0x40'0000'0000, 128 * GiB, 3, 0);
  expect(0x5f'ffff'ffff, 1, 3, 128 * GiB - 1);

  EXPECT_FALSE(f.bars.find(0xdfff'ffff, 1));
  EXPECT_FALSE(f.bars.find(0xdfff'fffc, 8)) << "begins below";
  EXPECT_FALSE(f.bars.find(0xe000'fffc, 8)) << "reaches over the end, into another BAR";
  EXPECT_FALSE(f.bars.find(0xe001'007f, 2));
  EXPECT_FALSE(f.bars.find(0x38'1000'0000, 1));
  EXPECT_FALSE(f.bars.find(0xe000'0004, ~std::uint64_t{0})) << "length wraps";
  EXPECT_FALSE(f.bars.find(~std::uint64_t{0}, 1));
  EXPECT_FALSE(f.bars.find(0, 1));
}

TEST(Bar, SizingWithDecodingOnClaimsNothingStrange) {
  Function f(typical());
  f.enable(true);
  f.space.write_dword(PCI_BASE_ADDRESS_0, 0xe000'0000);
  f.place64(1, 0x38'0000'0000);

  f.space.write_dword(PCI_BASE_ADDRESS_0, 0xffff'ffff);
  EXPECT_FALSE(f.bars.base(0));
  EXPECT_FALSE(f.bars.find(0xffff'0000, 4));
  EXPECT_TRUE(f.bars.find(0x38'0000'0000, 4)) << "the others go on";
  f.space.write_dword(PCI_BASE_ADDRESS_0, 0xe000'0000);
  EXPECT_TRUE(f.bars.find(0xe000'0000, 4));

  // The lower half alone is an address like any other; with the upper half of ones it is not.
  f.space.write_dword(PCI_BASE_ADDRESS_1, 0xffff'ffff);
  EXPECT_EQ(f.bars.base(1), 0x38'f000'0000U);
  f.space.write_dword(PCI_BASE_ADDRESS_2, 0xffff'ffff);
  EXPECT_FALSE(f.bars.base(1));
  f.space.write_dword(PCI_BASE_ADDRESS_1, 0);
  EXPECT_FALSE(f.bars.base(1)) << "an upper half of ones, still sizing";
  f.place64(1, 0x38'0000'0000);
  EXPECT_TRUE(f.bars.find(0x38'0000'0000, 4));
}

TEST(Bar, WhatStopsDecoding) {
  Function f(typical());
  f.space.write_dword(PCI_BASE_ADDRESS_0, 0xe000'0000);
  f.enable(true);
  ASSERT_TRUE(f.bars.find(0xe000'0000, 4));
  f.space.write_dword(f.pm + PCI_PM_CTRL, 3, 0b0001);
  EXPECT_FALSE(f.bars.find(0xe000'0000, 4)) << "D3hot";
  f.space.write_dword(f.pm + PCI_PM_CTRL, 0, 0b0001);
  EXPECT_TRUE(f.bars.find(0xe000'0000, 4));
  f.enable(false);
  EXPECT_FALSE(f.bars.find(0xe000'0000, 4));
  f.enable(true);
  f.space.write_dword(PCI_BASE_ADDRESS_0, 0);
  EXPECT_FALSE(f.bars.find(0, 4)) << "address 0 means: never assigned";
  f.space.write_dword(PCI_BASE_ADDRESS_0, 0xe000'0000);
  f.space.reset(ResetKind::function_level);
  EXPECT_FALSE(f.bars.find(0xe000'0000, 4));
  f.enable(true);
  EXPECT_FALSE(f.bars.find(0xe000'0000, 4)) << "a reset forgets the address";
}

TEST(Bar, Moves) {
  Function f(typical());
  f.enable(true);
  f.place64(1, 0x38'0000'0000);
  f.place64(1, 0x39'0000'0000);
  EXPECT_FALSE(f.bars.find(0x38'0000'0000, 4));
  EXPECT_TRUE(f.bars.find(0x39'0000'0000, 4));
  // Over another BAR: the lower index claims, as a scan in order.
  f.space.write_dword(PCI_BASE_ADDRESS_0, 0xe000'0000);
  f.space.write_dword(PCI_BASE_ADDRESS_5, 0xe000'0080);
  EXPECT_EQ(f.bars.find(0xe000'0080, 4)->bar, 0U);
}

void expect_refused(const BarDescriptions& bars, const std::string& words) {
  ConfigSpace space(HeaderType::endpoint, {});
  try {
    define_bars(space, bars);
    FAIL() << "accepted; expected: " << words;
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
    EXPECT_FALSE(e.remedy().empty());
  }
}

TEST(Bar, Refusals) {
  BarDescriptions bars;
  bars[2] = {.size = 3 * MiB};
  expect_refused(bars, "BAR2: size 0x300000");
  bars[2] = {.size = 64};
  expect_refused(bars, "BAR2");
  bars[2] = {.size = 4 * GiB};
  expect_refused(bars, "32-bit");
  bars[2] = {.size = MiB, .is_64bit = false, .prefetchable = true};
  expect_refused(bars, "prefetchable");
  bars[2] = {.size = MiB, .is_64bit = true};
  bars[3] = {.size = MiB};
  expect_refused(bars, "BAR2: a 64-bit BAR needs the next register");
  bars = {};
  bars[5] = {.size = MiB, .is_64bit = true};
  expect_refused(bars, "BAR5");
  ConfigSpace bridge(HeaderType::bridge, {});
  EXPECT_THROW(define_bars(bridge, {}), Error);

  ConfigSpace largest(HeaderType::endpoint, {});
  bars = {};
  bars[0] = {.size = 2 * GiB};
  bars[2] = {.size = std::uint64_t{1} << 63, .is_64bit = true};
  define_bars(largest, bars);
  EXPECT_EQ(bar_register(largest, PCI_BASE_ADDRESS_0).size, 2 * GiB);
  EXPECT_EQ(bar_register(largest, PCI_BASE_ADDRESS_2).size, std::uint64_t{1} << 63);
}

}  // namespace
}  // namespace orrery::pcie::bar_test
