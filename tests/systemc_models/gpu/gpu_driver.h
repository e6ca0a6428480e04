// Drives a GpuCore on a FakeBus the way a guest's driver does.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "systemc_models/gpu/gpu_core.h"
#include "tests/systemc_models/fake_bus.h"

namespace orrery::test {

constexpr std::uint64_t mib = 1U << 20;

inline models::GpuConfig small_gpu(unsigned index = 0) {
  models::GpuConfig config;
  config.name = "gpu" + std::to_string(index);
  config.index = index;
  config.memory_size = 64 * mib;
  config.bar2_size = 16 * mib;
  return config;
}

class GpuDriver {
 public:
  explicit GpuDriver(FakeBus& bus, const models::GpuConfig& config = small_gpu())
      : bus_(bus), gpu(config), port(bus, gpu), ring_base_(ring_of(config.index)) {}

 private:
  FakeBus& bus_;

 public:
  models::GpuCore gpu;
  FakePort port;

  static std::uint64_t ring_of(unsigned index) { return 0x1'0000'0000 + index * 0x100'0000ULL; }
  [[nodiscard]] std::uint64_t ring_base() const { return ring_base_; }

  void enable(std::uint32_t log2 = 6) {
    log2_ = log2;
    tail_ = 0;
    port.write64(ORRERY_GPU_RING_BASE, ring_base_);
    port.write32(ORRERY_GPU_RING_LOG2, log2);
    port.write32(ORRERY_GPU_INTERRUPT_ENABLE, ~0U);
    port.write32(ORRERY_GPU_ENGINE_CONTROL, ORRERY_GPU_CONTROL_ENABLE);
    ASSERT_EQ(status(), ORRERY_GPU_STATUS_IDLE);
  }
  void reset_engine() { port.write32(ORRERY_GPU_ENGINE_CONTROL, ORRERY_GPU_CONTROL_RESET); }
  // Puts a command into the ring; the caller leaves room.
  void push(const orrery_gpu_command& command) {
    const std::uint64_t slot = tail_++ & ((1U << log2_) - 1);
    bus_.write(ring_base_ + slot * sizeof(command), &command, sizeof(command));
  }
  void ring() { port.write32(ORRERY_GPU_DOORBELL, tail_); }
  void submit(const orrery_gpu_command& command) {
    push(command);
    ring();
  }
  // Submits and runs to the end; true if the command completed.
  bool execute(const orrery_gpu_command& command) {
    submit(command);
    bus_.run();
    return status() == ORRERY_GPU_STATUS_IDLE && head() == tail_;
  }
  [[nodiscard]] std::uint32_t status() { return port.read32(ORRERY_GPU_ENGINE_STATUS); }
  [[nodiscard]] std::uint32_t head() { return port.read32(ORRERY_GPU_RING_HEAD); }
  [[nodiscard]] std::uint32_t tail() const { return tail_; }
  [[nodiscard]] std::uint32_t error() { return port.read32(ORRERY_GPU_ERROR_CODE); }
  [[nodiscard]] std::uint64_t error_address() { return port.read64(ORRERY_GPU_ERROR_ADDRESS); }

  void write_memory(std::uint64_t offset, const std::vector<std::byte>& bytes) {
    const auto memory = gpu.memory().bytes(offset, bytes.size());
    ASSERT_EQ(memory.size(), bytes.size());
    std::memcpy(memory.data(), bytes.data(), bytes.size());
  }
  [[nodiscard]] std::vector<std::byte> memory(std::uint64_t offset, std::uint64_t size) {
    const auto bytes = gpu.memory().bytes(offset, size);
    EXPECT_EQ(bytes.size(), size);
    return {bytes.begin(), bytes.end()};
  }

 private:
  std::uint64_t ring_base_;
  std::uint32_t log2_ = 0;
  std::uint32_t tail_ = 0;
};

// One operand: in own memory, or on the bus.
struct Place {
  std::uint64_t address;
  bool on_bus;
};

inline orrery_gpu_command command(std::uint8_t opcode, Place source, Place destination, std::uint64_t length,
                                  std::uint8_t flags = 0) {
  orrery_gpu_command c{};
  c.opcode = opcode;
  c.flags = static_cast<std::uint8_t>(flags | (source.on_bus ? ORRERY_GPU_FLAG_SOURCE_BUS : 0U) |
                                      (destination.on_bus ? ORRERY_GPU_FLAG_DESTINATION_BUS : 0U));
  c.length = length;
  c.source = source.address;
  c.destination = destination.address;
  c.tag = 0x1234'0000U + opcode;
  return c;
}
inline orrery_gpu_command copy(Place source, Place destination, std::uint64_t length) {
  return command(ORRERY_GPU_OP_COPY, source, destination, length);
}
inline orrery_gpu_command fill(Place destination, std::uint64_t length, std::uint32_t pattern) {
  orrery_gpu_command c = command(ORRERY_GPU_OP_FILL, {0, false}, destination, length);
  c.value = pattern;
  return c;
}
inline orrery_gpu_command fence(Place destination, std::uint64_t value) {
  orrery_gpu_command c = command(ORRERY_GPU_OP_FENCE, {0, false}, destination, 0);
  c.value = value;
  return c;
}
inline orrery_gpu_command with_interrupt(orrery_gpu_command c, std::uint8_t vector) {
  c.flags |= ORRERY_GPU_FLAG_INTERRUPT;
  c.vector = vector;
  return c;
}

}  // namespace orrery::test
