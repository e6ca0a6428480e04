// The firmware's only way to the hardware: 32-bit accesses to the register map (interface/registers.h).
//
// A target defines the two functions: `native` calls the management block's model, `riscv64` accesses memory.
// Freestanding.
#pragma once

#include <cstdint>

namespace orrery::firmware {

// What a target needs to find its registers; the firmware passes it on and never looks inside.
struct Hal {
  void* target = nullptr;
};

// Offsets are those of registers.h, multiples of 4.
std::uint32_t read32(const Hal& hal, std::uint32_t offset);
void write32(const Hal& hal, std::uint32_t offset, std::uint32_t value);

}  // namespace orrery::firmware
