// Where each port, bridge and endpoint of the guest's PCI tree sits.
//
// Pure functions over the topology; the argument vector and the libvirt XML are both written from them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qemu_bridge/launcher/guest_spec.h"

namespace orrery::bridge {

// One port, bridge or endpoint of the tree. The function number is 0 throughout.
struct PlacedDevice {
  enum class Kind : std::uint8_t { expander, root_port, upstream_port, downstream_port, endpoint };
  Kind kind = Kind::endpoint;
  std::string id;                           // QEMU's device id
  std::string bus;                          // id of the device that it hangs on, or "pcie.0"
  unsigned device = 0;                      // PCI device number on that bus
  unsigned bus_number = 0;                  // expander: its root bus
  unsigned numa_node = 0;                   // expander
  unsigned slot = 0;                        // root and downstream ports: physical slot number, unique in the guest
  PcieLinkSpec link;                        // root port
  const GuestEndpoint* endpoint = nullptr;  // into the topology, which must outlive this
};

// Throws Error that names the device: names that QEMU doesn't take, two devices of one name or socket,
// more ports than a bus has device numbers, bus numbers of root complexes that overlap, link values that
// QEMU doesn't know, NUMA nodes that the machine doesn't have.
void validate_topology(const GuestTopology& topology, unsigned numa_nodes);

// The tree laid out, parents first. Addresses depend on the topology alone, never on the guest's other
// devices. The topology must be valid.
[[nodiscard]] std::vector<PlacedDevice> place_devices(const GuestTopology& topology);

// The id of the port that an endpoint hangs on; throws Error if the topology has no such endpoint.
[[nodiscard]] std::string bus_of_endpoint(const GuestTopology& topology, const std::string& endpoint);

// Window for 64-bit BARs in MiB that the topology needs, room for hot-plug included: a power of two, at least
// 32 GiB (QEMU's own).
[[nodiscard]] std::uint64_t pci_window_mib(const GuestTopology& topology);

// True for a letter, then letters, digits, '-' and '_', at most 32 in all: a QEMU device id that leaves
// '.' to the ids made from it ("gpu0.port") and keeps paths made from it short.
[[nodiscard]] bool is_device_id(const std::string& name);

// PCI device numbers on pcie.0. QEMU's own are 0 (host bridge) and 31 (LPC, SATA, SMBus); the expander of
// root complex i is first_expander + i.
inline constexpr unsigned serial_device = 3;
inline constexpr unsigned disk_device = 4;
inline constexpr unsigned network_device = 5;
inline constexpr unsigned share_device = 6;
inline constexpr unsigned first_expander = 16;
inline constexpr unsigned max_root_complexes = 8;

}  // namespace orrery::bridge
