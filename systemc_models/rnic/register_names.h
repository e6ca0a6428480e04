// Names of the management block's registers, for people and for descriptions of other register maps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace orrery::rnic {

// "ready", "dma_control.2" (that of channel 2), "sram.16" (its word 16): the offset in the register map; none: no such
// register, or no such number. The number of a register that there is once may be left out.
[[nodiscard]] std::optional<std::uint32_t> register_offset(std::string_view name);
// The other way; "0x1234" for an offset that has no name.
[[nodiscard]] std::string register_name(std::uint32_t offset);

}  // namespace orrery::rnic
