// Making completions for requests (PCIe Base 6.3 §2.2.9, §2.3.1).
#pragma once

#include "pcie/simulation.h"
#include "pcie/tlp.h"

namespace orrery::pcie {

// A completion for `request` without data. status success is for CfgWr; for a read it means an error.
// It answers the whole of the request and continues the request's latency; for a burst of reads it is a burst of
// as many completions.
TlpPtr make_completion(Simulation& simulation, const Tlp& request, Bdf completer, CompletionStatus status);

// A completion with `length` bytes of data (to be stored or borrowed by the caller), the part of a memory
// read at request address + offset. In functional mode a burst of TLPs of at most `unit` bytes (MPS or
// RCB; those of one burst of reads never hold bytes of two of its reads); in timed mode the caller makes each TLP no
// longer than completion_chunk() says.
TlpPtr make_data_completion(Simulation& simulation, const Tlp& request, Bdf completer, std::uint32_t offset,
                            std::uint32_t length, std::uint32_t unit);

// Bytes of the next completion TLP for what begins at `address` with `remaining` bytes to go: it ends at
// a multiple of `unit`, or at the end of the request (§2.3.1.1).
constexpr std::uint32_t completion_chunk(std::uint64_t address, std::uint32_t remaining, std::uint32_t unit) {
  const std::uint32_t room = unit - static_cast<std::uint32_t>(address & (unit - 1));
  return remaining < room ? remaining : room;
}

// A zero-length read (§2.2.5): one DW with no byte enabled, the flush of earlier posted writes.
inline bool is_zero_length_read(const Tlp& tlp) {
  return tlp.type == TlpType::MRd && tlp.first_be == 0;
}

}  // namespace orrery::pcie
