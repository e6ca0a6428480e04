// What the device says it can do. Freestanding.
#pragma once

#include "firmware/firmware.h"

namespace orrery::firmware {

enum class CapabilityType : std::uint32_t { general = 0, ethernet = 1, odp = 2, atomic = 3, roce = 4, flow_table = 7 };

// Current capabilities as after a reset: the greatest that can be had.
void reset_capabilities(const Firmware& firmware, Function& function);

Result query_hca_cap(Firmware& firmware, Function& function);
Result set_hca_cap(Firmware& firmware, Function& function);

}  // namespace orrery::firmware
