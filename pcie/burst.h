// Taking bursts apart (tlp.h: a burst is one object for `count` TLPs of one transfer).
#pragma once

#include <cstdint>

#include "pcie/simulation.h"
#include "pcie/tlp.h"

namespace orrery::pcie {

// The `index`-th single TLP of a burst: its address, tag, length and, for completions, remaining byte count.
// `out` must be fresh; its payload is copied.
void split_burst(const Tlp& burst, std::uint32_t index, Tlp& out);

// The part [offset, offset + length) of a memory request, for a router whose answer differs within it. Cut at
// multiples of the burst's unit it is the very single TLPs of that range. Payload is borrowed from `request`.
// A read's part keeps the tag: it knows by Tlp::byte_count how much of the request follows it, so that the
// requester can place its completions.
TlpPtr request_part(Simulation& simulation, const Tlp& request, std::uint32_t offset, std::uint32_t length);

}  // namespace orrery::pcie
