// The same guest as a libvirt domain, for people who run their guests there (`orrery serve`).
//
// Memory, CPUs, NUMA, boot, disk, console, agent, share, network and IOMMU are libvirt's own elements
// (https://libvirt.org/formatdomain.html); the PCI tree and its vfio-user devices, which libvirt has no
// elements for, go through <qemu:commandline> with the very arguments of qemu_command_line.h. libvirt's
// security driver must let QEMU connect to the vfio-user sockets.
#pragma once

#include <string>

#include "qemu_bridge/launcher/guest_spec.h"

namespace orrery::bridge {

// Throws what validate_guest() throws, and Error for text that XML can't carry (control characters).
// ssh_port and extra_arguments: the port is not forwarded (libvirt's user network has no such element),
// the arguments are passed on. paths: not used; libvirt makes its own monitor, console and agent sockets.
[[nodiscard]] std::string libvirt_domain_xml(const GuestSpec& spec, const GuestTopology& topology,
                                             const QemuInstallation& qemu);

// Text as XML character data or attribute value.
[[nodiscard]] std::string xml_escape(const std::string& text);

}  // namespace orrery::bridge
