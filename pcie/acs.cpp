#include "pcie/acs.h"

namespace orrery::pcie {

namespace {

AcsMemoryTarget memory_target(unsigned field) {
  switch (field & 3U) {
    case 0:
      return AcsMemoryTarget::direct;
    case 2:
      return AcsMemoryTarget::redirect;
    default:
      return AcsMemoryTarget::block;
  }
}

AcsDecision to_own_memory(AcsMemoryTarget target) {
  switch (target) {
    case AcsMemoryTarget::direct:
      return AcsDecision::direct;
    case AcsMemoryTarget::redirect:
      return AcsDecision::upstream;
    case AcsMemoryTarget::block:
      break;
  }
  return AcsDecision::violation;
}

// Peer requests that don't pass as direct translated ones (§6.12.3): with egress control the vector says
// whether the port's traffic is under control at all, and redirection what control means.
AcsDecision to_peer(const AcsControl& control, bool egress_blocked) {
  if (control.egress_control && !egress_blocked) {
    return AcsDecision::direct;
  }
  if (control.request_redirect) {
    return AcsDecision::upstream;
  }
  return control.egress_control ? AcsDecision::violation : AcsDecision::direct;
}

AcsDecision decide_completion(const AcsControl& control, const AcsQuery& query) {
  switch (query.target) {
    case AcsTarget::outside_windows:
      return AcsDecision::upstream;
    case AcsTarget::own_egress_port:
      return control.upstream_forwarding ? AcsDecision::upstream : AcsDecision::unsupported_request;
    case AcsTarget::peer_port:
      return control.completion_redirect && !query.relaxed_ordering ? AcsDecision::upstream : AcsDecision::direct;
    case AcsTarget::downstream_port_memory:
    case AcsTarget::upstream_port_memory:
      // A port of the switch as the requester: the completion has arrived.
      return AcsDecision::direct;
    case AcsTarget::unclaimed:
      break;
  }
  return AcsDecision::unsupported_request;
}

}  // namespace

AcsControl AcsControl::from_register(std::uint16_t value) {
  const auto bit = [value](unsigned n) { return ((value >> n) & 1U) != 0; };
  AcsControl control;
  control.source_validation = bit(0);
  control.translation_blocking = bit(1);
  control.request_redirect = bit(2);
  control.completion_redirect = bit(3);
  control.upstream_forwarding = bit(4);
  control.egress_control = bit(5);
  control.direct_translated = bit(6);
  control.io_request_blocking = bit(7);
  control.downstream_port_memory = memory_target(value >> 8U);
  control.upstream_port_memory = memory_target(value >> 10U);
  control.unclaimed_redirect = bit(12);
  return control;
}

std::uint16_t AcsControl::to_register() const {
  const auto bit = [](bool set, unsigned n) { return set ? 1U << n : 0U; };
  return static_cast<std::uint16_t>(bit(source_validation, 0) | bit(translation_blocking, 1) |
                                    bit(request_redirect, 2) | bit(completion_redirect, 3) |
                                    bit(upstream_forwarding, 4) | bit(egress_control, 5) | bit(direct_translated, 6) |
                                    bit(io_request_blocking, 7) | static_cast<unsigned>(downstream_port_memory) << 8U |
                                    static_cast<unsigned>(upstream_port_memory) << 10U | bit(unclaimed_redirect, 12));
}

const char* name(AcsDecision decision) {
  switch (decision) {
    case AcsDecision::direct:
      return "direct";
    case AcsDecision::upstream:
      return "upstream";
    case AcsDecision::violation:
      return "ACS violation";
    case AcsDecision::unsupported_request:
      return "unsupported request";
  }
  return "?";
}

AcsDecision acs_decide(const AcsControl& control, const AcsQuery& query) {
  if (query.kind == AcsTlpKind::completion) {
    return decide_completion(control, query);
  }
  const bool memory = query.kind == AcsTlpKind::memory_request;
  if (control.source_validation && !query.requester_in_bus_range) {
    return AcsDecision::violation;
  }
  if (memory && control.translation_blocking && query.at != AddressType::untranslated) {
    return AcsDecision::violation;
  }
  if (query.kind == AcsTlpKind::io_request && control.io_request_blocking) {
    return AcsDecision::violation;
  }
  switch (query.target) {
    case AcsTarget::outside_windows:
      return AcsDecision::upstream;
    case AcsTarget::own_egress_port:
      return control.upstream_forwarding ? AcsDecision::upstream : AcsDecision::unsupported_request;
    case AcsTarget::peer_port:
      // Translation Blocking has taken out translated requests above, so Direct Translated needs no look at it.
      if (memory && query.at == AddressType::translated && control.direct_translated) {
        return AcsDecision::direct;
      }
      return to_peer(control, query.egress_blocked);
    case AcsTarget::downstream_port_memory:
      return to_own_memory(control.downstream_port_memory);
    case AcsTarget::upstream_port_memory:
      return to_own_memory(control.upstream_port_memory);
    case AcsTarget::unclaimed:
      break;
  }
  return control.unclaimed_redirect ? AcsDecision::upstream : AcsDecision::unsupported_request;
}

}  // namespace orrery::pcie
