// Which eventfds a client has given to a device's interrupts, as a new server must be told of them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "qemu_bridge/codec.h"
#include "qemu_bridge/relay/device_description.h"
#include "qemu_bridge/relay/request.h"

namespace orrery::bridge {

// Per vector: an eventfd for each action, and whether it is masked (VFIO_USER_DEVICE_SET_IRQS). One thread.
class IrqRecord {
 public:
  // Room for the device's vectors; what was noted before is gone.
  void open(const DeviceDescription& device);

  // What a server would say: EINVAL for a range outside the index, descriptors where none belong, or in another
  // number than none or set.count.
  [[nodiscard]] int check(const IrqRequest& request, std::size_t descriptors) const;
  // Notes a request that passes check().
  void set(const IrqRequest& request, std::span<const SharedDescriptor> descriptors);
  // The device was reset: masks go, eventfds stay.
  void reset();

  // Appends the commands that lead to what is noted: one a vector, since a server may take one descriptor a
  // message.
  void replay(std::vector<RelayRequest>& requests) const;

 private:
  struct Vector {
    SharedDescriptor trigger;
    SharedDescriptor on_mask;
    SharedDescriptor on_unmask;
    bool masked = false;
  };
  std::array<std::vector<Vector>, wire::irq_index_count> indices_;
};

}  // namespace orrery::bridge
