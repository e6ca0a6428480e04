// Messages on their way out of a stream socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "common/file_descriptor.h"

namespace orrery::bridge {

// Gathers messages so that a batch of them leaves in one system call; keeps what the peer is slow to take,
// up to a limit. One thread.
class OutputQueue {
 public:
  explicit OutputQueue(std::size_t limit) : limit_(limit) { bytes_.reserve(std::size_t{64} * 1024); }

  // Appends one message; duplicates its descriptors. False, with nothing appended: the queue would
  // exceed its limit, or no descriptor could be had.
  bool append(std::span<const std::byte> head, std::span<const std::byte> body, std::span<const int> descriptors);
  [[nodiscard]] bool empty() const { return begin_ == bytes_.size(); }

  enum class Flush : std::uint8_t {
    done,     // everything is with the kernel
    blocked,  // the rest waits until the socket is writable
    failed,   // the peer has gone (errno)
  };
  // Sends without waiting. A message with descriptors leaves in a call of its own.
  Flush flush(int socket);

 private:
  struct Attachment {
    std::uint64_t position;  // of its message, in all bytes ever appended
    std::uint64_t size;
    std::vector<FileDescriptor> descriptors;
  };

  std::size_t limit_;
  std::vector<std::byte> bytes_;  // [begin_, end) is to be sent
  std::size_t begin_ = 0;
  std::uint64_t sent_ = 0;  // bytes sent ever
  std::deque<Attachment> attachments_;
};

}  // namespace orrery::bridge
