// Fuzz target: an instance link's session, and behind it the uplinks of a server, against a hostile peer.
//
// Input: a program of steps. A real peer with the right token is at hand, so that every state is reached; its messages
// may be cut, changed, repeated or left out, and messages of the fuzzer's own go in between. Checked: nothing is
// delivered from a session that isn't open, none opens without the token, what is delivered comes from an address that
// can be the peer's, memory is bounded, and no packet is lost track of.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/log.h"
#include "fabric/instance_link/endpoint.h"
#include "fabric/instance_link/proof.h"
#include "fabric/instance_link/uplinks.h"
#include "tests/fuzz/require.h"

namespace orrery::instance_link {
namespace {

using fuzz::require;

constexpr AddressRange own_range{0x024f'5201'0000, 0x024f'5201'0001};
constexpr AddressRange peer_range{0x024f'5202'0000, 0x024f'5202'0001};
constexpr fabric::MacAddress guest_address{0x0200'0000'0001};  // known to the switch

class Input {
 public:
  explicit Input(std::span<const std::byte> bytes) : bytes_(bytes) {}
  [[nodiscard]] bool empty() const { return bytes_.empty(); }
  std::uint8_t byte() {
    const auto some = take(1);
    return some.empty() ? std::uint8_t{0} : std::to_integer<std::uint8_t>(some[0]);
  }
  std::span<const std::byte> take(std::size_t count) {
    const auto some = bytes_.first(std::min(count, bytes_.size()));
    bytes_ = bytes_.subspan(some.size());
    return some;
  }

 private:
  std::span<const std::byte> bytes_;
};

class Local final : public LocalAddresses {
 public:
  [[nodiscard]] bool is_local(unsigned plane, fabric::MacAddress address) const override {
    require(plane < 2, "a plane that is there");
    return address == guest_address;
  }
};

SessionSettings settings_of(Role role, bool right_token) {
  SessionSettings settings;
  settings.role = role;
  settings.planes = 3;
  settings.name = role == Role::listener ? "mine" : "other";
  settings.nonce.fill(static_cast<std::byte>(role) | std::byte{0x10});
  settings.token.assign(16, right_token ? std::byte{1} : std::byte{2});
  settings.max_unsent = std::size_t{64} << 10;
  return settings;
}

class Run final : private fabric::PortListener, private Peer::Transport, private SessionListener {
 public:
  explicit Run(Input input)
      : input_(input),
        mode_(input_.byte()),
        uplinks_(events_, pool_, 2, "mine", {own_range}, local_),
        mine_(uplinks_, settings_of(listening() ? Role::listener : Role::connector, true),
              static_cast<Peer::Transport&>(*this)),
        friend_(friend_settings(), static_cast<SessionListener&>(*this)) {
    uplinks_.port(0).attach(*this);
    uplinks_.port(1).attach(*this);
    mine_.session().start();
    friend_.start();
  }

  void run() {
    if ((mode_ & 4U) != 0) {  // past the handshake at once
      for (int turn = 0; turn < 3; ++turn) {
        pass_on();
        listen();
      }
    }
    while (!input_.empty()) {
      step();
      require(pool_.outstanding() == 0, "no packet is lost track of");
    }
  }

 private:
  [[nodiscard]] bool listening() const { return (mode_ & 1U) != 0; }
  [[nodiscard]] bool right_token() const { return (mode_ & 2U) == 0; }
  [[nodiscard]] SessionSettings friend_settings() const {
    SessionSettings settings = settings_of(listening() ? Role::connector : Role::listener, right_token());
    settings.addresses = {peer_range};
    return settings;
  }

  void step() {
    const std::uint8_t what = input_.byte();
    switch (what & 7U) {
      case 0:
        mine_.session().receive(input_.take(1 + (what >> 3)));
        return;
      case 1:
        pass_on();
        return;
      case 2:
        listen();
        return;
      case 3: {  // the friend's words, changed in one byte
        collect();
        const std::size_t at = input_.byte();
        if (at < said_.size()) {
          said_[at] ^= static_cast<std::byte>(input_.byte());
        }
        mine_.session().receive(said_);
        return;
      }
      case 4:  // again, as they were
        mine_.session().receive(said_);
        return;
      case 5: {  // a message of the fuzzer's own, well framed
        const auto body = input_.take(what >> 3 == 31 ? 300 : what >> 3);
        std::vector<std::byte> message(header_bytes + body.size());
        encode_header(
            {static_cast<std::uint32_t>(message.size()), static_cast<MessageType>(input_.byte() % 6), 0, sequence_++},
            message);
        std::copy(body.begin(), body.end(), message.begin() + header_bytes);
        mine_.session().receive(message);
        return;
      }
      case 6:
        say_frame(what >> 3);
        return;
      default:
        send_packet();
        return;
    }
  }

