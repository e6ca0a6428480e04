#include "fabric/instance_link/session.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "fabric/instance_link/proof.h"

namespace orrery::instance_link {

Session::Session(SessionSettings settings, SessionListener& listener)
    : settings_(std::move(settings)), listener_(listener) {}

void Session::start() {
  Hello hello;
  hello.role = settings_.role;
  hello.timed = settings_.timed;
  hello.planes = settings_.planes;
  hello.nonce = settings_.nonce;
  hello.name = settings_.name;
  hello.addresses = settings_.addresses;
  own_hello_ = encode_hello(hello);
  // The listener answers: a stranger who connects and is silent learns nothing.
  if (settings_.role == Role::connector) {
    say(MessageType::hello, own_hello_);
  }
}

std::size_t Session::largest_message() const {
  return state_ == State::open ? max_message_bytes : max_handshake_bytes;
}

bool Session::accept(const Header& header) {
  if (received_ == 0 && header.type != MessageType::hello && header.type != MessageType::goodbye) {
    close(Refusal::not_a_link);
    return false;
  }
  if (header.size < header_bytes || header.size > largest_message() || header.reserved != 0 ||
      header.sequence != received_) {
    close(received_ == 0 ? Refusal::not_a_link : Refusal::protocol);
    return false;
  }
  return true;
}

void Session::receive(std::span<const std::byte> bytes) {
  while (!bytes.empty() && state_ != State::closed) {
    if (partial_.empty() && bytes.size() >= header_bytes) {
      const Header header = decode_header(bytes);
      if (!accept(header)) {
        return;
      }
      if (bytes.size() >= header.size) {
        const std::span<const std::byte> message = bytes.first(header.size);
        bytes = bytes.subspan(header.size);
        handle(message);
        continue;
      }
    }
    // A piece of a message: its header first, then as much as that says.
    std::size_t wanted = header_bytes;
    if (partial_.size() >= header_bytes) {
      wanted = decode_header(partial_).size;
    }
    const std::size_t piece = std::min(wanted - partial_.size(), bytes.size());
    partial_.insert(partial_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(piece));
    bytes = bytes.subspan(piece);
    if (partial_.size() == header_bytes && wanted == header_bytes) {
      const Header header = decode_header(partial_);
      if (!accept(header)) {
        return;
      }
      wanted = header.size;
    }
    if (partial_.size() == wanted && wanted >= header_bytes && decode_header(partial_).size == wanted) {
      handle(partial_);
      partial_.clear();
    }
  }
}

void Session::handle(std::span<const std::byte> message) {
  ++received_;
  const std::span<const std::byte> body = message.subspan(header_bytes);
  switch (decode_header(message).type) {
    case MessageType::hello:
      handle_hello(body);
      return;
    case MessageType::proof:
      handle_proof(body);
      return;
    case MessageType::frame:
      handle_frame(body);
      return;
    case MessageType::goodbye:
      handle_goodbye(body);
      return;
  }
  close(Refusal::protocol);
}

void Session::handle_hello(std::span<const std::byte> body) {
  if (state_ != State::hello) {
    close(Refusal::protocol);
    return;
  }
  if (const Refusal wrong = decode_hello(body, peer_); wrong != Refusal::none) {
    close(wrong);
    return;
  }
  peer_hello_.assign(body.begin(), body.end());
  version_ = std::min(newest_version, peer_.newest);
  if (settings_.role == Role::listener) {
    say(MessageType::hello, own_hello_);
  }
  if (peer_.role == settings_.role) {
    close(Refusal::role);
    return;
  }
  state_ = State::proof;
  if (settings_.role == Role::connector) {
    say_proof();
  }
}

Proof Session::proof_of(Role role) const {
  const bool connector = settings_.role == Role::connector;
  return make_proof(settings_.token, role, connector ? own_hello_ : peer_hello_, connector ? peer_hello_ : own_hello_);
}

void Session::say_proof() {
  say(MessageType::proof, proof_of(settings_.role));
}

void Session::handle_proof(std::span<const std::byte> body) {
  Proof proof;
  if (state_ != State::proof || body.size() != proof.size()) {
    close(Refusal::protocol);
    return;
  }
  std::copy(body.begin(), body.end(), proof.begin());
  if (!equal(proof, proof_of(peer_.role))) {
    close(Refusal::token);
    return;
  }
  // What the hello said is the peer's own only now.
  if (peer_.timed != settings_.timed) {
    close(Refusal::time_mode);
  } else if (common_planes() == 0) {
    close(Refusal::planes);
  } else if (!settings_.expected_peer.empty() && peer_.name != settings_.expected_peer) {
    close(Refusal::name);
  } else if (const Refusal refused = listener_.on_peer(peer_); refused != Refusal::none) {
    close(refused);
  } else {
    if (settings_.role == Role::listener) {
      say_proof();
    }
    state_ = State::open;
  }
}

void Session::handle_frame(std::span<const std::byte> body) {
  const std::optional<Frame> frame = state_ == State::open ? decode_frame_body(body) : std::nullopt;
  if (!frame || frame->time < latest_ || ((common_planes() >> frame->plane) & 1U) == 0) {
    close(Refusal::protocol);
    return;
  }
  latest_ = frame->time;
  listener_.on_frame(*frame);
}

void Session::handle_goodbye(std::span<const std::byte> body) {
  ByteReader in(body);
  const auto reason = static_cast<Refusal>(in.get<std::uint16_t>());
  if (!in.good() || in.left() != 0) {
    close(Refusal::protocol);
    return;
  }
  finish(reason, true);
}

std::span<std::byte> Session::room(std::size_t bytes) {
  if (output_.memory.size() < output_.used + bytes) {
    output_.memory.resize(std::max(output_.used + bytes, 2 * output_.memory.size()));
  }
  return std::span(output_.memory).subspan(output_.used, bytes);
}

void Session::commit(std::size_t bytes) {
  const bool first = output_.used == 0;
  output_.used += bytes;
  ++sent_;
  if (first) {
    listener_.on_output();
  }
}

void Session::say(MessageType type, std::span<const std::byte> body) {
  const std::size_t size = header_bytes + body.size();
  const std::span<std::byte> out = room(size);
  encode_header({static_cast<std::uint32_t>(size), type, 0, sent_}, out);
  std::copy(body.begin(), body.end(), out.begin() + header_bytes);
  commit(size);
}

std::span<std::byte> Session::begin_frame(std::size_t most) {
  constexpr std::size_t before = header_bytes + frame_prefix_bytes;
  if (state_ != State::open || most > fabric::max_frame_bytes || output_.used + before + most > settings_.max_unsent) {
    return {};
  }
  return room(before + most).subspan(before);
}

void Session::end_frame(const Frame& frame) {
  const std::size_t size = header_bytes + frame_prefix_bytes + frame.bytes.size();
  const std::span<std::byte> out = room(size);
  encode_header({static_cast<std::uint32_t>(size), MessageType::frame, 0, sent_}, out);
  encode_frame_prefix(frame, out.subspan(header_bytes));
  commit(size);
}

void Session::take_output(Output& emptied) {
  emptied.used = 0;
  std::swap(output_, emptied);
}

void Session::close(Refusal reason) {
  if (state_ == State::closed) {
    return;
  }
  const auto code = static_cast<std::uint16_t>(reason);
  // To somebody who speaks another protocol it would only be noise.
  if (reason != Refusal::not_a_link && reason != Refusal::connection_lost) {
    say(MessageType::goodbye, std::as_bytes(std::span(&code, 1)));
  }
  finish(reason, false);
}

void Session::lost() {
  if (state_ != State::closed) {
    finish(Refusal::connection_lost, false);
  }
}

void Session::finish(Refusal reason, bool by_peer) {
  state_ = State::closed;
  partial_.clear();
  listener_.on_closed(reason, by_peer);
}

}  // namespace orrery::instance_link
