// What a guest is made of, before it becomes QEMU's arguments.
//
// Plain data: filled from the command line and the platform's configuration, checked by
// validate_guest() (qemu_command_line.h), never by its own constructors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::bridge {

// ---- The PCI tree that the guest sees -------------------------------------------------------------

// The shape of the guest's face of the platform (docs: configuration reference, guest topology).
enum class TopologyShape : std::uint8_t {
  switched,    // pxb-pcie -> pcie-root-port -> x3130-upstream -> xio3130-downstream -> endpoint
  root_ports,  // pxb-pcie -> pcie-root-port -> endpoint: no switches, but links of the true speed and width
};

// The link of a root port as the guest reads it (Link Capabilities register).
struct PcieLinkSpec {
  // GT/s as QEMU spells it: "2_5", "5", "8", "16", "32" or "64".
  std::string speed = "16";
  unsigned width = 16;  // lanes: 1, 2, 4, 8, 12, 16, 32
};

// One endpoint function, attached over vfio-user.
struct GuestEndpoint {
  std::string name;         // "rnic0", "gpu3": becomes QEMU's device id; a letter, then letters, digits, - _
  std::string socket_path;  // the server's UNIX socket of this function
  std::uint64_t prefetchable_bytes = 0;  // sum of its 64-bit prefetchable BARs: sizes the PCI window
  PcieLinkSpec link;                     // used by the root_ports shape
  // Instead of a vfio-user function: a device of QEMU's own and its properties ("pci-testdev,membar=256M"),
  // to see a topology without a server. Empty: vfio-user-pci on socket_path.
  std::string stand_in;
};

// One switch: an upstream port and a downstream port for each endpoint, in this order (device 0, 1, …).
struct GuestSwitch {
  std::string name;     // "switch0": prefix of its ports' ids
  PcieLinkSpec uplink;  // the root port that it hangs on
  std::vector<GuestEndpoint> endpoints;
};

// One root complex: a pxb-pcie host bridge, close to one NUMA node.
struct GuestRootComplex {
  unsigned numa_node = 0;
  unsigned bus_number = 0;  // of its root bus; the buses below it follow, up to the next root complex's
  std::vector<GuestSwitch> switches;
};

struct GuestTopology {
  TopologyShape shape = TopologyShape::switched;
  std::vector<GuestRootComplex> root_complexes;
};

// ---- The machine ------------------------------------------------------------------------------------

enum class Firmware : std::uint8_t { seabios, ovmf };
enum class Accelerator : std::uint8_t { tcg, kvm };
enum class GuestNetwork : std::uint8_t { none, user };
enum class VirtualIommu : std::uint8_t { none, intel };
enum class DiskMode : std::uint8_t {
  throw_away,  // what the guest writes is dropped when QEMU ends; the image is opened read-only
  write,       // the guest writes to the image itself
};

struct GuestDisk {
  std::string path;
  std::string format;  // "qcow2", "raw", …: as probe_disk_format() reads it from the header
  DiskMode mode = DiskMode::throw_away;
};

struct GuestShare {
  std::string directory;       // on the host, served by virtiofsd
  std::string tag = "orrery";  // what the guest mounts: mount -t virtiofs orrery /mnt; at most 36 bytes
  bool read_only = false;
};

struct GuestSpec {
  std::string name = "guest0";                // as endpoint names; shown in messages, host name of its files
  std::string kernel;                         // bzImage; empty: boot from the disk by firmware
  std::string initrd;                         // one file; several archives are joined first (initrd.h)
  std::vector<std::string> kernel_arguments;  // added behind those that the launcher needs
  std::optional<GuestDisk> disk;
  Firmware firmware = Firmware::seabios;
  unsigned cpus = 2;           // 1 … 8
  unsigned memory_mib = 2048;  // 256 … 1048576, split evenly over the NUMA nodes
  unsigned numa_nodes = 2;     // 1 … 8
  GuestNetwork network = GuestNetwork::user;
  std::uint16_t ssh_port = 0;  // host port on 127.0.0.1 that leads to the guest's port 22; 0: none
  std::string ssh_key_file;    // public key that our own images let root in with (fw_cfg); empty: none
  std::optional<GuestShare> share;
  VirtualIommu viommu = VirtualIommu::intel;
  Accelerator accelerator = Accelerator::tcg;
  std::string cpu_model;                     // empty: see default_cpu_model()
  bool agent = true;                         // virtio-serial port for qemu-guest-agent
  bool gdb = true;                           // QEMU's gdb stub on a UNIX socket
  bool reboot_ends = true;                   // a guest that reboots (or panics, with panic=-1) ends QEMU
  unsigned message_timeout_ms = 600'000;     // x-msg-timeout of every vfio-user device
  std::vector<std::string> extra_arguments;  // the user's own, last, as they are
};

// Every file and socket that a guest's QEMU touches, all in the run's private directory.
struct GuestPaths {
  std::string qmp_socket;
  std::string agent_socket;
  std::string console_socket;
  std::string console_log;
  std::string gdb_socket;
  std::string share_socket;  // virtiofsd's
  std::string ovmf_vars;     // this guest's private copy
};

// Where the programs and firmware are.
struct QemuInstallation {
  std::string program;         // qemu-system-x86_64
  std::string data_directory;  // for -L; empty: QEMU's own
  std::string virtiofsd;       // empty: not there
  std::string ovmf_code;       // empty: not there
  std::string ovmf_vars;
};

}  // namespace orrery::bridge
