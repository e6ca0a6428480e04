#include "qemu_bridge/descriptor_inbox.h"

#include <utility>

namespace orrery::bridge {

void DescriptorInbox::keep(std::uint64_t position, std::span<FileDescriptor> descriptors, bool lost) {
  Batch& batch = batches_[1];
  batch.used = true;
  batch.position = position;
  batch.surplus = lost || descriptors.size() > capacity;
  for (FileDescriptor& descriptor : descriptors) {
    if (batch.count < capacity) {
      batch.descriptors[batch.count++] = std::move(descriptor);
    } else {
      descriptor.reset();
    }
  }
}

DescriptorInbox::Taken DescriptorInbox::take(std::uint64_t begin, std::uint64_t end, Descriptors& into) {
  Taken taken;
  for (Batch& batch : batches_) {
    if (batch.used && batch.position >= begin && batch.position < end) {
      taken.surplus |= batch.surplus || taken.count + batch.count > capacity;
      for (std::size_t i = 0; i < batch.count && taken.count < capacity; ++i) {
        into[taken.count++] = std::move(batch.descriptors[i]);
      }
      batch = Batch();
    }
  }
  return taken;
}

void DescriptorInbox::settle() {
  Batch& fresh = batches_[1];
  if (!fresh.used) {
    return;
  }
  Batch& head = batches_[0];
  head.used = true;
  head.position = fresh.position;
  head.surplus |= fresh.surplus;
  for (std::size_t i = 0; i < fresh.count; ++i) {
    if (head.count < capacity) {
      head.descriptors[head.count++] = std::move(fresh.descriptors[i]);
    } else {
      head.surplus = true;
    }
  }
  fresh = Batch();
}

}  // namespace orrery::bridge
