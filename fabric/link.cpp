#include "fabric/link.h"

#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"
#include "fabric/streams.h"

namespace orrery::fabric {

namespace {

// Event arguments: what it is, the link's epoch (but for notifications), and the slot of a late packet.
constexpr std::uint64_t notify_argument = std::uint64_t{1} << 63;
constexpr std::uint64_t head_argument = std::uint64_t{1} << 62;
constexpr std::uint64_t epoch_mask = (std::uint64_t{1} << 30) - 1;
constexpr std::uint64_t argument_of(std::uint64_t epoch, std::uint32_t slot) {
  return ((epoch & epoch_mask) << 32) | slot;
}
constexpr std::size_t first_ring = 16;
constexpr std::uint64_t rate_unit = 1'000'000;
constexpr std::uint64_t fastest = 100'000'000'000'000;

void check(const Impairments& impairments) {
  const std::pair<const char*, double> all[] = {{"loss", impairments.loss},
                                                {"corruption", impairments.corruption},
                                                {"icrc_corruption", impairments.icrc_corruption},
                                                {"duplication", impairments.duplication},
                                                {"reordering", impairments.reordering}};
  for (const auto& [name, probability] : all) {
    if (!(probability >= 0 && probability <= 1)) {
      throw Error(fmt::format("link: {} is {}", name, probability), "a probability is from 0 to 1");
    }
  }
}

}  // namespace

Link::Link(EventQueue& events, PacketPool& pool, const LinkSettings& settings)
    : events_(events), pool_(pool), settings_(settings) {
  const std::uint64_t rate = settings.bits_per_second;
  if (rate < rate_unit || rate > fastest || rate % rate_unit != 0) {
    throw Error(fmt::format("link: {} bits per second", rate), "use a multiple of 1 Mb/s, at most 100 Tb/s");
  }
  check(settings.impairments);
  constexpr std::uint64_t picoseconds_bits = 8'000'000'000'000;
  const std::uint64_t common = std::gcd(picoseconds_bits, rate);
  numerator_ = picoseconds_bits / common;
  denominator_ = rate / common;
  for (unsigned i = 0; i < 2; ++i) {
    Direction& direction = directions_[i];
    direction.link = this;
    direction.peer = &directions_[1 - i];
    direction.random = Rng(settings.seed, stream_of(StreamPurpose::link, 2 * settings.stream + i));
    direction.impairments = settings.impairments;
    direction.impaired = settings.impairments.any();
  }
}

void Link::set_impairments(unsigned which, const Impairments& impairments) {
  check(impairments);
  directions_[which].impairments = impairments;
  directions_[which].impaired = impairments.any();
}

void Link::set_up(bool up) {
  if (up_ && !up) {
    ++epoch_;
    directions_[0].lose_all();
    directions_[1].lose_all();
  }
  up_ = up;
}

Picoseconds Link::duration(std::uint64_t bytes) const {
  const std::uint64_t product = bytes * numerator_;
  return {denominator_ == 1 ? product : (product + denominator_ - 1) / denominator_};
}

Picoseconds Link::occupancy(std::uint32_t wire_bytes) const {
  return duration(std::uint64_t{wire_bytes} + preamble_and_gap_bytes);
}

Picoseconds Link::Direction::send_after(const Packet& packet, Picoseconds delay) {
  ++counters.sent_packets;
  counters.sent_bytes += packet.wire_bytes;
  const Picoseconds now = link->events_.now();
  if (!link->up_) [[unlikely]] {
    ++counters.down;
    link->pool_.release(packet.content);
    return max(busy_end, now);
  }
  const Picoseconds ready = now + delay;
  if (ready > busy_end) {
    busy_start = ready;
    busy_bytes = 0;
    busy_end = ready;
  }
  const Picoseconds start = busy_end;
  busy_bytes += std::uint64_t{packet.wire_bytes} + preamble_and_gap_bytes;
  if (busy_bytes >= std::uint64_t{1} << 30) {
    // Move the period's origin by whole multiples of the ratio, so that the product stays small.
    const std::uint64_t whole = busy_bytes / link->denominator_;
    busy_start += Picoseconds{whole * link->numerator_};
    busy_bytes -= whole * link->denominator_;
  }
  busy_end = busy_start + link->duration(busy_bytes);
  counters.busy += busy_end - start;
  const Picoseconds arrival = busy_end + link->settings_.propagation;
  Packet copy = packet;
  copy.stamp = arrival;
  copy.hops = static_cast<std::uint8_t>(copy.hops == 255 ? 255 : copy.hops + 1);
  if (impaired) [[unlikely]] {
    impair(copy, arrival);
  } else {
    fly(copy, arrival);
  }
  return busy_end;
}

// The draws are made in one order whatever comes of them, so that one probability does not move another's.
void Link::Direction::impair(Packet& packet, Picoseconds arrival) {
  const auto happens = [this](double probability) { return random.uniform() < probability; };
  const bool loses = happens(impairments.loss);
  const bool corrupts = happens(impairments.corruption);
  const bool corrupts_icrc = happens(impairments.icrc_corruption);
  const bool duplicates = happens(impairments.duplication);
  const bool reorders = happens(impairments.reordering);
  const double fraction = random.uniform();
  if (loses) {
    ++counters.lost;
    link->pool_.release(packet.content);
    return;
  }
  if (corrupts || corrupts_icrc) {
    ++counters.corrupted;
    packet.flags |= static_cast<std::uint8_t>((corrupts ? packet_flag::bad_fcs : 0U) |
                                              (corrupts_icrc ? packet_flag::bad_icrc : 0U));
  }
  const Picoseconds most = impairments.reorder_delay;
  if (duplicates) {
    ++counters.duplicated;
    link->pool_.add_reference(packet.content);
    fly_late(packet, arrival + most);
  }
  if (reorders) {
    ++counters.reordered;
    fly_late(packet, arrival + Picoseconds{static_cast<std::uint64_t>(fraction * static_cast<double>(most.count))});
    return;
  }
  fly(packet, arrival);
}

void Link::Direction::grow() {
  std::vector<Flight> larger(ring.empty() ? first_ring : 2 * ring.size());
  for (std::uint64_t i = head; i != tail; ++i) {
    larger[i & (larger.size() - 1)] = ring[i & (ring.size() - 1)];
  }
  ring = std::move(larger);
}

void Link::Direction::fly(const Packet& packet, Picoseconds arrival) {
  if (tail - head == ring.size()) [[unlikely]] {
    grow();
  }
  ring[tail & (ring.size() - 1)].packet = packet;
  ++in_flight;
  if (tail++ == head) {
    link->events_.schedule(arrival, *this, head_argument | argument_of(link->epoch_, 0));
  }
}

void Link::Direction::fly_late(const Packet& packet, Picoseconds arrival) {
  if (free_slots.empty()) {
    free_slots.push_back(static_cast<std::uint32_t>(slots.size()));
    slots.emplace_back();
    free_slots.reserve(slots.capacity());
  }
  const std::uint32_t slot = free_slots.back();
  free_slots.pop_back();
  slots[slot].packet = packet;
  slots[slot].packet.stamp = arrival;
  ++in_flight;
  link->events_.schedule(arrival, *this, argument_of(link->epoch_, slot));
}

// What is late is lost when its event comes.
void Link::Direction::lose_all() {
  for (; head != tail; ++head) {
    --in_flight;
    ++counters.down;
    link->pool_.release(ring[head & (ring.size() - 1)].packet.content);
  }
}

void Link::Direction::arrive(const Packet& packet) {
  --in_flight;
  if (peer->listener == nullptr) [[unlikely]] {
    ++counters.down;
    link->pool_.release(packet.content);
    return;
  }
  ++counters.delivered_packets;
  counters.delivered_bytes += packet.wire_bytes;
  peer->listener->on_packet(packet);
}

void Link::Direction::on_event(std::uint64_t argument) {
  const bool current = ((argument >> 32) & epoch_mask) == (link->epoch_ & epoch_mask);
  if ((argument & head_argument) != 0) {
    if (!current) {
      return;
    }
    const Packet packet = ring[head & (ring.size() - 1)].packet;  // a copy: the listener may send, and the ring grow
    if (++head != tail) {
      link->events_.schedule(ring[head & (ring.size() - 1)].packet.stamp, *this, argument);
    }
    arrive(packet);
    return;
  }
  if (argument != notify_argument) {
    const auto slot = static_cast<std::uint32_t>(argument);
    const Packet packet = slots[slot].packet;
    free_slots.push_back(slot);
    if (current) {
      arrive(packet);
    } else {
      --in_flight;
      ++counters.down;
      link->pool_.release(packet.content);
    }
    return;
  }
  if (busy_end > link->events_.now()) {  // more was sent meanwhile
    link->events_.schedule(busy_end, *this, notify_argument);
    return;
  }
  notify = false;
  if (listener != nullptr) {
    listener->on_transmit_ready();
  }
}

void Link::Direction::notify_when_free() {
  if (notify) {
    return;
  }
  notify = true;
  link->events_.schedule(busy_end, *this, notify_argument);
}

}  // namespace orrery::fabric
