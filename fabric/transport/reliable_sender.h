// The sending half of a reliable connection: window, acknowledges, retransmission, failure. It knows no payload.
//
// Selective repeat over 24-bit PSNs: a packet is sent again, on another path, when its acknowledge has not come within
// the RTO or (optionally) when enough later packets have overtaken it. The same code serves an RNIC's QP and a node of
// a large study. Deterministic; one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/time.h"
#include "fabric/transport/ack_info.h"
#include "fabric/transport/congestion_control.h"
#include "fabric/transport/path_selector.h"
#include "fabric/transport/psn.h"
#include "fabric/transport/timer_pool.h"

namespace orrery::fabric {

enum class SendFailure : std::uint8_t {
  retry_exceeded,      // no progress for (retry_count + 1) acknowledge timeouts: IBTA §9.7.6.1, §10.8.3.1
  rnr_retry_exceeded,  // the receiver was not ready rnr_retry_count + 1 times in a row
};

struct SenderSettings {
  Psn initial_psn = {};
  // Most PSNs between the oldest unacknowledged and the newest, 1 … 2^23 - 1: not above the receiver's bitmap.
  std::uint32_t window_packets = 1U << 14;
  Picoseconds rto = {250'000'000};  // retransmission timeout, fixed (facts: Stellar §7); > 0
  // The guest's: acknowledge timeout 4.096 µs * 2^ack_timeout, 0 = never fail, 1 … 31 (IBTA §9.7.6.1.3); the connection
  // fails when max(that, rto) * (retry_count + 1) has passed without a new acknowledge while packets are outstanding.
  std::uint8_t ack_timeout = 14;
  std::uint8_t retry_count = 7;      // 0 … 7
  std::uint8_t rnr_retry_count = 7;  // 0 … 7; 7 = for ever (§9.7.5.2.8)
  // Out-of-order trigger (SLEEK, Ultra Ethernet): resend holes once max(5, min(1.5 window, max window) / MTU) packets
  // were acknowledged beyond the oldest.
  bool out_of_order_trigger = false;
  PathSettings paths = {};
  CongestionSettings congestion = {};
};

struct SenderCounters {
  std::uint64_t packets = 0;          // first transmissions
  std::uint64_t retransmissions = 0;  // all causes
  std::uint64_t timeouts = 0;         // packets found lost by RTO
  std::uint64_t overtaken = 0;        // packets found lost by the out-of-order trigger
  std::uint64_t rnr_naks = 0;
  std::uint64_t sequence_naks = 0;
  std::uint64_t acks = 0;
  std::uint64_t stale_acks = 0;  // outside the window, or for what was never sent
  std::uint64_t ecn_echoes = 0;
  Picoseconds last_rtt;
};

class SenderHost {
 public:
  // Build and send packet `psn` again. attempt: 2 for the first retransmission, saturating at 255. entropy: UDP source
  // port. For a PSN inside the span of a request with responses: ask again for the responses psn … psn + packets - 1,
  // which are missing and belong to one request; otherwise packets is 1. Must not call the sender back.
  virtual void transmit(Psn psn, std::uint16_t entropy, unsigned attempt, std::uint32_t packets) = 0;
  // Everything up to and including `upto` is acknowledged and answered; strictly advancing.
  virtual void acknowledged(Psn upto) = 0;
  // may_send() may have become true.
  virtual void window_opened() = 0;
  // The connection is dead: nothing is called or sent any more.
  virtual void failed(SendFailure reason) = 0;

 protected:
  ~SenderHost() = default;
};

class ReliableSender final : private TimerClient {
 public:
  // Error if a setting is outside its range. `timers` and `host` outlive the sender, which may be destroyed at any
  // time, but not from within a call to its host.
  ReliableSender(TimerPool& timers, SenderHost& host, const SenderSettings& settings);
  ~ReliableSender();
  ReliableSender(const ReliableSender&) = delete;
  ReliableSender& operator=(const ReliableSender&) = delete;

  // Whether `packets` PSNs of `bytes` on the wire each fit in both windows. While nothing is in flight the congestion
  // window doesn't matter. Packets that wait to be resent, and a receiver that isn't ready, go first.
  [[nodiscard]] bool may_send(std::uint32_t bytes, std::uint32_t packets = 1) const;
  struct Ticket {
    Psn psn;
    std::uint16_t entropy = 0;
  };
  // Registers a new packet, which the host transmits now. may_send() must be true.
  Ticket send(std::uint32_t bytes);
  // Registers a request whose `packets` responses take PSNs psn … psn + packets - 1 (READ, atomic: IBTA §9.7.4), of
  // `bytes` each on the wire. Acknowledges don't complete it, on_response() does, PSN by PSN and in any order. A large
  // READ is best cut into requests of a fraction of the window. may_send(bytes, packets) must be true.
  Ticket send_request(std::uint32_t bytes, std::uint32_t packets);

