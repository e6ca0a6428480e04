// The receiving half of a reliable connection: what has arrived, and which acknowledges to send. It knows no payload.
//
// A bitmap of PSNs beyond the cumulative one lets data be placed in any order, once. Order of calls for a data packet:
// check(); if fresh and the host can't take it, refuse(), and an RNR NAK; otherwise on_data(), the host's own work
// (placing, completing), then flush(), which sends the acknowledges that have become due.
#pragma once

#include <cstdint>
#include <vector>

#include "common/time.h"
#include "fabric/packet.h"
#include "fabric/transport/ack_info.h"
#include "fabric/transport/psn.h"
#include "fabric/transport/timer_pool.h"

namespace orrery::fabric {

enum class Arrival : std::uint8_t {
  fresh,
  duplicate,
  outside,  // beyond the bitmap: the sender broke its window; drop it
};

struct ReceiverSettings {
  Psn initial_psn = {};
  std::uint32_t bitmap_packets = 1U << 14;  // power of two, 64 … 2^22: window of PSNs from the first missing one
  std::uint32_t ack_every = 4;              // packets an acknowledge stands for, at most; 1 … 64
  bool ack_out_of_order = false;  // acknowledge at once whatever is not next: a receiver that expects little of it
  Picoseconds ack_delay = {1'000'000};  // longest that an acknowledge waits for more packets; > 0
};

struct ReceiverCounters {
  std::uint64_t fresh = 0;
  std::uint64_t out_of_order = 0;  // fresh, but not the next one
  std::uint64_t duplicates = 0;
  std::uint64_t outside = 0;
  std::uint64_t refused = 0;
  std::uint64_t ce = 0;  // marked packets
  std::uint64_t acks = 0;
  std::uint32_t widest = 0;  // most PSNs between cumulative and newest: reorder state that was needed
};

class ReceiverHost {
 public:
  // Send an acknowledge with these fields, now.
  virtual void send_ack(const AckInfo& info) = 0;

 protected:
  ~ReceiverHost() = default;
};

// A data packet (or request) as it arrived.
struct DataArrival {
  Psn psn;
  std::uint16_t entropy = 0;  // UDP source port
  bool ce = false;
  bool ack_request = false;   // BTH.A
  bool last = false;          // ends its message
  std::uint32_t packets = 1;  // PSNs that it takes: a READ request takes as many as it has responses
};

class ReliableReceiver final : private TimerClient {
 public:
  // Error if a setting is outside its range. Lifetime as for ReliableSender.
  ReliableReceiver(TimerPool& timers, ReceiverHost& host, const ReceiverSettings& settings);
  ~ReliableReceiver();
  ReliableReceiver(const ReliableReceiver&) = delete;
  ReliableReceiver& operator=(const ReliableReceiver&) = delete;

  // What on_data() would say, without doing anything.
  [[nodiscard]] Arrival check(Psn psn, std::uint32_t packets = 1) const;
  // Records the packet: its PSNs have arrived. If what waits to be acknowledged and this packet don't fit in one
  // bitmap, an acknowledge of the former is sent first.
  Arrival on_data(const DataArrival& data);
  // The host could not take a fresh packet: it stays missing.
  void refuse() { ++counters_.refused; }
  // Sends what is due. Call it after each on_data().
  void flush();
  // No acknowledge is sent any more (QP to error or reset).
  void stop();

  // The last PSN before the first missing one: initial_psn - 1 at first.
  [[nodiscard]] Psn cumulative() const { return expected_ - 1; }
  [[nodiscard]] Psn expected() const { return expected_; }
  [[nodiscard]] bool has_arrived(Psn psn) const;  // before or within the window
  [[nodiscard]] const ReceiverCounters& counters() const { return counters_; }

 private:
  void on_timer() override;
  [[nodiscard]] bool bit(Psn psn) const {
    return ((bitmap_[(psn.value & bit_mask_) >> 6] >> (psn.value & 63U)) & 1U) != 0;
  }
  void set(Psn psn) { bitmap_[(psn.value & bit_mask_) >> 6] |= std::uint64_t{1} << (psn.value & 63U); }
  [[nodiscard]] std::uint64_t bits_from(Psn base) const;
  static Psn max_of(Psn a, Psn b) { return before(a, b) ? b : a; }
  void advance();
  void emit();

  TimerPool& timers_;
  std::uint32_t timer_;
  ReceiverHost& host_;
  ReceiverSettings settings_;
  std::uint32_t bit_mask_;
  std::vector<std::uint64_t> bitmap_;  // ring by PSN
  Psn expected_;
  Psn newest_;               // newest that arrived
  std::uint32_t ahead_ = 0;  // bits set beyond expected_
  // Since the last acknowledge.
  std::uint32_t unacknowledged_ = 0;
  std::uint8_t ce_count_ = 0;
  bool due_ = false;
  DataArrival trigger_;
  Picoseconds trigger_at_;
  bool has_pending_ = false;  // something out of order waits to be acknowledged, between these
  Psn lowest_;
  Psn highest_;
  bool stopped_ = false;
  ReceiverCounters counters_;
};

}  // namespace orrery::fabric
