// The register file of a function. Offsets and bits come from the kernel's <linux/pci_regs.h>, not from our headers.
#include "pcie/config_space.h"

#include <linux/pci_regs.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "common/error.h"
#include "pcie/bar.h"
#include "pcie/capabilities.h"

namespace orrery::pcie::config_space_test {
namespace {

// Writes down every call as a line.
struct Recorder final : ConfigObserver {
  std::vector<std::string> calls;

  void on_command(std::uint16_t before, std::uint16_t after) override {
    calls.push_back(fmt::format("command {:x} {:x}", before, after));
  }
  void on_bars() override { calls.emplace_back("bars"); }
  void on_msix_control(bool enabled, bool masked) override {
    calls.push_back(fmt::format("msix {} {}", enabled, masked));
  }
  void on_power_state(PowerState before, PowerState after) override {
    calls.push_back(fmt::format("power {} {}", static_cast<int>(before), static_cast<int>(after)));
  }
  void on_device_control() override { calls.emplace_back("device control"); }
  void on_ats_control() override { calls.emplace_back("ats"); }
  void on_acs_control() override { calls.emplace_back("acs"); }
  void on_aer() override { calls.emplace_back("aer"); }
  void on_sriov() override { calls.emplace_back("sriov"); }
  void on_bus_numbers() override { calls.emplace_back("bus numbers"); }
  void on_bridge_windows() override { calls.emplace_back("windows"); }
  void on_secondary_bus_reset(bool asserted) override { calls.push_back(fmt::format("secondary reset {}", asserted)); }
  void on_reset(ResetKind kind) override { calls.push_back(fmt::format("reset {}", static_cast<int>(kind))); }

  std::vector<std::string> take() { return std::exchange(calls, {}); }
};

using Calls = std::vector<std::string>;

const FunctionIdentity identity{.vendor_id = 0x1d1d,
                                .device_id = 0x2807,
                                .revision = 0x5a,
                                .class_code = 0x030201,
                                .subsystem_vendor_id = 0xbeef,
                                .subsystem_id = 0xcafe,
                                .multi_function = true};

struct EndpointSpace : ::testing::Test {
  ConfigSpace space{HeaderType::endpoint, identity};
  Recorder recorder;
  std::uint16_t pm = 0, msix = 0, express = 0, aer = 0, acs = 0, ats = 0, sriov = 0;

