// A PCI Express link: two directions, each an occupied resource.
//
// Rates and framing follow PCIe Base 6.3 §4.2 (encoding) and chapter 2 (headers); see docs/architecture.md
// for what is charged. Flow-control credits, DLLPs, SKP and replay are not modelled here yet: a direction
// is busy for exactly the bytes of the TLPs that it carries.
#pragma once

#include <cstdint>
#include <string>

#include "pcie/simulation.h"
#include "pcie/tlp.h"

namespace orrery::pcie {

struct LinkSettings {
  unsigned generation = 4;          // 1 … 5
  unsigned width = 16;              // lanes: 1, 2, 4, 8, 12, 16 or 32
  Picoseconds propagation = {500};  // time of flight, one way
};

// Time per byte as the exact, reduced ratio numerator / denominator in picoseconds: 8b/10b encoding for Gen1-2,
// 128b/130b for Gen3-5 (§4.2.2). Throws Error for a generation or width that does not exist.
struct ByteTime {
  std::uint64_t numerator;
  std::uint64_t denominator;
};
ByteTime byte_time(unsigned generation, unsigned width);

// Raw rate of one direction after encoding, in bytes per second.
double raw_bytes_per_second(unsigned generation, unsigned width);

struct LinkCounters {
  std::uint64_t tlps = 0;
  std::uint64_t wire_bytes = 0;  // headers, framing and payload
  std::uint64_t payload_bytes = 0;
  Picoseconds busy;  // sum of serialisation times (timed mode)
};

// One direction. In timed mode a TLP starts when it is ready and the direction is free (first come, first
// served), occupies it for its bytes on the wire, and reaches the far end after the last bit's flight.
// Picoseconds are exact: a busy period that carried B bytes lasts ceil(B * byte time).
class LinkDirection final : public TlpSink, private EventHandler {
 public:
  LinkDirection(Simulation& simulation, const std::string& name, const LinkSettings& settings);

  // Where TLPs come out; must be set before the first one goes in.
  void connect(TlpSink& far_end) { far_end_ = &far_end; }
  // A burst in timed mode is carried as its single TLPs.
  Picoseconds receive(TlpPtr tlp, Picoseconds delay) override;

  [[nodiscard]] const LinkCounters& counters() const { return counters_; }
  [[nodiscard]] ComponentId id() const { return id_; }
  [[nodiscard]] const LinkSettings& settings() const { return settings_; }

 private:
  void on_event(std::uint64_t argument) override;
  Picoseconds transmit(TlpPtr tlp, Picoseconds ready);
  Picoseconds transmit_burst(const Tlp& burst, Picoseconds ready);
  void count(const Tlp& tlp, std::uint64_t wire_bytes) {
    counters_.tlps += tlp.count;
    counters_.wire_bytes += wire_bytes;
    counters_.payload_bytes += tlp.has_payload() ? tlp.length : 0;
  }
  // How long `bytes` take, rounded up to the next picosecond.
  [[nodiscard]] Picoseconds duration(std::uint64_t bytes) const;

  Simulation& simulation_;
  LinkSettings settings_;
  ByteTime byte_time_;
  unsigned shift_ = 0;  // log2 of its denominator, if that is a power of two above 1; else 0
  ComponentId id_;
  TlpSink* far_end_ = nullptr;
  // The current busy period: it began at busy_start_ and has been given busy_bytes_; it ends at busy_end_.
  Picoseconds busy_start_;
  std::uint64_t busy_bytes_ = 0;
  Picoseconds busy_end_;
  LinkCounters counters_;
};

// Both directions between an upper component (root port, switch downstream port) and a lower one.
class Link {
 public:
  Link(Simulation& simulation, const std::string& name, const LinkSettings& settings)
      : down(simulation, name + ".down", settings), up(simulation, name + ".up", settings) {}
  LinkDirection down;  // away from the root complex
  LinkDirection up;    // towards the root complex
};

}  // namespace orrery::pcie
