// What the tests of the instance link share: a session's listener that collects, two sessions on a wire of bytes.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/instance_link/session.h"

namespace orrery::instance_link::testing {

inline std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  return {bytes.begin(), bytes.end()};
}

// 02:4f:52:SS:00:00 and its neighbour, as RNICs of server SS have.
inline std::vector<AddressRange> addresses_of(unsigned server) {
  const std::uint64_t first = 0x024f'5200'0000U + (std::uint64_t{server} << 16);
  return {{first, first + 1}};
}

inline SessionSettings settings_of(Role role, unsigned server) {
  SessionSettings settings;
  settings.role = role;
  settings.name = "server" + std::to_string(server);
  settings.planes = 3;
  settings.addresses = addresses_of(server);
  settings.token = bytes_of("correct horse battery staple");
  settings.nonce.fill(static_cast<std::byte>(16 * server + static_cast<unsigned>(role) + 1));
  return settings;
}

struct Heard final : SessionListener {
  Refusal on_peer(const Hello& peer) override {
    peers.push_back(peer);
    return answer;
  }
  void on_frame(const Frame& frame) override {
    frames.push_back({frame.time, frame.plane, frame.flags, {frame.bytes.begin(), frame.bytes.end()}});
  }
  void on_output() override { ++outputs; }
  void on_closed(Refusal reason, bool by_peer) override { closed.emplace_back(reason, by_peer); }

  struct KeptFrame {
    Picoseconds time;
    unsigned plane;
    unsigned flags;
    std::vector<std::byte> bytes;
  };
  Refusal answer = Refusal::none;
  std::vector<Hello> peers;
  std::vector<KeptFrame> frames;
  std::vector<std::pair<Refusal, bool>> closed;
  unsigned outputs = 0;
};

// One end, with what it has to say.
struct End {
  explicit End(SessionSettings settings) : session(std::move(settings), heard) {}
  std::vector<std::byte> take() {
    Session::Output output;
    session.take_output(output);
    return {output.bytes().begin(), output.bytes().end()};
  }
  bool send(unsigned plane, Picoseconds time, std::span<const std::byte> bytes, unsigned flags = 0) {
    const std::span<std::byte> room = session.begin_frame(bytes.size());
    if (room.empty()) {
      return false;
    }
    std::memcpy(room.data(), bytes.data(), bytes.size());
    session.end_frame(
        {time, static_cast<std::uint8_t>(plane), static_cast<std::uint8_t>(flags), room.first(bytes.size())});
    return true;
  }
  Heard heard;
  Session session;
};

// Passes on what both say until neither says more.
inline void converse(End& a, End& b) {
  while (a.session.has_output() || b.session.has_output()) {
    b.session.receive(a.take());
    a.session.receive(b.take());
  }
}

inline std::vector<std::byte> message(MessageType type, std::uint64_t sequence, std::span<const std::byte> body) {
  std::vector<std::byte> bytes(header_bytes + body.size());
  encode_header({static_cast<std::uint32_t>(bytes.size()), type, 0, sequence}, bytes);
  std::copy(body.begin(), body.end(), bytes.begin() + header_bytes);
  return bytes;
}

}  // namespace orrery::instance_link::testing
