// A small blocking vfio-user client, for tests and benchmarks that drive a real server through its socket.
//
// Written from QEMU's docs/interop/vfio-user.rst by itself: it shares the wire structures with the server,
// not its code. Failures of the transport throw std::runtime_error; error replies are returned.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "common/file_descriptor.h"
#include "qemu_bridge/protocol.h"

namespace orrery::bridge::test {

// Not inlined: g++ 12 takes the growth of a vector it sees through for an overflow.
[[gnu::noinline]] inline void append_bytes(std::vector<std::byte>& bytes, std::span<const std::byte> more) {
  const std::size_t size = bytes.size();
  bytes.resize(size + more.size());
  std::copy(more.begin(), more.end(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
}
// Bytes of a trivially copyable value, appended to a vector.
template <class T>
void append(std::vector<std::byte>& bytes, const T& value) {
  append_bytes(bytes, std::as_bytes(std::span(&value, 1)));
}
template <class T>
std::vector<std::byte> bytes_of(const T& value) {
  const auto raw = std::as_bytes(std::span(&value, 1));
  return {raw.begin(), raw.end()};
}
template <class T>
T value_of(std::span<const std::byte> bytes) {
  T value{};
  if (bytes.size() < sizeof(T)) {
    throw std::runtime_error("payload too short: " + std::to_string(bytes.size()) + " bytes");
  }
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

// Proposes what QEMU 11.1 proposes.
inline constexpr std::string_view qemu_capabilities =
    R"({"capabilities": {"migration": {"max_bitmap_size": 268435456, "pgsize": 4096}, "max_msg_fds": 16, )"
    R"("max_data_xfer_size": 1048576, "pgsizes": 4096, "max_dma_maps": 65535, "write_multiple": true}})";

inline std::vector<std::byte> version_payload(std::uint16_t major, std::uint16_t minor, std::string_view json) {
  std::vector<std::byte> payload;
  append(payload, wire::Version{major, minor});
  if (!json.empty()) {
    const auto text = std::as_bytes(std::span(json));
    append_bytes(payload, text);
    payload.push_back(std::byte{0});
  }
  return payload;
}

struct Reply {
  wire::Header header{};
  std::vector<std::byte> payload;
  std::vector<FileDescriptor> descriptors;

  // 0, or the errno of an error reply.
  [[nodiscard]] int error() const {
    return (header.flags & wire::flag_error) != 0 ? static_cast<int>(header.error) : 0;
  }
};

class ProtocolClient {
 public:
  // Serves the server's DMA_READ (fill `data`) and DMA_WRITE (take `data`): 0 or an errno.
  using Memory = std::function<int(bool write, std::uint64_t address, std::span<std::byte> data)>;

  // `spin`: receive by polling instead of sleeping in the kernel.
  explicit ProtocolClient(const std::string& path, bool spin = false)
      : spin_(spin), socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof(address.sun_path)) {
      throw std::runtime_error("socket path too long");
    }
    std::memcpy(address.sun_path, path.data(), path.size());
    check(::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), "connect");
  }
  explicit ProtocolClient(FileDescriptor socket) : socket_(std::move(socket)) {}

  [[nodiscard]] int fd() const { return socket_.get(); }
  void disconnect() { socket_.reset(); }
  void serve_memory(Memory memory) { memory_ = std::move(memory); }

  // Sends bytes as they are, with descriptors on the first of them.
  void send_raw(std::span<const std::byte> bytes, std::span<const int> descriptors = {}) {
    while (!bytes.empty()) {
      iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
      msghdr message{};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      std::vector<std::uint64_t> control;
      if (!descriptors.empty()) {
        control.resize(CMSG_SPACE(descriptors.size_bytes()) / 8 + 1);
        message.msg_control = control.data();
        message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
        cmsghdr* header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
        std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
      }
      const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
      check(sent, "sendmsg");
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
      descriptors = {};
    }
  }

  // Sends one command; returns its message ID.
  std::uint16_t send(wire::Command command, std::span<const std::byte> payload = {},
                     std::span<const int> descriptors = {}, std::uint32_t flags = wire::type_command) {
    const std::uint16_t id = next_id_++;
    out_.clear();
    append(out_, wire::Header{id, static_cast<std::uint16_t>(command),
                              static_cast<std::uint32_t>(sizeof(wire::Header) + payload.size()), flags, 0});
    append_bytes(out_, payload);
    send_raw(out_, descriptors);
    return id;
  }

  // The next message of any kind. Throws when the server closes the connection.
  Reply receive_any() {
    Reply reply;
    std::array<std::byte, sizeof(wire::Header)> header;
    receive_exactly(header, &reply.descriptors);
    reply.header = value_of<wire::Header>(header);
    if (reply.header.message_size < sizeof(wire::Header)) {
      throw std::runtime_error("the server sent a message of impossible size");
    }
    reply.payload.resize(reply.header.message_size - sizeof(wire::Header));
    receive_exactly(reply.payload, &reply.descriptors);
    return reply;
  }

  // The next reply; commands of the server that come before it are served.
  Reply receive() {
    while (true) {
      Reply reply = receive_any();
      if ((reply.header.flags & wire::type_mask) == wire::type_reply) {
        return reply;
      }
      serve(reply);
    }
  }

  Reply call(wire::Command command, std::span<const std::byte> payload = {}, std::span<const int> descriptors = {}) {
    const std::uint16_t id = send(command, payload, descriptors);
    Reply reply = receive();
    if (reply.header.message_id != id) {
      throw std::runtime_error("reply to another message");
    }
    return reply;
  }

  // Serves commands of the server until `count` have been served.
  void serve_commands(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      const Reply command = receive_any();
      serve(command);
    }
  }

