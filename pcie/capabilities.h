// Builds the capability lists of a configuration space, and decodes the controls in them.
//
// Layouts: PCI Express Base 6.3 §7.5.2 (power management), §7.5.3 (PCI Express), §7.7.2 (MSI-X), §7.8.4
// (AER), §7.9.3 (serial number), §7.7.11 (ACS), §7.8.8 (ARI), §9.3.3 (SR-IOV), §10.5.1 (ATS).
// PRI and PASID (§10.5.2, §7.8.9) come with the address translation caches.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "pcie/bar.h"
#include "pcie/config_space.h"

namespace orrery::pcie {

namespace capability_id {
inline constexpr std::uint8_t power_management = 0x01;
inline constexpr std::uint8_t pci_express = 0x10;
inline constexpr std::uint8_t msix = 0x11;
}  // namespace capability_id

namespace extended_capability_id {
inline constexpr std::uint16_t aer = 0x0001;
inline constexpr std::uint16_t serial_number = 0x0003;
inline constexpr std::uint16_t acs = 0x000d;
inline constexpr std::uint16_t ari = 0x000e;
inline constexpr std::uint16_t ats = 0x000f;
inline constexpr std::uint16_t sriov = 0x0010;
}  // namespace extended_capability_id

// §7.5.2. No_Soft_Reset is always set: D3hot to D0 keeps the registers.
struct PowerManagementCapability {
  bool d1 = false;
  bool d2 = false;
};

// PCIe Base 6.3 §7.7.2.2: the table size has 11 bits.
inline constexpr unsigned most_msix_vectors = 2048;

// §7.7.2. Table and PBA live in memory BARs of the function; offsets are multiples of 8 bytes.
struct MsixCapability {
  unsigned vectors = 1;  // 1 … most_msix_vectors
  unsigned table_bar = 0;
  std::uint32_t table_offset = 0;  // 16 bytes an entry
  unsigned pba_bar = 0;
  std::uint32_t pba_offset = 0;  // one bit a vector, in whole 8-byte words
};

// Device/Port Type (§7.5.3.2).
enum class PortType : std::uint8_t { endpoint = 0, root_port = 4, switch_upstream = 5, switch_downstream = 6 };

// §7.5.3, version 2. Link Disable and Retrain Link read 0: the link trains once, see set_link_status().
struct PciExpressCapability {
  PortType type = PortType::endpoint;
  unsigned max_payload = 512;          // supported, bytes: 128 … 4096, power of two; reset value of MPS is 128
  unsigned generation = 5;             // highest link generation, 1 … 6
  unsigned width = 16;                 // lanes: 1, 2, 4, 8 or 16
  unsigned negotiated_generation = 0;  // current link; 0: as the maximum
  unsigned negotiated_width = 0;
  bool function_level_reset = true;  // endpoints
  bool extended_tags = true;         // 8-bit tags; enabled at reset
  bool ten_bit_tag_completer = true;
  bool ten_bit_tag_requester = false;
  bool relaxed_ordering = true;                // reset value of the enable
  std::uint8_t completion_timeout_ranges = 0;  // Device Capabilities 2 [3:0]; 0: the default range only
  std::uint8_t port_number = 0;
  // Root ports and switch downstream ports.
  bool slot = false;              // a slot without hot-plug controls
  std::uint16_t slot_number = 0;  // 13 bits
  bool ari_forwarding = false;
};

// §7.8.4.
struct AerCapability {
  bool root_port = false;  // adds the root error registers
  bool acs = false;        // ports: ACS Violation is an error that can be reported
};

// §7.7.11.2. Which controls exist; the others read 0.
struct AcsCapability {
  bool source_validation = true;
  bool translation_blocking = true;
  bool request_redirect = true;
  bool completion_redirect = true;
  bool upstream_forwarding = true;
  bool egress_control = false;
  bool direct_translated = true;
  bool enhanced = false;            // I/O blocking, memory target and unclaimed request controls
  unsigned egress_vector_bits = 0;  // 1 … 255, with egress_control
};

// §7.8.8.
struct AriCapability {
  std::uint8_t next_function = 0;
};

// §10.5.1.
struct AtsCapability {
  unsigned invalidate_queue_depth = 32;  // 1 … 32
  bool page_aligned_request = true;
  bool global_invalidate = false;
  bool relaxed_ordering = false;
};

// §9.3.3. VF BARs are sized like BARs; each holds NumVFs times the size given here, at least 4096 bytes.
// The only system page size is 4 KiB.
struct SriovCapability {
  std::uint16_t total_vfs = 0;  // 1 … 65535; InitialVFs is the same
  std::uint16_t first_vf_offset = 1;
  std::uint16_t vf_stride = 1;
  std::uint16_t vf_device_id = 0xffff;
  bool ari_capable_hierarchy = true;  // adds the control bit (lowest-numbered PF)
  BarDescriptions vf_bars{};          // memory_fd is not used
};

// Adds capabilities in the order of the calls: standard ones from 0x40, extended ones from 0x100, each
// linked to its predecessor. Every call returns the new capability's offset; throws Error, naming the
// capability and the field, for a value out of range, a second one of a kind, or a full space.
// Building only; no builder is needed once the space is in use.
class CapabilityBuilder {
 public:
  explicit CapabilityBuilder(ConfigSpace& space) : space_(space) {}

