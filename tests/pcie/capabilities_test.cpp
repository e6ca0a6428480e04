// Capabilities, decoded by lspci (pciutils) from a dump of the space and by the kernel's <linux/pci_regs.h>.
// The fragments looked for are those that stay the same between versions of pciutils.
#include "pcie/capabilities.h"

#include <linux/pci_regs.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "common/error.h"

namespace orrery::pcie::capabilities_test {
namespace {

// What `lspci -vvv` says of a space, lines joined by single spaces.
class Lspci {
 public:
  explicit Lspci(const ConfigSpace& space) { run(space); }

  void run(const ConfigSpace& space) {
    const std::string path = fmt::format("{}/{}.{}.lspci", ::testing::TempDir(),
                                         ::testing::UnitTest::GetInstance()->current_test_info()->name(), ::getpid());
    {
      std::ofstream dump(path);
      dump << "41:00.0 Device\n";
      for (std::uint32_t at = 0; at < ConfigSpace::size; at += 16) {
        dump << fmt::format("{:02x}:", at);
        for (std::uint32_t i = 0; i < 16; ++i) {
          dump << fmt::format(" {:02x}", space.read8(at + i));
        }
        dump << '\n';
      }
      ASSERT_TRUE(dump.good()) << path;
    }
    const std::string command = fmt::format("PATH=\"$PATH:/usr/sbin:/sbin\" lspci -n -vvv -F '{}' 2>/dev/null", path);
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
    ASSERT_TRUE(pipe);
    std::array<char, 4096> buffer;
    while (std::fgets(buffer.data(), static_cast<int>(buffer.size()), pipe.get()) != nullptr) {
      for (const char c : std::string_view(buffer.data())) {
        const bool blank = c == ' ' || c == '\t' || c == '\n';
        if (!blank) {
          text_ += c;
        } else if (!text_.empty() && text_.back() != ' ') {
          text_ += ' ';
        }
      }
    }
    std::remove(path.c_str());
    ASSERT_NE(text_.find("41:00.0"), std::string::npos) << "lspci (package pciutils) is needed; it said: " << text_;
  }

  void says(const std::string& words) const {
    EXPECT_NE(text_.find(words), std::string::npos) << "expected: " << words << "\nlspci: " << text_;
  }
  void does_not_say(const std::string& words) const { EXPECT_EQ(text_.find(words), std::string::npos) << text_; }

