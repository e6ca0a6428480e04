#include "qemu_bridge/relay/irq_record.h"

#include <cerrno>

namespace orrery::bridge {

void IrqRecord::open(const DeviceDescription& device) {
  for (std::size_t i = 0; i < indices_.size(); ++i) {
    indices_[i].clear();
    indices_[i].resize(device.irqs[i].count);
  }
}

int IrqRecord::check(const IrqRequest& request, std::size_t descriptors) const {
  const wire::IrqSet& set = request.set;
  const std::size_t vectors = indices_[set.index].size();
  if (set.start > vectors || set.count > vectors - set.start) {
    return EINVAL;
  }
  const bool eventfds = (set.flags & wire::irq_set_data_eventfd) != 0;
  return descriptors == 0 || (eventfds && descriptors == set.count) ? 0 : EINVAL;
}

void IrqRecord::set(const IrqRequest& request, std::span<const SharedDescriptor> descriptors) {
  const wire::IrqSet& set = request.set;
  std::vector<Vector>& vectors = indices_[set.index];
  if ((set.flags & wire::irq_set_data_eventfd) == 0 && set.count == 0) {
    // TRIGGER without data and vectors disables the index.
    vectors.assign(vectors.size(), {});
    return;
  }
  for (std::uint32_t i = 0; i < set.count; ++i) {
    Vector& vector = vectors[set.start + i];
    if ((set.flags & wire::irq_set_data_eventfd) != 0) {
      const SharedDescriptor given = descriptors.empty() ? nullptr : descriptors[i];
      if ((set.flags & wire::irq_set_action_mask) != 0) {
        vector.on_mask = given;
      } else if ((set.flags & wire::irq_set_action_unmask) != 0) {
        vector.on_unmask = given;
      } else {
        vector.trigger = given;
      }
    } else if ((set.flags & wire::irq_set_action_trigger) == 0 &&
               (request.booleans.empty() || request.booleans[i] != std::byte{0})) {
      vector.masked = (set.flags & wire::irq_set_action_mask) != 0;
    }
  }
}

void IrqRecord::reset() {
  for (std::vector<Vector>& vectors : indices_) {
    for (Vector& vector : vectors) {
      vector.masked = false;
    }
  }
}

void IrqRecord::replay(std::vector<RelayRequest>& requests) const {
  for (std::uint32_t index = 0; index < indices_.size(); ++index) {
    for (std::uint32_t i = 0; i < indices_[index].size(); ++i) {
      const Vector& vector = indices_[index][i];
      const auto request = [&](std::uint32_t flags, std::vector<SharedDescriptor> descriptors) {
        requests.push_back({wire::Command::device_set_irqs,
                            payload_of(wire::IrqSet{sizeof(wire::IrqSet), flags, index, i, 1}),
                            std::move(descriptors)});
      };
      if (vector.masked) {
        request(wire::irq_set_data_none | wire::irq_set_action_mask, {});
      }
      if (vector.on_mask) {
        request(wire::irq_set_data_eventfd | wire::irq_set_action_mask, {vector.on_mask});
      }
      if (vector.on_unmask) {
        request(wire::irq_set_data_eventfd | wire::irq_set_action_unmask, {vector.on_unmask});
      }
      if (vector.trigger) {
        request(wire::irq_set_data_eventfd | wire::irq_set_action_trigger, {vector.trigger});
      }
    }
  }
}

}  // namespace orrery::bridge
