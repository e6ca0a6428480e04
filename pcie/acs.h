// Access Control Services: what a switch downstream port does with a TLP that travels upstream.
//
// PCI Express Base 6.3 §6.12.1.1, §6.12.3, §7.7.11. Downstream-travelling TLPs are never redirected and
// don't come here.
#pragma once

#include <cstdint>

#include "pcie/tlp.h"

namespace orrery::pcie {

// What the enhanced target controls do with requests for a memory BAR of the switch itself (§7.7.11.3).
enum class AcsMemoryTarget : std::uint8_t { direct = 0, block = 1, redirect = 2 };

// The ACS Control register (§7.7.11.3), decoded.
struct AcsControl {
  bool source_validation = false;                                    // SV, bit 0
  bool translation_blocking = false;                                 // TB, bit 1
  bool request_redirect = false;                                     // RR, bit 2
  bool completion_redirect = false;                                  // CR, bit 3
  bool upstream_forwarding = false;                                  // UF, bit 4
  bool egress_control = false;                                       // EC, bit 5 (E)
  bool direct_translated = false;                                    // DT, bit 6
  bool io_request_blocking = false;                                  // IB, bit 7
  AcsMemoryTarget downstream_port_memory = AcsMemoryTarget::direct;  // bits 9:8, BARs of downstream ports
  AcsMemoryTarget upstream_port_memory = AcsMemoryTarget::direct;    // bits 11:10, BARs of the upstream port
  bool unclaimed_redirect = false;                                   // URR, bit 12

  // The reserved encoding 11b of a memory target counts as block: nothing passes by an undefined setting.
  [[nodiscard]] static AcsControl from_register(std::uint16_t value);
  [[nodiscard]] std::uint16_t to_register() const;
};

// What the TLP is, as far as ACS cares.
enum class AcsTlpKind : std::uint8_t { memory_request, io_request, other_request, completion };

// Where address or ID routing within the switch sends the TLP.
enum class AcsTarget : std::uint8_t {
  outside_windows,         // not below this switch: to the upstream port as a matter of course
  own_egress_port,         // back to the port that it came from
  peer_port,               // another downstream port of the switch
  downstream_port_memory,  // a memory BAR of a downstream port itself
  upstream_port_memory,    // a memory BAR of the upstream port itself
  unclaimed,               // inside the upstream port's windows, but nobody claims it
};

struct AcsQuery {
  AcsTlpKind kind = AcsTlpKind::memory_request;
  AddressType at = AddressType::untranslated;  // memory requests
  bool relaxed_ordering = false;               // completions
  bool requester_in_bus_range = true;          // requests: the requester ID's bus is in [secondary, subordinate]
  AcsTarget target = AcsTarget::outside_windows;
  bool egress_blocked = false;  // the egress control vector's bit for the peer port is set
};

enum class AcsDecision : std::uint8_t {
  direct,               // route to the target inside the switch
  upstream,             // to the upstream port, thus to the root complex
  violation,            // ACS Violation: posted is dropped, non-posted answered with CA; log it (AER bit 21)
  unsupported_request,  // not routable: posted is dropped, non-posted answered with UR
};
[[nodiscard]] const char* name(AcsDecision decision);

// The rules in the order of the specification. Pure; no state.
// Own egress port without Upstream Forwarding is undefined in the specification: here unsupported_request.
[[nodiscard]] AcsDecision acs_decide(const AcsControl& control, const AcsQuery& query);

// The kind of a TLP for AcsQuery. Orrery has no I/O requests (no TlpType for them).
[[nodiscard]] constexpr AcsTlpKind acs_kind(TlpType type) {
  return is_completion(type) ? AcsTlpKind::completion
                             : (is_memory(type) ? AcsTlpKind::memory_request : AcsTlpKind::other_request);
}

}  // namespace orrery::pcie
