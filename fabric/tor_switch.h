// An output-queued, store-and-forward Ethernet switch: a top-of-rack switch of hosts and uplinks.
//
// Each egress port is a FIFO. Its length is known from when its link will be free, so a packet costs one event a hop
// (the link's). Forwarding is by destination endpoint where a route says so, otherwise by MAC address with learning
// (IEEE 802.1Q-2018 §8.7 to 8.8). ECN marking is RFC 3168's, on enqueue, by a threshold or RED-like.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/event_queue.h"
#include "common/rng.h"
#include "common/time.h"
#include "fabric/mac_table.h"
#include "fabric/packet_pool.h"
#include "fabric/port.h"

namespace orrery::fabric {

// Marks ECN-capable packets by the bytes queued before them: none below kmin, with a probability that rises linearly
// to pmax at kmax, all above. kmin = kmax is a threshold. pmax in [0, 1]; kmin <= kmax.
struct EcnMarking {
  bool enabled = false;
  std::uint64_t kmin_bytes = 100'000;
  std::uint64_t kmax_bytes = 400'000;
  double pmax = 0.2;
};

// How a route with several ports picks one (facts: a model choice, so both). hash: of source and destination
// endpoint, MAC addresses, entropy and the switch's seed, as of the 5-tuple. direct: (entropy - 0xc000) mod ports.
// least_loaded: the port that is free first, lowest number on a tie (adaptive routing).
enum class EcmpMode : std::uint8_t { hash, direct, least_loaded };

struct TorSettings {
  unsigned ports = 32;                             // 1 … 1024
  Picoseconds latency = {300'000};                 // from a frame's last bit in to its readiness for the egress queue
  std::uint64_t port_limit_bytes = 2'000'000;      // queued at one egress, the frame in transmission included
  std::uint64_t shared_buffer_bytes = 64'000'000;  // queued at all
  EcnMarking ecn = {};
  EcmpMode ecmp = EcmpMode::hash;
  std::uint64_t seed = 0;                          // of the ECMP hash and, with `stream`, of marking
  std::uint64_t stream = 0;                        // a number of its own for each switch of a run
  std::size_t mac_entries = 4096;                  // learned addresses; more are not learned, their frames are flooded
  Picoseconds mac_ageing = {300'000'000'000'000};  // 300 s (802.1Q table 8-6)
};

enum class DropReason : std::uint8_t {
  port_limit,
  shared_buffer,
  bad_fcs,
  no_port,    // nobody attached at the egress, or a flood that reaches nobody
  same_port,  // the destination is where the frame came from
};
inline constexpr unsigned drop_reasons = 5;
const char* name(DropReason reason);

// Of one port; "in" is what arrived by it, "out" what was queued for it.
struct TorPortCounters {
  std::uint64_t in_packets = 0;
  std::uint64_t in_bytes = 0;
  std::uint64_t out_packets = 0;
  std::uint64_t out_bytes = 0;
  std::uint64_t marked = 0;                // CE set here
  std::uint64_t peak_queue_bytes = 0;      // after an enqueue
  Picoseconds queueing;                    // sum over packets out: from readiness to start of transmission
  std::uint64_t drops[drop_reasons] = {};  // see DropReason; the limits count at the egress, the others at the ingress
};

class TorSwitch {
 public:
  // Error if a setting is outside its range.
  TorSwitch(EventQueue& events, PacketPool& pool, const TorSettings& settings);
  TorSwitch(const TorSwitch&) = delete;
  TorSwitch& operator=(const TorSwitch&) = delete;
  ~TorSwitch();

  // Plugs port `index` into one end of a link, and becomes its listener. Error if there is no such port or it is taken.
  void attach(unsigned index, Port& port);
  // Packets to `endpoint` leave by one of `ports`, in ECMP's choice. Replaces an earlier route; empty: by MAC address.
  void set_route(EndpointId endpoint, std::span<const unsigned> ports);
  // For endpoints without a route of their own, e.g. the uplinks. Empty: by MAC address.
  void set_default_route(std::span<const unsigned> ports);

  [[nodiscard]] const TorPortCounters& counters(unsigned port) const;
  // Bytes queued for `port` now, the frame in transmission included in full until it has left.
  [[nodiscard]] std::uint64_t queued_bytes(unsigned port);
  [[nodiscard]] std::uint64_t drops() const;  // all ports, all reasons
  // The port that a MAC address was learned at; -1 if none.
  [[nodiscard]] int port_of(MacAddress address) const;
  [[nodiscard]] const TorSettings& settings() const { return settings_; }

 private:
  struct PortState;
  struct Group {
    std::uint32_t first = 0;  // into group_ports_
    std::uint32_t count = 0;
  };
  void receive(unsigned ingress, const Packet& packet);
  void enqueue(unsigned egress, const Packet& packet);
  void flood(unsigned ingress, const Packet& packet);
  void drop(unsigned port, const Packet& packet, DropReason reason);
  void drain(PortState& port);
  [[nodiscard]] bool mark(std::uint64_t queued);
  [[nodiscard]] unsigned choose(const Group& group, const Packet& packet) const;
  Group make_group(std::span<const unsigned> ports);

  EventQueue& events_;
  PacketPool& pool_;
  TorSettings settings_;
  Rng random_;
  std::vector<std::unique_ptr<PortState>> ports_;
  std::vector<Group> routes_;  // by endpoint; count 0: none
  Group default_route_;
  std::vector<std::uint16_t> group_ports_;
  MacTable macs_;
  std::uint64_t shared_bytes_ = 0;  // of all ports, as of their last drain: never too small
};

}  // namespace orrery::fabric
