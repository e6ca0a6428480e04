#include "qemu_bridge/launcher/qemu_command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "common/error.h"
#include "qemu_bridge/launcher/pci_placement.h"
#include "qemu_bridge/launcher/qemu_process.h"
#include "topologies.h"

namespace orrery::bridge::command_line_test {
namespace {

using testing::bare_guest;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::paths_in;
using testing::server_topology;

const QemuInstallation everything{"/q/qemu", "/q/share", "/q/virtiofsd", "/q/CODE.fd", "/q/VARS.fd"};

std::vector<std::string> arguments(const GuestSpec& spec, const GuestTopology& topology = {}) {
  return qemu_arguments(spec, topology, paths_in("/r"), everything);
}

// The values of every `option value` pair.
std::vector<std::string> values(const std::vector<std::string>& arguments, const std::string& option) {
  std::vector<std::string> found;
  for (std::size_t i = 0; i + 1 < arguments.size(); ++i) {
    if (arguments[i] == option) {
      found.push_back(arguments[i + 1]);
    }
  }
  return found;
}

template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(QemuArguments, TheSmallestGuestIsExactlyThis) {
  EXPECT_THAT(
      arguments(bare_guest()),
      ElementsAre("-L", "/q/share", "-name", "guest=g,debug-threads=on", "-nodefaults", "-no-user-config", "-display",
                  "none", "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu",
                  "EPYC,fxsr-opt=off,misalignsse=off,osvw=off,topoext=off,nrip-save=off,xsavec=off", "-smp",
                  "cpus=1,sockets=1,cores=1,threads=1", "-m", "512M", "-object",
                  "memory-backend-memfd,id=ram0,size=512M,share=on", "-numa", "node,nodeid=0,memdev=ram0,cpus=0-0",
                  "-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off", "-no-reboot", "-kernel", "/k/vmlinuz",
                  "-append", "console=ttyS0 panic=-1 no_timer_check", "-chardev",
                  "socket,id=console,path=/r/g.console,server=on,wait=off,logfile=/r/g.log,logappend=off", "-serial",
                  "chardev:console", "-chardev", "socket,id=qmp,path=/r/g.qmp,server=on,wait=off", "-qmp",
                  "chardev:qmp"));
}

TEST(QemuArguments, SwitchedTopologyIsExactlyThis) {
  GuestTopology topology = server_topology();
  topology.root_complexes.resize(1);
  topology.root_complexes[0].switches.resize(1);
  topology.root_complexes[0].switches[0].endpoints.resize(2);
  GuestSpec spec = bare_guest();
  spec.message_timeout_ms = 5000;
  const std::string socket = R"("socket":{"type":"unix","path":"/run/orrery/)";
  EXPECT_THAT(values(arguments(spec, topology), "-device"),
              ElementsAre("pxb-pcie,id=pxb0,bus=pcie.0,addr=0x10,bus_nr=64,numa_node=0",
                          "pcie-root-port,id=switch0.root,bus=pxb0,addr=0x0,chassis=1,slot=1,x-speed=16,x-width=16",
                          "x3130-upstream,id=switch0.up,bus=switch0.root,addr=0x0",
                          "xio3130-downstream,id=rnic0.port,bus=switch0.up,addr=0x0,chassis=2,slot=2",
                          R"({"driver":"vfio-user-pci","id":"rnic0","bus":"rnic0.port","addr":"0x0",)" + socket +
                              R"(rnic0.sock"},"x-msg-timeout":5000})",
                          "xio3130-downstream,id=gpu0.port,bus=switch0.up,addr=0x1,chassis=3,slot=3",
                          R"({"driver":"vfio-user-pci","id":"gpu0","bus":"gpu0.port","addr":"0x0",)" + socket +
                              R"(gpu0.sock"},"x-msg-timeout":5000})"));
}

