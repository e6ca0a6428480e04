#include "fabric/transport/reliable_receiver.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "common/error.h"

namespace orrery::fabric {

namespace {

constexpr std::uint32_t sack_bits = 64;

void validate(const ReceiverSettings& settings) {
  if (!std::has_single_bit(settings.bitmap_packets) || settings.bitmap_packets < 64 ||
      settings.bitmap_packets > (1U << 22)) {
    throw Error(fmt::format("transport: a receive bitmap of {} packets", settings.bitmap_packets),
                "use a power of two from 64 to 4194304");
  }
  if (settings.ack_every < 1 || settings.ack_every > sack_bits) {
    throw Error(fmt::format("transport: an acknowledge for every {} packets", settings.ack_every), "use 1 to 64");
  }
  if (settings.ack_delay.count == 0) {
    throw Error("transport: an acknowledge delay of 0", "use more, or ack_every = 1");
  }
}

}  // namespace

ReliableReceiver::ReliableReceiver(TimerPool& timers, ReceiverHost& host, const ReceiverSettings& settings)
    : timers_(timers),
      timer_(0),
      host_(host),
      settings_(settings),
      bit_mask_(settings.bitmap_packets - 1),
      expected_(Psn::of(settings.initial_psn.value)),
      newest_(expected_ - 1) {
  validate(settings);
  bitmap_.resize(settings.bitmap_packets / 64);
  timer_ = timers_.add(*this);
}

ReliableReceiver::~ReliableReceiver() {
  timers_.remove(timer_);
}

Arrival ReliableReceiver::check(Psn psn, std::uint32_t packets) const {
  const std::int32_t ahead = distance(expected_, psn);
  if (ahead < 0) {
    return Arrival::duplicate;
  }
  if (packets > settings_.bitmap_packets || static_cast<std::uint32_t>(ahead) > settings_.bitmap_packets - packets) {
    return Arrival::outside;
  }
  return bit(psn) ? Arrival::duplicate : Arrival::fresh;
}

bool ReliableReceiver::has_arrived(Psn psn) const {
  const std::int32_t ahead = distance(expected_, psn);
  return ahead < 0 || (static_cast<std::uint32_t>(ahead) < settings_.bitmap_packets && bit(psn));
}

void ReliableReceiver::advance() {
  while (ahead_ != 0 && bit(expected_)) {
    bitmap_[(expected_.value & bit_mask_) >> 6] &= ~(std::uint64_t{1} << (expected_.value & 63U));
    expected_ = expected_ + 1;
    --ahead_;
  }
}

Arrival ReliableReceiver::on_data(const DataArrival& data) {
  const Arrival arrival = check(data.psn, data.packets);
  if (arrival == Arrival::outside) {
    ++counters_.outside;
    return arrival;
  }
  const Psn last = data.psn + (data.packets - 1);
  const bool in_order = data.psn == expected_;
  const bool had_holes = ahead_ != 0;
  if (arrival == Arrival::fresh) {
    // One bitmap must be able to name all that waits for it.
    if (unacknowledged_ != 0 && has_pending_ && !in_order) {
      const Psn low = max_of(expected_, before(data.psn, lowest_) ? data.psn : lowest_);
      const Psn high = before(highest_, last) ? last : highest_;
      if (distance(low, high) >= static_cast<std::int32_t>(sack_bits)) {
        emit();
      }
    }
    ++counters_.fresh;
    counters_.out_of_order += in_order ? 0U : 1U;
    for (std::uint32_t i = 0; i < data.packets; ++i) {
      const Psn psn = data.psn + i;
      if (!bit(psn)) {
        set(psn);
        ++ahead_;
      }
    }
    if (before(newest_, last)) {
      newest_ = last;
    }
    if (!in_order) {
      lowest_ = has_pending_ && before(lowest_, data.psn) ? lowest_ : data.psn;
      highest_ = has_pending_ && before(last, highest_) ? highest_ : last;
      has_pending_ = true;
      counters_.widest = std::max(counters_.widest, static_cast<std::uint32_t>(distance(expected_, newest_)));
    }
    advance();
    ++unacknowledged_;
    // What fills the last hole ends a message whose last packet came early. Its completion may be all that the consumer
    // waits for before it destroys the QP: the acknowledge must not come later.
    due_ = due_ || (had_holes && ahead_ == 0);
  } else {
    ++counters_.duplicates;
    due_ = true;  // the acknowledge may be what was lost
  }
  if (data.ce) {
    ++counters_.ce;
    ce_count_ = static_cast<std::uint8_t>(ce_count_ == 255 ? 255 : ce_count_ + 1);
  }
  trigger_ = data;
  trigger_at_ = timers_.now();
  due_ = due_ || data.ack_request || data.last || unacknowledged_ >= settings_.ack_every ||
         (!in_order && settings_.ack_out_of_order);
  if (!due_ && !stopped_ && timers_.deadline(timer_) == Picoseconds::max()) {
    timers_.arm(timer_, timers_.now() + settings_.ack_delay);
  }
  return arrival;
}

// 64 bits of the ring from `base` on, which is expected_ or later; what lies beyond the window reads 0.
std::uint64_t ReliableReceiver::bits_from(Psn base) const {
  const std::uint32_t place = base.value & bit_mask_;
  const std::uint32_t shift = place & 63U;
  std::uint64_t bits = bitmap_[place >> 6] >> shift;
  if (shift != 0) {
    bits |= bitmap_[((place >> 6) + 1) & (bitmap_.size() - 1)] << (64 - shift);
  }
  const auto inside = settings_.bitmap_packets - static_cast<std::uint32_t>(distance(expected_, base));
  return inside >= sack_bits ? bits : bits & ((std::uint64_t{1} << inside) - 1);
}

void ReliableReceiver::emit() {
  AckInfo info;
  info.cumulative = expected_ - 1;
  info.trigger = trigger_.psn;
  info.sack_base = has_pending_ ? max_of(expected_, lowest_) : expected_;
  info.sack_bitmap = ahead_ == 0 ? 0 : bits_from(info.sack_base);
  info.entropy = trigger_.entropy;
  info.ecn_echo = trigger_.ce;
  info.ce_count = ce_count_;
  info.delay = timers_.now() - trigger_at_;
  due_ = false;
  has_pending_ = false;
  unacknowledged_ = 0;
  ce_count_ = 0;
  timers_.disarm(timer_);
  ++counters_.acks;
  host_.send_ack(info);
}

void ReliableReceiver::flush() {
  if (due_ && !stopped_) {
    emit();
  }
}

void ReliableReceiver::stop() {
  stopped_ = true;
  timers_.disarm(timer_);
}

void ReliableReceiver::on_timer() {
  if (unacknowledged_ != 0 && !stopped_) {
    emit();
  }
}

}  // namespace orrery::fabric
