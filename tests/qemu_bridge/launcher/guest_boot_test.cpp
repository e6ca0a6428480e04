// Real guests on the real QEMU, under TCG: what the launcher's arguments come to.
//
// Needs what ./dev setup fetches; skipped, saying so, where it is not there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <map>
#include <set>
#include <sstream>

#include "common/error.h"
#include "qemu_bridge/launcher/guest_agent.h"
#include "qemu_bridge/launcher/guest_files.h"
#include "qemu_bridge/launcher/pci_placement.h"
#include "qemu_bridge/launcher/qemu_process.h"
#include "qemu_bridge/launcher/qemu_program.h"
#include "qemu_bridge/launcher/run_directory.h"

namespace orrery::bridge::guest_boot_test {
namespace {

using namespace std::chrono_literals;

// One RNIC and two GPUs below each of four switches, two root complexes; QEMU's own devices stand in.
GuestTopology stand_in_server(TopologyShape shape) {
  GuestTopology topology;
  topology.shape = shape;
  unsigned gpu = 0;
  for (unsigned complex = 0; complex < 2; ++complex) {
    GuestRootComplex root{complex, 64 + 64 * complex, {}};
    for (unsigned i = 0; i < 2; ++i) {
      const unsigned number = 2 * complex + i;
      GuestSwitch a_switch{"switch" + std::to_string(number), {}, {}};
      const auto add = [&](const std::string& name, const std::string& device) {
        GuestEndpoint endpoint;
        endpoint.name = name;
        endpoint.stand_in = device;
        a_switch.endpoints.push_back(endpoint);
      };
      add("rnic" + std::to_string(number), "virtio-rng-pci");
      for (unsigned g = 0; g < 2; ++g) {
        add("gpu" + std::to_string(gpu++), "pci-testdev,membar=256M");
      }
      root.switches.push_back(a_switch);
    }
    topology.root_complexes.push_back(root);
  }
  return topology;
}

class GuestBoot : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    try {
      qemu = find_qemu();
      const GuestAssets assets(cache_directory());
      spec.kernel = assets.kernel(kernel_name());
      spec.initrd = assets.initrd(kernel_name());
    } catch (const Error& missing) {
      FAIL() << missing.what();
    }
    run = std::make_unique<RunDirectory>();
    spec.name = "guest0";
    spec.network = GuestNetwork::none;
    spec.memory_mib = 1024;
  }

  [[nodiscard]] virtual std::string kernel_name() const { return "7.3-cloud"; }

  void start(const GuestTopology& topology = {}) {
    const GuestPaths paths = run->guest_paths(spec.name);
    if (spec.firmware == Firmware::ovmf) {
      copy_private(qemu.ovmf_vars, paths.ovmf_vars);
    }
    guest =
        std::make_unique<QemuProcess>(io, spec, topology, paths, qemu, [this](const QemuProcess::End& e) { end = e; });
  }

  // Runs the loop until `done` or the time limit; true if done.
  bool run_until(const std::function<bool()>& done, std::chrono::seconds limit) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (!done() && std::chrono::steady_clock::now() < deadline) {
      io.restart();
      io.run_one_for(100ms);
    }
    return done();
  }

  // Boots it to the marker; fails with the console's end otherwise.
  void wait_ready(const char* marker = guest_ready_marker) {
    std::optional<ConsoleResult> result;
    guest->console().wait_for({marker}, 150s, [&](const ConsoleResult& r) { result = r; });
    run_until([&] { return result || end; }, 160s);
    ASSERT_TRUE(result && result->kind == ConsoleResult::Kind::marker)
        << (end ? end->sentence : std::string()) << guest->console().excerpt();
  }

  GuestExecResult exec(std::vector<std::string> command, const std::string& input = {},
                       std::chrono::milliseconds limit = 60s) {
    GuestAgent agent(io, guest->paths().agent_socket);
    std::optional<GuestExecResult> result;
    agent.exec(std::move(command), input, limit, [&](const GuestExecResult& r) { result = r; });
    run_until([&] { return result.has_value(); }, 90s);
    return result.value_or(GuestExecResult{.failure = "no result", .remedy = {}, .output = {}, .errors = {}});
  }

  boost::asio::io_context io;
  QemuInstallation qemu;
  GuestSpec spec;
  std::unique_ptr<RunDirectory> run;
  std::unique_ptr<QemuProcess> guest;
  std::optional<QemuProcess::End> end;
};

