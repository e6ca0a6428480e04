#include "fabric/instance_link/uplinks.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"
#include "common/log.h"
#include "fabric/wire_codec.h"

namespace orrery::instance_link {

namespace {

// Of peers' guests that chose an address: more aren't learned, their frames go to all. They age as in a switch (IEEE
// 802.1Q table 8-6).
constexpr std::size_t learned_addresses = 1024;
constexpr Picoseconds ageing{300'000'000'000'000};

bool is_power_of_ten(std::uint64_t n) {
  while (n >= 10 && n % 10 == 0) {
    n /= 10;
  }
  return n == 1;
}

std::string mac_text(fabric::MacAddress address) {
  std::string text;
  for (int shift = 40; shift >= 0; shift -= 8) {
    text += fmt::format("{}{:02x}", text.empty() ? "" : ":", (address.value >> shift) & 0xffU);
  }
  return text;
}

bool any_contains(const std::vector<AddressRange>& ranges, fabric::MacAddress address) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const AddressRange& range) { return range.contains(address); });
}

bool any_overlap(const std::vector<AddressRange>& a, const std::vector<AddressRange>& b) {
  return std::any_of(a.begin(), a.end(), [&](const AddressRange& range) {
    return std::any_of(b.begin(), b.end(), [&](const AddressRange& other) { return range.overlaps(other); });
  });
}

// Of the frame, without FCS.
std::size_t bytes_of(const fabric::PacketContent& content) {
  const std::size_t bytes = content.bytes().size();
  return content.is_roce ? fabric::frame_bytes(content.roce, static_cast<std::uint32_t>(bytes)) : bytes;
}

SessionSettings complete(SessionSettings settings, const Uplinks& uplinks) {
  settings.name = uplinks.server();
  settings.addresses = uplinks.addresses();
  settings.planes &= static_cast<std::uint8_t>((1U << uplinks.planes()) - 1);
  return settings;
}

}  // namespace

// Never busy: what a peer can't take waits in its session, or is dropped there.
class Uplinks::UplinkPort final : public fabric::Port, private EventHandler {
 public:
  UplinkPort(Uplinks& uplinks, unsigned plane) : uplinks_(uplinks), plane_(plane) {}

  Picoseconds send_after(const fabric::Packet& packet, Picoseconds delay) override {
    uplinks_.send(plane_, packet);
    return uplinks_.events_.now() + delay;
  }
  [[nodiscard]] Picoseconds free_at() const override { return uplinks_.events_.now(); }
  void notify_when_free() override {
    if (!notify_) {
      notify_ = true;
      uplinks_.events_.schedule(uplinks_.events_.now(), *this, 0);
    }
  }
  void attach(fabric::PortListener& listener) override { listener_ = &listener; }
  // Takes over the content's reference.
  void deliver(const fabric::Packet& packet) {
    if (listener_ != nullptr) {
      listener_->on_packet(packet);
    } else {
      uplinks_.pool_.release(packet.content);
    }
  }

 private:
  void on_event(std::uint64_t /*argument*/) override {
    notify_ = false;
    if (listener_ != nullptr) {
      listener_->on_transmit_ready();
    }
  }

  Uplinks& uplinks_;
  unsigned plane_;
  bool notify_ = false;
  fabric::PortListener* listener_ = nullptr;
};

Uplinks::Uplinks(EventQueue& events, fabric::PacketPool& pool, unsigned planes, std::string server,
                 std::vector<AddressRange> addresses, const LocalAddresses& local)
    : events_(events), pool_(pool), server_(std::move(server)), addresses_(std::move(addresses)), local_(local) {
  if (planes == 0 || planes > max_planes || addresses_.size() > max_ranges) {
    throw Error(fmt::format("uplinks for {} planes with {} address ranges", planes, addresses_.size()),
                fmt::format("1 to {} planes, at most {} ranges", max_planes, max_ranges));
  }
  for (unsigned plane = 0; plane < planes; ++plane) {
    ports_.push_back(std::make_unique<UplinkPort>(*this, plane));
    learned_.emplace_back(learned_addresses, ageing);
  }
}

Uplinks::~Uplinks() = default;

fabric::Port& Uplinks::port(unsigned plane) {
  return *ports_.at(plane);
}

bool Uplinks::is_own(fabric::MacAddress address) const {
  return any_contains(addresses_, address);
}

Refusal Uplinks::join(Peer& peer, const Hello& hello) {
  if (any_overlap(hello.addresses, addresses_)) {
    return Refusal::duplicate_address;
  }
  for (const Peer* other : peers_) {
    if (any_overlap(hello.addresses, other->session_.peer().addresses)) {
      return Refusal::duplicate_address;
    }
  }
  peer.number_ = next_number_++;
  peers_.push_back(&peer);
  return Refusal::none;
}

void Uplinks::leave(const Peer& peer) {
  std::erase(peers_, &peer);
  // Numbers come again after 65536 peers; what was learned of this one must not.
  for (fabric::MacTable& table : learned_) {
    table = fabric::MacTable(learned_addresses, ageing);
  }
}

