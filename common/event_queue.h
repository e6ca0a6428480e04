// A discrete-event queue: the heart of every timed run.
//
// A monotone radix heap of 32-byte entries. Events at equal times are handled in the order in which
// they were scheduled, whatever the history of the queue. Looking at the next time does not move the
// queue's base, so an earlier insertion after a look is legal (any time >= now()).
// One thread. Nothing is allocated once the buckets have grown to a run's working set.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "common/time.h"

namespace orrery {

class EventHandler {
 public:
  // Called once per scheduled event, with the queue's now() equal to the event's time.
  virtual void on_event(std::uint64_t argument) = 0;

 protected:
  ~EventHandler() = default;
};

class EventQueue {
 public:
  // Calls handler.on_event(argument) at time `at`, which must be >= now(): an earlier time is taken as
  // now(). The handler must outlive the event: there is no cancellation, a handler that lost interest
  // checks a generation number in its argument.
  void schedule(Picoseconds at, EventHandler& handler, std::uint64_t argument);

  [[nodiscard]] bool empty() const { return !due_ && occupied_ == 0; }
  // The time of the next event; Picoseconds::max() if there is none.
  [[nodiscard]] Picoseconds next_time() const;
  [[nodiscard]] Picoseconds now() const { return now_; }
  // Number of events handled so far: a position in the run that a replay can be held to.
  [[nodiscard]] std::uint64_t dispatched() const { return dispatched_; }
  [[nodiscard]] std::uint64_t pending() const { return scheduled_ - dispatched_; }

  // Handles the next event, if there is one.
  bool run_one();
  // Handles every event with time <= until, then moves now() to `until`. Returns how many it handled.
  std::uint64_t run_until(Picoseconds until);
  // Moves now() forward without handling anything; not past the next event.
  void advance_to(Picoseconds to);

 private:
  struct Entry {
    std::uint64_t time;
    EventHandler* handler;
    std::uint64_t argument;
  };
  struct Bucket {
    std::vector<Entry> entries;
    std::size_t head = 0;  // bucket 0 is consumed from the front
    std::uint64_t earliest = 0;
  };

  // Buckets 1 … 64: entries whose time differs from base_ first at bit k-1. Bucket 0: time == base_.
  [[nodiscard]] unsigned bucket_of(std::uint64_t time) const;
  void put(const Entry& entry);
  void refill();

  std::array<Bucket, 65> buckets_;
  std::uint64_t occupied_ = 0;  // bit k-1: bucket k is not empty (k >= 1)
  bool due_ = false;            // bucket 0 is not empty
  std::uint64_t base_ = 0;
  Picoseconds now_;
  std::uint64_t dispatched_ = 0;
  std::uint64_t scheduled_ = 0;
};

}  // namespace orrery
