// A PCI Express switch: one upstream port, up to 32 downstream ports.
//
// Memory requests are routed by address, configuration requests and completions by ID, messages by their
// routing; what travels upstream is subject to the ACS controls of the downstream port it came in by
// (PCIe Base 6.3 §1.3.3, §6.12; acs.h). Every TLP takes the switch's latency from ingress to egress.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pcie/acs.h"
#include "pcie/range_map.h"
#include "pcie/simulation.h"
#include "pcie/tlp.h"

namespace orrery::pcie {

// Buses behind a port, both ends included (§7.5.1.3); secondary > subordinate: none.
struct BusRange {
  unsigned secondary = 1;
  unsigned subordinate = 0;
  [[nodiscard]] bool contains(Bdf id) const { return id.bus() >= secondary && id.bus() <= subordinate; }
};

struct SwitchSettings {
  unsigned downstream_ports = 3;
  Picoseconds latency = {105'000};
};

struct SwitchCounters {
  std::uint64_t upstream = 0;      // TLPs sent out of the upstream port
  std::uint64_t peer_to_peer = 0;  // TLPs from one downstream port to another, inside the switch
  std::uint64_t redirected = 0;    // requests and completions for a peer that ACS sent upstream instead
  std::uint64_t acs_violations = 0;
  std::uint64_t unsupported = 0;  // TLPs that nothing claims
};

class Switch {
 public:
  static constexpr unsigned upstream_port = 0;

  // Port 0 is the upstream port, 1 … downstream_ports the others.
  Switch(Simulation& simulation, const std::string& name, const SwitchSettings& settings);
  Switch(const Switch&) = delete;
  Switch& operator=(const Switch&) = delete;
  ~Switch();

  // Where TLPs enter by `port`; valid as long as the switch.
  [[nodiscard]] TlpSink& ingress(unsigned port);
  // Where TLPs leave by `port`.
  void connect(unsigned port, TlpSink& egress);

  // Set by the platform's firmware. The upstream port's range covers all buses of the switch.
  void set_bus_range(unsigned port, BusRange range);
  void set_acs(unsigned port, const AcsControl& control);
  // Bit p: requests from `port` to downstream port p are blocked when Egress Control is on.
  void set_egress_vector(unsigned port, std::uint64_t blocked);
  // Memory windows by downstream port. False if it overlaps a window that is there.
  bool add_window(unsigned port, std::uint64_t start, std::uint64_t size);
  void clear_windows();

  [[nodiscard]] const SwitchCounters& counters() const { return counters_; }
  [[nodiscard]] ComponentId id() const { return id_; }
  [[nodiscard]] unsigned downstream_ports() const { return settings_.downstream_ports; }
  // Requester and completer ID of the upstream port.
  [[nodiscard]] Bdf bdf() const { return bdf_; }
  void set_bdf(Bdf bdf) { bdf_ = bdf; }

 private:
  struct Port;
  Picoseconds receive(unsigned ingress, TlpPtr tlp, Picoseconds delay);
  Picoseconds route(unsigned ingress, TlpPtr tlp, Picoseconds delay) {
    return ingress == upstream_port ? downstream_travelling(std::move(tlp), delay)
                                    : upstream_travelling(ingress, std::move(tlp), delay);
  }
  Picoseconds split(unsigned ingress, const Tlp& burst, Picoseconds delay);
  Picoseconds upstream_travelling(unsigned ingress, TlpPtr tlp, Picoseconds delay);
  Picoseconds downstream_travelling(TlpPtr tlp, Picoseconds delay);
  Picoseconds forward(unsigned ingress, unsigned egress, TlpPtr tlp, Picoseconds delay);
  Picoseconds reject(unsigned ingress, TlpPtr tlp, Picoseconds delay, CompletionStatus status);
  // The downstream port whose buses hold `id`; 0 if none.
  [[nodiscard]] unsigned port_of(Bdf id) const;

  Simulation& simulation_;
  SwitchSettings settings_;
  ComponentId id_;
  Bdf bdf_;
  std::vector<std::unique_ptr<Port>> ports_;
  std::array<std::uint8_t, 256> port_of_bus_{};  // 0: not below this switch
  RangeMap<unsigned> windows_;
  SwitchCounters counters_;
};

}  // namespace orrery::pcie
