// What a program may learn of a session: every stimulus with its data, in order, and counts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "common/address.h"
#include "pcie/function_access.h"
#include "qemu_bridge/protocol.h"

namespace orrery::bridge {

// Called from the platform's thread, in the order in which the function sees things. "Before" means that
// the call to FunctionAccess follows, so that a recorder notes the simulated time of the stimulus.
// Nothing may be called back from here. Default: nothing happens.
class SessionObserver {
 public:
  virtual ~SessionObserver() = default;

  // A client has negotiated; interrupts are attached next.
  virtual void on_connect() {}
  // Before a region is read, and after, with what it answered. `region`: 0–5 BAR, 7 configuration space.
  virtual void on_region_read(unsigned /*region*/, std::uint64_t /*offset*/, std::size_t /*size*/) {}
  virtual void on_region_read_done(unsigned /*region*/, std::uint64_t /*offset*/, std::span<const std::byte> /*data*/) {
  }
  // Before a region is written; each write of a WRITE_MULTI by itself.
  virtual void on_region_write(unsigned /*region*/, std::uint64_t /*offset*/, std::span<const std::byte> /*data*/) {}
  // After a mapping was tried. `file_offset`: none for a mapping without a descriptor.
  virtual void on_dma_map(Iova /*iova*/, std::uint64_t /*size*/, pcie::DmaAccess /*access*/,
                          std::optional<std::uint64_t> /*file_offset*/, pcie::MapResult /*result*/) {}
  // Before one mapping is taken away.
  virtual void on_dma_unmap(Iova /*iova*/, std::uint64_t /*size*/) {}
  // After a SET_IRQS was carried out. `descriptors`: how many eventfds came with it.
  virtual void on_set_irqs(const wire::IrqSet& /*set*/, std::span<const std::byte> /*booleans*/,
                           std::size_t /*descriptors*/) {}
  // Before the function is reset.
  virtual void on_reset() {}
  // A DMA_READ or DMA_WRITE of the function has ended; `data` holds what a successful read brought.
  virtual void on_dma_done(bool /*write*/, Iova /*address*/, std::span<const std::byte> /*data*/, bool /*ok*/) {}
  // A command was refused: an errno value. Nothing of it reached the function.
  virtual void on_refused(std::uint16_t /*command*/, int /*error*/) {}
  // Before the function is told that its client has gone. `reason`: in English, for a log.
  virtual void on_disconnect(std::string_view /*reason*/) {}
};

// Counts of one session since its client connected.
struct SessionCounters {
  std::array<std::uint64_t, wire::command_count> commands{};  // received, by number; [0]: unknown ones
  std::uint64_t received_bytes = 0;
  std::uint64_t replies = 0;
  std::uint64_t error_replies = 0;
  std::uint64_t refused_posted = 0;       // commands with No_reply that failed: nobody was told
  std::uint64_t posted_writes = 0;        // region writes that asked for no reply, each of a WRITE_MULTI
  std::uint64_t unsolicited_replies = 0;  // ignored
  std::uint64_t dma_reads = 0;            // messages sent to the client
  std::uint64_t dma_writes = 0;
};

}  // namespace orrery::bridge
