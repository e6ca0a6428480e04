// A full-duplex Ethernet link: two directions, each an occupied resource, each with its own impairments.
//
// A frame occupies its direction for its bytes and 20 more (IEEE 802.3: 8 of preamble and SFD, 12 of inter-packet gap)
// and reaches the far end a propagation delay later. Picoseconds are exact: a busy period that carried B bytes lasts
// ceil(B * byte time), so nothing drifts. One event a packet. No PFC, no pre-emption.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "common/event_queue.h"
#include "common/rng.h"
#include "common/time.h"
#include "fabric/packet_pool.h"
#include "fabric/port.h"

namespace orrery::fabric {

inline constexpr std::uint32_t preamble_and_gap_bytes = 20;

// Probabilities in [0, 1], drawn independently for every packet, in this order.
struct Impairments {
  double loss = 0;             // dropped after it has occupied the wire
  double corruption = 0;       // arrives with packet_flag::bad_fcs
  double icrc_corruption = 0;  // arrives with packet_flag::bad_icrc (as if damaged inside a switch)
  double duplication = 0;      // arrives twice, the second time `reorder_delay` later
  double reordering = 0;       // arrives up to `reorder_delay` late (uniform), so that later packets overtake it
  Picoseconds reorder_delay = {10'000'000};
  [[nodiscard]] bool any() const {
    return loss > 0 || corruption > 0 || icrc_corruption > 0 || duplication > 0 || reordering > 0;
  }
};

struct LinkSettings {
  std::uint64_t bits_per_second = 200'000'000'000;  // a multiple of 1 Mb/s, at most 100 Tb/s
  Picoseconds propagation = {500'000};              // one way
  Impairments impairments = {};                     // of both directions
  std::uint64_t seed = 0;                           // with `stream`: of the impairments
  std::uint64_t stream = 0;                         // a number of its own for each link of a run
};

// Of one direction. sent + duplicated = delivered + lost + down + in flight.
struct LinkCounters {
  std::uint64_t sent_packets = 0;
  std::uint64_t sent_bytes = 0;         // Packet::wire_bytes
  std::uint64_t delivered_packets = 0;  // copies included
  std::uint64_t delivered_bytes = 0;
  std::uint64_t lost = 0;
  std::uint64_t down = 0;  // lost because the link was down, or nobody was attached
  std::uint64_t corrupted = 0;
  std::uint64_t duplicated = 0;
  std::uint64_t reordered = 0;
  Picoseconds busy;  // time occupied, preambles and gaps included
};

class Link {
 public:
  // Error if a setting is outside its range.
  Link(EventQueue& events, PacketPool& pool, const LinkSettings& settings);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // The two ends, 0 and 1. What end 0 sends, end 1's listener receives.
  [[nodiscard]] Port& end(unsigned which) { return directions_[which]; }
  // Of what end `which` sends.
  [[nodiscard]] const LinkCounters& counters(unsigned which) const { return directions_[which].counters; }
  // Packets of end `which` that are queued, on the wire or in flight.
  [[nodiscard]] std::size_t in_flight(unsigned which) const { return directions_[which].in_flight; }
  // Changes what end `which` suffers, for packets sent from now on. Error outside the range.
  void set_impairments(unsigned which, const Impairments& impairments);
  // A link that is down loses what is sent on it and what is in flight.
  void set_up(bool up);
  [[nodiscard]] bool is_up() const { return up_; }
  [[nodiscard]] const LinkSettings& settings() const { return settings_; }
  // Time that a frame of `wire_bytes` occupies an idle direction.
  [[nodiscard]] Picoseconds occupancy(std::uint32_t wire_bytes) const;

 private:
  class Direction final : public Port, private EventHandler {
   public:
    Direction() : random(0, 0) {}
    Picoseconds send_after(const Packet& packet, Picoseconds delay) override;
    [[nodiscard]] Picoseconds free_at() const override { return busy_end; }
    void notify_when_free() override;
    void attach(PortListener& new_listener) override { listener = &new_listener; }

    // A cache line for each packet on the way.
    struct alignas(64) Flight {
      Packet packet;
    };
    // Members in the order in which a packet's way needs them.
    Link* link = nullptr;
    Direction* peer = nullptr;
    PortListener* listener = nullptr;  // of this end's device: hears what the peer sends
    bool impaired = false;
    bool notify = false;
    Picoseconds busy_start;
    Picoseconds busy_end;
    std::uint64_t busy_bytes = 0;
    // Packets on the way that arrive in order: a ring, with one event in the queue for its first. Far fewer events are
    // pending than packets, and those are near.
    std::vector<Flight> ring;  // a power of two
    std::uint64_t head = 0;
    std::uint64_t tail = 0;
    std::size_t in_flight = 0;
    LinkCounters counters;
    // Those that arrive late: the event's argument is the slot.
    std::vector<Flight> slots;
    std::vector<std::uint32_t> free_slots;
    Impairments impairments;
    Rng random;

    void lose_all();

   private:
    void on_event(std::uint64_t argument) override;
    void fly(const Packet& packet, Picoseconds arrival);
    void fly_late(const Packet& packet, Picoseconds arrival);
    void grow();
    void arrive(const Packet& packet);
    void impair(Packet& packet, Picoseconds arrival);
  };

  [[nodiscard]] Picoseconds duration(std::uint64_t bytes) const;

  EventQueue& events_;
  PacketPool& pool_;
  LinkSettings settings_;
  std::uint64_t numerator_;  // picoseconds per byte = numerator / denominator, reduced
  std::uint64_t denominator_;
  bool up_ = true;
  std::uint64_t epoch_ = 0;  // counts the times it went down: events of what flew then mean nothing any more
  std::array<Direction, 2> directions_;
};

}  // namespace orrery::fabric
