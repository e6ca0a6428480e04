// From a guest's description to QEMU's argument vector.
//
// Pure functions: no file is opened and nothing is started. Sources: QEMU's qemu(1) and `-device X,help`
// of 10.1 to 11.1; why each argument is there is said beside it in qemu_command_line.cpp.
#pragma once

#include <string>
#include <vector>

#include "qemu_bridge/launcher/guest_spec.h"

namespace orrery::bridge {

// Throws Error that names the field: counts out of range, names that QEMU or the file system would not
// take, a topology that can't be placed (pci_placement.h), nothing to boot, firmware or virtiofsd that is
// needed and not there, BARs that the processor's physical address width can't hold.
void validate_guest(const GuestSpec& spec, const GuestTopology& topology, const QemuInstallation& qemu);

// The arguments behind the program's name. Calls validate_guest() first.
[[nodiscard]] std::vector<std::string> qemu_arguments(const GuestSpec& spec, const GuestTopology& topology,
                                                      const GuestPaths& paths, const QemuInstallation& qemu);

// The parts of them that are about the PCI tree: machine properties, and a `-device` for each port and
// endpoint. Nothing is validated.
[[nodiscard]] std::vector<std::string> topology_global_arguments(const GuestSpec& spec, const GuestTopology& topology);
[[nodiscard]] std::vector<std::string> topology_device_arguments(const GuestSpec& spec, const GuestTopology& topology);

// The kernel command line: what the platform needs, then the user's own.
[[nodiscard]] std::string kernel_command_line(const GuestSpec& spec);

// "EPYC" under TCG (without the features that TCG lacks and would warn of): Linux' p2pdma trusts host
// bridges of AMD family 17h and later, so that GPU memory may be a DMA target across root ports. "host"
// under KVM.
[[nodiscard]] std::string default_cpu_model(Accelerator accelerator);

// The vfio-user endpoint as the JSON text that `-device` takes and the arguments of QMP's device_add.
[[nodiscard]] std::string vfio_user_device_json(const GuestEndpoint& endpoint, const std::string& bus,
                                                unsigned message_timeout_ms);

// An argument vector as one line for a POSIX shell, and as lines with a backslash at their end.
[[nodiscard]] std::string shell_quote(const std::string& word);
[[nodiscard]] std::string as_shell_script(const std::string& program, const std::vector<std::string>& arguments);

// Doubles the commas, as QEMU's key=value options want it.
[[nodiscard]] std::string escape_commas(const std::string& value);

}  // namespace orrery::bridge
