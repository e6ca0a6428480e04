#include "qemu_bridge/socket_input.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace orrery::bridge {
namespace {

constexpr std::size_t max_descriptors_received = 253;  // SCM_MAX_FD: no sendmsg carries more

// Takes over every descriptor that came with a read.
std::vector<FileDescriptor> descriptors_of(msghdr& message) {
  std::vector<FileDescriptor> descriptors;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
      const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
        descriptors.emplace_back(fd);
      }
    }
  }
  return descriptors;
}

}  // namespace

SocketInput receive(int socket, std::span<std::byte> into) {
  iovec part{into.data(), into.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(max_descriptors_received * sizeof(int))> control;
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t count = 0;
  do {
    count = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (count < 0 && errno == EINTR);
  SocketInput input;
  if (count < 0) {
    input.result = errno == EAGAIN || errno == EWOULDBLOCK ? SocketInput::Result::nothing : SocketInput::Result::failed;
  } else if (count == 0) {
    input.result = SocketInput::Result::end;
  } else {
    input.result = SocketInput::Result::some;
    input.bytes = static_cast<std::size_t>(count);
    if (message.msg_controllen != 0) {
      input.descriptors = descriptors_of(message);
      input.descriptors_lost = (message.msg_flags & MSG_CTRUNC) != 0;
    }
  }
  return input;
}

}  // namespace orrery::bridge