  void collect() {
    Session::Output output;
    friend_.take_output(output);
    said_.assign(output.bytes().begin(), output.bytes().end());
  }
  void pass_on() {
    collect();
    mine_.session().receive(said_);
  }
  void listen() {
    Session::Output output;
    mine_.session().take_output(output);
    require(output.used <= (std::size_t{64} << 10) + 3 * max_handshake_bytes, "bounded output");
    friend_.receive(output.bytes());
  }

  // The friend sends a frame whose first bytes are the fuzzer's or addresses that may pass.
  void say_frame(unsigned how) {
    const auto bytes = input_.take(64);
    std::vector<std::byte> frame(std::max<std::size_t>(bytes.size(), min_frame_bytes));
    std::copy(bytes.begin(), bytes.end(), frame.begin());
    const std::uint64_t to = (how & 1U) != 0 ? own_range.first : (how & 2U) != 0 ? guest_address.value : 0;
    const std::uint64_t from = (how & 4U) != 0 ? peer_range.first : (how & 8U) != 0 ? own_range.first : 0;
    for (unsigned i = 0; i < 6; ++i) {
      frame[i] = to != 0 ? static_cast<std::byte>(to >> (40 - 8 * i)) : frame[i];
      frame[6 + i] = from != 0 ? static_cast<std::byte>(from >> (40 - 8 * i)) : frame[6 + i];
    }
    const std::span<std::byte> room = friend_.begin_frame(frame.size());
    if (!room.empty()) {
      std::copy(frame.begin(), frame.end(), room.begin());
      time_ += input_.byte();
      friend_.end_frame({{time_},
                         static_cast<std::uint8_t>(how & 1U),
                         static_cast<std::uint8_t>(input_.byte() & frame_flag::all),
                         room.first(frame.size())});
    }
  }

  void send_packet() {
    const auto bytes = input_.take(40);
    uplinks_.port(input_.byte() & 1U).send(fabric::packet_of(pool_, pool_.make_frame(bytes)));
  }

  void on_packet(const fabric::Packet& packet) override {
    require(mine_.session().state() == Session::State::open && right_token(), "delivered on an open link only");
    const bool known = own_range.contains(packet.destination_mac) || packet.destination_mac == guest_address ||
                       packet.destination_mac.is_multicast();
    require(known, "to somebody who is here");
    require(!own_range.contains(packet.source_mac) && packet.source_mac != guest_address &&
                !packet.source_mac.is_multicast() && packet.source_mac.value != 0,
            "from an address that can be the peer's");
    pool_.release(packet.content);
  }
  void on_output() override {}
  void on_open() override { require(right_token(), "no link without the token"); }
  void on_closed(Refusal reason, bool /*by_peer*/) override { require(describe(reason) != nullptr, "a reason"); }
  Refusal on_peer(const Hello& /*peer*/) override {
    require(right_token(), "no link without the token on the other side either");
    return Refusal::none;
  }
  void on_frame(const Frame& /*frame*/) override {}

  Input input_;
  std::uint8_t mode_;
  EventQueue events_;
  fabric::PacketPool pool_;
  Local local_;
  Uplinks uplinks_;
  Peer mine_;
  Session friend_;
  std::vector<std::byte> said_;
  std::uint64_t sequence_ = 0;
  std::uint64_t time_ = 0;
};

}  // namespace
}  // namespace orrery::instance_link

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace orrery;
  if (size > 8192) {
    return 0;
  }
  set_log_level(LogLevel::off);
  const auto bytes = std::as_bytes(std::span(data, size));
  instance_link::Run(instance_link::Input(bytes)).run();
  instance_link::Hello hello;
  static_cast<void>(instance_link::decode_hello(bytes, hello));
  static_cast<void>(instance_link::decode_frame_body(bytes));
  return 0;
}
