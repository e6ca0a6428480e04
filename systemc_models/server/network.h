// The Ethernet of a server: each RNIC has one or two ports, and the ports of one plane meet at a ToR.
//
// Both ports of an RNIC are one interface to it (they share MAC and IP; HPN 7.0, SIGCOMM 2024, §4): a packet takes the
// plane that its entropy value names, so that one connection's packets spread over both and a flow of ordinary
// Ethernet frames stays in order on one. A port that is down is not taken while the other is up.
// A capture records what each port sends and hears.
// With links to other servers each ToR has an uplink, its last port.
// In functional mode nothing is charged: links are as fast as they can be configured, and have no length.
// Simulation thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/event_queue.h"
#include "fabric/instance_link/uplinks.h"
#include "fabric/link.h"
#include "fabric/packet_pool.h"
#include "fabric/port.h"
#include "fabric/tor_switch.h"
#include "systemc_models/server/capture_file.h"
#include "systemc_models/server/network_config.h"

namespace orrery::models {

class Network final : private instance_link::LocalAddresses {
 public:
  // `interfaces`: RNICs. `seed`: of everything random. Throws Error for a setting out of range, or a capture file
  // that can't be written. `events` outlives it.
  // `addresses`: of the RNICs, for the uplinks of server `name`.
  Network(EventQueue& events, const NetworkConfig& config, unsigned interfaces, std::uint64_t seed, bool timed,
          const std::string& name = {}, const std::vector<instance_link::AddressRange>& addresses = {});
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  [[nodiscard]] fabric::PacketPool& pool() { return pool_; }
  [[nodiscard]] unsigned interfaces() const;
  [[nodiscard]] unsigned planes() const { return static_cast<unsigned>(planes_.size()); }
  // What RNIC `interface` sends to and hears from.
  [[nodiscard]] fabric::Port& port(unsigned interface);
  [[nodiscard]] fabric::Link& link(unsigned interface, unsigned plane);
  [[nodiscard]] fabric::TorSwitch& tor(unsigned plane) { return *planes_.at(plane).tor; }
  // Null without links.
  [[nodiscard]] instance_link::Uplinks* uplinks() { return uplinks_.get(); }

 private:
  class BondedPort;
  struct Plane {
    std::unique_ptr<fabric::TorSwitch> tor;
    std::vector<std::unique_ptr<fabric::Link>> links;  // by interface
  };

  [[nodiscard]] bool is_local(unsigned plane, fabric::MacAddress address) const override;

  fabric::PacketPool pool_;
  std::unique_ptr<CaptureFile> capture_;                   // null: none
  std::vector<std::unique_ptr<fabric::CaptureTap>> taps_;  // none, or one for each link
  std::unique_ptr<instance_link::Uplinks> uplinks_;        // null: none
  std::vector<Plane> planes_;
  std::vector<std::unique_ptr<BondedPort>> ports_;
};

}  // namespace orrery::models
