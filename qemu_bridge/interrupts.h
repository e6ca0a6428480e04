// Interrupts of one function as the client configures them (vfio-user.rst, VFIO_USER_DEVICE_SET_IRQS).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "common/file_descriptor.h"
#include "pcie/function_access.h"
#include "qemu_bridge/codec.h"
#include "qemu_bridge/protocol.h"

namespace orrery::bridge {

// True if fd is an event file descriptor. Other kinds are refused: a write to a full pipe would block.
bool is_eventfd(int fd);

// Eventfds, masks and pending bits of every interrupt index. One thread.
//
// QEMU keeps the MSI-X table and masks by itself, through eventfds it owns; MASK and UNMASK serve other
// clients. A vector without an eventfd, in an index of which any vector has one, counts as masked: QEMU
// hands a vector's eventfd over when the guest first unmasks it. With no eventfd at all the index is
// disabled, and what fires is dropped.
class Interrupts final : public pcie::InterruptSink {
 public:
  // ERR (the device has failed for good: QEMU stops the machine) and REQ (the client is asked to let go of
  // the device) always exist. INTx and MSI don't: functions of the platform signal by MSI-X only.
  explicit Interrupts(unsigned msix_vectors);

  [[nodiscard]] std::uint32_t count(std::uint32_t index) const {
    return static_cast<std::uint32_t>(indices_[index].size());
  }
  // VFIO_IRQ_INFO_* of an index; 0 for one without interrupts.
  [[nodiscard]] std::uint32_t flags(std::uint32_t index) const;

  // Carries out one decoded command; takes the descriptors it keeps. EINVAL: range outside the index,
  // descriptors where none belong, their number neither 0 nor set.count, or one that is no eventfd.
  // Nothing has changed then.
  int set(const IrqRequest& request, std::span<FileDescriptor> descriptors);

  // InterruptSink. A vector the function doesn't have is dropped.
  void msix(unsigned vector) override { fire(wire::irq_msix, vector); }
  // Fires ERR or REQ; false if the client gave no eventfd for it.
  bool notify(std::uint32_t index);

  // Device reset: masks and pending bits go, eventfds stay.
  void reset();
  // Client gone: everything goes.
  void clear();

  [[nodiscard]] bool pending(std::uint32_t index, std::uint32_t vector) const {
    return indices_[index][vector].pending;
  }
  [[nodiscard]] bool masked(std::uint32_t index, std::uint32_t vector) const { return indices_[index][vector].masked; }
  // Eventfd writes so far, and interrupts dropped because nobody could be told.
  [[nodiscard]] std::uint64_t signalled() const { return signalled_; }
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }

 private:
  struct Vector {
    FileDescriptor trigger;
    FileDescriptor on_mask;
    FileDescriptor on_unmask;
    bool masked = false;
    bool pending = false;
  };

  int assign(const wire::IrqSet& set, std::span<FileDescriptor> descriptors);
  void act(std::uint32_t index, std::uint32_t vector, std::uint32_t action);
  void fire(std::uint32_t index, std::uint32_t number);
  void set_masked(Vector& vector, bool masked);
  void deliver_if_due(Vector& vector);
  void disable(std::uint32_t index);
  bool signal(const FileDescriptor& eventfd);
  [[nodiscard]] bool enabled(std::uint32_t index) const { return assigned_[index] != 0; }

  std::array<std::vector<Vector>, wire::irq_index_count> indices_;
  std::array<std::uint32_t, wire::irq_index_count> assigned_{};  // vectors with a trigger eventfd
  std::uint64_t signalled_ = 0;
  std::uint64_t dropped_ = 0;
};

}  // namespace orrery::bridge
