#include "fabric/tor_switch.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"
#include "fabric/streams.h"

namespace orrery::fabric {

namespace {

constexpr unsigned most_ports = 1024;
constexpr std::uint32_t first_entropy = 0xc000;

constexpr std::uint64_t mix(std::uint64_t x) {  // MurmurHash3's finaliser
  x = (x ^ (x >> 33)) * 0xff51'afd7'ed55'8ccdU;
  x = (x ^ (x >> 33)) * 0xc4ce'b9fe'1a85'ec53U;
  return x ^ (x >> 33);
}

void check(const TorSettings& settings) {
  if (settings.ports < 1 || settings.ports > most_ports) {
    throw Error(fmt::format("switch: {} ports", settings.ports), "use 1 to 1024");
  }
  const EcnMarking& ecn = settings.ecn;
  if (!(ecn.pmax >= 0 && ecn.pmax <= 1) || ecn.kmin_bytes > ecn.kmax_bytes) {
    throw Error(
        fmt::format("switch: ECN marking with kmin {} B, kmax {} B, pmax {}", ecn.kmin_bytes, ecn.kmax_bytes, ecn.pmax),
        "kmin is at most kmax, pmax from 0 to 1");
  }
}

}  // namespace

const char* name(DropReason reason) {
  constexpr const char* names[drop_reasons] = {"port_limit", "shared_buffer", "bad_fcs", "no_port", "same_port"};
  return names[static_cast<unsigned>(reason)];
}

// A FIFO's departures are known when its packets come, so it is a ring of those.
struct TorSwitch::PortState final : public PortListener {
  PortState(TorSwitch& its_owner, unsigned its_index) : owner(its_owner), index(its_index), departures(64) {}
  void on_packet(const Packet& packet) override { owner.receive(index, packet); }

  struct Departure {
    Picoseconds at;
    std::uint32_t bytes = 0;
  };
  void push(Departure departure) {
    if (tail - head == departures.size()) {
      std::vector<Departure> larger(2 * departures.size());
      for (std::uint64_t i = head; i != tail; ++i) {
        larger[i & (larger.size() - 1)] = departures[i & (departures.size() - 1)];
      }
      departures = std::move(larger);
    }
    departures[tail++ & (departures.size() - 1)] = departure;
  }

