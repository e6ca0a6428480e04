#include "qemu_bridge/launcher/libvirt_xml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/error.h"
#include "qemu_bridge/launcher/qemu_command_line.h"
#include "topologies.h"

namespace orrery::bridge::libvirt_xml_test {
namespace {

using testing::bare_guest;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::server_topology;

const QemuInstallation everything{"/q/qemu", "/q/share", "/q/virtiofsd", "/q/CODE.fd", "/q/VARS.fd"};

TEST(LibvirtXml, EscapesWhatXmlGivesMeaning) {
  EXPECT_EQ(xml_escape(R"(a<b>&'c'"d")"), "a&lt;b&gt;&amp;&apos;c&apos;&quot;d&quot;");
  EXPECT_THROW(static_cast<void>(xml_escape("a\x01")), Error);
}

// Property: every argument about the PCI tree is passed on, in order, and so every socket appears once.
TEST(LibvirtXml, PassesTheWholePciTreeOn) {
  GuestSpec spec = bare_guest();
  spec.numa_nodes = 2;
  spec.cpus = 4;
  const GuestTopology topology = server_topology();
  const std::string xml = libvirt_domain_xml(spec, topology, everything);
  std::size_t at = 0;
  for (const std::string& argument : topology_device_arguments(spec, topology)) {
    at = xml.find("<qemu:arg value='" + xml_escape(argument) + "'/>", at);
    ASSERT_NE(at, std::string::npos) << argument;
    ++at;
  }
  const std::string socket = xml_escape("\"/run/orrery/gpu7.sock\"");
  const auto first = xml.find(socket);
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(xml.find(socket, first + 1), std::string::npos);
  EXPECT_THAT(xml, HasSubstr("<cell id='1' cpus='2-3' memory='256' unit='MiB' memAccess='shared'/>"));
  EXPECT_THAT(xml, HasSubstr("<source type='memfd'/><access mode='shared'/>"));
}

TEST(LibvirtXml, HasWhatTheGuestHasAndNothingElse) {
  GuestSpec spec = bare_guest();
  const std::string bare = libvirt_domain_xml(spec, {}, everything);
  for (const char* absent : {"<disk", "<filesystem", "<interface", "<channel", "<iommu", "<loader"}) {
    EXPECT_THAT(bare, Not(HasSubstr(absent)));
  }
  spec.accelerator = Accelerator::kvm;
  spec.viommu = VirtualIommu::intel;
  spec.firmware = Firmware::ovmf;
  spec.agent = true;
  spec.network = GuestNetwork::user;
  spec.disk = GuestDisk{"/d/<a&b>.qcow2", "qcow2", DiskMode::throw_away};
  spec.share = GuestShare{"/d", "orrery", true};
  const std::string full = libvirt_domain_xml(spec, {}, everything);
  for (const char* present :
       {"<domain type='kvm'", "<source file='/d/&lt;a&amp;b&gt;.qcow2'/>", "<transient/>",
        "<binary path='/q/virtiofsd'/>", "<readonly/>", "<interface type='user'>", "name='org.qemu.guest_agent.0'",
        "<ioapic driver='qemu'/>", "<driver intremap='on' caching_mode='on'/>", "mode='host-passthrough'",
        "<nvram template='/q/VARS.fd'/>", "intel_iommu=on iommu=pt"}) {
    EXPECT_THAT(full, HasSubstr(present));
  }
}

TEST(LibvirtXml, WrongGuestsAreRefusedAsForQemu) {
  GuestSpec spec = bare_guest();
  spec.cpus = 99;
  EXPECT_THROW(static_cast<void>(libvirt_domain_xml(spec, {}, everything)), Error);
}

}  // namespace
}  // namespace orrery::bridge::libvirt_xml_test
