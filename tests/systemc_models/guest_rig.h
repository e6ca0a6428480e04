// A guest without a VMM: what a VMM does to a platform through FunctionAccess, on a memfd as guest RAM.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "systemc_models/gpu/gpu_registers.h"
#include "systemc_models/server/platform.h"
#include "systemc_models/server/platform_function.h"
#include "tests/noise.h"

namespace orrery::models::testing {

inline ServerConfig small_server(TimeMode mode = TimeMode::functional) {
  ServerConfig config;
  config.time_mode = mode;
  config.gpu.memory_mib = 16;
  config.rnic.personality = RnicPersonality::self_test;  // which has no driver but the tests
  config.gpu.bar_mib = 8;
  config.memory.size_gib = 1;
  return config;
}

using test::noise;

// Guest RAM: a memfd that is mapped here as a VMM maps it.
class Ram {
 public:
  explicit Ram(std::uint64_t size) : size_(size), fd_(memfd_create("ram", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(size)), 0);
    bytes_ = static_cast<std::byte*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0));
    EXPECT_NE(bytes_, MAP_FAILED);
  }
  Ram(const Ram&) = delete;
  Ram& operator=(const Ram&) = delete;
  ~Ram() {
    munmap(bytes_, size_);
    close(fd_);
  }
  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] std::uint64_t size() const { return size_; }
  [[nodiscard]] std::span<std::byte> at(std::uint64_t offset, std::uint64_t size) const {
    return {bytes_ + offset, size};
  }
  void put(std::uint64_t offset, std::span<const std::byte> from) const {
    std::copy(from.begin(), from.end(), bytes_ + offset);
  }

 private:
  std::uint64_t size_;
  int fd_;
  std::byte* bytes_ = nullptr;
};

struct Sink final : pcie::InterruptSink {
  void msix(unsigned vector) override { vectors.push_back(vector); }
  std::vector<unsigned> vectors;
};

inline std::size_t endpoint_of(const Platform& platform, std::string_view name) {
  return static_cast<std::size_t>(platform.topology().find(name) - platform.topology().endpoints.data());
}

// Runs until nothing happens by itself any more.
inline void run(Platform& platform) {
  for (int i = 0; i < 1'000'000; ++i) {
    platform.settle();
    const Picoseconds next = platform.next_activity();
    if (next == Picoseconds::max()) {
      EXPECT_TRUE(platform.at_rest());
      return;
    }
    platform.advance(next, 0);
  }
  ADD_FAILURE() << "the platform never comes to rest";
}

// One function as its driver uses it.
struct Function {
  Function(Platform& p, std::string_view name) : platform(p), index(endpoint_of(p, name)), access(p.function(index)) {}
  std::uint32_t config(std::uint32_t offset, std::size_t size = 4) {
    std::uint32_t value = 0;
    access.config_read(offset, std::as_writable_bytes(std::span(&value, 1)).first(size));
    return value;
  }
  void set_config(std::uint32_t offset, std::uint32_t value, std::size_t size = 4) {
    access.config_write(offset, std::as_bytes(std::span(&value, 1)).first(size));
  }
  // Writes the base address registers and turns decode and bus mastering on.
  void place(std::uint64_t registers, std::uint64_t memory = 0) {
    set_config(0x10, static_cast<std::uint32_t>(registers));
    if (memory != 0) {
      set_config(0x18, static_cast<std::uint32_t>(memory));
      set_config(0x1c, static_cast<std::uint32_t>(memory >> 32));
    }
    set_config(0x20, static_cast<std::uint32_t>(registers + 0x1'0000));
    set_config(0x4, 6, 2);
  }
  template <class T = std::uint32_t>
  T read(std::uint64_t offset, unsigned bar = 0) {
    T value{};
    access.bar_read(bar, offset, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  template <class T = std::uint32_t>
  void write(std::uint64_t offset, T value, unsigned bar = 0) {
    access.bar_write(bar, offset, std::as_bytes(std::span(&value, 1)));
  }
  [[nodiscard]] const PlatformFunction::Placement& placement(unsigned bar) const {
    return static_cast<PlatformFunction&>(platform.function(index)).placement(bar);
  }
  pcie::MapResult map(const Ram& ram, std::uint64_t iova, std::uint64_t offset, std::uint64_t size,
                      pcie::DmaAccess rights = {true, true}) {
    return access.dma_map(Iova{iova}, size, rights, pcie::FileWindow{ram.fd(), offset}, nullptr);
  }
  Platform& platform;
  std::size_t index;
  pcie::FunctionAccess& access;
};

// A GPU with a command ring in guest RAM.
struct Gpu : Function {
  Gpu(Platform& p, std::string_view name) : Function(p, name) {}
  void start_ring(const Ram& guest_ram, std::uint64_t ring_at, std::uint32_t log2 = 6) {
    ram = &guest_ram;
    ring = ring_at;
    ring_log2 = log2;
    tail = 0;
    write<std::uint64_t>(ORRERY_GPU_RING_BASE, ring);
    write(ORRERY_GPU_RING_LOG2, log2);
    write(ORRERY_GPU_INTERRUPT_ENABLE, 0xffff'ffffU);
    write(ORRERY_GPU_ENGINE_CONTROL, ORRERY_GPU_CONTROL_ENABLE);
    EXPECT_EQ(read(ORRERY_GPU_ENGINE_STATUS), ORRERY_GPU_STATUS_IDLE);
  }
  void submit(const orrery_gpu_command& command) {
    std::memcpy(ram->at(ring + (tail % (1U << ring_log2)) * sizeof(command), sizeof(command)).data(), &command,
                sizeof(command));
    write(ORRERY_GPU_DOORBELL, ++tail);
  }
  static orrery_gpu_command copy(std::uint64_t source, bool source_bus, std::uint64_t destination, bool destination_bus,
                                 std::uint64_t length) {
    orrery_gpu_command command{};
    command.opcode = ORRERY_GPU_OP_COPY;
    command.flags = static_cast<std::uint8_t>((source_bus ? ORRERY_GPU_FLAG_SOURCE_BUS : 0) |
                                              (destination_bus ? ORRERY_GPU_FLAG_DESTINATION_BUS : 0));
    command.source = source;
    command.destination = destination;
    command.length = length;
    return command;
  }
  // Runs a copy to its end.
  void do_copy(std::uint64_t source, bool source_bus, std::uint64_t destination, bool destination_bus,
               std::uint64_t length) {
    submit(copy(source, source_bus, destination, destination_bus, length));
    run(platform);
    EXPECT_EQ(read(ORRERY_GPU_RING_HEAD), tail);
    EXPECT_EQ(read(ORRERY_GPU_ENGINE_STATUS), ORRERY_GPU_STATUS_IDLE) << "error " << read(ORRERY_GPU_ERROR_CODE);
  }
  const Ram* ram = nullptr;
  std::uint64_t ring = 0;
  std::uint32_t ring_log2 = 0;
  std::uint32_t tail = 0;
};

// Where this rig's guests put things (guest physical).
inline constexpr std::uint64_t registers_at(unsigned function) {
  return 0xd000'0000 + function * 0x2'0000ULL;
}
inline constexpr std::uint64_t memory_at(unsigned function) {
  return 0x80'0000'0000 + function * 0x80'0000ULL;
}

}  // namespace orrery::models::testing
