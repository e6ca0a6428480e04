// A guest without a virtual machine: memory and one function of the platform, driven by a program.
//
// What the platform sees is what a VMM makes of a real guest: a memory file mapped for DMA, register accesses as TLPs
// of the CPU. Time passes only where a function says so. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "common/time.h"
#include "systemc_models/server/platform.h"

namespace orrery::studies {

class ScriptedGuest {
 public:
  // The guest is named after its function, which no other guest has. `memory`: bytes, a multiple of 4096, at I/O
  // virtual addresses from 0 on, on the function's NUMA node. Decoding and bus mastering are enabled. Throws Error if
  // the function doesn't exist or memory is refused. `platform` outlives it.
  ScriptedGuest(models::Platform& platform, const std::string& function, std::uint64_t memory);
  ScriptedGuest(const ScriptedGuest&) = delete;
  ScriptedGuest& operator=(const ScriptedGuest&) = delete;
  ~ScriptedGuest();

  [[nodiscard]] models::Platform& platform() { return platform_; }
  [[nodiscard]] const std::string& name() const { return name_; }

  // Memory that nobody else has had, page-aligned and zero; throws Error if there is none left.
  std::uint64_t allocate(std::uint64_t bytes);
  // The CPU's view of it. Throws Error beyond its end.
  [[nodiscard]] std::span<std::byte> memory(std::uint64_t address, std::uint64_t bytes);

  // Registers of BAR 0, big-endian. A read runs the simulation to its completion; a write is posted now.
  [[nodiscard]] std::uint32_t read32(std::uint64_t offset);
  void write32(std::uint64_t offset, std::uint32_t value);
  void write64(std::uint64_t offset, std::uint64_t value);

 private:
  models::Platform& platform_;
  std::string name_;
  pcie::FunctionAccess& function_;
  int fd_ = -1;
  std::byte* bytes_ = nullptr;
  std::uint64_t size_ = 0;
  std::uint64_t next_ = 0;
};

// Throws Error: `what` was waited for in vain.
[[noreturn]] void never_happens(const models::Platform& platform, const char* what);

// Runs until `done`, event by event; throws Error when nothing happens any more, or after `limit` of simulated time:
// `what` says what was waited for.
template <class Done>
void run_until(models::Platform& platform, Picoseconds limit, const char* what, Done done) {
  const Picoseconds end = platform.now() + limit;
  while (!done()) {
    const Picoseconds next = platform.next_activity();
    if (next > end) {
      never_happens(platform, what);
    }
    platform.advance(next, 0);
  }
}

}  // namespace orrery::studies