  TorSwitch& owner;
  unsigned index;
  Port* out = nullptr;
  std::vector<Departure> departures;  // power of two
  std::uint64_t head = 0;
  std::uint64_t tail = 0;
  std::uint64_t queued = 0;  // bytes, as of the last drain
  TorPortCounters counters;
};

TorSwitch::TorSwitch(EventQueue& events, PacketPool& pool, const TorSettings& settings)
    : events_(events),
      pool_(pool),
      settings_(settings),
      random_(settings.seed, stream_of(StreamPurpose::marking, settings.stream)),
      macs_(settings.mac_entries, settings.mac_ageing) {
  check(settings);
  for (unsigned i = 0; i < settings.ports; ++i) {
    ports_.push_back(std::make_unique<PortState>(*this, i));
  }
}

TorSwitch::~TorSwitch() = default;

void TorSwitch::attach(unsigned index, Port& port) {
  if (index >= ports_.size() || ports_[index]->out != nullptr) {
    throw Error(fmt::format("switch: port {} can't be plugged in", index),
                fmt::format("use a free port from 0 to {}", ports_.size() - 1));
  }
  ports_[index]->out = &port;
  port.attach(*ports_[index]);
}

TorSwitch::Group TorSwitch::make_group(std::span<const unsigned> ports) {
  const Group group{static_cast<std::uint32_t>(group_ports_.size()), static_cast<std::uint32_t>(ports.size())};
  for (const unsigned port : ports) {
    if (port >= ports_.size()) {
      throw Error(fmt::format("switch: a route by port {}", port), fmt::format("ports go to {}", ports_.size() - 1));
    }
    group_ports_.push_back(static_cast<std::uint16_t>(port));
  }
  return group;
}

void TorSwitch::set_route(EndpointId endpoint, std::span<const unsigned> ports) {
  constexpr EndpointId most_endpoints = 1U << 24;
  if (endpoint >= most_endpoints) {
    throw Error(fmt::format("switch: a route to endpoint {}", endpoint), "endpoints are numbered from 0, below 2^24");
  }
  if (endpoint >= routes_.size()) {
    routes_.resize(endpoint + 1);
  }
  routes_[endpoint] = make_group(ports);
}

void TorSwitch::set_default_route(std::span<const unsigned> ports) {
  default_route_ = make_group(ports);
}

const TorPortCounters& TorSwitch::counters(unsigned port) const {
  return ports_[port]->counters;
}

std::uint64_t TorSwitch::queued_bytes(unsigned port) {
  drain(*ports_[port]);
  return ports_[port]->queued;
}

std::uint64_t TorSwitch::drops() const {
  std::uint64_t sum = 0;
  for (const auto& port : ports_) {
    for (const std::uint64_t count : port->counters.drops) {
      sum += count;
    }
  }
  return sum;
}

int TorSwitch::port_of(MacAddress address) const {
  return macs_.find(address, events_.now());
}

void TorSwitch::drop(unsigned port, const Packet& packet, DropReason reason) {
  ++ports_[port]->counters.drops[static_cast<unsigned>(reason)];
  pool_.release(packet.content);
}

void TorSwitch::drain(PortState& port) {
  const Picoseconds now = events_.now();
  while (port.head != port.tail) {
    const PortState::Departure& first = port.departures[port.head & (port.departures.size() - 1)];
    if (first.at > now) {
      return;
    }
    port.queued -= first.bytes;
    shared_bytes_ -= first.bytes;
    ++port.head;
  }
}

bool TorSwitch::mark(std::uint64_t queued) {
  const EcnMarking& ecn = settings_.ecn;
  if (queued <= ecn.kmin_bytes) {
    return false;
  }
  if (queued > ecn.kmax_bytes) {
    return true;
  }
  const double probability =
      ecn.pmax * static_cast<double>(queued - ecn.kmin_bytes) / static_cast<double>(ecn.kmax_bytes - ecn.kmin_bytes);
  return random_.uniform() < probability;
}

unsigned TorSwitch::choose(const Group& group, const Packet& packet) const {
  const std::uint16_t* ports = group_ports_.data() + group.first;
  if (group.count == 1) {
    return ports[0];
  }
  switch (settings_.ecmp) {
    case EcmpMode::direct:
      return ports[(packet.entropy - first_entropy) % group.count];
    case EcmpMode::least_loaded:
      return *std::min_element(ports, ports + group.count, [this](unsigned a, unsigned b) {
        const Port* port_a = ports_[a]->out;
        const Port* port_b = ports_[b]->out;
        if (port_a == nullptr || port_b == nullptr) {
          return port_a != nullptr;
        }
        const Picoseconds now = events_.now();
        return max(port_a->free_at(), now) < max(port_b->free_at(), now);
      });
    default:
      break;
  }
  const std::uint64_t endpoints = (std::uint64_t{packet.source} << 32) | packet.destination;
  std::uint64_t hash = mix(endpoints ^ mix(settings_.seed + 1));
  hash = mix(hash ^ packet.source_mac.value ^ (std::uint64_t{packet.entropy} << 48));
  hash = mix(hash ^ packet.destination_mac.value);
  return ports[hash % group.count];
}

void TorSwitch::receive(unsigned ingress, const Packet& packet) {
  TorPortCounters& counters = ports_[ingress]->counters;
  ++counters.in_packets;
  counters.in_bytes += packet.wire_bytes;
  if ((packet.flags & packet_flag::bad_fcs) != 0) {
    drop(ingress, packet, DropReason::bad_fcs);
    return;
  }
  if (packet.source_mac.value != 0) {
    macs_.learn(packet.source_mac, static_cast<std::uint16_t>(ingress), events_.now());
  }
  if (packet.destination != no_endpoint) {
    const bool routed = packet.destination < routes_.size() && routes_[packet.destination].count != 0;
    const Group& group = routed ? routes_[packet.destination] : default_route_;
    if (group.count != 0) {
      enqueue(choose(group, packet), packet);
      return;
    }
  }
  const int port = packet.destination_mac.is_multicast() ? -1 : macs_.find(packet.destination_mac, events_.now());
  if (port < 0) {
    flood(ingress, packet);
  } else if (static_cast<unsigned>(port) == ingress) {
    drop(ingress, packet, DropReason::same_port);
  } else {
    enqueue(static_cast<unsigned>(port), packet);
  }
}

void TorSwitch::flood(unsigned ingress, const Packet& packet) {
  bool reached = false;
  for (unsigned i = 0; i < ports_.size(); ++i) {
    if (i != ingress && ports_[i]->out != nullptr) {
      pool_.add_reference(packet.content);
      enqueue(i, packet);
      reached = true;
    }
  }
  if (reached) {
    pool_.release(packet.content);
  } else {
    drop(ingress, packet, DropReason::no_port);
  }
}

void TorSwitch::enqueue(unsigned egress, const Packet& packet) {
  PortState& port = *ports_[egress];
  if (port.out == nullptr) {
    drop(egress, packet, DropReason::no_port);
    return;
  }
  drain(port);
  if (port.queued + packet.wire_bytes > settings_.port_limit_bytes) {
    drop(egress, packet, DropReason::port_limit);
    return;
  }
  if (shared_bytes_ + packet.wire_bytes > settings_.shared_buffer_bytes) {
    for (const auto& other : ports_) {  // what other ports have sent since their last packet came is still counted
      drain(*other);
    }
    if (shared_bytes_ + packet.wire_bytes > settings_.shared_buffer_bytes) {
      drop(egress, packet, DropReason::shared_buffer);
      return;
    }
  }
  Packet forwarded = packet;
  TorPortCounters& counters = port.counters;
  if (settings_.ecn.enabled && (packet.ecn == Ecn::ect0 || packet.ecn == Ecn::ect1) && mark(port.queued)) {
    forwarded.ecn = Ecn::ce;
    ++counters.marked;
  }
  const Picoseconds ready = events_.now() + settings_.latency;
  const Picoseconds free = port.out->free_at();
  if (free > ready) {
    counters.queueing += free - ready;
  }
  const Picoseconds departure = port.out->send_after(forwarded, settings_.latency);
  port.push({departure, packet.wire_bytes});
  port.queued += packet.wire_bytes;
  shared_bytes_ += packet.wire_bytes;
  ++counters.out_packets;
  counters.out_bytes += packet.wire_bytes;
  counters.peak_queue_bytes = std::max(counters.peak_queue_bytes, port.queued);
}

}  // namespace orrery::fabric
