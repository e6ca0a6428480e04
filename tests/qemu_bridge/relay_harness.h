// A relay between a client that is a list of bytes and servers that are real sessions on plain memory.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "qemu_bridge/relay/relay.h"
#include "tests/qemu_bridge/session_harness.h"

namespace orrery::bridge::test {

// A function with a configuration space that has MSI-X and PCI Express with function level reset.
inline FakeFunction relayed_function(std::uint32_t identity = 0x0e101234, unsigned vectors = 4,
                                     std::uint64_t bar2_size = std::uint64_t{2} << 20, int bar2_fd = -1) {
  FakeFunction function(vectors, bar2_size, bar2_fd);
  const auto put = [&](std::size_t offset, std::uint32_t value) {
    std::memcpy(function.config().data() + offset, &value, sizeof(value));
  };
  put(0x00, identity);
  put(0x04, 0x0010'0000);  // status: capability list
  put(0x08, 0x0302'0001);
  put(0x34, 0x40);
  put(0x40, 0x0003'6011);  // MSI-X, next at 0x60
  put(0x60, 0x0002'0010);  // PCI Express, endpoint, version 2
  put(0x64, 0x1000'8000);  // function level reset
  return function;
}

class RelayHarness final : public RelayOutput, public RelayObserver {
 public:
  explicit RelayHarness(bool with_server = true) : relay(*this, *this) {
    if (with_server) {
      start_server();
      negotiate();
    }
  }

  // A new server, which the relay is connected to.
  void start_server(FakeFunction function = relayed_function(), const SessionOptions& options = {}) {
    server = std::make_unique<Harness>(std::move(function), options, false);
    seen = 0;
    relay.server_connected();
    pump();
  }
  void kill_server() {
    to_server.clear();
    server.reset();
    relay.server_gone("it was killed");
  }

  Reply negotiate(std::string_view json = qemu_capabilities) {
    return call(wire::Command::version, version_payload(0, 0, json));
  }

  // Sends one command as the client and returns its id; `hold`: it doesn't get to the server yet.
  std::uint16_t send(wire::Command command, std::span<const std::byte> payload = {},
                     std::span<const int> descriptors = {}, std::uint32_t flags = wire::type_command,
                     bool hold = false) {
    const std::uint16_t id = next_id++;
    feed(RelaySide::client, Harness::message(id, static_cast<std::uint16_t>(command), payload, flags), descriptors);
    if (!hold) {
      pump();
    }
    return id;
  }
  // The reply of this id; message_size 0 if there's none.
  Reply take_reply(std::uint16_t id) {
    for (auto it = to_client.begin(); it != to_client.end(); ++it) {
      if (it->header.message_id == id && (it->header.flags & wire::type_mask) == wire::type_reply) {
        Reply reply = std::move(*it);
        to_client.erase(it);
        return reply;
      }
    }
    return {};
  }
  Reply call(wire::Command command, std::span<const std::byte> payload = {}, std::span<const int> descriptors = {}) {
    return take_reply(send(command, payload, descriptors));
  }
  // 0 or the errno of the reply; -1: none, or a malformed one.
  int error_of(wire::Command command, std::span<const std::byte> payload = {}, std::span<const int> descriptors = {}) {
    const Reply reply = call(command, payload, descriptors);
    if (reply.header.message_size == 0 || (reply.error() != 0 && !reply.payload.empty())) {
      return -1;
    }
    return reply.error();
  }

  static std::vector<std::byte> map_payload(std::uint64_t iova, std::uint64_t size, std::uint64_t offset = 0) {
    return bytes_of(wire::DmaMap{sizeof(wire::DmaMap), 3, offset, iova, size});
  }
  int map(std::uint64_t iova, std::uint64_t size, std::span<const int> descriptors = {}, std::uint64_t offset = 0) {
    return error_of(wire::Command::dma_map, map_payload(iova, size, offset), descriptors);
  }
  int unmap(std::uint64_t iova, std::uint64_t size, std::uint32_t flags = 0) {
    return error_of(wire::Command::dma_unmap, bytes_of(wire::DmaUnmap{sizeof(wire::DmaUnmap), flags, iova, size}));
  }
  static std::vector<std::byte> access(std::uint32_t region, std::uint64_t offset, std::uint32_t count,
                                       std::span<const std::byte> data = {}) {
    std::vector<std::byte> payload = bytes_of(wire::RegionAccess{offset, region, count});
    append_bytes(payload, data);
    return payload;
  }
  std::uint32_t read32(std::uint32_t region, std::uint64_t offset) {
    const Reply reply = call(wire::Command::region_read, access(region, offset, 4));
    return reply.payload.size() == 20 ? value_of<std::uint32_t>(std::span(reply.payload).subspan(16)) : 0xdead;
  }
  int write32(std::uint32_t region, std::uint64_t offset, std::uint32_t value) {
    return error_of(wire::Command::region_write, access(region, offset, 4, std::as_bytes(std::span(&value, 1))));
  }
  int set_irqs(std::uint32_t flags, std::uint32_t start, std::uint32_t count, std::span<const int> descriptors = {}) {
    return error_of(wire::Command::device_set_irqs,
                    bytes_of(wire::IrqSet{sizeof(wire::IrqSet), flags, wire::irq_msix, start, count}), descriptors);
  }

  void feed(RelaySide side, std::span<const std::byte> bytes, std::span<const int> descriptors = {}) {
    std::vector<FileDescriptor> own;
    for (const int fd : descriptors) {
      own.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    }
    while (!bytes.empty()) {
      const std::span<std::byte> space = relay.space(side);
      const std::size_t count = std::min(space.size(), bytes.size());
      if (count == 0) {
        return;
      }
      std::memcpy(space.data(), bytes.data(), count);
      relay.received(side, count, own);
      own.clear();
      bytes = bytes.subspan(count);
    }
  }

  // Carries messages between relay and server until both are silent.
  void pump() {
    while (server) {
      if (!to_server.empty()) {
        Reply message = std::move(to_server.front());
        to_server.pop_front();
        std::vector<std::byte> bytes = bytes_of(message.header);
        append_bytes(bytes, message.payload);
        std::vector<int> descriptors;
        for (const FileDescriptor& descriptor : message.descriptors) {
          descriptors.push_back(descriptor.get());
        }
        server->feed(bytes, descriptors);
      } else if (seen < server->sent.size()) {
        const Reply& message = server->sent[seen++];
        std::vector<std::byte> bytes = bytes_of(message.header);
        append_bytes(bytes, message.payload);
        feed(RelaySide::server, bytes);
      } else {
        return;
      }
    }
  }

  // RelayOutput
  bool send(RelaySide side, std::span<const std::byte> head, std::span<const std::byte> body,
            std::span<const int> descriptors) override {
    if (side == RelaySide::server && !server_accepts) {
      return false;
    }
    Reply message;
    message.header = value_of<wire::Header>(head);
    message.payload.assign(head.begin() + sizeof(wire::Header), head.end());
    append_bytes(message.payload, body);
    for (const int fd : descriptors) {
      message.descriptors.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    }
    (side == RelaySide::client ? to_client : to_server).push_back(std::move(message));
    return true;
  }

  // RelayObserver
  void on_attached(bool again) override { notes.emplace_back(again ? "attached again" : "attached"); }
  void on_lost(std::string_view reason) override { notes.push_back("lost: " + std::string(reason)); }
  void on_refused(std::string_view reason) override { notes.push_back("refused: " + std::string(reason)); }

  [[nodiscard]] FakeFunction& function() { return server->function; }

  std::vector<std::string> notes;
  std::deque<Reply> to_client;
  std::deque<Reply> to_server;
  bool server_accepts = true;
  std::unique_ptr<Harness> server;
  std::size_t seen = 0;  // messages of the server that the relay has got
  std::uint16_t next_id = 1;
  Relay relay;
};

}  // namespace orrery::bridge::test
