// ReliableSender: what is lost, when it is sent again, and when the connection gives up.
#include <algorithm>

#include "fabric/transport/reliable_sender.h"

namespace orrery::fabric {

namespace {

std::uint8_t saturating_increment(std::uint8_t value) {
  return static_cast<std::uint8_t>(value == 255 ? 255 : value + 1);
}

}  // namespace

void ReliableSender::lose(Psn psn) {
  Slot& s = slot(psn);
  remove(list_of(s), psn);
  s.state = State::lost;
  in_flight_ -= s.bytes;
  append(lost_, psn);
}

void ReliableSender::resend() {
  if (timers_.now() < paused_until_) {
    return;
  }
  while (!lost_.empty()) {
    const Psn psn{lost_.oldest};
    if (in_flight_ != 0 && in_flight_ + slot(psn).bytes > congestion_->window_bytes()) {
      return;
    }
    resend_from(psn);
  }
}

void ReliableSender::resend_from(Psn psn) {
  const Picoseconds now = timers_.now();
  const std::uint32_t bytes = slot(psn).bytes;
  const unsigned path = paths_->next_other(now, bytes, entropy_.path(slot(psn).entropy));
  const std::uint16_t entropy = entropy_.port(path);
  const std::uint8_t attempt = saturating_increment(slot(psn).attempts);
  std::uint32_t run = 0;
  for (Psn next = psn;; next = psn + run) {
    Slot& s = slot(next);
    remove(lost_, next);
    s.state = State::in_flight;
    s.entropy = entropy;
    s.attempts = saturating_increment(s.attempts);
    s.sent = s.response ? response_time(s.bytes) : now;
    append(list_of(s), next);
    in_flight_ += s.bytes;
    ++run;
    const Psn following = psn + run;
    if (!s.response || following == next_ || slot(following).state != State::lost || slot(following).starts ||
        !slot(following).response || in_flight_ + slot(following).bytes > congestion_->window_bytes()) {
      break;
    }
  }
  counters_.retransmissions += run;
  host_.transmit(psn, entropy, attempt, run);
}

// Out-of-order trigger: packets that enough later ones have overtaken. Once for each window, as a packet that is sent
// again is overtaken by what was acknowledged before.
void ReliableSender::find_overtaken() {
  if (recovering_ && before(recovery_end_, oldest_)) {
    recovering_ = false;
  }
  const auto limit = std::min(congestion_->window_bytes() * 3 / 2, congestion_->max_window_bytes());
  const auto threshold = std::max<std::uint32_t>(5, static_cast<std::uint32_t>(limit / settings_.congestion.mtu_bytes));
  if (recovering_ || beyond_ < threshold) {
    return;
  }
  recovering_ = true;
  recovery_end_ = highest_;
  std::uint64_t bytes = 0;
  std::uint32_t later = beyond_;
  for (Psn psn = oldest_; later >= threshold; psn = psn + 1) {
    const Slot& s = slot(psn);
    if (s.state == State::acknowledged) {
      --later;
    } else if (s.state == State::in_flight && !s.response && s.attempts == 1) {
      paths_->on_feedback(timers_.now(), {entropy_.path(s.entropy), PathFeedback::Kind::lost, {}});
      bytes += s.bytes;
      ++counters_.overtaken;
      lose(psn);
    }
  }
  if (bytes != 0) {
    congestion_->on_loss(timers_.now(), bytes);
  }
}

void ReliableSender::on_rnr_nak(Psn psn, Picoseconds delay) {
  if (stopped_ || !outstanding(psn) || slot(psn).state == State::acknowledged) {
    return;
  }
  ++counters_.rnr_naks;
  const Picoseconds now = timers_.now();
  if (now >= paused_until_) {  // not another packet of the same flight
    constexpr std::uint32_t for_ever = 7;
    if (++rnr_in_a_row_ > settings_.rnr_retry_count && settings_.rnr_retry_count != for_ever) {
      fail(SendFailure::rnr_retry_exceeded);
      return;
    }
  }
  if (slot(psn).state == State::in_flight) {
    lose(psn);
  }
  paused_until_ = max(paused_until_, now + delay);
  progress_ = paused_until_;  // the receiver lives, and the wait is its wish
  resend();
  arm();
}

void ReliableSender::on_sequence_nak(Psn psn) {
  if (stopped_ || !outstanding(psn)) {
    return;
  }
  ++counters_.sequence_naks;
  if (slot(psn).attempts > 1 && timers_.now() < slot(psn).sent + settings_.congestion.base_rtt) {
    return;  // about the transmission before: it is on its way again
  }
  const Psn oldest_before = oldest_;
  AckSample sample;
  sample.now = timers_.now();
  sample.acked_bytes = complete_until(psn - 1);
  std::uint64_t bytes = 0;
  for (Psn later = psn; later != next_; later = later + 1) {
    if (slot(later).state == State::in_flight) {
      bytes += slot(later).bytes;
      lose(later);
    }
  }
  congestion_->on_loss(sample.now, bytes);
  conclude(oldest_before, sample);
}

std::uint64_t ReliableSender::expire(List& list) {
  const Picoseconds now = timers_.now();
  std::uint64_t bytes = 0;
  const auto expired = [&](Psn psn) {
    bytes += slot(psn).bytes;
    ++counters_.timeouts;
    lose(psn);
  };
  while (!list.empty() && slot({list.oldest}).sent + settings_.rto <= now) {
    const Psn psn{list.oldest};
    paths_->on_feedback(now, {entropy_.path(slot(psn).entropy), PathFeedback::Kind::timeout, {}});
    expired(psn);
    // The responses behind it that should have left by now and are missing too: one request asks for them all again.
    for (Psn next = psn + 1; slot(psn).response && next != next_; next = next + 1) {
      const Slot& s = slot(next);
      if (!s.response || s.starts || s.state != State::in_flight || s.sent > now) {
        break;
      }
      expired(next);
    }
  }
  return bytes;
}

void ReliableSender::on_timer() {
  const Picoseconds now = timers_.now();
  if (patience_ != Picoseconds::max() && now >= progress_ + patience_) {
    fail(SendFailure::retry_exceeded);
    return;
  }
  const bool resumes = now >= paused_until_ && paused_until_.count != 0;
  std::uint64_t bytes = expire(flight_);
  bytes += expire(awaited_);
  if (bytes != 0) {
    congestion_->on_loss(now, bytes);
  }
  resend();
  if (resumes) {
    paused_until_ = {};
  }
  arm();
  if (resumes) {
    host_.window_opened();
  }
}

void ReliableSender::stop() {
  stopped_ = true;
  timers_.disarm(timer_);
}

void ReliableSender::fail(SendFailure reason) {
  stop();
  host_.failed(reason);
}

Picoseconds ReliableSender::deadline() const {
  Picoseconds first = timers_.now() < paused_until_ ? paused_until_ : Picoseconds::max();
  if (oldest_ == next_) {
    return first;
  }
  if (patience_ != Picoseconds::max()) {
    first = min(first, progress_ + patience_);
  }
  for (const List* list : {&flight_, &awaited_}) {
    if (!list->empty()) {
      first = min(first, slot({list->oldest}).sent + settings_.rto);
    }
  }
  return first;
}

void ReliableSender::arm() {
  if (stopped_) {
    return;
  }
  const Picoseconds first = deadline();
  if (first == Picoseconds::max()) {
    timers_.disarm(timer_);
  } else {
    timers_.arm(timer_, first);
  }
}

}  // namespace orrery::fabric