TEST_F(GuestBoot, ReachesUserSpaceRunsCommandsAndPowersOffInOrder) {
  start();
  wait_ready();
  if (HasFatalFailure()) {
    return;
  }
  std::string failure = "pending";
  guest->connect_monitor(10s, [&](const std::string& f) { failure = f; });
  run_until([&] { return failure != "pending"; }, 15s);
  EXPECT_EQ(failure, "");

  GuestExecResult result = exec({"sh", "-c", "cat; echo to-stderr >&2; exit 7"}, std::string("a\0b\n", 4));
  EXPECT_EQ(result.failure, "");
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_EQ(result.output, std::string("a\0b\n", 4));
  EXPECT_EQ(result.errors, "to-stderr\n");

  EXPECT_EQ(exec({"sh", "-c", "kill -TERM $$"}).exit_code, 128 + 15);
  EXPECT_NE(exec({"/no/such/program"}).failure, "");
  // A command that doesn't end is killed in the guest too.
  EXPECT_THAT(exec({"sleep", "1000"}, {}, 1500ms).failure, ::testing::HasSubstr("didn't end within 1500 ms"));
  EXPECT_EQ(exec({"sh", "-c", "ps -e -o comm= | grep -c '^sleep$'"}).output, "0\n");

  EXPECT_EQ(exec({"sh", "-c", "ls -d /sys/devices/system/node/node[0-9]* | wc -l"}).output, "2\n");
  EXPECT_EQ(exec({"nproc"}).output, "2\n");

  guest->stop(20s);
  EXPECT_TRUE(run_until([&] { return end.has_value(); }, 40s));
  ASSERT_TRUE(end);
  EXPECT_TRUE(end->in_order) << end->sentence;
}

TEST_F(GuestBoot, KernelWithoutRootPanicsAndSaysSo) {
  spec.initrd.clear();
  start();
  std::optional<ConsoleResult> result;
  guest->console().wait_for({guest_ready_marker}, 60s, [&](const ConsoleResult& r) { result = r; });
  run_until([&] { return result.has_value(); }, 70s);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->kind, ConsoleResult::Kind::panic) << result->text;
  EXPECT_THAT(guest->console().excerpt(), ::testing::HasSubstr("panic"));
  // panic=-1 and -no-reboot: QEMU ends by itself.
  EXPECT_TRUE(run_until([&] { return end.has_value(); }, 30s));
}

TEST_F(GuestBoot, KilledQemuIsReportedWithItsSignal) {
  start();
  guest->kill();
  ASSERT_TRUE(run_until([&] { return end.has_value(); }, 20s));
  EXPECT_FALSE(end->in_order);
  EXPECT_THAT(end->sentence, ::testing::HasSubstr("guest0: QEMU was killed by signal 9"));
}

TEST_F(GuestBoot, SharedDirectoryReadOnly) {
  if (qemu.virtiofsd.empty()) {
    FAIL() << "no virtiofsd";
  }
  const std::filesystem::path directory = run->path() / "shared";
  std::filesystem::create_directory(directory);
  run->write_file("shared/greeting", "from the host\n");
  spec.share = GuestShare{directory.string(), "orrery", true};
  start();
  wait_ready();
  if (HasFatalFailure()) {
    return;
  }
  EXPECT_EQ(exec({"cat", "/mnt/share/greeting"}).output, "from the host\n");
  EXPECT_NE(exec({"sh", "-c", "echo x >/mnt/share/new"}).exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(directory / "new"));
}

