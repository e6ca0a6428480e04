#include "common/event_queue.h"

#include <bit>
#include <cstddef>

namespace orrery {

namespace {
// Handled entries of bucket 0 that are kept before their room is used again.
constexpr std::size_t compact_at = 4096;
}  // namespace

unsigned EventQueue::bucket_of(std::uint64_t time) const {
  return static_cast<unsigned>(std::bit_width(time ^ base_));
}

void EventQueue::put(const Entry& entry) {
  const unsigned index = bucket_of(entry.time);
  Bucket& bucket = buckets_[index];
  if (index == 0) {
    due_ = true;
  } else {
    const std::uint64_t bit = std::uint64_t{1} << (index - 1);
    if ((occupied_ & bit) == 0 || entry.time < bucket.earliest) {
      bucket.earliest = entry.time;
    }
    occupied_ |= bit;
  }
  bucket.entries.push_back(entry);
}

void EventQueue::schedule(Picoseconds at, EventHandler& handler, std::uint64_t argument) {
  ++scheduled_;
  put({at < now_ ? now_.count : at.count, &handler, argument});
}

Picoseconds EventQueue::next_time() const {
  if (due_) {
    return {base_};
  }
  if (occupied_ == 0) {
    return Picoseconds::max();
  }
  return {buckets_[static_cast<unsigned>(std::countr_zero(occupied_)) + 1].earliest};
}

// Takes the earliest non-empty bucket apart. Moving its entries in order keeps events of equal time in
// the order in which they were scheduled: equal times always share a bucket.
void EventQueue::refill() {
  const unsigned index = static_cast<unsigned>(std::countr_zero(occupied_)) + 1;
  Bucket& bucket = buckets_[index];
  occupied_ &= occupied_ - 1;
  base_ = bucket.earliest;
  for (const Entry& entry : bucket.entries) {
    put(entry);  // always into a lower bucket
  }
  bucket.entries.clear();
}

bool EventQueue::run_one() {
  if (!due_) {
    if (occupied_ == 0) {
      return false;
    }
    refill();
  }
  Bucket& bucket = buckets_[0];
  const Entry entry = bucket.entries[bucket.head++];
  if (bucket.head == bucket.entries.size()) {
    bucket.entries.clear();
    bucket.head = 0;
    due_ = false;
  } else if (bucket.head >= compact_at && bucket.head >= bucket.entries.size() / 2) {
    // Events that beget events at the same time (functional mode: all of them) may never empty the bucket.
    bucket.entries.erase(bucket.entries.begin(), bucket.entries.begin() + static_cast<std::ptrdiff_t>(bucket.head));
    bucket.head = 0;
  }
  now_ = {entry.time};
  ++dispatched_;
  entry.handler->on_event(entry.argument);
  return true;
}

std::uint64_t EventQueue::run_until(Picoseconds until) {
  const std::uint64_t before = dispatched_;
  while (next_time() <= until && run_one()) {
  }
  if (now_ < until && until != Picoseconds::max()) {
    now_ = until;
  }
  return dispatched_ - before;
}

void EventQueue::advance_to(Picoseconds to) {
  to = min(to, next_time());
  if (now_ < to) {
    now_ = to;
  }
}

}  // namespace orrery