TEST(QemuArguments, RootPortsHaveTheEndpointsLinks) {
  GuestTopology topology = server_topology(TopologyShape::root_ports);
  topology.root_complexes.resize(1);
  topology.root_complexes[0].switches.resize(1);
  topology.root_complexes[0].switches[0].endpoints.resize(1);
  topology.root_complexes[0].switches[0].endpoints[0].link = {"32", 8};
  const auto devices = values(arguments(bare_guest(), topology), "-device");
  ASSERT_EQ(devices.size(), 3U);
  EXPECT_EQ(devices[1], "pcie-root-port,id=rnic0.port,bus=pxb0,addr=0x0,chassis=1,slot=1,x-speed=32,x-width=8");
}

// Property, over shapes and sizes: every socket exactly once, every id once, every (bus, address) once,
// every slot once, and no device before the one that it hangs on.
class Topologies : public ::testing::TestWithParam<std::tuple<TopologyShape, unsigned>> {};

TEST_P(Topologies, EveryFunctionAppearsExactlyOnceOnAPortOfItsOwn) {
  const GuestTopology topology = server_topology(std::get<0>(GetParam()), std::get<1>(GetParam()));
  GuestSpec spec = bare_guest();
  spec.numa_nodes = 2;
  spec.cpus = 2;
  std::string all;
  for (const std::string& word : arguments(spec, topology)) {
    all += word + '\n';
  }
  for (const GuestRootComplex& complex : topology.root_complexes) {
    for (const GuestSwitch& a_switch : complex.switches) {
      for (const GuestEndpoint& endpoint : a_switch.endpoints) {
        const std::string quoted = '"' + endpoint.socket_path + '"';
        const auto first = all.find(quoted);
        ASSERT_NE(first, std::string::npos) << quoted;
        EXPECT_EQ(all.find(quoted, first + 1), std::string::npos) << quoted;
      }
    }
  }
  std::set<std::string> ids{"pcie.0"};
  std::set<std::pair<std::string, unsigned>> addresses;
  std::set<unsigned> slots;
  for (const PlacedDevice& device : place_devices(topology)) {
    EXPECT_TRUE(ids.count(device.bus)) << device.id << " before its bus " << device.bus;
    EXPECT_TRUE(ids.insert(device.id).second) << device.id;
    EXPECT_TRUE(addresses.emplace(device.bus, device.device).second) << device.id;
    EXPECT_LT(device.device, 32U);
    if (device.slot != 0) {
      EXPECT_TRUE(slots.insert(device.slot).second) << device.id;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Topologies,
                         ::testing::Combine(::testing::Values(TopologyShape::switched, TopologyShape::root_ports),
                                            ::testing::Values(0U, 1U, 2U, 4U, 8U)));

TEST(QemuArguments, AddressesDoNotDependOnTheGuestsOtherDevices) {
  GuestSpec full = bare_guest();
  full.numa_nodes = 2;
  full.cpus = 2;
  const auto before = values(arguments(full, server_topology()), "-device");
  full.agent = true;
  full.network = GuestNetwork::user;
  full.viommu = VirtualIommu::intel;
  full.share = GuestShare{"/d", "orrery", false};
  full.disk = GuestDisk{"/d/i.qcow2", "qcow2", DiskMode::throw_away};
  const auto after = values(arguments(full, server_topology()), "-device");
  for (const std::string& device : before) {
    EXPECT_THAT(after, Contains(device));
  }
}

TEST(QemuArguments, CpusAndMemoryAreSplitOverNumaNodes) {
  GuestSpec spec = bare_guest();
  spec.cpus = 3;
  spec.numa_nodes = 2;
  spec.memory_mib = 1025;
  const auto list = arguments(spec);
  EXPECT_THAT(values(list, "-smp"), ElementsAre("cpus=3,sockets=3,cores=1,threads=1"));
  EXPECT_THAT(values(list, "-object"), ElementsAre("memory-backend-memfd,id=ram0,size=512M,share=on",
                                                   "memory-backend-memfd,id=ram1,size=513M,share=on"));
  EXPECT_THAT(values(list, "-numa"),
              ElementsAre("node,nodeid=0,memdev=ram0,cpus=0-1", "node,nodeid=1,memdev=ram1,cpus=2-2"));
  spec.cpus = 1;
  EXPECT_THAT(values(arguments(spec), "-numa"),
              ElementsAre("node,nodeid=0,memdev=ram0,cpus=0-0", "node,nodeid=1,memdev=ram1"));
}

TEST(QemuArguments, KvmWithAnIommuSplitsTheInterruptControllers) {
  GuestSpec spec = bare_guest();
  spec.accelerator = Accelerator::kvm;
  EXPECT_THAT(values(arguments(spec), "-machine"), ElementsAre("q35"));
  EXPECT_THAT(values(arguments(spec), "-cpu"), ElementsAre("host"));
  spec.viommu = VirtualIommu::intel;
  EXPECT_THAT(values(arguments(spec), "-machine"), ElementsAre("q35,kernel-irqchip=split"));
  EXPECT_THAT(values(arguments(spec), "-device"), ElementsAre("intel-iommu,caching-mode=on,intremap=on"));
  EXPECT_THAT(values(arguments(spec), "-append"), ElementsAre(HasSubstr("intel_iommu=on iommu=pt")));
}

TEST(QemuArguments, DiskIsThrownAwayUnlessAskedOtherwiseAndItsFormatIsStated) {
  GuestSpec spec = bare_guest();
  spec.disk = GuestDisk{"/d/a,b.img", "raw", DiskMode::throw_away};
  EXPECT_THAT(values(arguments(spec), "-drive"),
              ElementsAre("if=none,id=disk0,format=raw,snapshot=on,file=/d/a,,b.img"));
  spec.disk->mode = DiskMode::write;
  EXPECT_THAT(values(arguments(spec), "-drive"),
              ElementsAre("if=none,id=disk0,format=raw,snapshot=off,file=/d/a,,b.img"));
  spec.disk->format.clear();
  EXPECT_NE(error_of([&] { static_cast<void>(arguments(spec)); }), "no error");
}

TEST(QemuArguments, SshIsForwardedFromLoopbackOnly) {
  GuestSpec spec = bare_guest();
  spec.network = GuestNetwork::user;
  spec.ssh_port = 2222;
  spec.ssh_key_file = "/r/key.pub";
  EXPECT_THAT(values(arguments(spec), "-netdev"), ElementsAre("user,id=net0,hostfwd=tcp:127.0.0.1:2222-:22"));
  EXPECT_THAT(values(arguments(spec), "-fw_cfg"), ElementsAre("name=opt/org.orrery/ssh-key,file=/r/key.pub"));
}

TEST(QemuArguments, OvmfHasPrivateVariablesAndAWindowForLargeBars) {
  GuestSpec spec = bare_guest();
  spec.firmware = Firmware::ovmf;
  spec.numa_nodes = 2;
  spec.cpus = 2;
  const auto list = arguments(spec, server_topology(TopologyShape::switched, 2, 32ULL << 30));
  EXPECT_THAT(values(list, "-drive"), ElementsAre("if=pflash,unit=0,format=raw,readonly=on,file=/q/CODE.fd",
                                                  "if=pflash,unit=1,format=raw,file=/r/g.vars"));
  EXPECT_THAT(values(list, "-fw_cfg"), ElementsAre("name=opt/ovmf/X-PciMmio64Mb,string=524288"));
  EXPECT_THAT(values(list, "-global"), Contains("q35-pcihost.pci-hole64-size=524288M"));
}

TEST(PciWindow, IsTwiceThePowerOfTwoThatHoldsEveryBar) {
  EXPECT_EQ(pci_window_mib({}), 32U * 1024);
  EXPECT_EQ(pci_window_mib(server_topology()), 32U * 1024);
  EXPECT_EQ(pci_window_mib(server_topology(TopologyShape::switched, 2, 128ULL << 30)), 2048U * 1024);
  // One byte more than a power of two takes the next.
  EXPECT_EQ(pci_window_mib(server_topology(TopologyShape::switched, 2, (16ULL << 30) + 1)), 512U * 1024);
  // Nothing wraps.
  EXPECT_GE(pci_window_mib(server_topology(TopologyShape::switched, 2, ~0ULL)), 1ULL << 40);
}

TEST(ValidateGuest, NamesWhatIsWrong) {
  const auto with = [](auto&& change) {
    GuestSpec spec = bare_guest();
    change(spec);
    return error_of([&] { validate_guest(spec, {}, everything); });
  };
  EXPECT_THAT(with([](GuestSpec&) {}), "no error");
  EXPECT_THAT(with([](GuestSpec& s) { s.cpus = 0; }), HasSubstr("cpus is 0"));
  EXPECT_THAT(with([](GuestSpec& s) { s.cpus = 9; }), HasSubstr("cpus is 9"));
  EXPECT_THAT(with([](GuestSpec& s) { s.memory_mib = 255; }), HasSubstr("memory"));
  EXPECT_THAT(with([](GuestSpec& s) { s.numa_nodes = 0; }), HasSubstr("NUMA"));
  EXPECT_THAT(with([](GuestSpec& s) { s.name = "../x"; }), HasSubstr("'../x'"));
  EXPECT_THAT(with([](GuestSpec& s) { s.name = std::string(33, 'x'); }), HasSubstr("name"));
  EXPECT_THAT(with([](GuestSpec& s) { s.kernel.clear(); }), HasSubstr("nothing to boot"));
  EXPECT_THAT(with([](GuestSpec& s) { s.kernel_arguments = {"a\nb"}; }), HasSubstr("line end"));
  EXPECT_THAT(with([](GuestSpec& s) { s.kernel_arguments = {std::string(2048, 'a')}; }), HasSubstr("2047"));
  EXPECT_THAT(with([](GuestSpec& s) { s.ssh_port = 22; }), HasSubstr("ssh"));
  EXPECT_THAT(with([](GuestSpec& s) { s.share = GuestShare{"/d", std::string(37, 't'), false}; }), HasSubstr("tag"));
  EXPECT_THAT(error_of([] {
                GuestSpec spec = bare_guest();
                spec.firmware = Firmware::ovmf;
                validate_guest(spec, {}, {});
              }),
              HasSubstr("OVMF"));
}

TEST(ValidateGuest, BarsThatTcgCannotAddressAreRefusedAndKvmTakesThem) {
  GuestSpec spec = bare_guest();
  spec.numa_nodes = 2;
  const GuestTopology large = server_topology(TopologyShape::switched, 2, 128ULL << 30);
  EXPECT_THAT(error_of([&] { validate_guest(spec, large, everything); }), HasSubstr("40 physical address bits"));
  spec.accelerator = Accelerator::kvm;
  EXPECT_EQ(error_of([&] { validate_guest(spec, large, everything); }), "no error");
}

TEST(ValidateTopology, NamesWhatIsWrong) {
  const auto with = [](auto&& change, TopologyShape shape = TopologyShape::switched) {
    GuestTopology topology = server_topology(shape);
    change(topology);
    return error_of([&] { validate_topology(topology, 2); });
  };
  const auto first = [](GuestTopology& t) -> GuestEndpoint& { return t.root_complexes[0].switches[0].endpoints[0]; };
  EXPECT_EQ(with([](GuestTopology&) {}), "no error");
  EXPECT_THAT(with([&](GuestTopology& t) { first(t).name = "gpu0"; }), HasSubstr("'gpu0'"));
  EXPECT_THAT(with([&](GuestTopology& t) { first(t).name = "gpu0.port"; }), HasSubstr("'gpu0.port'"));
  EXPECT_THAT(with([&](GuestTopology& t) { first(t).name = "a,b"; }), HasSubstr("'a,b'"));
  EXPECT_THAT(with([&](GuestTopology& t) { first(t).socket_path = "/run/orrery/gpu0.sock"; }), HasSubstr("gpu0.sock"));
  EXPECT_THAT(with([&](GuestTopology& t) { first(t).socket_path.clear(); }), HasSubstr("rnic0"));
  EXPECT_THAT(with([&](GuestTopology& t) { first(t).link.width = 3; }), HasSubstr("x3"));
  EXPECT_THAT(with([&](GuestTopology& t) { first(t).link.speed = "17"; }), HasSubstr("'17'"));
  EXPECT_THAT(with([](GuestTopology& t) { t.root_complexes[1].numa_node = 2; }), HasSubstr("NUMA node 2"));
  EXPECT_THAT(with([](GuestTopology& t) { t.root_complexes[1].bus_number = 70; }), HasSubstr("bus 70"));
  EXPECT_THAT(with([](GuestTopology& t) { t.root_complexes[1].bus_number = 250; }), HasSubstr("bus 250"));
  EXPECT_THAT(with([](GuestTopology& t) { t.root_complexes[0].bus_number = 0; }), HasSubstr("bus 0"));
  const auto crowd = [&](GuestTopology& t) {
    for (unsigned i = 0; i < 40; ++i) {
      GuestEndpoint endpoint = first(t);
      endpoint.name = "extra" + std::to_string(i);
      endpoint.socket_path = "/run/" + endpoint.name;
      t.root_complexes[0].switches[0].endpoints.push_back(endpoint);
    }
  };
  EXPECT_THAT(with(crowd), HasSubstr("downstream ports"));
  EXPECT_THAT(with(crowd, TopologyShape::root_ports), Not(HasSubstr("no error")));
}

TEST(BusOfEndpoint, FindsItsPortOrSaysThereIsNone) {
  EXPECT_EQ(bus_of_endpoint(server_topology(), "gpu5"), "gpu5.port");
  EXPECT_THAT(error_of([] { static_cast<void>(bus_of_endpoint(server_topology(), "switch0")); }),
              HasSubstr("'switch0'"));
}

TEST(VfioUserDevice, SurvivesAnyPath) {
  GuestEndpoint endpoint;
  endpoint.name = "gpu0";
  endpoint.socket_path = "/a\"b,c\\d e\xff";
  const auto json = nlohmann::json::parse(vfio_user_device_json(endpoint, "p", 1000));
  EXPECT_EQ(json["socket"]["path"], "/a\"b,c\\d e\xef\xbf\xbd");
}

TEST(ShellQuote, IsReadBackByAShell) {
  EXPECT_EQ(shell_quote("plain-1.2/x,y=z"), "plain-1.2/x,y=z");
  EXPECT_EQ(shell_quote(""), "''");
  EXPECT_EQ(shell_quote("a'b $c"), R"('a'\''b $c')");
  EXPECT_EQ(as_shell_script("q", {"-m", "1 M", "-nodefaults"}), "q \\\n  -m '1 M' \\\n  -nodefaults\n");
}

TEST(Virtiofsd, SandboxNeedsRootAndReadOnlyIsItsOwn) {
  const GuestShare share{"/d", "orrery", true};
  EXPECT_THAT(virtiofsd_arguments(share, "/r/s", true),
              ElementsAre("--socket-path", "/r/s", "--shared-dir", "/d", "--sandbox", "namespace", "--readonly"));
  EXPECT_THAT(virtiofsd_arguments({"/d", "orrery", false}, "/r/s", false),
              ElementsAre("--socket-path", "/r/s", "--shared-dir", "/d", "--sandbox", "none"));
}

}  // namespace
}  // namespace orrery::bridge::command_line_test
