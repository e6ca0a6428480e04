// What an acknowledge tells the sender: the transport's half of AETH and AckExtension (roce_headers.h).
#pragma once

#include <cstdint>

#include "common/time.h"
#include "fabric/transport/psn.h"

namespace orrery::fabric {

struct AckInfo {
  Psn cumulative;                 // this PSN and all before it have arrived
  Psn trigger;                    // the packet that made the receiver send this
  Psn sack_base;                  // bit i of the bitmap stands for sack_base + i
  std::uint64_t sack_bitmap = 0;  // 1: has arrived
  bool has_trigger = true;        // false (plain IBTA acknowledge): trigger, entropy, ECN and SACK say nothing
  std::uint16_t entropy = 0;      // UDP source port that the trigger came with
  bool ecn_echo = false;          // the trigger came marked CE
  std::uint8_t ce_count = 0;      // packets marked CE since the last acknowledge, saturating
  Picoseconds delay;              // from the trigger's arrival to the sending of this
};

struct AckExtension;
// The wire's form and back; `cumulative` is BTH.PSN. The delay loses what its 16-ns unit can't say.
AckExtension to_wire(const AckInfo& info);
AckInfo from_wire(Psn cumulative, const AckExtension& extension);

}  // namespace orrery::fabric
