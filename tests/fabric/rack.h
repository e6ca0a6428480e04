// A switch with a host at each port, for the switch's tests.
#pragma once

#include <memory>
#include <vector>

#include "fabric/link.h"
#include "fabric/tor_switch.h"
#include "tests/fabric/support.h"

namespace orrery::fabric::testing {

inline constexpr std::uint64_t host_mac = 0x0200'0000'0000;

// A switch with a host at each port, all links alike.
struct Rack {
  explicit Rack(const TorSettings& settings, const LinkSettings& link_settings = {}) : tor(events, pool, settings) {
    for (unsigned i = 0; i < settings.ports; ++i) {
      links.push_back(std::make_unique<Link>(events, pool, link_settings));
      hosts.push_back(std::make_unique<Collector>(events, pool));
      links[i]->end(0).attach(*hosts[i]);
      tor.attach(i, links[i]->end(1));
    }
  }
  // From host to host by MAC address.
  Packet frame(unsigned from, unsigned to, std::uint32_t wire_bytes = 1000) {
    Packet p;
    p.source_mac = {host_mac + from};
    p.destination_mac = {host_mac + to};
    p.wire_bytes = wire_bytes;
    p.content = pool.make();
    return p;
  }
  void send(unsigned host, const Packet& packet) { links[host]->end(0).send(packet); }
  // Lets the switch learn where every host is.
  void teach() {
    for (unsigned i = 0; i < hosts.size(); ++i) {
      send(i, frame(i, i == 0 ? 1 : 0));
      run_all(events);
    }
    for (auto& host : hosts) {
      host->packets.clear();
      host->times.clear();
    }
  }
  EventQueue events;
  PacketPool pool;
  TorSwitch tor;
  std::vector<std::unique_ptr<Link>> links;
  std::vector<std::unique_ptr<Collector>> hosts;
};

}  // namespace orrery::fabric::testing
