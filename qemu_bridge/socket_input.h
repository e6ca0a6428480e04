// Reads bytes and file descriptors from a stream socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/file_descriptor.h"

namespace orrery::bridge {

struct SocketInput {
  enum class Result : std::uint8_t {
    some,     // bytes came
    nothing,  // none for now
    end,      // the peer has closed the connection
    failed,   // errno says why
  };
  Result result = Result::nothing;
  std::size_t bytes = 0;
  std::vector<FileDescriptor> descriptors;
  bool descriptors_lost = false;  // the kernel had more than it could deliver (MSG_CTRUNC)
};

// One read, without waiting. Allocates only if descriptors came.
SocketInput receive(int socket, std::span<std::byte> into);

}  // namespace orrery::bridge