  Reply negotiate(std::string_view json = qemu_capabilities) {
    return call(wire::Command::version, version_payload(0, 0, json));
  }

  // Returns the errno of the reply. Two system calls and no allocation once it has grown: usable for
  // measurements.
  int region_read(std::uint32_t region, std::uint64_t offset, std::span<std::byte> into) {
    struct Request {
      wire::Header header;
      wire::RegionAccess access;
    } request{{next_id_++, static_cast<std::uint16_t>(wire::Command::region_read), sizeof(Request), 0, 0},
              {offset, region, static_cast<std::uint32_t>(into.size())}};
    send_raw(std::as_bytes(std::span(&request, 1)));
    in_.resize(sizeof(request) + into.size());
    std::size_t count = 0;
    while (count < sizeof(wire::Header) || count < value_of<wire::Header>(in_).message_size) {
      count += receive_some(std::span(in_).subspan(count));
    }
    const auto header = value_of<wire::Header>(in_);
    if ((header.flags & wire::flag_error) != 0) {
      return static_cast<int>(header.error);
    }
    if (header.message_id != request.header.message_id || header.message_size != in_.size()) {
      throw std::runtime_error("reply to another message");
    }
    std::copy(in_.begin() + sizeof(request), in_.end(), into.begin());
    return 0;
  }

  int region_write(std::uint32_t region, std::uint64_t offset, std::span<const std::byte> from, bool posted = false) {
    std::vector<std::byte> payload =
        bytes_of(wire::RegionAccess{offset, region, static_cast<std::uint32_t>(from.size())});
    append_bytes(payload, from);
    if (posted) {
      send(wire::Command::region_write, payload, {}, wire::type_command | wire::flag_no_reply);
      return 0;
    }
    return call(wire::Command::region_write, payload).error();
  }

  // fd < 0: without descriptor.
  int dma_map(std::uint64_t iova, std::uint64_t size, int fd = -1, std::uint64_t offset = 0, std::uint32_t flags = 3) {
    const auto payload = bytes_of(wire::DmaMap{sizeof(wire::DmaMap), flags, offset, iova, size});
    return call(wire::Command::dma_map, payload, {&fd, fd < 0 ? 0U : 1U}).error();
  }
  int dma_unmap(std::uint64_t iova, std::uint64_t size, std::uint32_t flags = 0) {
    return call(wire::Command::dma_unmap, bytes_of(wire::DmaUnmap{sizeof(wire::DmaUnmap), flags, iova, size})).error();
  }
  // Gives eventfds to the vectors from `start` on.
  int set_msix_eventfds(std::uint32_t start, std::span<const int> eventfds) {
    const auto payload =
        bytes_of(wire::IrqSet{sizeof(wire::IrqSet), wire::irq_set_data_eventfd | wire::irq_set_action_trigger,
                              wire::irq_msix, start, static_cast<std::uint32_t>(eventfds.size())});
    return call(wire::Command::device_set_irqs, payload, eventfds).error();
  }

