#include "qemu_bridge/launcher/qemu_command_line.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "common/error.h"
#include "qemu_bridge/launcher/pci_placement.h"

namespace orrery::bridge {

namespace {

constexpr unsigned max_cpus = 8;
constexpr unsigned max_numa_nodes = 8;
constexpr unsigned least_memory_mib = 256;
constexpr unsigned most_memory_mib = 1'048'576;
// x86 TCG has no other physical address width ("TCG only supports phys-bits=40").
constexpr unsigned tcg_address_bits = 40;

// Has no line end or NUL in it: either would end or split an argument of the kernel or of QEMU.
bool is_one_line(const std::string& text) {
  return text.find_first_of(std::string_view("\n\r\0", 3)) == std::string::npos;
}

void check_range(std::string_view field, unsigned value, unsigned least, unsigned most) {
  if (value < least || value > most) {
    throw Error(fmt::format("guest: {} is {}", field, value), fmt::format("use a value from {} to {}", least, most));
  }
}

void check_what_boots(const GuestSpec& spec) {
  if (spec.kernel.empty() && !spec.disk) {
    throw Error("guest: nothing to boot", "give a kernel (--kernel) or a disk image with a boot loader (--disk)");
  }
  if (spec.kernel.empty() && (!spec.initrd.empty() || !spec.kernel_arguments.empty())) {
    throw Error("guest: an initrd or kernel arguments without a kernel", "give the kernel too (--kernel)");
  }
  for (const std::string& argument : spec.kernel_arguments) {
    if (!is_one_line(argument)) {
      throw Error("guest: a kernel argument contains a line end", "kernel arguments are one line");
    }
  }
  // Longer lines are cut by the x86 kernel (COMMAND_LINE_SIZE).
  if (kernel_command_line(spec).size() > 2047) {
    throw Error("guest: the kernel command line is longer than 2047 bytes",
                "x86 Linux would cut it; use fewer arguments");
  }
}

void check_files(const GuestSpec& spec, const QemuInstallation& qemu) {
  if (spec.firmware == Firmware::ovmf && (qemu.ovmf_code.empty() || qemu.ovmf_vars.empty())) {
    throw Error("guest: OVMF firmware was asked for and is not there", "run ./dev setup, or use SeaBIOS");
  }
  if (spec.share) {
    if (qemu.virtiofsd.empty()) {
      throw Error("guest: sharing a directory needs virtiofsd, which is not there", "run ./dev setup");
    }
    if (spec.share->tag.empty() || spec.share->tag.size() > 36 || !is_one_line(spec.share->tag)) {
      throw Error(fmt::format("guest: share tag '{}'", spec.share->tag), "use 1 to 36 bytes on one line");
    }
  }
  if (spec.disk && (spec.disk->path.empty() || spec.disk->format.empty())) {
    throw Error("guest: the disk has no path or no format");
  }
}

class Arguments {
 public:
  void flag(std::string name) { list_.push_back(std::move(name)); }
  void option(std::string name, std::string value) {
    list_.push_back(std::move(name));
    list_.push_back(std::move(value));
  }
  // A UNIX socket that QEMU listens on, in a directory that only this user can enter; QEMU doesn't wait
  // for anybody to connect.
  void listening_socket(std::string_view id, const std::string& path, const std::string& more = {}) {
    option("-chardev", fmt::format("socket,id={},path={},server=on,wait=off{}", id, escape_commas(path), more));
  }
  std::vector<std::string> take() { return std::move(list_); }

