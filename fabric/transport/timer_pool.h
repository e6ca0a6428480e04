// Deadlines of many objects that come and go, on an event queue that can't cancel.
//
// A deadline that moves later costs nothing: the event that is there already looks again when it comes (facts: timers
// are lazy deadline checks). Objects may be destroyed with their timer armed; the pool outlives them, and the event
// queue's last event of the pool is handled, or the queue destroyed, before the pool.
#pragma once

#include <cstdint>
#include <vector>

#include "common/event_queue.h"
#include "common/time.h"

namespace orrery::fabric {

class TimerClient {
 public:
  // The deadline has come: now() equals it. The timer is disarmed; it may be armed again from here.
  virtual void on_timer() = 0;

 protected:
  ~TimerClient() = default;
};

class TimerPool final : private EventHandler {
 public:
  explicit TimerPool(EventQueue& events) : events_(events) {}
  TimerPool(const TimerPool&) = delete;
  TimerPool& operator=(const TimerPool&) = delete;

  // A timer for `client`, not armed.
  std::uint32_t add(TimerClient& client);
  // The timer is gone; its client is not called again.
  void remove(std::uint32_t timer);
  // Sets the deadline, replacing another; a time before now() is taken as now().
  void arm(std::uint32_t timer, Picoseconds deadline);
  void disarm(std::uint32_t timer) { timers_[timer].deadline = Picoseconds::max(); }
  // Picoseconds::max() if it isn't armed.
  [[nodiscard]] Picoseconds deadline(std::uint32_t timer) const { return timers_[timer].deadline; }
  [[nodiscard]] EventQueue& events() { return events_; }
  [[nodiscard]] Picoseconds now() const { return events_.now(); }

 private:
  struct Timer {
    TimerClient* client = nullptr;
    Picoseconds deadline = Picoseconds::max();
    Picoseconds event = Picoseconds::max();  // the next event that counts
    std::uint32_t generation = 0;            // of that event
  };
  void on_event(std::uint64_t argument) override;
  void schedule(std::uint32_t timer, Picoseconds at);

  EventQueue& events_;
  std::vector<Timer> timers_;
  std::vector<std::uint32_t> free_;
};

}  // namespace orrery::fabric
