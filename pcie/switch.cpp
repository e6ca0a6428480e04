#include "pcie/switch.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/error.h"
#include "pcie/burst.h"
#include "pcie/completion.h"

namespace orrery::pcie {

struct Switch::Port final : TlpSink {
  Port(Switch& owner_switch, unsigned port_index) : owner(owner_switch), index(port_index) {}
  Picoseconds receive(TlpPtr tlp, Picoseconds delay) override { return owner.receive(index, std::move(tlp), delay); }

  Switch& owner;
  unsigned index;
  TlpSink* egress = nullptr;
  BusRange buses;
  AcsControl acs;
  bool acs_off = true;  // every control is clear
  std::uint64_t egress_vector = 0;
};

Switch::Switch(Simulation& simulation, const std::string& name, const SwitchSettings& settings)
    : simulation_(simulation), settings_(settings), id_(simulation.names.add(name)) {
  if (settings.downstream_ports < 1 || settings.downstream_ports > 32) {
    throw Error(fmt::format("{}: {} downstream ports", name, settings.downstream_ports), "use 1 to 32");
  }
  for (unsigned i = 0; i <= settings.downstream_ports; ++i) {
    ports_.push_back(std::make_unique<Port>(*this, i));
  }
}

Switch::~Switch() = default;

TlpSink& Switch::ingress(unsigned port) {
  return *ports_.at(port);
}
void Switch::connect(unsigned port, TlpSink& egress) {
  ports_.at(port)->egress = &egress;
}

void Switch::set_bus_range(unsigned port, BusRange range) {
  ports_.at(port)->buses = range;
  if (port != upstream_port) {
    std::replace(port_of_bus_.begin(), port_of_bus_.end(), static_cast<std::uint8_t>(port), std::uint8_t{0});
    for (unsigned bus = range.secondary; bus <= range.subordinate && bus < port_of_bus_.size(); ++bus) {
      port_of_bus_[bus] = static_cast<std::uint8_t>(port);
    }
  }
}

void Switch::set_acs(unsigned port, const AcsControl& control) {
  ports_.at(port)->acs = control;
  ports_.at(port)->acs_off = control.to_register() == 0;
}
void Switch::set_egress_vector(unsigned port, std::uint64_t blocked) {
  ports_.at(port)->egress_vector = blocked;
}

bool Switch::add_window(unsigned port, std::uint64_t start, std::uint64_t size) {
  return windows_.insert(start, size, port);
}
void Switch::clear_windows() {
  windows_.clear();
}

unsigned Switch::port_of(Bdf id) const {
  return port_of_bus_[id.bus()];
}

Picoseconds Switch::receive(unsigned ingress, TlpPtr tlp, Picoseconds delay) {
  if (simulation_.timed) {
    tlp->latency.add(id_).process += static_cast<std::uint32_t>(settings_.latency.count);
    delay += settings_.latency;
  }
  if (tlp->count > 1 && is_memory(tlp->type)) {
    const std::uint64_t uniform = windows_.uniform(tlp->address);
    if (uniform != 0 && uniform < tlp->length) {
      return split(ingress, *tlp, delay);
    }
  }
  return route(ingress, std::move(tlp), delay);
}

// The single TLPs of the burst go different ways.
Picoseconds Switch::split(unsigned ingress, const Tlp& burst, Picoseconds delay) {
  for (std::uint32_t done = 0; done < burst.length;) {
    const std::uint32_t one = completion_chunk(burst.address + done, burst.length - done, burst.unit);
    route(ingress, request_part(simulation_, burst, done, one), delay);
    done += one;
  }
  return delay;
}

Picoseconds Switch::upstream_travelling(unsigned ingress, TlpPtr tlp, Picoseconds delay) {
  const Port& port = *ports_[ingress];
  unsigned target = upstream_port;
  if (is_memory(tlp->type)) {
    if (const auto* window = windows_.find(tlp->address)) {
      target = window->value;
    }
  } else if (is_completion(tlp->type)) {
    target = port_of(tlp->requester);
  } else if (is_config(tlp->type)) {
    // Configuration requests only ever travel downstream (§2.2.7.1).
    return reject(ingress, std::move(tlp), delay, CompletionStatus::unsupported_request);
  }
  // Without any control everything goes straight, but not back.
  AcsDecision decision = target == ingress ? AcsDecision::unsupported_request : AcsDecision::direct;
  if (!port.acs_off) {
    AcsQuery query;
    query.kind = acs_kind(tlp->type);
    query.at = tlp->at;
    query.relaxed_ordering = tlp->attributes.relaxed_ordering;
    if (is_request(tlp->type)) {
      query.requester_in_bus_range = port.buses.contains(tlp->requester);
    }
    if (target == ingress) {
      query.target = AcsTarget::own_egress_port;
    } else if (target != upstream_port) {
      query.target = AcsTarget::peer_port;
      query.egress_blocked = (port.egress_vector >> target & 1U) != 0;
    }
    decision = acs_decide(port.acs, query);
  }

  switch (decision) {
    case AcsDecision::direct:
      if (target != upstream_port) {
        counters_.peer_to_peer += tlp->count;
      }
      return forward(ingress, target, std::move(tlp), delay);
    case AcsDecision::upstream:
      if (target != upstream_port) {
        counters_.redirected += tlp->count;
      }
      return forward(ingress, upstream_port, std::move(tlp), delay);
    case AcsDecision::violation:
      counters_.acs_violations += tlp->count;
      return reject(ingress, std::move(tlp), delay, CompletionStatus::completer_abort);
    case AcsDecision::unsupported_request:
      break;
  }
  return reject(ingress, std::move(tlp), delay, CompletionStatus::unsupported_request);
}

Picoseconds Switch::downstream_travelling(TlpPtr tlp, Picoseconds delay) {
  unsigned target = upstream_port;
  if (is_memory(tlp->type)) {
    if (const auto* window = windows_.find(tlp->address)) {
      target = window->value;
    }
  } else if (is_completion(tlp->type)) {
    target = port_of(tlp->requester);
  } else {
    target = port_of(tlp->completer);
    // A type 1 request becomes type 0 on the bus that it is for (§7.3.3).
    if (target != upstream_port && tlp->completer.bus() == ports_[target]->buses.secondary) {
      if (tlp->type == TlpType::CfgRd1) {
        tlp->type = TlpType::CfgRd0;
      } else if (tlp->type == TlpType::CfgWr1) {
        tlp->type = TlpType::CfgWr0;
      }
    }
  }
  if (target == upstream_port) {
    return reject(upstream_port, std::move(tlp), delay, CompletionStatus::unsupported_request);
  }
  return forward(upstream_port, target, std::move(tlp), delay);
}

Picoseconds Switch::forward(unsigned ingress, unsigned egress, TlpPtr tlp, Picoseconds delay) {
  Port& port = *ports_[egress];
  if (port.egress == nullptr) {
    // An empty slot: nobody answers below it (§2.3.1, UR).
    return reject(ingress, std::move(tlp), delay, CompletionStatus::unsupported_request);
  }
  if (egress == upstream_port) {
    counters_.upstream += tlp->count;
  }
  return port.egress->receive(std::move(tlp), delay);
}

Picoseconds Switch::reject(unsigned ingress, TlpPtr tlp, Picoseconds delay, CompletionStatus status) {
  if (status == CompletionStatus::unsupported_request) {
    counters_.unsupported += tlp->count;
  }
  if (is_posted(tlp->type) || is_completion(tlp->type) || ports_[ingress]->egress == nullptr) {
    return delay;  // dropped
  }
  return ports_[ingress]->egress->receive(make_completion(simulation_, *tlp, bdf_, status), delay);
}

}  // namespace orrery::pcie