  void on_ack(const AckInfo& info);
  // Response packet `psn` has arrived. True if it is the first of its PSN; false: drop it (duplicate, or not asked
  // for).
  // entropy: the UDP source port that it came with; feeds path selection if it is one of this connection's.
  bool on_response(Psn psn, std::uint16_t entropy, bool ecn);
  // The receiver refused `psn`: nothing is sent for `delay`, then `psn` again. Says nothing about earlier PSNs.
  void on_rnr_nak(Psn psn, Picoseconds delay);
  // A receiver without out-of-order placement expects `psn` next: all before it has arrived (§9.7.5.2.4), that and all
  // unacknowledged after it are sent again.
  void on_sequence_nak(Psn psn);
  // Gives up (QP to error or reset): nothing is sent any more, timers die, no failed() call. Irrevocable.
  void stop();

  [[nodiscard]] bool idle() const { return oldest_ == next_; }  // nothing outstanding
  [[nodiscard]] bool stopped() const { return stopped_; }
  [[nodiscard]] Psn next_psn() const { return next_; }
  [[nodiscard]] Psn oldest_psn() const { return oldest_; }  // next_psn() if idle
  [[nodiscard]] std::uint64_t in_flight_bytes() const { return in_flight_; }
  [[nodiscard]] const SenderCounters& counters() const { return counters_; }
  [[nodiscard]] const SenderSettings& settings() const { return settings_; }
  [[nodiscard]] CongestionControl& congestion() { return *congestion_; }
  [[nodiscard]] PathSelector& paths() { return *paths_; }
  [[nodiscard]] const EntropyMap& entropy() const { return entropy_; }

 private:
  enum class State : std::uint8_t { acknowledged, in_flight, lost };
  struct Slot {
    Picoseconds sent;         // last transmission; of a response: when it can leave the responder at the earliest
    std::uint32_t bytes = 0;  // on the wire
    std::uint32_t newer = 0;  // list links: PSN values
    std::uint32_t older = 0;
    std::uint16_t entropy = 0;
    std::uint8_t attempts = 0;
    State state : 6 = State::acknowledged;
    bool response : 1 = false;  // only on_response() completes it
    bool starts : 1 = false;    // first PSN of its request
  };
  static_assert(sizeof(Slot) == 24);
  // Slots of one state in order of transmission (in flight) or loss.
  struct List {
    static constexpr std::uint32_t none = 0xffff'ffffU;
    std::uint32_t oldest = none;
    std::uint32_t newest = none;
    [[nodiscard]] bool empty() const { return oldest == none; }
  };

  void on_timer() override;
  [[nodiscard]] Slot& slot(Psn psn) { return slots_[psn.value & slot_mask_]; }
  [[nodiscard]] const Slot& slot(Psn psn) const { return slots_[psn.value & slot_mask_]; }
  [[nodiscard]] bool outstanding(Psn psn) const { return distance(oldest_, psn) >= 0 && before(psn, next_); }
  [[nodiscard]] List& list_of(const Slot& s) {
    return s.state == State::lost ? lost_ : s.response ? awaited_ : flight_;
  }
  void append(List& list, Psn psn);
  void remove(List& list, Psn psn);
  void grow(std::uint32_t packets);
  [[nodiscard]] Picoseconds response_time(std::uint32_t bytes);
  std::uint32_t complete(Psn psn);
  std::uint64_t complete_until(Psn upto);
  std::uint64_t complete_selective(const AckInfo& info);
  void advance();
  void lose(Psn psn);
  std::uint64_t expire(List& list);
  void resend();
  void resend_from(Psn psn);
  void find_overtaken();
  void take_sample(const AckInfo& info, AckSample& sample);
  void feed_back(std::uint16_t entropy, const AckSample& sample);
  void conclude(Psn oldest_before, const AckSample& sample);
  void fail(SendFailure reason);
  void arm();
  [[nodiscard]] Picoseconds deadline() const;

  TimerPool& timers_;
  std::uint32_t timer_;
  SenderHost& host_;
  SenderSettings settings_;
  std::unique_ptr<PathSelector> paths_;
  std::unique_ptr<CongestionControl> congestion_;
  EntropyMap entropy_;
  std::vector<Slot> slots_;  // ring by PSN, a power of two
  std::uint32_t slot_mask_ = 0;
  Psn oldest_;
  Psn next_;
  Psn cumulative_;  // one past the highest cumulative acknowledge
  Psn highest_;     // highest acknowledged
  Psn recovery_end_;
  bool recovering_ = false;
  bool stopped_ = false;
  std::uint64_t in_flight_ = 0;  // bytes
  std::uint32_t beyond_ = 0;     // completed packets after oldest_
  List flight_;                  // in flight, to be acknowledged
  List awaited_;                 // in flight, to be answered
  List lost_;
  Picoseconds response_clock_;  // when the responses asked for so far can have left
  Picoseconds progress_;        // last new acknowledge, or first send into an empty window
  Picoseconds patience_;        // without progress, until failure; max() = never
  Picoseconds paused_until_;    // RNR
  std::uint32_t rnr_in_a_row_ = 0;
  SenderCounters counters_;
};

}  // namespace orrery::fabric
