// One end of an instance link's connection: bytes in, bytes out, and what is allowed when.
//
//   connector  hello ────────────▶            Both hellos are in the clear: versions, planes, addresses, a nonce.
//              ◀──────────── hello  listener
//              proof ────────────▶            The connector proves itself first, so that whoever just connects gets
//              ◀──────────── proof            nothing to try tokens on.
//              frames ◀─────────▶ frames      Until a goodbye, or the end of the stream.
//
// Whatever bytes come: no crash, no frame from a peer that hasn't proved itself, bounded memory; the first fault ends
// the session for good. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fabric/instance_link/messages.h"

namespace orrery::instance_link {

struct SessionSettings {
  Role role = Role::listener;
  std::string name;  // of this server
  bool timed = false;
  std::uint8_t planes = 1;  // bit p: plane p
  std::vector<AddressRange> addresses;
  std::vector<std::byte> token;
  Nonce nonce{};              // new for each session
  std::string expected_peer;  // server.name of the other side; empty: any
  // Bytes that may wait to be sent; a frame that would be more is not taken.
  std::size_t max_unsent = std::size_t{64} << 20;
};

class SessionListener {
 public:
  // The peer has proved itself. Anything but none refuses it.
  virtual Refusal on_peer(const Hello& peer) = 0;
  // Only after on_peer() was content. The bytes are valid during the call.
  virtual void on_frame(const Frame& frame) = 0;
  // There is output where there was none.
  virtual void on_output() = 0;
  // The session has ended; what output there is (a goodbye) may still be sent. by_peer: the peer said so.
  virtual void on_closed(Refusal reason, bool by_peer) = 0;

 protected:
  ~SessionListener() = default;
};

class Session {
 public:
  enum class State : std::uint8_t { hello, proof, open, closed };

  // `listener` outlives the session, which must not be destroyed from within a call to it.
  Session(SessionSettings settings, SessionListener& listener);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Says hello. Once, before anything else.
  void start();
  // Bytes of the peer, in any pieces. Ignored once the session is closed.
  void receive(std::span<const std::byte> bytes);
  // Ends the session: tells the peer, then on_closed(reason, false).
  void close(Refusal reason);
  // The stream has ended: on_closed(connection_lost, false), unless it is closed already.
  void lost();

  // Room for a frame of at most `most` bytes (up to max_frame_bytes); empty if the session isn't open, or too much
  // waits. What is written there is sent by end_frame(), or forgotten.
  [[nodiscard]] std::span<std::byte> begin_frame(std::size_t most);
  // `frame.bytes`: the first bytes of that room. `time` must not be less than in the frame before.
  void end_frame(const Frame& frame);

  [[nodiscard]] State state() const { return state_; }
  // Known once the peer's hello is there.
  [[nodiscard]] const Hello& peer() const { return peer_; }
  [[nodiscard]] std::uint8_t common_planes() const {
    return static_cast<std::uint8_t>(settings_.planes & peer_.planes);
  }
  [[nodiscard]] std::uint16_t version() const { return version_; }
  [[nodiscard]] const SessionSettings& settings() const { return settings_; }

  // What waits to be sent. take_output() swaps it for `emptied`, whose memory is used again.
  struct Output {
    std::vector<std::byte> memory;
    std::size_t used = 0;
    [[nodiscard]] std::span<const std::byte> bytes() const { return {memory.data(), used}; }
  };
  [[nodiscard]] bool has_output() const { return output_.used != 0; }
  void take_output(Output& emptied);

 private:
  [[nodiscard]] std::size_t largest_message() const;
  // Whether the header may be that of the next message; otherwise the session is closed.
  bool accept(const Header& header);
  void handle(std::span<const std::byte> message);
  void handle_hello(std::span<const std::byte> body);
  void handle_proof(std::span<const std::byte> body);
  void handle_frame(std::span<const std::byte> body);
  void handle_goodbye(std::span<const std::byte> body);
  void say(MessageType type, std::span<const std::byte> body);
  void say_proof();
  std::span<std::byte> room(std::size_t bytes);
  void commit(std::size_t bytes);
  [[nodiscard]] Proof proof_of(Role role) const;
  void finish(Refusal reason, bool by_peer);

  SessionSettings settings_;
  SessionListener& listener_;
  State state_ = State::hello;
  Hello peer_;
  std::uint16_t version_ = 0;
  std::vector<std::byte> own_hello_;
  std::vector<std::byte> peer_hello_;
  std::uint64_t sent_ = 0;      // messages
  std::uint64_t received_ = 0;  // messages
  Picoseconds latest_;          // of the peer's frames
  std::vector<std::byte> partial_;
  Output output_;
};

}  // namespace orrery::instance_link
