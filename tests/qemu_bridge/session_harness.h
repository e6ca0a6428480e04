// Drives a Session without a socket: bytes and descriptors in, messages out.
#pragma once

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "qemu_bridge/session.h"
#include "tests/qemu_bridge/fake_function.h"
#include "tests/qemu_bridge/protocol_client.h"

namespace orrery::bridge::test {

// Descriptors that this process has open, the one for counting them left out.
inline std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count - 1;
}

inline FileDescriptor make_eventfd() {
  return FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}
// How often an eventfd was signalled since the last look.
inline std::uint64_t take_events(int fd) {
  std::uint64_t value = 0;
  return ::read(fd, &value, sizeof(value)) == sizeof(value) ? value : 0;
}
inline FileDescriptor make_memfd(std::size_t size) {
  FileDescriptor fd(::memfd_create("test", MFD_CLOEXEC));
  if (::ftruncate(fd.get(), static_cast<off_t>(size)) != 0) {
    throw std::runtime_error("ftruncate");
  }
  return fd;
}

// Notes what a session tells its observer.
struct NotingObserver : SessionObserver {
  void on_connect() override { notes.emplace_back("connect"); }
  void on_region_read(unsigned, std::uint64_t, std::size_t) override { notes.emplace_back("read"); }
  void on_region_read_done(unsigned, std::uint64_t, std::span<const std::byte>) override {
    notes.emplace_back("read done");
  }
  void on_region_write(unsigned, std::uint64_t, std::span<const std::byte>) override { notes.emplace_back("write"); }
  void on_dma_map(Iova, std::uint64_t, pcie::DmaAccess, std::optional<std::uint64_t>, pcie::MapResult) override {
    notes.emplace_back("map");
  }
  void on_dma_unmap(Iova, std::uint64_t) override { notes.emplace_back("unmap"); }
  void on_set_irqs(const wire::IrqSet&, std::span<const std::byte>, std::size_t) override {
    notes.emplace_back("irqs");
  }
  void on_reset() override { notes.emplace_back("reset"); }
  void on_dma_done(bool, Iova, std::span<const std::byte>, bool) override { notes.emplace_back("dma done"); }
  void on_refused(std::uint16_t, int) override { notes.emplace_back("refused"); }
  void on_disconnect(std::string_view) override { notes.emplace_back("disconnect"); }

  std::vector<std::string> notes;
};

class Harness final : public SessionOutput {
 public:
  explicit Harness(const SessionOptions& options = {}, bool negotiated = true)
      : Harness(FakeFunction(), options, negotiated) {}
  Harness(FakeFunction with, const SessionOptions& options, bool negotiated = true)
      : function(std::move(with)), session(function, *this, observer, options) {
    if (negotiated) {
      negotiate();
    }
  }

  void negotiate(std::string_view json = qemu_capabilities) {
    call(wire::Command::version, version_payload(0, 0, json));
    observer.notes.clear();
  }

  // Hands bytes over as one read would; duplicates of `descriptors` come with them.
  void feed(std::span<const std::byte> bytes, std::span<const int> descriptors = {}, bool lost = false,
            Channel channel = Channel::main) {
    std::vector<FileDescriptor> own;
    for (const int fd : descriptors) {
      own.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    }
    do {
      const std::span<std::byte> space = session.space(channel);
      const std::size_t count = std::min(space.size(), bytes.size());
      if (count > 0) {
        std::memcpy(space.data(), bytes.data(), count);
      }
      session.received(channel, count, own, lost);
      own.clear();
      lost = false;
      bytes = bytes.subspan(count);
    } while (!bytes.empty() && session.state() != Session::State::closed);
  }

  static std::vector<std::byte> message(std::uint16_t id, std::uint16_t command, std::span<const std::byte> payload,
                                        std::uint32_t flags = wire::type_command, std::uint32_t error = 0) {
    std::vector<std::byte> bytes = bytes_of(
        wire::Header{id, command, static_cast<std::uint32_t>(sizeof(wire::Header) + payload.size()), flags, error});
    append_bytes(bytes, payload);
    return bytes;
  }

  // Feeds one command; its reply, or one with header.message_size 0 if none came.
  Reply call(wire::Command command, std::span<const std::byte> payload = {}, std::span<const int> descriptors = {},
             std::uint32_t flags = wire::type_command) {
    const std::size_t before = sent.size();
    const std::uint16_t id = next_id++;
    feed(message(id, static_cast<std::uint16_t>(command), payload, flags), descriptors);
    for (std::size_t i = before; i < sent.size(); ++i) {
      if (sent[i].header.message_id == id && (sent[i].header.flags & wire::type_mask) == wire::type_reply) {
        return std::move(sent[i]);
      }
    }
    return {};
  }
  int error_of(wire::Command command, std::span<const std::byte> payload = {}, std::span<const int> descriptors = {}) {
    const Reply reply = call(command, payload, descriptors);
    // "If an error occurs, the reply message must only include the reply header."
    if (reply.header.message_size == 0 || (reply.error() != 0 && !reply.payload.empty())) {
      return -1;
    }
    return reply.error();
  }

  int map(std::uint64_t iova, std::uint64_t size, std::span<const int> descriptors = {}, std::uint64_t offset = 0,
          std::uint32_t flags = 3) {
    return error_of(wire::Command::dma_map, bytes_of(wire::DmaMap{sizeof(wire::DmaMap), flags, offset, iova, size}),
                    descriptors);
  }
  int unmap(std::uint64_t iova, std::uint64_t size, std::uint32_t flags = 0) {
    return error_of(wire::Command::dma_unmap, bytes_of(wire::DmaUnmap{sizeof(wire::DmaUnmap), flags, iova, size}));
  }

  // SessionOutput
  bool send(Channel channel, std::span<const std::byte> head, std::span<const std::byte> body,
            std::span<const int> descriptors) override {
    if (!accepts) {
      return false;
    }
    Reply message;
    message.header = value_of<wire::Header>(head);
    message.payload.assign(head.begin() + sizeof(wire::Header), head.end());
    append_bytes(message.payload, body);
    for (const int fd : descriptors) {
      message.descriptors.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    }
    channels.push_back(channel);
    sent.push_back(std::move(message));
    return true;
  }
  FileDescriptor open_command_channel() override {
    int ends[2];
    if (!twin_socket || ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      return {};
    }
    twin.reset(ends[0]);
    return FileDescriptor(ends[1]);
  }
  void call_soon() override { soon = true; }
  // What the event loop would do.
  void run_soon() {
    while (std::exchange(soon, false)) {
      session.run_deferred();
    }
  }

  FakeFunction function;
  NotingObserver observer;
  std::vector<Reply> sent;
  std::vector<Channel> channels;  // of each of them
  bool accepts = true;
  bool twin_socket = true;
  bool soon = false;
  FileDescriptor twin;
  std::uint16_t next_id = 100;
  Session session;
};

}  // namespace orrery::bridge::test