  std::uint16_t add(const PowerManagementCapability& capability);
  std::uint16_t add(const MsixCapability& capability);
  std::uint16_t add(const PciExpressCapability& capability);
  std::uint16_t add(const AerCapability& capability);
  std::uint16_t add(const AcsCapability& capability);
  std::uint16_t add(const AriCapability& capability);
  std::uint16_t add(const AtsCapability& capability);
  std::uint16_t add(const SriovCapability& capability);
  std::uint16_t add_serial_number(std::uint64_t serial_number);

 private:
  std::uint16_t standard(std::uint8_t id, const char* what, unsigned bytes);
  std::uint16_t extended(std::uint16_t id, const char* what, unsigned version, unsigned bytes);

  ConfigSpace& space_;
  std::uint16_t previous_ = 0;
  std::uint16_t next_ = config_register::first_capability;
  std::uint16_t extended_previous_ = 0;
  std::uint16_t extended_next_ = config_register::first_extended_capability;
};

// --- Decoded controls: what a function does now -------------------------------------------------
// Values that no specification allows (reserved encodings written by a guest) are clamped to legal ones.

struct DeviceControl {
  unsigned max_payload = 128;       // bytes; never more than the function supports
  unsigned max_read_request = 512;  // bytes, 128 … 4096
  bool relaxed_ordering = false;
  bool no_snoop = false;
  bool extended_tags = false;
  bool ten_bit_tags = false;  // requester
  bool id_based_ordering_requests = false;
  bool id_based_ordering_completions = false;
  bool ari_forwarding = false;  // ports
};
// Defaults of the struct without a PCI Express capability.
[[nodiscard]] DeviceControl device_control(const ConfigSpace& space);

// Shows the link as trained: Current Link Speed and Negotiated Link Width (Link Status, §7.5.3.8), and
// Data Link Layer Link Active of downstream ports. Values outside the capability are clamped to it.
void set_link_status(ConfigSpace& space, unsigned generation, unsigned width, bool active);

struct MsixControl {
  bool enabled = false;
  bool function_masked = false;
};
[[nodiscard]] MsixControl msix_control(const ConfigSpace& space);

struct AtsControl {
  bool enabled = false;
  std::uint8_t smallest_translation_unit = 0;  // log2(bytes) - 12
};
[[nodiscard]] AtsControl ats_control(const ConfigSpace& space);

// The ACS Control register as it stands (AcsControl::from_register decodes it); 0 without the capability.
[[nodiscard]] std::uint16_t acs_control_register(const ConfigSpace& space);
// Bit `port` of the egress control vector (§7.7.11.4); false beyond the vector.
[[nodiscard]] bool acs_egress_blocked(const ConfigSpace& space, unsigned port);

struct SriovState {
  bool vf_enabled = false;
  bool vf_memory_enabled = false;
  bool ari_capable_hierarchy = false;
  std::uint16_t vfs = 0;  // NumVFs clamped to TotalVFs; 0 while VFs are disabled
  std::uint16_t first_vf_offset = 0;
  std::uint16_t vf_stride = 0;
  std::array<std::uint64_t, bar_count> vf_bar_base{};  // of VF 0; 0: not assigned, or the sizing pattern
  std::array<std::uint64_t, bar_count> vf_bar_size{};  // bytes per VF; 0: no such BAR
};
[[nodiscard]] SriovState sriov_state(const ConfigSpace& space);

// --- Error reporting ----------------------------------------------------------------------------

// Bits of the uncorrectable error status register (§7.8.4.2).
enum class UncorrectableError : std::uint8_t {
  data_link_protocol = 4,
  surprise_down = 5,
  poisoned_tlp = 12,
  flow_control_protocol = 13,
  completion_timeout = 14,
  completer_abort = 15,
  unexpected_completion = 16,
  receiver_overflow = 17,
  malformed_tlp = 18,
  ecrc = 19,
  unsupported_request = 20,
  acs_violation = 21,
};

// Bits of the correctable error status register (§7.8.4.5).
enum class CorrectableError : std::uint8_t {
  receiver = 0,
  bad_tlp = 6,
  bad_dllp = 7,
  replay_rollover = 8,
  replay_timeout = 12,
  advisory_non_fatal = 13,
};

// Which error message a function sends to the root complex for an error, if any.
enum class ErrorMessage : std::uint8_t { none, correctable, non_fatal, fatal };

// Records an error as §6.2.5 says: Device Status; with AER the status bits and, for an unmasked error while
// no other is logged, First Error Pointer and header log. `header` is the offending TLP's header (4 DWs,
// byte 0 of the wire in bits 31:24) or null. `advisory`: a completion tells the requester already
// (§6.2.3.2.4: a non-posted request answered with UR or CA), so that at most a correctable message goes out.
// Returns the message that the controls let through; sending it is the caller's.
ErrorMessage report_error(ConfigSpace& space, UncorrectableError error, const std::array<std::uint32_t, 4>* header,
                          bool advisory = false);
ErrorMessage report_error(ConfigSpace& space, CorrectableError error);

}  // namespace orrery::pcie