  // True if the server has closed the connection (waits up to `milliseconds`).
  bool closed_within(int milliseconds) {
    const timeval limit{milliseconds / 1000, milliseconds % 1000 * 1000L};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    std::array<std::byte, 4096> rest;
    ssize_t count = 0;
    do {
      count = ::recv(socket_.get(), rest.data(), rest.size(), 0);
    } while (count > 0);
    return count == 0 || errno == ECONNRESET || errno == EPIPE;
  }

 private:
  static void check(ssize_t result, const char* what) {
    if (result < 0) {
      throw std::runtime_error(std::string(what) + ": " + std::generic_category().message(errno));
    }
  }

  // At least one byte, and no descriptors.
  std::size_t receive_some(std::span<std::byte> into) {
    ssize_t count = 0;
    do {
      count = ::recv(socket_.get(), into.data(), into.size(), spin_ ? MSG_DONTWAIT : 0);
    } while (count < 0 && (errno == EINTR || (spin_ && errno == EAGAIN)));
    check(count, "recv");
    if (count == 0) {
      throw std::runtime_error("the server closed the connection");
    }
    return static_cast<std::size_t>(count);
  }

  void receive_exactly(std::span<std::byte> into, std::vector<FileDescriptor>* descriptors) {
    while (!into.empty()) {
      iovec part{into.data(), into.size()};
      msghdr message{};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      alignas(cmsghdr) std::array<char, CMSG_SPACE(16 * sizeof(int))> control;
      if (descriptors != nullptr) {
        message.msg_control = control.data();
        message.msg_controllen = control.size();
      }
      ssize_t count = 0;
      do {
        count = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC | (spin_ ? MSG_DONTWAIT : 0));
      } while (count < 0 && (errno == EINTR || (spin_ && errno == EAGAIN)));
      check(count, "recvmsg");
      if (count == 0) {
        throw std::runtime_error("the server closed the connection");
      }
      if (descriptors != nullptr) {
        for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
          const std::size_t fds = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
          for (std::size_t i = 0; i < fds; ++i) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
            descriptors->emplace_back(fd);
          }
        }
      }
      into = into.subspan(static_cast<std::size_t>(count));
    }
  }

  void serve(const Reply& command) {
    const auto access = value_of<wire::DmaAccess>(command.payload);
    const bool write = command.header.command == static_cast<std::uint16_t>(wire::Command::dma_write);
    std::vector<std::byte> data(command.payload.begin() + sizeof(access), command.payload.end());
    data.resize(access.count);
    const int error = memory_ ? memory_(write, access.address, data) : EFAULT;
    std::vector<std::byte> reply;
    std::size_t size = sizeof(wire::Header);
    if (error == 0) {
      size += write ? wire::dma_write_reply_size : sizeof(access) + data.size();
    }
    append(reply,
           wire::Header{command.header.message_id, command.header.command, static_cast<std::uint32_t>(size),
                        wire::type_reply | (error != 0 ? wire::flag_error : 0U), static_cast<std::uint32_t>(error)});
    if (error == 0 && write) {
      append(reply, access.address);
      append(reply, static_cast<std::uint32_t>(access.count));
    } else if (error == 0) {
      append(reply, access);
      append_bytes(reply, data);
    }
    send_raw(reply);
  }

  bool spin_ = false;
  FileDescriptor socket_;
  std::uint16_t next_id_ = 1;
  std::vector<std::byte> out_;
  std::vector<std::byte> in_;
  Memory memory_;
};

}  // namespace orrery::bridge::test