void Uplinks::send(unsigned plane, const fabric::Packet& packet) {
  const fabric::MacAddress to = packet.destination_mac;
  // Flooded before its owner has sent anything: nobody else has it. Without a frame's bytes there is nothing to send.
  if (is_own(to) || packet.content.empty() || bytes_of(pool_.at(packet.content)) < min_frame_bytes) {
    pool_.release(packet.content);
    return;
  }
  const fabric::PacketContent& content = pool_.at(packet.content);
  const Peer* only = nullptr;
  if (!to.is_multicast()) {
    const int number = learned_[plane].find(to, events_.now());
    for (const Peer* peer : peers_) {
      if (peer->number_ == number || any_contains(peer->session_.peer().addresses, to)) {
        only = peer;
      }
    }
  }
  bool any = false;
  for (Peer* peer : peers_) {
    if ((only != nullptr && peer != only) || ((peer->session_.common_planes() >> plane) & 1U) == 0) {
      continue;
    }
    any = true;
    Frame frame;
    frame.time = events_.now();
    frame.plane = static_cast<std::uint8_t>(plane);
    frame.flags =
        static_cast<std::uint8_t>((content.is_roce ? frame_flag::roce : 0) |
                                  ((packet.flags & fabric::packet_flag::bad_icrc) != 0 ? frame_flag::bad_icrc : 0));
    const std::span<std::byte> out = peer->session_.begin_frame(bytes_of(content));
    if (out.empty()) {
      ++peer->counters_.congested;
      ++total_.congested;
      continue;
    }
    fabric::Packet whole = packet;
    whole.flags &= static_cast<std::uint8_t>(~fabric::packet_flag::bad_icrc);  // the flag travels by itself
    frame.bytes = out.first(fabric::encode_packet(pool_, whole, out));
    ++peer->counters_.sent;
    ++total_.sent;
    peer->counters_.sent_bytes += frame.bytes.size();
    total_.sent_bytes += frame.bytes.size();
    peer->session_.end_frame(frame);
  }
  without_peer_ += any ? 0 : 1;
  pool_.release(packet.content);
}

void Uplinks::refuse(Peer& peer, std::uint64_t PeerCounters::*counter, const char* what, fabric::MacAddress address) {
  ++(total_.*counter);
  const std::uint64_t count = ++(peer.counters_.*counter);
  if (is_power_of_ten(count)) {
    log(LogLevel::error, "network.link: {} sent a frame {} {}; refused, {} so far", peer.session_.peer().name, what,
        mac_text(address), count);
  }
}

void Uplinks::deliver(Peer& peer, const Frame& frame) {
  if (frame.plane >= ports_.size()) {
    refuse(peer, &PeerCounters::foreign_plane, "on a plane without a switch, to", {});
    return;
  }
  fabric::Packet packet;
  if ((frame.flags & frame_flag::roce) != 0) {
    fabric::DecodedFrame decoded;
    if (fabric::decode_frame(frame.bytes, decoded) != fabric::DecodeStatus::ok) {
      fabric::classify_frame(frame.bytes, packet);
      refuse(peer, &PeerCounters::malformed, "that is no RoCE packet, to", packet.destination_mac);
      return;
    }
    packet = fabric::packet_of(pool_, pool_.make_roce(decoded.headers, decoded.payload));
  } else {
    packet = fabric::packet_of(pool_, pool_.make_frame(frame.bytes));
  }
  const fabric::MacAddress from = packet.source_mac;
  const fabric::MacAddress to = packet.destination_mac;
  const bool announced = any_contains(peer.session_.peer().addresses, from);
  const auto other_has = [&](const Peer* other) {
    return other != &peer && any_contains(other->session_.peer().addresses, from);
  };
  if (is_own(from) || (!announced && local_.is_local(frame.plane, from))) {
    refuse(peer, &PeerCounters::own_source, "from an address of this server,", from);
  } else if (from.value == 0 || from.is_multicast() ||
             (!announced && std::any_of(peers_.begin(), peers_.end(), other_has))) {
    refuse(peer, &PeerCounters::foreign_source, "from an address that can't be its own,", from);
  } else if (!to.is_multicast() && !is_own(to) && !local_.is_local(frame.plane, to)) {
    refuse(peer, &PeerCounters::unknown_destination, "to an address that nobody here has,", to);
  } else {
    if (!announced) {
      learned_[frame.plane].learn(from, peer.number_, events_.now());
    }
    packet.flags |= (frame.flags & frame_flag::bad_icrc) != 0 ? fabric::packet_flag::bad_icrc : std::uint8_t{0};
    packet.created = events_.now();
    ++peer.counters_.received;
    ++total_.received;
    peer.counters_.received_bytes += frame.bytes.size();
    total_.received_bytes += frame.bytes.size();
    ports_[frame.plane]->deliver(packet);
    return;
  }
  pool_.release(packet.content);
}

Peer::Peer(Uplinks& uplinks, SessionSettings settings, Transport& transport)
    : uplinks_(uplinks),
      transport_(transport),
      session_(complete(std::move(settings), uplinks), static_cast<SessionListener&>(*this)) {}

Peer::~Peer() {
  if (joined_) {
    uplinks_.leave(*this);
  }
}

Refusal Peer::on_peer(const Hello& hello) {
  const Refusal refused = uplinks_.join(*this, hello);
  joined_ = refused == Refusal::none;
  if (joined_) {
    transport_.on_open();
  }
  return refused;
}

void Peer::on_frame(const Frame& frame) {
  uplinks_.deliver(*this, frame);
}

void Peer::on_output() {
  transport_.on_output();
}

void Peer::on_closed(Refusal reason, bool by_peer) {
  if (joined_) {
    joined_ = false;
    uplinks_.leave(*this);
  }
  transport_.on_closed(reason, by_peer);
}

}  // namespace orrery::instance_link