TEST_F(GuestBoot, RootDiskReachesALoginAndIsNotWrittenTo) {
  const GuestAssets assets(cache_directory());
  try {
    const std::string disk = assets.disk(GuestAssets::default_disk);
    spec.disk = GuestDisk{disk, probe_disk_format(disk), DiskMode::throw_away};
  } catch (const Error& missing) {
    FAIL() << missing.what();
  }
  const auto written = std::filesystem::last_write_time(spec.disk->path);
  spec.kernel_arguments = {"orrery.root=/dev/vda"};
  start();
  wait_ready(login_marker);
  if (HasFatalFailure()) {
    return;
  }
  EXPECT_EQ(exec({"sh", "-c", "echo x >/root/written; sync; cat /proc/1/comm"}).output, "systemd\n");
  guest->kill();
  run_until([&] { return end.has_value(); }, 20s);
  EXPECT_EQ(std::filesystem::last_write_time(spec.disk->path), written);
}

TEST_F(GuestBoot, OvmfGivesLargeBarsTheirWindow) {
  if (qemu.ovmf_code.empty()) {
    FAIL() << "no OVMF";
  }
  GuestTopology topology = stand_in_server(TopologyShape::switched);
  for (GuestRootComplex& complex : topology.root_complexes) {
    for (GuestSwitch& a_switch : complex.switches) {
      for (GuestEndpoint& endpoint : a_switch.endpoints) {
        if (endpoint.name.rfind("gpu", 0) == 0) {
          // No I/O BAR, as our own endpoints have none: twelve I/O windows are more than OVMF has.
          endpoint.stand_in = "nvme,cmb_size_mb=16384,serial=" + endpoint.name;
          endpoint.prefetchable_bytes = 16ULL << 30;
        }
      }
    }
  }
  spec.firmware = Firmware::ovmf;
  // The stand-in's driver would want a struct page for every page of the BARs.
  spec.kernel_arguments = {"initcall_blacklist=nvme_init"};
  start(topology);
  wait_ready();
  if (HasFatalFailure()) {
    return;
  }
  // Eight BARs of 16 GiB, each with an address.
  const GuestExecResult result = exec({"sh", "-c", "lspci -d 1b36:0010 -vv | grep -c 'Memory at [1-9a-f].*size=16G'"});
  EXPECT_EQ(result.output, "8\n") << exec({"lspci", "-d", "1b36:0010", "-v"}).output;
}

class GuestTopologyBoot : public GuestBoot {
 protected:
  [[nodiscard]] std::string kernel_name() const override { return GetParam(); }

  // What the guest's kernel says of each PCI function.
  struct Function {
    std::string id;  // vendor:device
    int node = -1;
    std::string group;
    std::string path;  // below /sys/devices
  };
  std::map<std::string, Function> functions() {
    const std::string script =
        "cd /sys/bus/pci/devices; for d in *; do g=$(readlink $d/iommu_group); p=$(readlink -f $d);"
        "read v <$d/vendor; read e <$d/device; read n <$d/numa_node; echo $d $v:$e $n ${g##*/} ${p#/sys/devices/}; "
        "done";
    std::map<std::string, Function> found;
    std::istringstream lines(exec({"sh", "-c", script}).output);
    std::string address;
    Function f;
    while (lines >> address >> f.id >> f.node >> f.group >> f.path) {
      found[address] = f;
    }
    return found;
  }
};

