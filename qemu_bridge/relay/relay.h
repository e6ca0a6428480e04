// Stands between a vfio-user client and its server, so that the client outlives servers.
//
// QEMU's client has one connection for a device's whole life. The relay keeps it: while no server is there, it
// answers by itself; when one with the same device comes, it tells that server all that the client has
// asked for, and lets requests through again. The device is then one that was just reset, with its
// configuration space, mappings and interrupts as they were. Source of the protocol: QEMU's
// docs/interop/vfio-user.rst.
//
// Bytes and descriptors in, bytes and descriptors out: a pair of sockets (relay_endpoint.h), a test or a
// fuzzer drives it. Both sides are hostile. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/file_descriptor.h"
#include "qemu_bridge/codec.h"
#include "qemu_bridge/descriptor_inbox.h"
#include "qemu_bridge/relay/client_record.h"
#include "qemu_bridge/relay/device_description.h"
#include "qemu_bridge/relay/request.h"

namespace orrery::bridge {

enum class RelaySide : std::uint8_t { client, server };

class RelayOutput {
 public:
  // Queues one message, `head` then `body`, with descriptors (which stay the caller's). Never calls the relay
  // back. False: that side has gone, or has left too much unread.
  virtual bool send(RelaySide side, std::span<const std::byte> head, std::span<const std::byte> body,
                    std::span<const int> descriptors) = 0;

 protected:
  ~RelayOutput() = default;
};

// Told of what a person should know. Nothing may be called back from here.
class RelayObserver {
 public:
  // The server's device is the client's; `again`: it has taken the place of a lost one.
  virtual void on_attached(bool /*again*/) {}
  // The device answers all ones from now on.
  virtual void on_lost(std::string_view /*reason*/) {}
  // A server is there whose device can't be used; the client's goes on answering all ones.
  virtual void on_refused(std::string_view /*reason*/) {}
  // The client's connection is over: its device is nobody's (told by RelayEndpoint).
  virtual void on_client_gone() {}

 protected:
  ~RelayObserver() = default;
};

class Relay {
 public:
  enum class State : std::uint8_t {
    absent,     // no server
    attaching,  // finding out what device the server has
    replaying,  // telling it what the client has asked for
    live,       // requests go through
    refused,    // a server is there, with a device that is not the client's
  };

  // Requests that may wait for the server's answers; no more are taken in then.
  static constexpr std::size_t max_outstanding = 256;
  static constexpr std::size_t max_outstanding_bytes = std::size_t{4} * 1024 * 1024;
  // Commands of the server that may wait for the client's answers; further ones are refused (EBUSY).
  static constexpr std::size_t max_passed = 256;

  // Both outlive the relay.
  Relay(RelayOutput& output, RelayObserver& observer);
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // A connection to a server has been made, or is over.
  void server_connected();
  void server_gone(std::string_view reason);

  // Input: fill space(side), then say how many bytes came, with the descriptors that came with them. Of a client,
  // only while wants_client_input().
  [[nodiscard]] std::span<std::byte> space(RelaySide side) { return buffer(side).space(); }
  void received(RelaySide side, std::size_t bytes, std::span<FileDescriptor> descriptors = {},
                bool descriptors_lost = false);
  [[nodiscard]] bool wants_client_input() const {
    return client_wanted_ && outstanding_.size() < max_outstanding && outstanding_bytes_ < max_outstanding_bytes;
  }
  // False: what is queued goes out, then the connection is to be closed.
  [[nodiscard]] bool client_wanted() const { return client_wanted_; }
  [[nodiscard]] bool server_wanted() const { return server_wanted_; }

  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] const ClientRecord& record() const { return record_; }
  [[nodiscard]] std::size_t outstanding() const { return outstanding_.size(); }

 private:
  struct Message {
    wire::Header header;
    std::span<const std::byte> payload;
    std::span<FileDescriptor> descriptors;
    bool surplus_descriptors = false;

    [[nodiscard]] wire::Command command() const { return static_cast<wire::Command>(header.command); }
    [[nodiscard]] bool wants_reply() const { return (header.flags & wire::flag_no_reply) == 0; }
  };
  // The payload of a request; without allocation for accesses to registers.
  class SavedPayload {
   public:
    explicit SavedPayload(std::span<const std::byte> payload);
    [[nodiscard]] std::span<const std::byte> get() const {
      return size_ <= small_.size() ? std::span(small_).first(size_) : std::span(large_);
    }

   private:
    std::size_t size_;
    std::array<std::byte, 32> small_;
    std::vector<std::byte> large_;
  };
  // A request that waits for the server's answer.
  struct Outstanding {
    std::uint16_t id;     // as the server knows it
    wire::Header header;  // as the client sent it
    bool own;             // the relay's own
    SavedPayload payload;
    std::vector<SharedDescriptor> descriptors;
  };
  // A command of the server that waits for the client's answer.
  struct Passed {
    std::uint16_t id;         // as the client knows it
    std::uint16_t server_id;  // as the server sent it
    std::uint16_t command;
    bool orphan;  // its server has gone
  };

  [[nodiscard]] MessageBuffer& buffer(RelaySide side) { return buffers_[static_cast<std::size_t>(side)]; }

  // The client's messages (relay.cpp).
  void take_client_messages();
  void client_message(const Message& message);
  void client_command(const Message& message);
  void client_version(const Message& message);
  void client_reply(const Message& message);
  void forward(const Message& message, std::vector<SharedDescriptor> descriptors);
  void answer_here(const wire::Header& header, std::span<const std::byte> payload,
                   std::span<const SharedDescriptor> descriptors);
  void reply_to_client(const wire::Header& header, int error, std::span<const std::byte> payload);
  void give_up_client();

  // The server's (relay_server.cpp).
  void take_server_messages();
  void server_message(const Message& message);
  void server_reply(const Message& message);
  void server_command(const Message& message);
  [[nodiscard]] static bool reply_fits(const Outstanding& request, const Message& reply);
  void own_reply(const Message& message);
  void start_inquiry();
  void ask_next();
  void inquired();
  void continue_replay();
  void send_own(const RelayRequest& request);
  [[nodiscard]] std::uint16_t next_server_id();
  // The server has gone, or must go.
  void lose_server(std::string_view reason);
  void refuse(std::string_view reason);
  void forget_server();

  RelayOutput& output_;
  RelayObserver& observer_;
  State state_ = State::absent;
  bool client_wanted_ = true;
  bool server_wanted_ = false;

  std::vector<std::byte> proposal_;                 // the client's VERSION, once it has sent it
  std::optional<wire::Header> unanswered_version_;  // until the first server is known
  std::optional<DeviceDescription> device_;         // the first server's
  ClientRecord record_;

  std::optional<DeviceInquiry> inquiry_;
  std::deque<RelayRequest> replay_;  // what is still to be told
  std::size_t own_outstanding_ = 0;

  std::vector<Outstanding> outstanding_;  // in the order of sending
  std::size_t outstanding_bytes_ = 0;
  std::vector<Passed> passed_;
  std::uint16_t next_server_id_ = 0;
  std::uint16_t next_client_id_ = 0;

  std::array<MessageBuffer, 2> buffers_;
  DescriptorInbox inbox_;  // the client's
  std::vector<std::byte> reply_;
};

}  // namespace orrery::bridge
