// A command of the relay's own to a server.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "common/file_descriptor.h"
#include "qemu_bridge/protocol.h"

namespace orrery::bridge {

// Kept by what was recorded and by requests that are under way.
using SharedDescriptor = std::shared_ptr<const FileDescriptor>;

struct RelayRequest {
  wire::Command command;
  std::vector<std::byte> payload;
  std::vector<SharedDescriptor> descriptors;
};

template <class T>
std::vector<std::byte> payload_of(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<std::byte> bytes(sizeof(T));
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

}  // namespace orrery::bridge