 private:
  std::vector<std::string> list_;
};

void add_globals(Arguments& args, const GuestSpec& spec, const GuestTopology& topology) {
  // Native PCI Express hot-plug on every port: re-plugging a device after a server restart works below
  // switch ports too, where ACPI hot-plug would need one more description of each bus.
  args.option("-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off");
  // The window that firmware and ACPI give to 64-bit BARs, where QEMU's own 32 GiB are too few.
  const std::uint64_t window = pci_window_mib(topology);
  if (window > 32 * 1024) {
    args.option("-global", fmt::format("q35-pcihost.pci-hole64-size={}M", window));
    if (spec.firmware == Firmware::ovmf) {
      args.option("-fw_cfg", fmt::format("name=opt/ovmf/X-PciMmio64Mb,string={}", window));
    }
  }
}

void add_machine(Arguments& args, const GuestSpec& spec, const GuestTopology& topology) {
  args.option("-name", fmt::format("guest={},debug-threads=on", spec.name));
  // Nothing but what stands here: no default NIC, floppy or VGA, no configuration of the machine's own.
  args.flag("-nodefaults");
  args.flag("-no-user-config");
  args.option("-display", "none");

  const bool kvm = spec.accelerator == Accelerator::kvm;
  // q35: the only x86 machine with PCI Express. With KVM, interrupt remapping needs the interrupt
  // controllers that the remapping acts on to be QEMU's: split.
  args.option("-machine", kvm && spec.viommu == VirtualIommu::intel ? "q35,kernel-irqchip=split" : "q35");
  // One thread for each virtual CPU.
  args.option("-accel", kvm ? "kvm" : "tcg,thread=multi");
  args.option("-cpu", spec.cpu_model.empty() ? default_cpu_model(spec.accelerator) : spec.cpu_model);

  // A socket per NUMA node where the CPUs divide evenly, else a socket per CPU: QEMU warns of a socket
  // that is split over nodes.
  const unsigned nodes = spec.numa_nodes;
  const unsigned sockets = spec.cpus % nodes == 0 ? nodes : spec.cpus;
  args.option("-smp", fmt::format("cpus={},sockets={},cores={},threads=1", spec.cpus, sockets, spec.cpus / sockets));

  args.option("-m", fmt::format("{}M", spec.memory_mib));
  // Guest RAM is shared memfds, so that DMA_MAP carries descriptors and the server maps what the guest
  // uses. No preallocation: the host pays for what the guest touches.
  unsigned first_cpu = 0;
  unsigned assigned_mib = 0;
  for (unsigned node = 0; node < nodes; ++node) {
    const unsigned mib = (spec.memory_mib - assigned_mib) / (nodes - node);
    assigned_mib += mib;
    const unsigned cpus = (spec.cpus - first_cpu + (nodes - node) - 1) / (nodes - node);
    args.option("-object", fmt::format("memory-backend-memfd,id=ram{},size={}M,share=on", node, mib));
    std::string numa = fmt::format("node,nodeid={},memdev=ram{}", node, node);
    if (cpus != 0) {
      numa += fmt::format(",cpus={}-{}", first_cpu, first_cpu + cpus - 1);
    }
    args.option("-numa", numa);
    first_cpu += cpus;
  }

  // vfio devices behind intel-iommu need caching mode: the guest's invalidations are how QEMU learns of
  // new mappings. Interrupt remapping is what vfio in the guest asks for before it trusts the IOMMU.
  if (spec.viommu == VirtualIommu::intel) {
    args.option("-device", "intel-iommu,caching-mode=on,intremap=on");
  }
  add_globals(args, spec, topology);
  if (spec.reboot_ends) {
    // With panic=-1, also what makes a guest that panics an exit status instead of a loop.
    args.flag("-no-reboot");
  }
}

void add_boot(Arguments& args, const GuestSpec& spec, const GuestPaths& paths, const QemuInstallation& qemu) {
  if (spec.firmware == Firmware::ovmf) {
    // The code is shared and read-only; the variables are this guest's own copy.
    args.option("-drive",
                fmt::format("if=pflash,unit=0,format=raw,readonly=on,file={}", escape_commas(qemu.ovmf_code)));
    args.option("-drive", fmt::format("if=pflash,unit=1,format=raw,file={}", escape_commas(paths.ovmf_vars)));
  }
  if (!spec.kernel.empty()) {
    args.option("-kernel", spec.kernel);
    if (!spec.initrd.empty()) {
      args.option("-initrd", spec.initrd);
    }
    args.option("-append", kernel_command_line(spec));
  }
  if (spec.disk) {
    // The format is stated, never probed by QEMU: a raw image whose first sector a guest wrote could
    // otherwise name any host file as its backing file. snapshot=on: writes go to a temporary file that
    // has no name any more once it is open, so nothing stays behind however QEMU ends.
    args.option("-drive",
                fmt::format("if=none,id=disk0,format={},snapshot={},file={}", spec.disk->format,
                            spec.disk->mode == DiskMode::throw_away ? "on" : "off", escape_commas(spec.disk->path)));
    args.option("-device",
                fmt::format("virtio-blk-pci,id=vda,drive=disk0,bus=pcie.0,addr={:#x},disable-legacy=on", disk_device));
  }
}

void add_connections(Arguments& args, const GuestSpec& spec, const GuestPaths& paths) {
  // The console goes to a file from the first byte on, whether or not anybody is connected.
  args.listening_socket("console", paths.console_socket,
                        fmt::format(",logfile={},logappend=off", escape_commas(paths.console_log)));
  args.option("-serial", "chardev:console");
  args.listening_socket("qmp", paths.qmp_socket);
  args.option("-qmp", "chardev:qmp");  // QEMU 11.1 warns of -mon
  if (spec.gdb) {
    args.listening_socket("gdb", paths.gdb_socket);
    args.option("-gdb", "chardev:gdb");
  }
  if (spec.agent) {
    // Modern virtio only, throughout: a legacy I/O port BAR is one more thing for firmware to place.
    args.option("-device",
                fmt::format("virtio-serial-pci,id=vserial,bus=pcie.0,addr={:#x},disable-legacy=on", serial_device));
    args.listening_socket("agent", paths.agent_socket);
    // The name by which qemu-guest-agent finds its port.
    args.option("-device", "virtserialport,id=agent-port,bus=vserial.0,nr=1,chardev=agent,name=org.qemu.guest_agent.0");
  }
  if (spec.network == GuestNetwork::user) {
    std::string netdev = "user,id=net0";
    if (spec.ssh_port != 0) {
      netdev += fmt::format(",hostfwd=tcp:127.0.0.1:{}-:22", spec.ssh_port);
    }
    args.option("-netdev", netdev);
    // No boot ROM: firmware would spend time on it. The address is fixed; the network is the guest's own.
    args.option("-device", fmt::format("virtio-net-pci,id=eth0,netdev=net0,mac=52:54:00:12:34:56,bus=pcie.0,addr={:#x},"
                                       "disable-legacy=on,romfile=",
                                       network_device));
    if (!spec.ssh_key_file.empty()) {
      args.option("-fw_cfg", fmt::format("name=opt/org.orrery/ssh-key,file={}", escape_commas(spec.ssh_key_file)));
    }
  }
  if (spec.share) {
    // virtiofs rather than 9p: Debian's cloud kernels have no 9p. virtiofsd reaches guest memory through
    // the same shared memfds; read-only is virtiofsd's to enforce.
    args.option("-chardev", fmt::format("socket,id=share,path={}", escape_commas(paths.share_socket)));
    args.option("-device", fmt::format("vhost-user-fs-pci,id=fs0,chardev=share,tag={},bus=pcie.0,addr={:#x}",
                                       escape_commas(spec.share->tag), share_device));
  }
}

void add_topology(Arguments& args, const GuestSpec& spec, const GuestTopology& topology) {
  using Kind = PlacedDevice::Kind;
  for (const PlacedDevice& device : place_devices(topology)) {
    switch (device.kind) {
      case Kind::expander:
        // numa_node is what the guest reads as the proximity of everything below.
        args.option("-device", fmt::format("pxb-pcie,id={},bus={},addr={:#x},bus_nr={},numa_node={}", device.id,
                                           device.bus, device.device, device.bus_number, device.numa_node));
        break;
      case Kind::root_port:
        // The chassis and slot numbers name the slot to the hot-plug driver: unique, so that its slots are.
        args.option(
            "-device",
            fmt::format("pcie-root-port,id={},bus={},addr={:#x},chassis={},slot={},x-speed={},x-width={}", device.id,
                        device.bus, device.device, device.slot, device.slot, device.link.speed, device.link.width));
        break;
      case Kind::upstream_port:
        args.option("-device",
                    fmt::format("x3130-upstream,id={},bus={},addr={:#x}", device.id, device.bus, device.device));
        break;
      case Kind::downstream_port:
        args.option("-device", fmt::format("xio3130-downstream,id={},bus={},addr={:#x},chassis={},slot={}", device.id,
                                           device.bus, device.device, device.slot, device.slot));
        break;
      case Kind::endpoint:
        if (device.endpoint->stand_in.empty()) {
          args.option("-device", vfio_user_device_json(*device.endpoint, device.bus, spec.message_timeout_ms));
        } else {
          args.option("-device",
                      fmt::format("{},id={},bus={},addr=0x0", device.endpoint->stand_in, device.id, device.bus));
        }
        break;
    }
  }
}

}  // namespace

std::string default_cpu_model(Accelerator accelerator) {
  if (accelerator == Accelerator::kvm) {
    return "host";
  }
  // The features that TCG lacks are taken out by name: it would warn of each on every start.
  return "EPYC,fxsr-opt=off,misalignsse=off,osvw=off,topoext=off,nrip-save=off,xsavec=off";
}

void validate_guest(const GuestSpec& spec, const GuestTopology& topology, const QemuInstallation& qemu) {
  if (!is_device_id(spec.name)) {
    throw Error(fmt::format("guest: the name '{}' can't be used", spec.name),
                "use a letter, then letters, digits, '-' or '_', at most 32 in all");
  }
  check_range("cpus", spec.cpus, 1, max_cpus);
  check_range("memory (MiB)", spec.memory_mib, least_memory_mib, most_memory_mib);
  check_range("the number of NUMA nodes", spec.numa_nodes, 1, max_numa_nodes);
  check_range("the vfio-user time limit (ms)", spec.message_timeout_ms, 1000, 86'400'000);
  if (spec.ssh_port != 0 && spec.network == GuestNetwork::none) {
    throw Error("guest: ssh was asked for without a network", "use the user network");
  }
  check_what_boots(spec);
  check_files(spec, qemu);
  validate_topology(topology, spec.numa_nodes);
  if (spec.accelerator == Accelerator::tcg) {
    // RAM starts at 0 with a hole below 4 GiB; the window is aligned to its own size, so it needs a
    // window's worth of room above RAM.
    const std::uint64_t space_mib = (std::uint64_t{1} << tcg_address_bits) >> 20;
    const std::uint64_t window = pci_window_mib(topology);
    if (window * 2 > space_mib || spec.memory_mib + 4096ULL > space_mib - window) {
      throw Error(fmt::format("guest: its 64-bit BARs need a window of {} GiB, and {} MiB of RAM beside it; processors "
                              "under TCG have {} physical address bits",
                              window / 1024, spec.memory_mib, tcg_address_bits),
                  "make the GPU memory BARs smaller (together at most 256 GiB), or run on a machine with KVM");
    }
  }
}

std::string kernel_command_line(const GuestSpec& spec) {
  // panic=-1: a panic ends the guest at once, and with it QEMU (reboot_ends).
  // no_timer_check: the kernel's check that the timer interrupt arrives counts ticks against a busy loop,
  // which a loaded host makes fail under TCG; with interrupt remapping that is a panic.
  std::string line = "console=ttyS0 panic=-1 no_timer_check";
  if (spec.viommu == VirtualIommu::intel) {
    // Debian's kernels have the driver but leave it off. Pass-through for the kernel's own drivers: a
    // mapping of a peer's BAR without a descriptor then says which BAR it is; vfio still isolates.
    line += " intel_iommu=on iommu=pt";
  }
  for (const std::string& argument : spec.kernel_arguments) {
    line += ' ';
    line += argument;
  }
  return line;
}

std::string vfio_user_device_json(const GuestEndpoint& endpoint, const std::string& bus, unsigned message_timeout_ms) {
  // JSON rather than key=value: a socket address is a structure. The time-out is long, because a late
  // reply desynchronises QEMU's client for good.
  const nlohmann::ordered_json device = {
      {"driver", "vfio-user-pci"},
      {"id", endpoint.name},
      {"bus", bus},
      {"addr", "0x0"},
      {"socket", {{"type", "unix"}, {"path", endpoint.socket_path}}},
      {"x-msg-timeout", message_timeout_ms},
  };
  // A path is bytes, not always UTF-8; a bad byte becomes the replacement character, and QEMU says no.
  return device.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::vector<std::string> qemu_arguments(const GuestSpec& spec, const GuestTopology& topology, const GuestPaths& paths,
                                        const QemuInstallation& qemu) {
  validate_guest(spec, topology, qemu);
  Arguments args;
  if (!qemu.data_directory.empty()) {
    args.option("-L", qemu.data_directory);
  }
  add_machine(args, spec, topology);
  add_boot(args, spec, paths, qemu);
  add_connections(args, spec, paths);
  add_topology(args, spec, topology);
  std::vector<std::string> list = args.take();
  list.insert(list.end(), spec.extra_arguments.begin(), spec.extra_arguments.end());
  return list;
}

std::vector<std::string> topology_global_arguments(const GuestSpec& spec, const GuestTopology& topology) {
  Arguments args;
  add_globals(args, spec, topology);
  return args.take();
}

std::vector<std::string> topology_device_arguments(const GuestSpec& spec, const GuestTopology& topology) {
  Arguments args;
  add_topology(args, spec, topology);
  return args.take();
}

std::string escape_commas(const std::string& value) {
  std::string escaped;
  escaped.reserve(value.size());
  for (const char c : value) {
    escaped += c;
    if (c == ',') {
      escaped += c;
    }
  }
  return escaped;
}

std::string shell_quote(const std::string& word) {
  constexpr std::string_view safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,+@%";
  if (!word.empty() && word.find_first_not_of(safe) == std::string::npos) {
    return word;
  }
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + '\'';
}

std::string as_shell_script(const std::string& program, const std::vector<std::string>& arguments) {
  std::string script = shell_quote(program);
  for (const std::string& argument : arguments) {
    // An option starts a line; its value stays beside it.
    script += argument.size() > 1 && argument.front() == '-' ? " \\\n  " : " ";
    script += shell_quote(argument);
  }
  return script + '\n';
}

}  // namespace orrery::bridge
