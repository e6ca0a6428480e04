#include "fabric/transport/reliable_sender.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"

namespace orrery::fabric {

namespace {

constexpr std::uint32_t first_slots = 64;

void check(const SenderSettings& settings) {
  if (settings.window_packets < 1 || settings.window_packets >= psn_half_space) {
    throw Error(fmt::format("transport: a window of {} packets", settings.window_packets), "use 1 to 8388607");
  }
  if (settings.rto.count == 0) {
    throw Error("transport: a retransmission timeout of 0", "use more than the longest round trip");
  }
  if (settings.ack_timeout > 31 || settings.retry_count > 7 || settings.rnr_retry_count > 7) {
    throw Error(fmt::format("transport: acknowledge timeout {}, {} retries, {} RNR retries", settings.ack_timeout,
                            settings.retry_count, settings.rnr_retry_count),
                "the timeout is at most 31, retries are at most 7");
  }
}

// IBTA §9.7.6.1.3, as docs/fabric.md gives it.
Picoseconds patience_of(const SenderSettings& settings) {
  if (settings.ack_timeout == 0) {
    return Picoseconds::max();
  }
  const Picoseconds timeout{std::uint64_t{4'096'000} << settings.ack_timeout};
  return max(timeout, settings.rto) * (settings.retry_count + 1U);
}

}  // namespace

ReliableSender::ReliableSender(TimerPool& timers, SenderHost& host, const SenderSettings& settings)
    : timers_(timers),
      timer_(0),
      host_(host),
      settings_(settings),
      paths_(make_path_selector(settings.paths)),
      congestion_(make_congestion_control(settings.congestion)),
      entropy_(settings.paths),
      slots_(first_slots),
      slot_mask_(first_slots - 1),
      oldest_(Psn::of(settings.initial_psn.value)),
      next_(oldest_),
      cumulative_(oldest_),
      highest_(oldest_ - 1),
      patience_(patience_of(settings)) {
  check(settings);
  timer_ = timers_.add(*this);
}

ReliableSender::~ReliableSender() {
  timers_.remove(timer_);
}

void ReliableSender::append(List& list, Psn psn) {
  Slot& s = slot(psn);
  s.newer = List::none;
  s.older = list.newest;
  if (list.newest == List::none) {
    list.oldest = psn.value;
  } else {
    slot({list.newest}).newer = psn.value;
  }
  list.newest = psn.value;
}

void ReliableSender::remove(List& list, Psn psn) {
  const Slot& s = slot(psn);
  if (s.older == List::none) {
    list.oldest = s.newer;
  } else {
    slot({s.older}).newer = s.newer;
  }
  if (s.newer == List::none) {
    list.newest = s.older;
  } else {
    slot({s.newer}).older = s.older;
  }
}

// Links are PSNs, not places, so the slots can move.
void ReliableSender::grow(std::uint32_t packets) {
  std::size_t size = slots_.size();
  while (size < packets) {
    size *= 2;
  }
  std::vector<Slot> larger(size);
  for (Psn psn = oldest_; psn != next_; psn = psn + 1) {
    larger[psn.value & (size - 1)] = slot(psn);
  }
  slots_ = std::move(larger);
  slot_mask_ = static_cast<std::uint32_t>(size - 1);
}

bool ReliableSender::may_send(std::uint32_t bytes, std::uint32_t packets) const {
  const auto used = static_cast<std::uint32_t>(distance(oldest_, next_));
  return !stopped_ && lost_.empty() && timers_.now() >= paused_until_ && packets <= settings_.window_packets - used &&
         (in_flight_ == 0 || in_flight_ + std::uint64_t{bytes} * packets <= congestion_->window_bytes());
}

ReliableSender::Ticket ReliableSender::send(std::uint32_t bytes) {
  const Picoseconds now = timers_.now();
  const auto used = static_cast<std::uint32_t>(distance(oldest_, next_));
  if (used == slots_.size()) [[unlikely]] {
    grow(used + 1);
  }
  if (used == 0) {
    progress_ = now;
  }
  const Psn psn = next_;
  next_ = next_ + 1;
  const std::uint16_t entropy = entropy_.port(paths_->next(now, bytes));
  Slot& s = slot(psn);
  s = Slot{};
  s.sent = now;
  s.bytes = bytes;
  s.entropy = entropy;
  s.attempts = 1;
  s.state = State::in_flight;
  s.starts = true;
  const bool first = flight_.empty();
  append(flight_, psn);
  in_flight_ += bytes;
  ++counters_.packets;
  if (first) {
    arm();  // otherwise an earlier packet's deadline comes first
  }
  return {psn, entropy};
}

// Responses come no faster than the port's rate: each is given its turn, so that a long READ doesn't time out while
// it is still being sent.
Picoseconds ReliableSender::response_time(std::uint32_t bytes) {
  const double picoseconds =
      static_cast<double>(bytes) * 8e12 / static_cast<double>(settings_.congestion.bits_per_second);
  const Picoseconds start = max(response_clock_, timers_.now());
  response_clock_ = start + Picoseconds{static_cast<std::uint64_t>(picoseconds)};
  return start;
}

ReliableSender::Ticket ReliableSender::send_request(std::uint32_t bytes, std::uint32_t packets) {
  const Picoseconds now = timers_.now();
  const auto used = static_cast<std::uint32_t>(distance(oldest_, next_));
  if (used + packets > slots_.size()) {
    grow(used + packets);
  }
  if (used == 0) {
    progress_ = now;
  }
  const Ticket ticket{next_, entropy_.port(paths_->next(now, bytes))};
  for (std::uint32_t i = 0; i < packets; ++i) {
    const Psn psn = next_;
    next_ = next_ + 1;
    Slot& s = slot(psn);
    s = Slot{};
    s.sent = response_time(bytes);
    s.bytes = bytes;
    s.entropy = ticket.entropy;
    s.attempts = 1;
    s.state = State::in_flight;
    s.response = true;
    s.starts = i == 0;
    append(awaited_, psn);
    in_flight_ += bytes;
  }
  ++counters_.packets;
  arm();
  return ticket;
}

// Bytes of the packet if it wasn't complete before.
std::uint32_t ReliableSender::complete(Psn psn) {
  Slot& s = slot(psn);
  if (s.state == State::acknowledged) {
    return 0;
  }
  remove(list_of(s), psn);
  if (s.state == State::in_flight) {
    in_flight_ -= s.bytes;
  }
  s.state = State::acknowledged;
  ++beyond_;
  if (before(highest_, psn)) {
    highest_ = psn;
  }
  return s.bytes;
}

std::uint64_t ReliableSender::complete_until(Psn upto) {
  std::uint64_t bytes = 0;
  Psn psn = before(cumulative_, oldest_) ? oldest_ : cumulative_;
  for (; distance(psn, upto) >= 0; psn = psn + 1) {
    if (!slot(psn).response) {
      bytes += complete(psn);
    }
  }
  cumulative_ = psn;
  return bytes;
}

std::uint64_t ReliableSender::complete_selective(const AckInfo& info) {
  std::uint64_t bytes = 0;
  std::uint64_t bits = info.sack_bitmap;
  for (std::uint32_t i = 0; bits != 0; ++i, bits >>= 1) {
    const Psn psn = info.sack_base + i;
    if ((bits & 1U) != 0 && outstanding(psn) && !slot(psn).response) {
      bytes += complete(psn);
    }
  }
  return bytes;
}

void ReliableSender::advance() {
  while (oldest_ != next_ && slot(oldest_).state == State::acknowledged) {
    oldest_ = oldest_ + 1;
    --beyond_;
  }
}

// RTT and path of the packet that made the receiver acknowledge, as long as it is known which transmission it was.
void ReliableSender::take_sample(const AckInfo& info, AckSample& sample) {
  if (!info.has_trigger) {
    return;
  }
  sample.ecn = info.ecn_echo;
  counters_.ecn_echoes += info.ecn_echo ? 1U : 0U;
  if (outstanding(info.trigger)) {
    const Slot& s = slot(info.trigger);
    const bool which_is_known =
        s.attempts == 1 || (s.attempts == 2 && entropy_.path(s.entropy) < paths_->paths() && paths_->paths() > 1);
    const Picoseconds since = s.sent + info.delay;
    if (s.state == State::in_flight && !s.response && s.entropy == info.entropy && which_is_known &&
        timers_.now() > since) {
      sample.has_rtt = true;
      sample.rtt = timers_.now() - since;
      counters_.last_rtt = sample.rtt;
    }
  }
  feed_back(info.entropy, sample);
}

void ReliableSender::feed_back(std::uint16_t entropy, const AckSample& sample) {
  const unsigned path = entropy_.path(entropy);
  if (path < paths_->paths()) {
    paths_->on_feedback(sample.now,
                        {path, sample.ecn ? PathFeedback::Kind::ecn : PathFeedback::Kind::clean, sample.rtt});
  }
}

void ReliableSender::on_ack(const AckInfo& info) {
  if (stopped_) {
    return;
  }
  ++counters_.acks;
  const std::int32_t behind = distance(oldest_, info.cumulative);
  if (!before(info.cumulative, next_)) {
    ++counters_.stale_acks;  // for what was never sent
    return;
  }
  const Psn oldest_before = oldest_;
  AckSample sample;
  sample.now = timers_.now();
  take_sample(info, sample);
  if (behind >= 0) {
    sample.acked_bytes += complete_until(info.cumulative);
  } else if (behind < -1) {
    ++counters_.stale_acks;  // overtaken by a later one; its bitmap may still say something
  }
  sample.acked_bytes += complete_selective(info);
  conclude(oldest_before, sample);
}

bool ReliableSender::on_response(Psn psn, std::uint16_t entropy, bool ecn) {
  if (stopped_ || !outstanding(psn) || !slot(psn).response || slot(psn).state == State::acknowledged) {
    return false;
  }
  const Psn oldest_before = oldest_;
  const Slot& s = slot(psn);
  AckSample sample;
  sample.now = timers_.now();
  sample.ecn = ecn;
  if (s.state == State::in_flight && s.attempts == 1 && sample.now > s.sent) {
    sample.has_rtt = true;
    sample.rtt = sample.now - s.sent;
    counters_.last_rtt = sample.rtt;
  }
  feed_back(entropy, sample);
  sample.acked_bytes = complete(psn);
  conclude(oldest_before, sample);
  return true;
}

void ReliableSender::conclude(Psn oldest_before, const AckSample& sample) {
  advance();
  if (sample.acked_bytes != 0) {
    progress_ = sample.now;
    rnr_in_a_row_ = 0;
  }
  AckSample complete_sample = sample;
  complete_sample.in_flight_bytes = in_flight_;
  congestion_->on_ack(complete_sample);
  if (settings_.out_of_order_trigger && beyond_ != 0) {
    find_overtaken();
  }
  resend();
  arm();
  if (oldest_ != oldest_before) {
    host_.acknowledged(oldest_ - 1);
  }
  if (!stopped_) {
    host_.window_opened();
  }
}

}  // namespace orrery::fabric
