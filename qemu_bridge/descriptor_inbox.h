// Which message the file descriptors belong to that came over a stream socket.
//
// The kernel ends a read after bytes that carried descriptors, and peers send a message at a time: descriptors
// belong to the message that the last byte of their read is part of.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "common/file_descriptor.h"

namespace orrery::bridge {

// Keeps descriptors until their message is complete. Positions count the bytes of the stream, as
// MessageBuffer's do. For each read: keep(), take() for each whole message, settle().
class DescriptorInbox {
 public:
  static constexpr std::size_t capacity = 16;  // of one message; what ServerLimits::max_msg_fds grants
  using Descriptors = std::array<FileDescriptor, capacity>;

  // Takes over what came with a read whose last byte is at `position`. `lost`: there was more than the kernel
  // could deliver.
  void keep(std::uint64_t position, std::span<FileDescriptor> descriptors, bool lost);

  struct Taken {
    std::size_t count = 0;
    bool surplus = false;  // more came than a message may have
  };
  // Hands over those of the message in [begin, end).
  Taken take(std::uint64_t begin, std::uint64_t end, Descriptors& into);

  // Every whole message has been taken: what is left belongs to the one that is still incomplete.
  void settle();
  void clear() { batches_ = {}; }
  [[nodiscard]] bool empty() const { return !batches_[0].used && !batches_[1].used; }

 private:
  struct Batch {
    Descriptors descriptors;
    std::size_t count = 0;
    bool used = false;
    bool surplus = false;
    std::uint64_t position = 0;
  };
  std::array<Batch, 2> batches_;  // [0]: of earlier reads; [1]: of the latest
};

}  // namespace orrery::bridge
