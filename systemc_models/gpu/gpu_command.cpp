#include "systemc_models/gpu/gpu_command.h"

#include "common/address.h"

namespace orrery::models {
namespace {

struct Operand {
  std::uint64_t address;
  bool on_bus;
};

bool fits(const Operand& operand, std::uint64_t length, std::uint64_t memory_size) {
  if (operand.on_bus) {
    return range_is_valid(operand.address, length);
  }
  return operand.address <= memory_size && length <= memory_size - operand.address;
}

// Both ranges have passed fits(), so neither sum wraps beyond 2^64 - 1 when taken inclusively.
bool overlap(const Operand& a, const Operand& b, std::uint64_t length) {
  return a.on_bus == b.on_bus && a.address <= b.address + (length - 1) && b.address <= a.address + (length - 1);
}

// Flags that an opcode may carry.
std::uint8_t allowed_flags(std::uint8_t opcode) {
  constexpr std::uint8_t any = ORRERY_GPU_FLAG_INTERRUPT | ORRERY_GPU_FLAG_PROFILE;
  switch (opcode) {
    case ORRERY_GPU_OP_COPY:
    case ORRERY_GPU_OP_REDUCE_F32_SUM:
    case ORRERY_GPU_OP_REDUCE_BF16_SUM:
      return any | ORRERY_GPU_FLAG_SOURCE_BUS | ORRERY_GPU_FLAG_DESTINATION_BUS;
    case ORRERY_GPU_OP_FILL:
    case ORRERY_GPU_OP_FENCE:
      return any | ORRERY_GPU_FLAG_DESTINATION_BUS;
    default:
      return any;
  }
}

// Fields that an opcode does not use must be 0, so that they can get a meaning later.
bool unused_fields_are_zero(const orrery_gpu_command& c) {
  if (c.reserved0 != 0 || c.reserved1[0] != 0 || c.reserved1[1] != 0 || c.reserved1[2] != 0) {
    return false;
  }
  switch (c.opcode) {
    case ORRERY_GPU_OP_FILL:
      return c.source == 0 && (c.value >> 32) == 0;
    case ORRERY_GPU_OP_FENCE:
      return c.source == 0;
    case ORRERY_GPU_OP_NOP:
      return c.source == 0 && c.destination == 0 && c.value == 0;
    default:
      return c.value == 0;
  }
}

std::uint64_t element_bytes(std::uint8_t opcode) {
  switch (opcode) {
    case ORRERY_GPU_OP_REDUCE_F32_SUM:
      return 4;
    case ORRERY_GPU_OP_REDUCE_BF16_SUM:
      return 2;
    case ORRERY_GPU_OP_FENCE:
      return 8;
    default:
      return 1;
  }
}

}  // namespace

GpuError check_command(const orrery_gpu_command& c, std::uint64_t memory_size) {
  if (c.opcode > ORRERY_GPU_OP_FENCE) {
    return {ORRERY_GPU_ERROR_OPCODE, c.opcode, 0};
  }
  const bool interrupts = (c.flags & ORRERY_GPU_FLAG_INTERRUPT) != 0;
  if ((c.flags & ~allowed_flags(c.opcode)) != 0 || !unused_fields_are_zero(c) ||
      (interrupts ? c.vector >= ORRERY_GPU_VECTOR_COUNT : c.vector != 0)) {
    return {ORRERY_GPU_ERROR_FIELD, 0, 0};
  }

  const std::uint64_t element = element_bytes(c.opcode);
  if (moves_data(c) ? (c.length == 0 || c.length % element != 0) : c.length != 0) {
    return {ORRERY_GPU_ERROR_LENGTH, c.length, 0};
  }
  if (c.opcode == ORRERY_GPU_OP_NOP) {
    return {};
  }

  const Operand source{c.source, source_on_bus(c)};
  const Operand destination{c.destination, destination_on_bus(c)};
  const std::uint64_t length = c.opcode == ORRERY_GPU_OP_FENCE ? 8 : c.length;
  const bool has_source = c.opcode == ORRERY_GPU_OP_COPY || is_reduce(c);
  if (has_source && c.source % element != 0) {
    return {ORRERY_GPU_ERROR_ALIGNMENT, c.source, 0};
  }
  if (c.destination % element != 0) {
    return {ORRERY_GPU_ERROR_ALIGNMENT, c.destination, 0};
  }
  if (has_source && !fits(source, length, memory_size)) {
    return {ORRERY_GPU_ERROR_ADDRESS_RANGE, c.source, 0};
  }
  if (!fits(destination, length, memory_size)) {
    return {ORRERY_GPU_ERROR_ADDRESS_RANGE, c.destination, 0};
  }
  if (has_source && overlap(source, destination, length)) {
    const bool refused = is_reduce(c) ? c.source != c.destination : source.on_bus;
    if (refused) {
      return {ORRERY_GPU_ERROR_OVERLAP, c.destination, 0};
    }
  }
  return {};
}

}  // namespace orrery::models
