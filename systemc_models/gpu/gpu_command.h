// What a GPU command means and whether it may run.
#pragma once

#include <cstdint>

#include "systemc_models/gpu/gpu_registers.h"

namespace orrery::models {

// Why a command was refused or failed; code 0 (ORRERY_GPU_ERROR_NONE): it wasn't.
struct GpuError {
  std::uint32_t code = ORRERY_GPU_ERROR_NONE;
  std::uint64_t address = 0;
  std::uint32_t completion = 0;  // completion status of a failed DMA
};

constexpr bool source_on_bus(const orrery_gpu_command& c) {
  return (c.flags & ORRERY_GPU_FLAG_SOURCE_BUS) != 0;
}
constexpr bool destination_on_bus(const orrery_gpu_command& c) {
  return (c.flags & ORRERY_GPU_FLAG_DESTINATION_BUS) != 0;
}
constexpr bool is_reduce(const orrery_gpu_command& c) {
  return c.opcode == ORRERY_GPU_OP_REDUCE_F32_SUM || c.opcode == ORRERY_GPU_OP_REDUCE_BF16_SUM;
}
// Copies, fills and reduces: commands with a length.
constexpr bool moves_data(const orrery_gpu_command& c) {
  return c.opcode == ORRERY_GPU_OP_COPY || c.opcode == ORRERY_GPU_OP_FILL || is_reduce(c);
}

// Checks everything that can be known before execution, as gpu_registers.h lays down. A command that passes
// touches only [operand, operand + length) of memory of `memory_size` bytes, or of the bus without wrapping.
[[nodiscard]] GpuError check_command(const orrery_gpu_command& command, std::uint64_t memory_size);

}  // namespace orrery::models
