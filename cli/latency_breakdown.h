// Where the time of one RDMA READ went, from the doorbell to its completion, read off the TLPs on the links.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/time.h"
#include "pcie/simulation.h"
#include "pcie/trace_format.h"

namespace orrery::cli {

// Directions of the link of one RNIC: from and to the device.
struct RnicLink {
  pcie::ComponentId up = 0;
  pcie::ComponentId down = 0;
};

struct LatencyStep {
  std::string what;
  Picoseconds time;
  bool wire = false;  // between the RNICs
  // PCIe: time on each link, and between one link and the next, in the order of first appearance. They sum up to the
  // step's time, but for what "in the RNIC" says.
  std::vector<std::pair<std::string, Picoseconds>> hops;
};

struct LatencyBreakdown {
  Picoseconds total;  // of all steps, which follow each other without a gap
  std::vector<LatencyStep> steps;
};

// Of the last READ with a whole trace in `records` (in order of transmission, both RNICs in it, timed mode):
// the requester's doorbell, WQE fetch, request on the wire, memory read at the responder, response on the wire, payload
// write, CQE. None if there is no such READ.
std::optional<LatencyBreakdown> read_breakdown(std::span<const pcie::TraceRecord> records, RnicLink requester,
                                               RnicLink responder, const pcie::ComponentNames& names);

// Keeps the last TLPs of a run while it lives; whoever observed before it hears of them as well. One thread.
class TlpKeeper final : public pcie::TlpObserver {
 public:
  // `simulation` outlives it.
  explicit TlpKeeper(pcie::Simulation& simulation);
  ~TlpKeeper();
  TlpKeeper(const TlpKeeper&) = delete;
  TlpKeeper& operator=(const TlpKeeper&) = delete;

  void on_link(pcie::ComponentId link_direction, const pcie::Tlp& tlp, Picoseconds start, Picoseconds end) override;
  // At most `most_records`, oldest first.
  [[nodiscard]] std::vector<pcie::TraceRecord> records() const;

  static constexpr std::size_t most_records = std::size_t{1} << 16;

 private:
  pcie::Simulation& simulation_;
  pcie::TlpObserver* next_;
  std::vector<pcie::TraceRecord> ring_;
  std::uint64_t count_ = 0;
};

}  // namespace orrery::cli
