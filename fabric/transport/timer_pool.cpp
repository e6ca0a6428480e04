#include "fabric/transport/timer_pool.h"

namespace orrery::fabric {

std::uint32_t TimerPool::add(TimerClient& client) {
  if (free_.empty()) {
    free_.push_back(static_cast<std::uint32_t>(timers_.size()));
    timers_.emplace_back();
  }
  const std::uint32_t timer = free_.back();
  free_.pop_back();
  timers_[timer].client = &client;
  return timer;
}

void TimerPool::remove(std::uint32_t timer) {
  Timer& t = timers_[timer];
  t.client = nullptr;
  t.deadline = Picoseconds::max();
  t.event = Picoseconds::max();
  ++t.generation;  // the event that may be in the queue means nothing any more
  free_.push_back(timer);
}

void TimerPool::arm(std::uint32_t timer, Picoseconds deadline) {
  Timer& t = timers_[timer];
  t.deadline = max(deadline, events_.now());
  if (t.deadline < t.event) {
    schedule(timer, t.deadline);
  }
}

void TimerPool::schedule(std::uint32_t timer, Picoseconds at) {
  Timer& t = timers_[timer];
  t.event = at;
  ++t.generation;
  events_.schedule(at, *this, (std::uint64_t{t.generation} << 32) | timer);
}

void TimerPool::on_event(std::uint64_t argument) {
  const auto timer = static_cast<std::uint32_t>(argument);
  Timer& t = timers_[timer];
  if (t.generation != static_cast<std::uint32_t>(argument >> 32)) {
    return;
  }
  t.event = Picoseconds::max();
  if (t.deadline == Picoseconds::max()) {
    return;
  }
  if (t.deadline > events_.now()) {
    schedule(timer, t.deadline);
    return;
  }
  t.deadline = Picoseconds::max();
  t.client->on_timer();
}

}  // namespace orrery::fabric