 private:
  std::string text_;
};

std::unique_ptr<ConfigSpace> endpoint() {
  return std::make_unique<ConfigSpace>(HeaderType::endpoint, FunctionIdentity{.vendor_id = 0x15b3,
                                                                              .device_id = 0x101e,
                                                                              .class_code = 0x020000,
                                                                              .subsystem_vendor_id = 0x1234,
                                                                              .subsystem_id = 0x5678});
}

void write16(ConfigSpace& space, std::uint32_t offset, unsigned value) {
  space.write_dword(offset, offset % 4 == 0 ? value : value << 16U, offset % 4 == 0 ? 0b0011 : 0b1100);
}

TEST(Capabilities, EmptyEndpoint) {
  const auto space = endpoint();
  const Lspci lspci(*space);
  lspci.says("41:00.0 0200: 15b3:101e");
  lspci.says("Control: I/O- Mem- BusMaster-");
  lspci.says("Status: Cap-");
  lspci.does_not_say("Capabilities");
}

// --- Layout ----------------------------------------------------------------------------------------

TEST(Capabilities, PowerManagement) {
  const auto space = endpoint();
  CapabilityBuilder(*space).add(PowerManagementCapability{.d1 = true});
  Lspci lspci(*space);
  lspci.says("Capabilities: [40] Power Management version 3");
  lspci.says("D1+ D2-");
  lspci.says("Status: D0 NoSoftRst+ PME-Enable-");
  write16(*space, 0x44, 3);
  Lspci(*space).says("Status: D3 NoSoftRst+");
}

TEST(Capabilities, Msix) {
  const auto space = endpoint();
  const std::uint16_t at = CapabilityBuilder(*space).add(
      MsixCapability{.vectors = 2048, .table_bar = 2, .table_offset = 0x1'0000, .pba_bar = 4, .pba_offset = 0x2'0008});
  Lspci lspci(*space);
  lspci.says("MSI-X: Enable- Count=2048 Masked-");
  lspci.says("Vector table: BAR=2 offset=00010000");
  lspci.says("PBA: BAR=4 offset=00020008");
  EXPECT_FALSE(msix_control(*space).enabled);
  write16(*space, at + 2U, PCI_MSIX_FLAGS_ENABLE | PCI_MSIX_FLAGS_MASKALL);
  Lspci(*space).says("MSI-X: Enable+ Count=2048 Masked+");
  EXPECT_TRUE(msix_control(*space).enabled);
  EXPECT_TRUE(msix_control(*space).function_masked);
}

TEST(Capabilities, ExpressEndpoint) {
  const auto space = endpoint();
  const std::uint16_t at = CapabilityBuilder(*space).add(PciExpressCapability{});
  const Lspci lspci(*space);
  lspci.says("Express (v2) Endpoint");
  lspci.says("DevCap: MaxPayload 512 bytes");
  lspci.says("ExtTag+");
  lspci.says("RBE+ FLReset+");
  lspci.says("DevCtl: CorrErr- NonFatalErr- FatalErr- UnsupReq- RlxdOrd+ ExtTag+ PhantFunc- AuxPwr- NoSnoop+");
  lspci.says("MaxPayload 128 bytes, MaxReadReq 512 bytes");
  lspci.says("LnkCap: Port #0, Speed 32GT/s, Width x16, ASPM not supported");
  lspci.says("LLActRep- BwNot- ASPMOptComp+");
  lspci.says("LnkSta: Speed 32GT/s, Width x16");
  lspci.says("10BitTagComp+ 10BitTagReq-");
  lspci.says("LnkCap2: Supported Link Speeds: 2.5-32GT/s");
  lspci.says("Target Link Speed: 32GT/s");
  EXPECT_EQ(space->read16(at + PCI_EXP_LNKSTA) & PCI_EXP_LNKSTA_CLS, PCI_EXP_LNKSTA_CLS_32_0GB);
  EXPECT_EQ(space->read16(at + PCI_EXP_LNKSTA) & PCI_EXP_LNKSTA_NLW, PCI_EXP_LNKSTA_NLW_X1 * 16);
}

TEST(Capabilities, EveryGenerationAndWidth) {
  const std::uint32_t vectors[] = {PCI_EXP_LNKCAP2_SLS_2_5GB,  PCI_EXP_LNKCAP2_SLS_5_0GB,  PCI_EXP_LNKCAP2_SLS_8_0GB,
                                   PCI_EXP_LNKCAP2_SLS_16_0GB, PCI_EXP_LNKCAP2_SLS_32_0GB, PCI_EXP_LNKCAP2_SLS_64_0GB};
  const char* speeds[] = {"2.5GT/s", "5GT/s", "8GT/s", "16GT/s", "32GT/s", "64GT/s"};
  for (unsigned generation = 1; generation <= 6; ++generation) {
    for (const unsigned width : {1U, 2U, 4U, 8U, 16U}) {
      const auto space = endpoint();
      const std::uint16_t at =
          CapabilityBuilder(*space).add(PciExpressCapability{.generation = generation, .width = width});
      std::uint32_t expected = 0;
      for (unsigned g = 0; g < generation; ++g) {
        expected |= vectors[g];
      }
      EXPECT_EQ(space->read32(at + PCI_EXP_LNKCAP2), expected);
      EXPECT_EQ(space->read32(at + PCI_EXP_LNKCAP) & PCI_EXP_LNKCAP_SLS, generation);
      EXPECT_EQ((space->read32(at + PCI_EXP_LNKCAP) & PCI_EXP_LNKCAP_MLW) >> 4U, width);
      if (width == 4) {
        Lspci(*space).says(fmt::format("LnkCap: Port #0, Speed {}, Width x4", speeds[generation - 1]));
      }
    }
  }
}

TEST(Capabilities, ExpressPorts) {
  const std::pair<PortType, const char*> types[] = {{PortType::root_port, "Root Port (Slot+)"},
                                                    {PortType::switch_upstream, "Upstream Port"},
                                                    {PortType::switch_downstream, "Downstream Port (Slot+)"}};
  for (const auto& [type, words] : types) {
    const bool downstream = type != PortType::switch_upstream;
    ConfigSpace space(HeaderType::bridge, {.vendor_id = 0x1b36, .device_id = 1, .class_code = 0x060400});
    CapabilityBuilder builder(space);
    const std::uint16_t at = builder.add(PciExpressCapability{.type = type,
                                                              .max_payload = 1024,
                                                              .generation = 5,
                                                              .width = 16,
                                                              .negotiated_generation = 4,
                                                              .negotiated_width = 8,
                                                              .port_number = 3,
                                                              .slot = downstream,
                                                              .slot_number = 77,
                                                              .ari_forwarding = true});
    builder.add(AerCapability{.root_port = type == PortType::root_port, .acs = downstream});
    const Lspci lspci(space);
    lspci.says(fmt::format("Express (v2) {}", words));
    lspci.says("DevCap: MaxPayload 1024 bytes");
    lspci.says("LnkCap: Port #3, Speed 32GT/s, Width x16");
    lspci.says("LnkSta: Speed 16GT/s");
    lspci.says("Width x8");
    lspci.does_not_say("FLReset+");
    lspci.says(downstream ? "LLActRep+" : "LLActRep-");
    lspci.says(downstream ? "DLActive+" : "DLActive-");
    if (downstream) {
      lspci.says("Slot #77");
      lspci.says("PresDet+");
      lspci.says("ARIFwd+");
    } else {
      lspci.does_not_say("Slot #");
    }
    if (type == PortType::root_port) {
      lspci.says("RootCmd: CERptEn- NFERptEn- FERptEn-");
      lspci.says("RootCtl: ErrCorrectable-");
    }
    // The link goes down and comes up slower.
    set_link_status(space, 1, 1, false);
    const Lspci down(space);
    down.says("DLActive-");
    EXPECT_EQ(space.read16(at + PCI_EXP_LNKSTA) & (PCI_EXP_LNKSTA_CLS | PCI_EXP_LNKSTA_NLW), 0);
    set_link_status(space, 2, 3, true);
    const Lspci up(space);
    up.says("LnkSta: Speed 5GT/s");
    up.says("Width x2");  // no link has three lanes
    up.says("EqualizationComplete-");
    set_link_status(space, 9, 99, true);
    Lspci(space).says("LnkSta: Speed 32GT/s");
    // Nothing but Link Status changed on the way.
    EXPECT_EQ(space.read16(at + PCI_EXP_LNKSTA) & PCI_EXP_LNKSTA_SLC, PCI_EXP_LNKSTA_SLC);
    EXPECT_EQ(space.read16(at + PCI_EXP_LNKCTL), 0);
  }
}

TEST(Capabilities, SerialNumberAriAts) {
  const auto space = endpoint();
  CapabilityBuilder builder(*space);
  builder.add(PciExpressCapability{});  // without it there is no extended space to look into
  builder.add_serial_number(0x0011'2233'4455'6677);
  builder.add(AriCapability{.next_function = 5});
  const std::uint16_t ats = builder.add(AtsCapability{.invalidate_queue_depth = 32});
  const Lspci lspci(*space);
  lspci.says("[100 v1] Device Serial Number 00-11-22-33-44-55-66-77");
  lspci.says("ARICap: MFVC- ACS-, Next Function: 5");
  lspci.says("ATSCap: Invalidate Queue Depth: 00");  // 0 means 32
  lspci.says("ATSCtl: Enable-, Smallest Translation Unit: 00");
  write16(*space, ats + PCI_ATS_CTRL, PCI_ATS_CTRL_ENABLE | PCI_ATS_CTRL_STU(3));
  Lspci(*space).says("ATSCtl: Enable+, Smallest Translation Unit: 03");
  EXPECT_TRUE(ats_control(*space).enabled);
  EXPECT_EQ(ats_control(*space).smallest_translation_unit, 3);
  EXPECT_TRUE(space->read16(ats + PCI_ATS_CAP) & PCI_ATS_CAP_PAGE_ALIGNED);

  const auto other = endpoint();
  CapabilityBuilder other_builder(*other);
  other_builder.add(PciExpressCapability{});
  other_builder.add(AtsCapability{.invalidate_queue_depth = 31, .page_aligned_request = false});
  Lspci(*other).says("Invalidate Queue Depth: 1f");

  const auto bare = endpoint();
  const std::uint16_t bare_ats =
      CapabilityBuilder(*bare).add(AtsCapability{.invalidate_queue_depth = 32, .page_aligned_request = false});
  EXPECT_EQ(bare->read16(bare_ats + PCI_ATS_CAP), 0);
}

TEST(Capabilities, Acs) {
  ConfigSpace space(HeaderType::bridge, {.vendor_id = 0x1b36, .device_id = 1, .class_code = 0x060400});
  CapabilityBuilder builder(space);
  builder.add(PciExpressCapability{.type = PortType::switch_downstream});
  const std::uint16_t at = builder.add(AcsCapability{.egress_control = true, .egress_vector_bits = 40});
  EXPECT_EQ(space.read16(at + PCI_ACS_CAP) >> 8U, 40);
  Lspci(space).says(
      "ACSCap: SrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl+ DirectTrans+ ACSCtl: SrcValid- "
      "TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-");
  write16(space, at + PCI_ACS_CTRL, 0x5d);
  Lspci(space).says("ACSCtl: SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans+");
  EXPECT_EQ(acs_control_register(space), 0x5d);
  space.write_dword(at + PCI_ACS_EGRESS_CTL_V, 0x8000'0001);
  space.write_dword(at + PCI_ACS_EGRESS_CTL_V + 4, 0xffff'ff80);
  for (unsigned port = 0; port < 300; ++port) {
    EXPECT_EQ(acs_egress_blocked(space, port), port == 0 || port == 31 || port == 39) << port;
  }
  // Controls that don't exist can't be set.
  ConfigSpace plain(HeaderType::bridge, {});
  const std::uint16_t plain_at = CapabilityBuilder(plain).add(AcsCapability{.direct_translated = false});
  write16(plain, plain_at + PCI_ACS_CTRL, 0xffff);
  EXPECT_EQ(acs_control_register(plain), 0x1f);
  EXPECT_FALSE(acs_egress_blocked(plain, 0));
  ConfigSpace enhanced(HeaderType::bridge, {});
  const std::uint16_t enhanced_at = CapabilityBuilder(enhanced).add(AcsCapability{.enhanced = true});
  write16(enhanced, enhanced_at + PCI_ACS_CTRL, 0xffff);
  EXPECT_EQ(acs_control_register(enhanced), 0x1fdf);
}

TEST(Capabilities, Sriov) {
  const auto space = endpoint();
  SriovCapability vfs{.total_vfs = 63, .first_vf_offset = 2, .vf_stride = 3, .vf_device_id = 0x101f};
  vfs.vf_bars[0] = {.size = 0x4000, .is_64bit = true, .prefetchable = true};
  vfs.vf_bars[3] = {.size = 0x1000};
  CapabilityBuilder builder(*space);
  builder.add(PciExpressCapability{});
  const std::uint16_t at = builder.add(vfs);
  Lspci lspci(*space);
  lspci.says("Single Root I/O Virtualization (SR-IOV)");
  lspci.says("Initial VFs: 63, Total VFs: 63, Number of VFs: 0, Function Dependency Link: 00");
  lspci.says("VF offset: 2, stride: 3, Device ID: 101f");
  lspci.says("Supported Page Size: 00000001, System Page Size: 00000001");

  SriovState state = sriov_state(*space);
  EXPECT_EQ(state.vf_bar_size, (std::array<std::uint64_t, 6>{0x4000, 0, 0, 0x1000, 0, 0}));
  EXPECT_FALSE(state.vf_enabled);
  space->write_dword(at + PCI_SRIOV_BAR, 0xffff'ffff);
  space->write_dword(at + PCI_SRIOV_BAR + 4, 0xffff'ffff);
  EXPECT_EQ(space->read32(at + PCI_SRIOV_BAR), 0xffff'c00cU);
  EXPECT_EQ(sriov_state(*space).vf_bar_base[0], 0U) << "sizing";
  space->write_dword(at + PCI_SRIOV_BAR, 0x1000'0000);
  space->write_dword(at + PCI_SRIOV_BAR + 4, 0x38);
  space->write_dword(at + PCI_SRIOV_BAR + 12, 0xe000'1234);
  write16(*space, at + PCI_SRIOV_NUM_VF, 8);
  EXPECT_EQ(sriov_state(*space).vfs, 0) << "not enabled yet";
  write16(*space, at + PCI_SRIOV_CTRL, PCI_SRIOV_CTRL_VFE | PCI_SRIOV_CTRL_MSE | PCI_SRIOV_CTRL_ARI);
  Lspci on(*space);
  on.says("IOVCtl: Enable+ Migration- Interrupt- MSE+ ARIHierarchy+");
  on.says("Number of VFs: 8");
  on.says("Region 0: Memory at 0000003810000000 (64-bit, prefetchable)");
  on.says("Region 3: Memory at e0001000 (32-bit, non-prefetchable)");
  state = sriov_state(*space);
  EXPECT_TRUE(state.vf_enabled && state.vf_memory_enabled && state.ari_capable_hierarchy);
  EXPECT_EQ(state.vfs, 8);
  EXPECT_EQ(state.first_vf_offset, 2);
  EXPECT_EQ(state.vf_stride, 3);
  EXPECT_EQ(state.vf_bar_base, (std::array<std::uint64_t, 6>{0x38'1000'0000, 0, 0, 0xe000'1000, 0, 0}));
  write16(*space, at + PCI_SRIOV_NUM_VF, 0xffff);
  EXPECT_EQ(sriov_state(*space).vfs, 63) << "never more than there are";
}

TEST(Capabilities, AllTogetherFormTwoLists) {
  const auto space = endpoint();
  CapabilityBuilder b(*space);
  const std::pair<unsigned, unsigned> standard[] = {{PCI_CAP_ID_PM, b.add(PowerManagementCapability{})},
                                                    {PCI_CAP_ID_MSIX, b.add(MsixCapability{.pba_offset = 0x10})},
                                                    {PCI_CAP_ID_EXP, b.add(PciExpressCapability{})}};
  const std::pair<unsigned, unsigned> extended[] = {{PCI_EXT_CAP_ID_ERR, b.add(AerCapability{})},
                                                    {PCI_EXT_CAP_ID_DSN, b.add_serial_number(1)},
                                                    {PCI_EXT_CAP_ID_ARI, b.add(AriCapability{})},
                                                    {PCI_EXT_CAP_ID_ATS, b.add(AtsCapability{})},
                                                    {PCI_EXT_CAP_ID_SRIOV, b.add(SriovCapability{.total_vfs = 1})},
                                                    {PCI_EXT_CAP_ID_ACS, b.add(AcsCapability{})}};
  // The lists as software walks them: in order of addition, aligned, ending in 0.
  unsigned at = space->read8(PCI_CAPABILITY_LIST);
  for (const auto& [id, offset] : standard) {
    EXPECT_EQ(at, offset);
    EXPECT_EQ(at % 4, 0U);
    EXPECT_EQ(space->read8(at), id);
    EXPECT_EQ(space->capability(static_cast<std::uint8_t>(id)), offset);
    at = space->read8(at + 1);
  }
  EXPECT_EQ(at, 0U);
  at = PCI_CFG_SPACE_SIZE;
  for (const auto& [id, offset] : extended) {
    EXPECT_EQ(at, offset);
    const std::uint32_t header = space->read32(at);
    EXPECT_EQ(PCI_EXT_CAP_ID(header), id);
    EXPECT_EQ(space->extended_capability(static_cast<std::uint16_t>(id)), offset);
    at = PCI_EXT_CAP_NEXT(header);
  }
  EXPECT_EQ(at, 0U);
}

// --- Refusals ---------------------------------------------------------------------------------------

void expect_refused(const std::function<void(CapabilityBuilder&)>& add, const std::string& words) {
  const auto space = endpoint();
  CapabilityBuilder builder(*space);
  try {
    add(builder);
    FAIL() << "accepted; expected: " << words;
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
    EXPECT_FALSE(e.remedy().empty()) << e.what();
  }
}

TEST(Capabilities, Refusals) {
  using B = CapabilityBuilder;
  expect_refused([](B& b) { b.add(MsixCapability{.vectors = 0}); }, "MSI-X capability: vectors is 0");
  expect_refused([](B& b) { b.add(MsixCapability{.vectors = 2049}); }, "vectors is 2049");
  expect_refused([](B& b) { b.add(MsixCapability{.table_bar = 6}); }, "table_bar is 6");
  expect_refused([](B& b) { b.add(MsixCapability{.pba_bar = 7}); }, "pba_bar is 7");
  expect_refused([](B& b) { b.add(MsixCapability{.table_offset = 4}); }, "table_offset is 4");
  expect_refused([](B& b) { b.add(MsixCapability{.pba_bar = 1, .pba_offset = 0x1001}); }, "pba_offset is 4097");
  expect_refused([](B& b) { b.add(MsixCapability{.vectors = 17, .pba_offset = 0x108}); }, "overlap in BAR0");
  expect_refused([](B& b) { b.add(MsixCapability{.vectors = 65, .table_offset = 8, .pba_offset = 0}); }, "overlap");
  expect_refused([](B& b) { b.add(PciExpressCapability{.max_payload = 384}); }, "max_payload is 384");
  expect_refused([](B& b) { b.add(PciExpressCapability{.max_payload = 64}); }, "max_payload is 64");
  expect_refused([](B& b) { b.add(PciExpressCapability{.max_payload = 8192}); }, "max_payload is 8192");
  expect_refused([](B& b) { b.add(PciExpressCapability{.generation = 0}); }, "generation is 0");
  expect_refused([](B& b) { b.add(PciExpressCapability{.generation = 7}); }, "generation is 7");
  expect_refused([](B& b) { b.add(PciExpressCapability{.width = 3}); }, "width is 3");
  expect_refused([](B& b) { b.add(PciExpressCapability{.width = 32}); }, "width is 32");
  expect_refused([](B& b) { b.add(PciExpressCapability{.slot = true}); }, "slot");
  expect_refused([](B& b) { b.add(PciExpressCapability{.type = PortType::root_port, .slot_number = 0x2000}); },
                 "slot_number is 8192");
  expect_refused([](B& b) { b.add(AcsCapability{.egress_control = true}); }, "egress_vector_bits is 0");
  expect_refused([](B& b) { b.add(AcsCapability{.egress_vector_bits = 4}); }, "egress_vector_bits is 4");
  expect_refused([](B& b) { b.add(AcsCapability{.egress_control = true, .egress_vector_bits = 256}); },
                 "egress_vector_bits is 256");
  expect_refused([](B& b) { b.add(AtsCapability{.invalidate_queue_depth = 0}); }, "invalidate_queue_depth is 0");
  expect_refused([](B& b) { b.add(AtsCapability{.invalidate_queue_depth = 33}); }, "invalidate_queue_depth is 33");
  expect_refused([](B& b) { b.add(SriovCapability{}); }, "total_vfs is 0");
  expect_refused([](B& b) { b.add(SriovCapability{.total_vfs = 2, .vf_stride = 0}); }, "vf_stride is 0");
  expect_refused([](B& b) { b.add(SriovCapability{.total_vfs = 1, .first_vf_offset = 0}); }, "first_vf_offset is 0");
  expect_refused([](B& b) { b.add(SriovCapability{.total_vfs = 0x8000, .first_vf_offset = 2, .vf_stride = 2}); },
                 "total_vfs is 32768");
  expect_refused(
      [](B& b) {
        SriovCapability vfs{.total_vfs = 1};
        vfs.vf_bars[1] = {.size = 0x800};
        b.add(vfs);
      },
      "VF BAR1: size 0x800");
  expect_refused(
      [](B& b) {
        b.add(AerCapability{});
        b.add(AerCapability{});
      },
      "AER capability: the function has one already");
  expect_refused(
      [](B& b) {
        b.add(PowerManagementCapability{});
        b.add(PowerManagementCapability{});
      },
      "has one already");
}

// --- Controls that a guest writes ---------------------------------------------------------------------

TEST(Capabilities, DeviceControlIsClampedToWhatExists) {
  const auto space = endpoint();
  EXPECT_EQ(device_control(*space).max_payload, 128U) << "no capability: the defaults";
  const std::uint16_t at =
      CapabilityBuilder(*space).add(PciExpressCapability{.max_payload = 512, .ten_bit_tag_requester = true});
  EXPECT_EQ(device_control(*space).max_payload, 128U);
  EXPECT_EQ(device_control(*space).max_read_request, 512U);
  EXPECT_TRUE(device_control(*space).relaxed_ordering);
  EXPECT_TRUE(device_control(*space).extended_tags);
  const unsigned payloads[] = {128, 256, 512, 512, 512, 512, 512, 512};
  const unsigned reads[] = {128, 256, 512, 1024, 2048, 4096, 4096, 4096};
  for (unsigned i = 0; i < 8; ++i) {
    write16(*space, at + PCI_EXP_DEVCTL, i << 5U | i << 12U);
    EXPECT_EQ(device_control(*space).max_payload, payloads[i]);
    EXPECT_EQ(device_control(*space).max_read_request, reads[i]);
    EXPECT_FALSE(device_control(*space).relaxed_ordering);
  }
  write16(*space, at + PCI_EXP_DEVCTL2, PCI_EXP_DEVCTL2_IDO_REQ_EN | PCI_EXP_DEVCTL2_IDO_CMP_EN | 0x1000U);
  EXPECT_TRUE(device_control(*space).id_based_ordering_requests);
  EXPECT_TRUE(device_control(*space).id_based_ordering_completions);
  EXPECT_TRUE(device_control(*space).ten_bit_tags);
  EXPECT_FALSE(device_control(*space).ari_forwarding) << "an endpoint forwards nothing";
}

TEST(Capabilities, NothingToDecode) {
  const auto space = endpoint();
  EXPECT_FALSE(msix_control(*space).enabled);
  EXPECT_FALSE(ats_control(*space).enabled);
  EXPECT_EQ(acs_control_register(*space), 0);
  EXPECT_EQ(sriov_state(*space).vfs, 0);
  set_link_status(*space, 5, 16, true);
  EXPECT_EQ(report_error(*space, UncorrectableError::malformed_tlp, nullptr), ErrorMessage::none);
  EXPECT_EQ(report_error(*space, CorrectableError::bad_tlp), ErrorMessage::none);
}

// --- Errors ---------------------------------------------------------------------------------------------

struct Errors : ::testing::Test {
  std::unique_ptr<ConfigSpace> space = endpoint();
  std::uint16_t express = 0;
  std::uint16_t aer = 0;

  Errors() {
    CapabilityBuilder builder(*space);
    express = builder.add(PciExpressCapability{});
    aer = builder.add(AerCapability{.acs = true});
  }
  void enable(unsigned bits) { write16(*space, express + PCI_EXP_DEVCTL, bits); }
  [[nodiscard]] unsigned device_status() const { return space->read16(express + PCI_EXP_DEVSTA); }
  [[nodiscard]] std::uint32_t log(unsigned dword) const { return space->read32(aer + PCI_ERR_HEADER_LOG + 4 * dword); }
};

constexpr std::array<std::uint32_t, 4> header{0x6000'0001, 0x4100'00ff, 0x0000'0038, 0x1000'0000};
constexpr unsigned all_reporting =
    PCI_EXP_DEVCTL_CERE | PCI_EXP_DEVCTL_NFERE | PCI_EXP_DEVCTL_FERE | PCI_EXP_DEVCTL_URRE;

TEST_F(Errors, AcsViolationAsLspciShowsIt) {
  enable(all_reporting);
  EXPECT_EQ(report_error(*space, UncorrectableError::acs_violation, &header), ErrorMessage::non_fatal);
  const Lspci lspci(*space);
  lspci.says("DevSta: CorrErr- NonFatalErr+ FatalErr- UnsupReq-");
  lspci.says("UnsupReq- ACSViol+");
  lspci.says("First Error Pointer: 15");
  lspci.says("HeaderLog: 60000001 410000ff 00000038 10000000");
}

TEST_F(Errors, EveryErrorHasItsBitAndSeverity) {
  const struct {
    UncorrectableError error;
    std::uint32_t bit;
    bool fatal;
  } table[] = {{UncorrectableError::data_link_protocol, PCI_ERR_UNC_DLP, true},
               {UncorrectableError::poisoned_tlp, PCI_ERR_UNC_POISON_TLP, false},
               {UncorrectableError::flow_control_protocol, PCI_ERR_UNC_FCP, true},
               {UncorrectableError::completion_timeout, PCI_ERR_UNC_COMP_TIME, false},
               {UncorrectableError::completer_abort, PCI_ERR_UNC_COMP_ABORT, false},
               {UncorrectableError::unexpected_completion, PCI_ERR_UNC_UNX_COMP, false},
               {UncorrectableError::receiver_overflow, PCI_ERR_UNC_RX_OVER, true},
               {UncorrectableError::malformed_tlp, PCI_ERR_UNC_MALF_TLP, true},
               {UncorrectableError::unsupported_request, PCI_ERR_UNC_UNSUP, false},
               {UncorrectableError::acs_violation, PCI_ERR_UNC_ACSV, false}};
  for (const auto& row : table) {
    space->reset(ResetKind::cold);
    enable(all_reporting);
    EXPECT_EQ(report_error(*space, row.error, nullptr), row.fatal ? ErrorMessage::fatal : ErrorMessage::non_fatal);
    EXPECT_EQ(space->read32(aer + PCI_ERR_UNCOR_STATUS), row.bit);
    EXPECT_EQ(std::uint32_t{1} << (space->read32(aer + PCI_ERR_CAP) & 0x1fU), row.bit);
    unsigned expected = row.fatal ? PCI_EXP_DEVSTA_FED : PCI_EXP_DEVSTA_NFED;
    if (row.error == UncorrectableError::unsupported_request) {
      expected |= PCI_EXP_DEVSTA_URD;
    }
    EXPECT_EQ(device_status(), expected) << row.bit;
    // Software changes the severity.
    space->write_dword(aer + PCI_ERR_UNCOR_SEVER, row.fatal ? 0 : row.bit);
    EXPECT_EQ(report_error(*space, row.error, nullptr), row.fatal ? ErrorMessage::non_fatal : ErrorMessage::fatal);
  }
  const std::pair<CorrectableError, std::uint32_t> correctable[] = {
      {CorrectableError::receiver, PCI_ERR_COR_RCVR},
      {CorrectableError::bad_tlp, PCI_ERR_COR_BAD_TLP},
      {CorrectableError::bad_dllp, PCI_ERR_COR_BAD_DLLP},
      {CorrectableError::replay_rollover, PCI_ERR_COR_REP_ROLL},
      {CorrectableError::replay_timeout, PCI_ERR_COR_REP_TIMER}};
  for (const auto& [error, bit] : correctable) {
    space->reset(ResetKind::cold);
    EXPECT_EQ(report_error(*space, error), ErrorMessage::none) << "not enabled";
    enable(PCI_EXP_DEVCTL_CERE);
    EXPECT_EQ(report_error(*space, error), ErrorMessage::correctable);
    EXPECT_EQ(space->read32(aer + PCI_ERR_COR_STATUS), bit);
    EXPECT_EQ(device_status(), unsigned{PCI_EXP_DEVSTA_CED});
    space->write_dword(aer + PCI_ERR_COR_MASK, bit);
    EXPECT_EQ(report_error(*space, error), ErrorMessage::none) << "masked";
  }
}

TEST_F(Errors, TheFirstErrorKeepsTheLogUntilItIsCleared) {
  report_error(*space, UncorrectableError::malformed_tlp, &header);
  const std::array<std::uint32_t, 4> second{1, 2, 3, 4};
  report_error(*space, UncorrectableError::poisoned_tlp, &second);
  EXPECT_EQ(log(0), header[0]);
  EXPECT_EQ(space->read32(aer + PCI_ERR_CAP) & 0x1fU, 18U);
  EXPECT_EQ(space->read32(aer + PCI_ERR_UNCOR_STATUS), std::uint32_t{PCI_ERR_UNC_MALF_TLP | PCI_ERR_UNC_POISON_TLP});
  space->write_dword(aer + PCI_ERR_UNCOR_STATUS, PCI_ERR_UNC_MALF_TLP);
  report_error(*space, UncorrectableError::acs_violation, &second);
  EXPECT_EQ(log(0), 1U);
  EXPECT_EQ(log(3), 4U);
  EXPECT_EQ(space->read32(aer + PCI_ERR_CAP) & 0x1fU, 21U);
  // Sticky: what a function died of can be read after its reset.
  space->reset(ResetKind::conventional);
  EXPECT_EQ(log(3), 4U);
  EXPECT_EQ(space->read32(aer + PCI_ERR_UNCOR_STATUS), std::uint32_t{PCI_ERR_UNC_ACSV | PCI_ERR_UNC_POISON_TLP});
  // The log is no place to write to.
  space->write_dword(aer + PCI_ERR_HEADER_LOG, 0xffff'ffff);
  EXPECT_EQ(log(0), 1U);
}

TEST_F(Errors, MaskedErrorsAreNotLoggedAndSendNothing) {
  enable(all_reporting);
  space->write_dword(aer + PCI_ERR_UNCOR_MASK, PCI_ERR_UNC_ACSV);
  EXPECT_EQ(report_error(*space, UncorrectableError::acs_violation, &header), ErrorMessage::none);
  EXPECT_EQ(space->read32(aer + PCI_ERR_UNCOR_STATUS), std::uint32_t{PCI_ERR_UNC_ACSV}) << "the status is set";
  EXPECT_EQ(log(0), 0U);
}

TEST_F(Errors, WhatLetsAMessageOut) {
  const auto report = [this](UncorrectableError error) { return report_error(*space, error, nullptr); };
  EXPECT_EQ(report(UncorrectableError::acs_violation), ErrorMessage::none) << "nothing enabled";
  enable(PCI_EXP_DEVCTL_FERE);
  EXPECT_EQ(report(UncorrectableError::acs_violation), ErrorMessage::none) << "the other severity";
  EXPECT_EQ(report(UncorrectableError::malformed_tlp), ErrorMessage::fatal);
  enable(PCI_EXP_DEVCTL_NFERE);
  EXPECT_EQ(report(UncorrectableError::unsupported_request), ErrorMessage::none) << "has an enable of its own";
  enable(PCI_EXP_DEVCTL_NFERE | PCI_EXP_DEVCTL_URRE);
  EXPECT_EQ(report(UncorrectableError::unsupported_request), ErrorMessage::non_fatal);
  EXPECT_EQ(space->read16(PCI_STATUS) & PCI_STATUS_SIG_SYSTEM_ERROR, 0);
  enable(0);
  write16(*space, PCI_COMMAND, PCI_COMMAND_SERR);
  EXPECT_EQ(report(UncorrectableError::unsupported_request), ErrorMessage::non_fatal) << "SERR# Enable alone suffices";
  EXPECT_EQ(space->read16(PCI_STATUS) & PCI_STATUS_SIG_SYSTEM_ERROR, PCI_STATUS_SIG_SYSTEM_ERROR);
}

TEST_F(Errors, AdvisoryNonFatal) {
  enable(all_reporting);
  // At reset the advisory error is masked: status bits only.
  EXPECT_EQ(report_error(*space, UncorrectableError::unsupported_request, &header, true), ErrorMessage::none);
  EXPECT_EQ(space->read32(aer + PCI_ERR_COR_STATUS), std::uint32_t{PCI_ERR_COR_ADV_NFAT});
  EXPECT_EQ(space->read32(aer + PCI_ERR_UNCOR_STATUS), 0U);
  EXPECT_EQ(device_status(), unsigned{PCI_EXP_DEVSTA_CED | PCI_EXP_DEVSTA_URD});
  space->write_dword(aer + PCI_ERR_COR_MASK, 0);
  EXPECT_EQ(report_error(*space, UncorrectableError::unsupported_request, &header, true), ErrorMessage::correctable);
  EXPECT_EQ(space->read32(aer + PCI_ERR_UNCOR_STATUS), std::uint32_t{PCI_ERR_UNC_UNSUP});
  EXPECT_EQ(log(1), header[1]);
  EXPECT_EQ(device_status() & PCI_EXP_DEVSTA_NFED, 0U);
  // An error that software declared fatal is no advisory one.
  space->write_dword(aer + PCI_ERR_UNCOR_SEVER, PCI_ERR_UNC_UNSUP);
  EXPECT_EQ(report_error(*space, UncorrectableError::unsupported_request, &header, true), ErrorMessage::fatal);
}

}  // namespace
}  // namespace orrery::pcie::capabilities_test