TEST_P(GuestTopologyBoot, SwitchedServerIsEnumeratedAsConfigured) {
  start(stand_in_server(TopologyShape::switched));
  wait_ready();
  if (HasFatalFailure()) {
    return;
  }
  const auto found = functions();
  std::map<std::string, unsigned> count;
  std::map<std::string, std::set<std::string>> members;  // of each IOMMU group
  for (const auto& [address, function] : found) {
    ++count[function.id];
    members[function.group].insert(address);
  }
  EXPECT_EQ(count["0x1b36:0x000b"], 2U);   // pxb-pcie
  EXPECT_EQ(count["0x1b36:0x000c"], 4U);   // pcie-root-port
  EXPECT_EQ(count["0x104c:0x8232"], 4U);   // x3130 upstream
  EXPECT_EQ(count["0x104c:0x8233"], 12U);  // xio3130 downstream
  EXPECT_EQ(count["0x1af4:0x1044"], 4U);   // virtio-rng
  EXPECT_EQ(count["0x1b36:0x0005"], 8U);   // pci-testdev
  for (const auto& [address, function] : found) {
    if (function.id != "0x1af4:0x1044" && function.id != "0x1b36:0x0005") {
      continue;
    }
    const bool second = function.path.rfind("pci0000:80/", 0) == 0;
    EXPECT_TRUE(second || function.path.rfind("pci0000:40/", 0) == 0) << function.path;
    EXPECT_EQ(function.node, second ? 1 : 0) << address;
    // In its IOMMU group: itself and the downstream port above it, nothing else.
    const auto slash = function.path.rfind('/');
    const std::string port = function.path.substr(slash - 12, 12);
    EXPECT_EQ(members[function.group], (std::set<std::string>{address, port})) << address;
    // Root port, upstream, downstream, endpoint: five steps below /sys/devices.
    EXPECT_EQ(std::count(function.path.begin(), function.path.end(), '/'), 4) << function.path;
  }
}

TEST_P(GuestTopologyBoot, RootPortsHaveTheConfiguredLinks) {
  GuestTopology topology = stand_in_server(TopologyShape::root_ports);
  for (GuestRootComplex& complex : topology.root_complexes) {
    for (GuestSwitch& a_switch : complex.switches) {
      a_switch.endpoints[0].link = {"32", 16};
      a_switch.endpoints[1].link = {"16", 8};
    }
  }
  start(topology);
  wait_ready();
  if (HasFatalFailure()) {
    return;
  }
  const GuestExecResult result = exec(
      {"sh", "-c",
       "cd /sys/bus/pci/devices; for d in 0000:40:*; do cat $d/max_link_speed $d/max_link_width; done | paste - -"});
  EXPECT_EQ(result.output,
            "32.0 GT/s PCIe\t16\n16.0 GT/s PCIe\t8\n16.0 GT/s PCIe\t16\n"
            "32.0 GT/s PCIe\t16\n16.0 GT/s PCIe\t8\n16.0 GT/s PCIe\t16\n");
  std::map<std::string, unsigned> group_size;
  const auto found = functions();
  for (const auto& [address, function] : found) {
    ++group_size[function.group];
  }
  for (const auto& [address, function] : found) {
    if (function.id == "0x1af4:0x1044" || function.id == "0x1b36:0x0005") {
      EXPECT_EQ(group_size[function.group], 1U) << address;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, GuestTopologyBoot, ::testing::Values("6.1-cloud", "6.12-cloud", "7.3-cloud"),
                         [](const auto& kernel) {
                           std::string name = kernel.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '.' || c == '-'; }, '_');
                           return name;
                         });

TEST(KvmProbe, TheProbeGuestRunsUnderTcg) {
  QemuInstallation qemu;
  try {
    qemu = find_qemu();
  } catch (const Error& missing) {
    FAIL() << missing.what();
  }
  const KvmVerdict verdict = probe_accelerator(qemu, "tcg", std::filesystem::temp_directory_path(), 20s);
  EXPECT_TRUE(verdict.works) << verdict.reason;
}

TEST(KvmProbe, AVerdictOfNoHasAReason) {
  QemuInstallation qemu;
  try {
    qemu = find_qemu();
  } catch (const Error& missing) {
    FAIL() << missing.what();
  }
  const RunDirectory run;
  const auto start = std::chrono::steady_clock::now();
  const KvmVerdict verdict = kvm_verdict(qemu, run.path());
  EXPECT_EQ(verdict.works, verdict.reason.empty()) << verdict.reason;
  EXPECT_LT(std::chrono::steady_clock::now() - start, 30s);
  // Remembered: the same again, from the file.
  const KvmVerdict again = kvm_verdict(qemu, run.path());
  EXPECT_EQ(again.works, verdict.works);
  EXPECT_EQ(again.reason, verdict.reason);
}

}  // namespace
}  // namespace orrery::bridge::guest_boot_test