  EndpointSpace() {
    BarDescriptions bars;
    bars[0] = {.size = 0x4000};
    bars[2] = {.size = 0x1000'0000, .is_64bit = true, .prefetchable = true};
    define_bars(space, bars);
    CapabilityBuilder builder(space);
    pm = builder.add(PowerManagementCapability{.d1 = true});
    msix = builder.add(MsixCapability{.vectors = 32, .table_offset = 0x2000, .pba_offset = 0x3000});
    express = builder.add(PciExpressCapability{});
    aer = builder.add(AerCapability{});
    ats = builder.add(AtsCapability{});
    acs = builder.add(AcsCapability{.egress_control = true, .egress_vector_bits = 40});
    SriovCapability vfs{.total_vfs = 8, .vf_device_id = 0x2808};
    vfs.vf_bars[0] = {.size = 0x4000, .is_64bit = true, .prefetchable = true};
    sriov = builder.add(vfs);
    space.set_observer(&recorder);
  }

  void write16(std::uint32_t offset, std::uint16_t value) {
    const std::array bytes{static_cast<std::byte>(value & 0xffU), static_cast<std::byte>(value >> 8U)};
    space.write(offset, bytes);
  }
  void write8(std::uint32_t offset, std::uint8_t value) {
    const std::byte byte{value};
    space.write(offset, {&byte, 1});
  }
};

TEST_F(EndpointSpace, HeaderAsTheKernelReadsIt) {
  EXPECT_EQ(space.read16(PCI_VENDOR_ID), 0x1d1d);
  EXPECT_EQ(space.read16(PCI_DEVICE_ID), 0x2807);
  EXPECT_EQ(space.read16(PCI_COMMAND), 0);
  EXPECT_EQ(space.read16(PCI_STATUS), PCI_STATUS_CAP_LIST);
  EXPECT_EQ(space.read8(PCI_REVISION_ID), 0x5a);
  EXPECT_EQ(space.read8(PCI_CLASS_PROG), 0x01);
  EXPECT_EQ(space.read16(PCI_CLASS_DEVICE), 0x0302);
  EXPECT_EQ(space.read8(PCI_HEADER_TYPE), 0x80 | PCI_HEADER_TYPE_NORMAL);
  EXPECT_EQ(space.read16(PCI_SUBSYSTEM_VENDOR_ID), 0xbeef);
  EXPECT_EQ(space.read16(PCI_SUBSYSTEM_ID), 0xcafe);
  EXPECT_EQ(space.read32(PCI_ROM_ADDRESS), 0U);
  EXPECT_EQ(space.read8(PCI_INTERRUPT_PIN), 0);
  EXPECT_EQ(space.read8(PCI_CAPABILITY_LIST), pm);
}

TEST_F(EndpointSpace, AllOnesEverywhereChangesNoReadOnlyBit) {
  for (std::uint32_t at = 0; at < ConfigSpace::size; at += 4) {
    if (at != (express + unsigned{PCI_EXP_DEVCTL})) {  // all ones there is a function level reset
      space.write_dword(at, 0xffff'ffff);
    }
  }
  EXPECT_EQ(space.read32(PCI_VENDOR_ID), 0x2807'1d1dU);
  EXPECT_EQ(space.read16(PCI_COMMAND),
            PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER | PCI_COMMAND_PARITY | PCI_COMMAND_SERR | PCI_COMMAND_INTX_DISABLE);
  EXPECT_EQ(space.read16(PCI_STATUS), PCI_STATUS_CAP_LIST);
  EXPECT_EQ(space.read32(PCI_CLASS_REVISION), 0x0302'015aU);
  EXPECT_EQ(space.read32(PCI_SUBSYSTEM_VENDOR_ID), 0xcafe'beefU);
  EXPECT_EQ(space.read32(PCI_ROM_ADDRESS), 0U) << "no expansion ROM";
  EXPECT_EQ(space.read32(PCI_BASE_ADDRESS_0), 0xffff'c000U);
  EXPECT_EQ(space.read32(PCI_BASE_ADDRESS_1), 0U) << "no such BAR";
  EXPECT_EQ(space.read32(PCI_BASE_ADDRESS_2), 0xf000'000cU);
  EXPECT_EQ(space.read32(PCI_BASE_ADDRESS_3), 0xffff'ffffU);
  EXPECT_EQ(space.read16(msix + PCI_MSIX_FLAGS), PCI_MSIX_FLAGS_ENABLE | PCI_MSIX_FLAGS_MASKALL | 31);
  EXPECT_EQ(space.read32(msix + PCI_MSIX_TABLE), 0x2000U);
  EXPECT_EQ(space.read16(ats + PCI_ATS_CTRL), PCI_ATS_CTRL_ENABLE | 0x1f);
  EXPECT_EQ(space.read16(acs + PCI_ACS_CTRL), 0x7f);
  EXPECT_EQ(space.read32(acs + PCI_ACS_EGRESS_CTL_V), 0xffff'ffffU);
  EXPECT_EQ(space.read32(acs + PCI_ACS_EGRESS_CTL_V + 4), 0xffU) << "40 bits of egress vector";
  EXPECT_EQ(space.read16(sriov + PCI_SRIOV_CTRL), PCI_SRIOV_CTRL_VFE | PCI_SRIOV_CTRL_MSE | PCI_SRIOV_CTRL_ARI);
  EXPECT_EQ(space.read16(sriov + PCI_SRIOV_TOTAL_VF), 8);
  // The lists are still whole.
  EXPECT_EQ(space.capability(PCI_CAP_ID_EXP), express);
  EXPECT_EQ(space.extended_capability(PCI_EXT_CAP_ID_SRIOV), sriov);
}

TEST_F(EndpointSpace, ByteEnables) {
  constexpr std::uint32_t bar = PCI_BASE_ADDRESS_3;  // 32 writable bits
  for (unsigned enables = 0; enables < 16; ++enables) {
    space.write_dword(bar, 0x1122'3344);
    space.write_dword(bar, 0xaabb'ccdd, enables);
    std::uint32_t expected = 0;
    for (unsigned i = 0; i < 4; ++i) {
      const std::uint32_t source = ((enables >> i) & 1U) != 0 ? 0xaabb'ccddU : 0x1122'3344U;
      expected |= source & (0xffU << (8 * i));
    }
    EXPECT_EQ(space.read_dword(bar), expected) << enables;
  }
  space.write_dword(bar, 0);
  space.write_dword(bar + 3, 0x0102'0304);
  EXPECT_EQ(space.read_dword(bar + 1), 0x0102'0304U) << "dword accesses are aligned down";
  EXPECT_EQ(space.read_dword(bar), 0x0102'0304U);
}

TEST_F(EndpointSpace, WriteOneToClear) {
  space.set_bits(PCI_STATUS, PCI_STATUS_REC_MASTER_ABORT | PCI_STATUS_SIG_SYSTEM_ERROR | PCI_STATUS_PARITY);
  write16(PCI_STATUS, PCI_STATUS_REC_MASTER_ABORT);
  EXPECT_EQ(space.read16(PCI_STATUS), PCI_STATUS_CAP_LIST | PCI_STATUS_SIG_SYSTEM_ERROR | PCI_STATUS_PARITY);
  write16(PCI_STATUS, 0);
  EXPECT_EQ(space.read16(PCI_STATUS), PCI_STATUS_CAP_LIST | PCI_STATUS_SIG_SYSTEM_ERROR | PCI_STATUS_PARITY);
  // A write of the command half, or of the other status byte, clears nothing.
  space.write_dword(PCI_COMMAND, 0xffff'ffff, 0b0011);
  space.write_dword(PCI_COMMAND, 0xffff'ffff, 0b0100);
  EXPECT_EQ(space.read16(PCI_STATUS), PCI_STATUS_CAP_LIST | PCI_STATUS_SIG_SYSTEM_ERROR | PCI_STATUS_PARITY);
  space.write_dword(PCI_COMMAND, 0xffff'ffff, 0b1000);
  EXPECT_EQ(space.read16(PCI_STATUS), PCI_STATUS_CAP_LIST);
}

TEST_F(EndpointSpace, AccessesBeyondTheEnd) {
  std::array<std::byte, 16> bytes;
  bytes.fill(std::byte{0x77});
  space.read(0xffc, bytes);
  EXPECT_EQ(bytes[3], std::byte{0});
  EXPECT_EQ(bytes[4], std::byte{0xff});
  space.read(0x1000, bytes);
  EXPECT_EQ(bytes[0], std::byte{0xff});
  space.read(0xffff'fff8, bytes);  // offset + length wraps
  for (const std::byte b : bytes) {
    EXPECT_EQ(b, std::byte{0xff});
  }
  space.write(0xffff'fff8, bytes);
  space.write(0x1000, bytes);
  space.write(0xffe, bytes);
  space.write(0, {});
  space.write_dword(0xffff'ffff, 1);
  EXPECT_EQ(space.read16(PCI_COMMAND), 0);
  EXPECT_EQ(space.read32(0xffd), 0xffff'ffffU);
  EXPECT_EQ(space.read16(0xfff), 0xffff);
  EXPECT_EQ(space.read64(0xff9), ~std::uint64_t{0});
  EXPECT_EQ(space.read64(0xff8), 0U);
  EXPECT_EQ(space.read8(0x1000), 0xff);
  EXPECT_EQ(space.read_dword(0xffff'ffff), 0xffff'ffffU);
  space.set_bits(0xfff, 0xffff'ffff);
  space.set_bits(0xffff'ffff, 0xffff'ffff);
  EXPECT_EQ(space.read8(0xfff), 0xff);
  EXPECT_TRUE(recorder.take().empty());
}

TEST_F(EndpointSpace, UnalignedWritesOfEveryLength) {
  // Any split of a byte string over write() calls ends in the same registers.
  std::vector<std::byte> pattern(64);
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    pattern[i] = static_cast<std::byte>(0x11 * i + 3);
  }
  pattern[PCI_COMMAND + 1] = std::byte{0};
  ConfigSpace reference(HeaderType::bridge, identity);
  for (std::uint32_t i = 0; i < pattern.size(); ++i) {
    reference.write(i, {&pattern[i], 1});
  }
  for (std::size_t step = 2; step <= pattern.size(); ++step) {
    ConfigSpace other(HeaderType::bridge, identity);
    for (std::size_t at = 0; at < pattern.size(); at += step) {
      other.write(static_cast<std::uint32_t>(at), {&pattern[at], std::min(step, pattern.size() - at)});
    }
    for (std::uint32_t at = 0; at < 64; at += 4) {
      ASSERT_EQ(other.read32(at), reference.read32(at)) << "step " << step << " at " << at;
    }
  }
  EXPECT_EQ(reference.read8(PCI_SECONDARY_BUS), std::to_integer<unsigned>(pattern[PCI_SECONDARY_BUS]));
}

TEST_F(EndpointSpace, CallsOnChangesOnly) {
  write16(PCI_COMMAND, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
  EXPECT_EQ(recorder.take(), (Calls{"command 0 6"}));
  write16(PCI_COMMAND, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
  write16(PCI_COMMAND, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER | PCI_COMMAND_IO);  // no I/O space: reads back 0
  space.set_bits(PCI_STATUS, PCI_STATUS_PARITY);
  write16(PCI_STATUS, PCI_STATUS_PARITY);
  EXPECT_EQ(recorder.take(), Calls{}) << "no change of the command register";

  space.write_dword(PCI_BASE_ADDRESS_0, 0xe000'0000);
  space.write_dword(PCI_BASE_ADDRESS_0, 0xe000'0008);  // only read-only bits differ
  space.write_dword(PCI_BASE_ADDRESS_1, 0x1234'5678);  // no such BAR
  EXPECT_EQ(recorder.take(), (Calls{"bars"}));

  write16(msix + PCI_MSIX_FLAGS, PCI_MSIX_FLAGS_ENABLE | PCI_MSIX_FLAGS_MASKALL);
  write16(msix + PCI_MSIX_FLAGS, PCI_MSIX_FLAGS_ENABLE);
  write8(msix + PCI_MSIX_FLAGS + 1, 0);
  write8(msix + PCI_MSIX_FLAGS, 0xff);  // table size is read-only
  EXPECT_EQ(recorder.take(), (Calls{"msix true true", "msix true false", "msix false false"}));

  write16(express + PCI_EXP_DEVCTL, PCI_EXP_DEVCTL_READRQ_4096B);
  space.set_bits(express + unsigned{PCI_EXP_DEVSTA}, PCI_EXP_DEVSTA_CED);
  write16(express + PCI_EXP_DEVSTA, PCI_EXP_DEVSTA_CED);
  write16(express + PCI_EXP_DEVCTL2, PCI_EXP_DEVCTL2_IDO_REQ_EN);
  EXPECT_EQ(recorder.take(), (Calls{"device control", "device control"}));
  EXPECT_EQ(space.read16(express + PCI_EXP_DEVSTA), 0);

  write16(ats + PCI_ATS_CTRL, PCI_ATS_CTRL_ENABLE);
  write16(acs + PCI_ACS_CTRL, PCI_ACS_RR);
  space.write_dword(acs + PCI_ACS_EGRESS_CTL_V, 2);
  space.write_dword(aer + PCI_ERR_UNCOR_MASK, PCI_ERR_UNC_UNSUP);
  write16(sriov + PCI_SRIOV_NUM_VF, 4);
  write16(sriov + PCI_SRIOV_CTRL, PCI_SRIOV_CTRL_VFE);
  space.write_dword(sriov + PCI_SRIOV_BAR + 4, 0x38);
  EXPECT_EQ(recorder.take(), (Calls{"ats", "acs", "acs", "aer", "sriov", "sriov", "sriov"}));

  // One write over several registers: every one of them in turn.
  std::array<std::byte, 24> bytes{};
  bytes[4] = std::byte{0};
  space.write(PCI_COMMAND, bytes);
  EXPECT_EQ(recorder.take(), (Calls{"command 6 0", "bars"}));

  space.set_observer(nullptr);
  write16(PCI_COMMAND, PCI_COMMAND_MEMORY);
  space.reset(ResetKind::cold);
  EXPECT_EQ(recorder.take(), Calls{});
}

TEST_F(EndpointSpace, FunctionLevelReset) {
  write16(PCI_COMMAND, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
  space.write_dword(PCI_BASE_ADDRESS_0, 0xe000'0000);
  write16(express + PCI_EXP_DEVCTL, PCI_EXP_DEVCTL_PAYLOAD_256B | PCI_EXP_DEVCTL_READRQ_4096B);
  write16(express + PCI_EXP_LNKCTL, PCI_EXP_LNKCTL_CCC);
  write16(msix + PCI_MSIX_FLAGS, PCI_MSIX_FLAGS_ENABLE);
  space.write_dword(aer + PCI_ERR_UNCOR_MASK, PCI_ERR_UNC_UNSUP);
  space.set_bits(aer + unsigned{PCI_ERR_UNCOR_STATUS}, PCI_ERR_UNC_COMP_TIME);
  write16(sriov + PCI_SRIOV_NUM_VF, 4);
  write16(sriov + PCI_SRIOV_CTRL, PCI_SRIOV_CTRL_VFE);
  recorder.take();

  write16(express + PCI_EXP_DEVCTL, PCI_EXP_DEVCTL_BCR_FLR | PCI_EXP_DEVCTL_PAYLOAD_256B);
  EXPECT_EQ(recorder.take(), (Calls{"reset 2"})) << "one call reports it all";
  EXPECT_EQ(space.read16(PCI_COMMAND), 0);
  EXPECT_EQ(space.read32(PCI_BASE_ADDRESS_0), 0U);
  EXPECT_EQ(space.read32(PCI_BASE_ADDRESS_2), 0xcU) << "type bits of a BAR are no state";
  EXPECT_EQ(space.read16(msix + PCI_MSIX_FLAGS), 31);
  EXPECT_EQ(space.read16(sriov + PCI_SRIOV_CTRL), 0);
  EXPECT_EQ(space.read16(sriov + PCI_SRIOV_NUM_VF), 0);
  // §6.6.2: MPS and link controls stay, sticky bits too; the trigger reads 0, the rest is at its reset value.
  EXPECT_EQ(space.read16(express + PCI_EXP_DEVCTL), PCI_EXP_DEVCTL_PAYLOAD_256B | PCI_EXP_DEVCTL_READRQ_512B |
                                                        PCI_EXP_DEVCTL_RELAX_EN | PCI_EXP_DEVCTL_NOSNOOP_EN |
                                                        PCI_EXP_DEVCTL_EXT_TAG);
  EXPECT_EQ(space.read16(express + PCI_EXP_LNKCTL), PCI_EXP_LNKCTL_CCC);
  EXPECT_EQ(space.read32(aer + PCI_ERR_UNCOR_MASK), std::uint32_t{PCI_ERR_UNC_UNSUP});
  EXPECT_EQ(space.read32(aer + PCI_ERR_UNCOR_STATUS), std::uint32_t{PCI_ERR_UNC_COMP_TIME});

  // The bit counts only when its byte is written.
  space.write_dword(express + PCI_EXP_DEVCTL, 0xffff, 0b0001);
  write8(express + PCI_EXP_DEVCTL + 1, 0x80);
  EXPECT_EQ(recorder.take(), (Calls{"device control", "reset 2"}));
}

TEST_F(EndpointSpace, ConventionalAndColdReset) {
  write16(express + PCI_EXP_DEVCTL, PCI_EXP_DEVCTL_PAYLOAD_256B);
  write16(express + PCI_EXP_LNKCTL2, PCI_EXP_LNKCTL2_TLS_8_0GT);
  space.write_dword(aer + PCI_ERR_UNCOR_MASK, PCI_ERR_UNC_UNSUP);
  recorder.take();
  space.reset(ResetKind::conventional);
  EXPECT_EQ(space.read16(express + PCI_EXP_DEVCTL) & PCI_EXP_DEVCTL_PAYLOAD, PCI_EXP_DEVCTL_PAYLOAD_128B);
  EXPECT_EQ(space.read16(express + PCI_EXP_LNKCTL2), PCI_EXP_LNKCTL2_TLS_8_0GT) << "sticky";
  EXPECT_EQ(space.read32(aer + PCI_ERR_UNCOR_MASK), std::uint32_t{PCI_ERR_UNC_UNSUP});
  space.reset(ResetKind::cold);
  EXPECT_EQ(space.read16(express + PCI_EXP_LNKCTL2), PCI_EXP_LNKCTL2_TLS_32_0GT);
  EXPECT_EQ(space.read32(aer + PCI_ERR_UNCOR_MASK), 0U);
  EXPECT_EQ(recorder.take(), (Calls{"reset 1", "reset 0"}));
}

TEST_F(EndpointSpace, HardwareStateSurvivesWhatEventsDoNot) {
  space.set_hardware(express + PCI_EXP_LNKSTA, PCI_EXP_LNKSTA_CLS, PCI_EXP_LNKSTA_CLS_8_0GB);
  space.set_bits(PCI_STATUS, PCI_STATUS_PARITY);
  space.update_bits(PCI_INTERRUPT_LINE, 0xff, 11);
  space.reset(ResetKind::cold);
  EXPECT_EQ(space.read16(express + PCI_EXP_LNKSTA) & PCI_EXP_LNKSTA_CLS, PCI_EXP_LNKSTA_CLS_8_0GB);
  EXPECT_EQ(space.read16(PCI_STATUS), PCI_STATUS_CAP_LIST);
  EXPECT_EQ(space.read8(PCI_INTERRUPT_LINE), 0);
}

TEST(ConfigSpaceWithoutFlr, TriggerIsIgnored) {
  ConfigSpace space(HeaderType::endpoint, identity);
  CapabilityBuilder builder(space);
  const std::uint16_t express = builder.add(PciExpressCapability{.function_level_reset = false});
  Recorder recorder;
  space.set_observer(&recorder);
  space.write_dword(PCI_COMMAND, PCI_COMMAND_MEMORY, 0b0011);
  space.write_dword(express + PCI_EXP_DEVCTL, PCI_EXP_DEVCTL_BCR_FLR, 0b0010);
  EXPECT_EQ(space.read16(PCI_COMMAND), PCI_COMMAND_MEMORY);
  EXPECT_EQ(space.read16(express + PCI_EXP_DEVCTL) & PCI_EXP_DEVCTL_BCR_FLR, 0);
  EXPECT_EQ(recorder.calls.size(), 2U);
  // Nor does bit 15 of Device Control 2 trigger anything.
  space.write_dword(express + PCI_EXP_DEVCTL2, 0xffff, 0b0011);
  EXPECT_EQ(space.read16(PCI_COMMAND), PCI_COMMAND_MEMORY);
}

TEST_F(EndpointSpace, PowerStates) {
  write16(PCI_COMMAND, PCI_COMMAND_MEMORY);
  recorder.take();
  EXPECT_TRUE(space.memory_decode_enabled());
  write16(pm + PCI_PM_CTRL, 2);  // D2: not supported here
  EXPECT_EQ(space.power_state(), PowerState::d0);
  EXPECT_EQ(recorder.take(), Calls{});
  write16(pm + PCI_PM_CTRL, 1);
  EXPECT_EQ(space.power_state(), PowerState::d1);
  EXPECT_FALSE(space.memory_decode_enabled());
  write16(pm + PCI_PM_CTRL, 3);
  write16(pm + PCI_PM_CTRL, 1);  // no way from D3hot to D1
  EXPECT_EQ(space.power_state(), PowerState::d3hot);
  EXPECT_FALSE(space.memory_decode_enabled());
  EXPECT_EQ(space.read16(PCI_COMMAND), PCI_COMMAND_MEMORY) << "No_Soft_Reset: registers are kept";
  write16(pm + PCI_PM_CTRL, 0);
  EXPECT_TRUE(space.memory_decode_enabled());
  EXPECT_EQ(recorder.take(), (Calls{"power 0 1", "power 1 3", "power 3 0"}));
  EXPECT_EQ(space.read16(pm + PCI_PM_CTRL), PCI_PM_CTRL_NO_SOFT_RESET);
}

TEST(ConfigSpacePower, EveryTransition) {
  // [from][to]: out of D3hot only to D0, and no way back up from D2 to D1 (§5.3.1).
  constexpr bool legal[4][4] = {
      {true, true, true, true}, {true, true, true, true}, {true, false, true, true}, {true, false, false, true}};
  for (unsigned from = 0; from < 4; ++from) {
    for (unsigned to = 0; to < 4; ++to) {
      ConfigSpace space(HeaderType::endpoint, identity);
      const std::uint16_t at = CapabilityBuilder(space).add(PowerManagementCapability{.d1 = true, .d2 = true});
      space.write_dword(at + PCI_PM_CTRL, from, 0b0001);
      space.write_dword(at + PCI_PM_CTRL, to, 0b0001);
      EXPECT_EQ(static_cast<unsigned>(space.power_state()), legal[from][to] ? to : from) << from << " to " << to;
    }
  }
}

struct BridgeSpace : ::testing::Test {
  ConfigSpace space{HeaderType::bridge, {.vendor_id = 0x1d1d, .device_id = 1, .class_code = 0x060400}};
  Recorder recorder;

  BridgeSpace() { space.set_observer(&recorder); }
};

TEST_F(BridgeSpace, WindowsAsALinuxKernelProgramsThem) {
  // pci_setup_bridge_mmio() and pci_setup_bridge_mmio_pref(): base in the low half, limit in the high half.
  space.write_dword(PCI_PRIMARY_BUS, 0x00'43'41'40);
  space.write_dword(PCI_MEMORY_BASE, 0xe0f0'e000);
  space.write_dword(PCI_PREF_LIMIT_UPPER32, 0);
  space.write_dword(PCI_PREF_MEMORY_BASE, 0xfff1'0001);
  space.write_dword(PCI_PREF_BASE_UPPER32, 0x38);
  space.write_dword(PCI_PREF_LIMIT_UPPER32, 0x3f);
  EXPECT_EQ(recorder.take(), (Calls{"bus numbers", "windows", "windows", "windows", "windows"}))
      << "the first write of the upper limit changed nothing";
  BridgeWindows windows = bridge_windows(space);
  EXPECT_FALSE(windows.contains(0xe000'0000)) << "memory space is off";
  EXPECT_EQ(windows.primary_bus, 0x40);
  EXPECT_TRUE(windows.contains_bus(0x41));
  EXPECT_TRUE(windows.contains_bus(0x43));
  EXPECT_FALSE(windows.contains_bus(0x40));
  EXPECT_FALSE(windows.contains_bus(0x44));

  space.write_dword(PCI_COMMAND, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER, 0b0011);
  windows = bridge_windows(space);
  EXPECT_TRUE(windows.contains(0xe000'0000));
  EXPECT_TRUE(windows.contains(0xe0ff'ffff));
  EXPECT_FALSE(windows.contains(0xdfff'ffff));
  EXPECT_FALSE(windows.contains(0xe100'0000));
  EXPECT_TRUE(windows.contains(0x38'0000'0000));
  EXPECT_TRUE(windows.contains(0x3f'ffff'ffff));
  EXPECT_FALSE(windows.contains(0x37'ffff'ffff));
  EXPECT_FALSE(windows.contains(0x40'0000'0000));
  EXPECT_TRUE(space.bus_master_enabled());
}

TEST_F(BridgeSpace, UnconfiguredClaimsNothing) {
  space.write_dword(PCI_COMMAND, PCI_COMMAND_MEMORY, 0b0011);
  const BridgeWindows windows = bridge_windows(space);
  for (const std::uint64_t address : {std::uint64_t{0}, std::uint64_t{0xfffff}, std::uint64_t{0xfff0'0000}}) {
    EXPECT_FALSE(windows.contains(address));
  }
  for (unsigned bus = 0; bus < 256; ++bus) {
    EXPECT_FALSE(windows.contains_bus(bus));
  }
  EXPECT_EQ(space.read16(PCI_PREF_MEMORY_BASE) & PCI_PREF_RANGE_TYPE_MASK, unsigned{PCI_PREF_RANGE_TYPE_64});
  EXPECT_EQ(space.read16(PCI_IO_BASE), 0) << "no I/O window";
  space.write_dword(PCI_IO_BASE, 0xffff'ffff, 0b0011);
  EXPECT_EQ(space.read16(PCI_IO_BASE), 0);
  space.write_dword(PCI_BASE_ADDRESS_0, 0xffff'ffff);
  EXPECT_EQ(space.read32(PCI_BASE_ADDRESS_0), 0U);
}

TEST_F(BridgeSpace, AddressZeroIsAWindowOnceProgrammed) {
  space.write_dword(PCI_COMMAND, PCI_COMMAND_MEMORY, 0b0011);
  space.write_dword(PCI_MEMORY_BASE, 0);
  EXPECT_TRUE(bridge_windows(space).contains(0xf'ffff));
  EXPECT_FALSE(bridge_windows(space).contains(0x10'0000));
}

TEST_F(BridgeSpace, SecondaryBusReset) {
  space.write_dword(PCI_INTERRUPT_LINE, std::uint32_t{PCI_BRIDGE_CTL_BUS_RESET} << 16U, 0b1100);
  space.write_dword(PCI_INTERRUPT_LINE, std::uint32_t{PCI_BRIDGE_CTL_BUS_RESET | PCI_BRIDGE_CTL_SERR} << 16U, 0b1100);
  space.write_dword(PCI_INTERRUPT_LINE, 0, 0b1100);
  space.write_dword(PCI_INTERRUPT_LINE, 0xb, 0b0001);
  EXPECT_EQ(recorder.take(), (Calls{"secondary reset true", "secondary reset false"}));
}

TEST(ConfigSpaceBuilding, Refusals) {
  EXPECT_THROW(ConfigSpace(HeaderType::endpoint, {.class_code = 0x100'0000}), Error);
  ConfigSpace space(HeaderType::endpoint, identity);
  EXPECT_THROW(space.define(0x1000, 4, 0), Error);
  EXPECT_THROW(space.define(0xffe, 4, 0), Error);
  EXPECT_THROW(space.define(0x41, 2, 0), Error);
  EXPECT_THROW(space.define(0x40, 3, 0), Error);
  EXPECT_THROW(space.define(0x40, 0, 0), Error);
  EXPECT_THROW(space.watch(0x1000, ConfigWatch::bar), Error);
  EXPECT_EQ(space.capability(PCI_CAP_ID_EXP), 0);
  EXPECT_EQ(space.extended_capability(PCI_EXT_CAP_ID_ERR), 0);
  EXPECT_EQ(space.power_state(), PowerState::d0);
  EXPECT_EQ(bridge_windows(space).secondary_bus, 0) << "no bridge";
}

TEST(ConfigSpaceBuilding, ListsThatBiteTheirTailAreWalkedOnce) {
  ConfigSpace space(HeaderType::endpoint, identity);
  space.set_hardware(PCI_STATUS, PCI_STATUS_CAP_LIST, PCI_STATUS_CAP_LIST);
  space.define(PCI_CAPABILITY_LIST, 1, 0x40);
  space.define(0x40, 2, 0x4005);
  EXPECT_EQ(space.capability(PCI_CAP_ID_EXP), 0);
  EXPECT_EQ(space.capability(0x05), 0x40);
  space.define(0x100, 4, 0x1001'0003);
  EXPECT_EQ(space.extended_capability(PCI_EXT_CAP_ID_ERR), 0);
  EXPECT_EQ(space.extended_capability(3), 0x100);
}

}  // namespace
}  // namespace orrery::pcie::config_space_test
