// How a host's virtual machine monitor sees one PCI function of the platform.
//
// This is the endpoint interface that the vfio-user bridge is written against: it knows nothing of
// models, links or SystemC. The platform (systemc_models/server) implements it; every access made
// through it becomes TLPs in the modelled fabric.
// One thread: all calls, and all calls back, happen on the thread that runs the platform.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/address.h"

namespace orrery::pcie {

inline constexpr std::size_t bar_count = 6;

// One base address register as the device offers it. A 64-bit BAR occupies its index and the next.
struct BarDescription {
  std::uint64_t size = 0;  // bytes, power of two; 0: no such BAR
  bool is_64bit = false;
  bool prefetchable = false;
  int memory_fd = -1;  // memfd that backs the whole BAR from offset 0, if a VMM may map it; else -1
};

// Access rights of a DMA mapping, seen from the device.
struct DmaAccess {
  bool read = false;
  bool write = false;
};

// Memory that a VMM offers for DMA: a page-aligned window of a file that both sides map.
struct FileWindow {
  int fd = -1;               // duplicated by the callee; the caller keeps its own
  std::uint64_t offset = 0;  // bytes, multiple of 4096
};

// Serves device accesses to memory that came without a file descriptor (the VMM answers messages).
class MessageMemory {
 public:
  // Asynchronous: `done` is called later (never from inside the call), from the platform's thread, with
  // true on success. `into` stays valid until then. At most 2^20 bytes a call.
  using Done = void (*)(void* context, bool ok);
  virtual void read(Iova address, std::span<std::byte> into, Done done, void* context) = 0;
  virtual void write(Iova address, std::span<const std::byte> from, Done done, void* context) = 0;

 protected:
  ~MessageMemory() = default;
};

// Told of a function's interrupts. Vector numbers are 0-based MSI-X vectors.
class InterruptSink {
 public:
  virtual void msix(unsigned vector) = 0;

 protected:
  ~InterruptSink() = default;
};

enum class MapResult : std::uint8_t {
  ok,
  invalid,    // unaligned, wraps, no access right
  overlap,    // part of the range is mapped already
  not_found,  // unmap: no such mapping
  no_peer,    // no descriptor, and the range lies in no BAR of this guest's functions and no message memory given
  io_error,   // the descriptor can't be mapped, or is shorter than offset + size
};

// One function, as its guest's VMM uses it.
class FunctionAccess {
 public:
  virtual ~FunctionAccess() = default;

  [[nodiscard]] virtual std::string name() const = 0;  // "gpu3", "rnic0": stable, from the configuration
  [[nodiscard]] virtual std::array<BarDescription, bar_count> bars() const = 0;
  [[nodiscard]] virtual std::uint32_t config_size() const = 0;  // 4096
  [[nodiscard]] virtual unsigned msix_vectors() const = 0;      // 0: no MSI-X capability

  // Configuration space and BAR accesses of 1, 2, 4 or 8 bytes for registers, any length for memory
  // BARs. offset + size has been checked against the region's size by the caller. Reads are answered
  // at once (in timed mode the simulator runs to the completion); a read that the platform fails
  // returns all ones, as on real hardware. bar_write is posted.
  virtual void config_read(std::uint32_t offset, std::span<std::byte> into) = 0;
  virtual void config_write(std::uint32_t offset, std::span<const std::byte> from) = 0;
  virtual void bar_read(unsigned bar, std::uint64_t offset, std::span<std::byte> into) = 0;
  virtual void bar_write(unsigned bar, std::uint64_t offset, std::span<const std::byte> from) = 0;

  // Interrupts: null detaches. A vector that fires while detached is dropped, as for a masked device.
  virtual void set_interrupt_sink(InterruptSink* sink) = 0;

  // Function-level reset: registers, queues and outstanding DMA, MSI-X state; mappings stay.
  virtual void reset() = 0;

  // The function's DMA address space (its IOMMU domain). iova, size: multiples of 4096.
  // With a window: guest RAM; equal files are mapped once and shared by all functions of a guest.
  // Without: first a peer's BAR of the same guest, else `messages` serves it (may be null).
  // The mapped file must not be trusted to keep its length (a later truncation is not a crash).
  virtual MapResult dma_map(Iova iova, std::uint64_t size, DmaAccess access, std::optional<FileWindow> window,
                            MessageMemory* messages) = 0;
  // Takes away exactly one mapping made before, or any whole number of pages of it (all = every mapping).
  virtual MapResult dma_unmap(Iova iova, std::uint64_t size) = 0;
  virtual void dma_unmap_all() = 0;

  // The guest's VMM has gone: interrupts detached, mappings removed, function reset.
  virtual void disconnect() = 0;
};

}  // namespace orrery::pcie
