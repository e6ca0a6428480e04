// The network of one server: a top-of-rack switch, and a link from every RNIC to it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/event_queue.h"
#include "fabric/link.h"
#include "fabric/packet_pool.h"
#include "fabric/tor_switch.h"

namespace orrery::models {

class ServerFabric {
 public:
  // `events` outlives it. `ports`: most RNICs that will be plugged in.
  ServerFabric(EventQueue& events, unsigned ports, std::uint64_t seed);

  // The RNIC's end of a new link; lives as long as the fabric.
  [[nodiscard]] fabric::Port& plug_in(std::uint64_t bits_per_second);
  [[nodiscard]] fabric::PacketPool& packets() { return packets_; }
  [[nodiscard]] const fabric::TorSwitch& tor() const { return tor_; }
  [[nodiscard]] const std::vector<std::unique_ptr<fabric::Link>>& links() const { return links_; }

 private:
  EventQueue& events_;
  std::uint64_t seed_;
  fabric::PacketPool packets_;
  fabric::TorSwitch tor_;
  std::vector<std::unique_ptr<fabric::Link>> links_;
};

}  // namespace orrery::models
