// Physical memory behind the root complex, as the root complex sees it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/address.h"
#include "common/time.h"

namespace orrery::pcie {

// Told when an asynchronous memory access has ended; from the simulation's thread, never from inside
// the call that began it.
class HostMemoryListener {
 public:
  virtual void on_host_memory(std::uint64_t context, bool ok) = 0;

 protected:
  ~HostMemoryListener() = default;
};

// DRAM by host physical address. Implemented by systemc_models/host. One thread.
class HostMemory {
 public:
  enum class Kind : std::uint8_t {
    none,    // nobody claims the address
    direct,  // bytes of this process
    remote,  // bytes that only read_remote() and write_remote() reach (guest memory without a descriptor)
  };
  struct Window {
    Kind kind = Kind::none;
    std::byte* bytes = nullptr;    // direct only
    std::uint64_t contiguous = 0;  // bytes from the address on that are like it
    unsigned node = 0;             // NUMA node
  };

  [[nodiscard]] virtual Window find(Hpa address) const = 0;
  // Latency of one access to memory of `node` by a device or CPU of socket `from` (row activation to
  // data, no queueing); timed mode only.
  [[nodiscard]] virtual Picoseconds access_time(unsigned node, unsigned from) const = 0;

  // The bytes are about to be read by a device (recording), or have been written by one.
  virtual void device_reads(Hpa address, std::span<const std::byte> bytes) = 0;
  virtual void device_wrote(Hpa address, std::span<const std::byte> bytes) = 0;

  // `into` and `from` stay valid until the listener is called.
  virtual void read_remote(Hpa address, std::span<std::byte> into, HostMemoryListener& listener,
                           std::uint64_t context) = 0;
  virtual void write_remote(Hpa address, std::span<const std::byte> from, HostMemoryListener& listener,
                            std::uint64_t context) = 0;

 protected:
  ~HostMemory() = default;
};

}  // namespace orrery::pcie
