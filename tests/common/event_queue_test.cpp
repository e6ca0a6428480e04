// The event queue against a std::multimap, whose order of equal keys is that of insertion.
#include "common/event_queue.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <new>
#include <random>
#include <vector>

#include <gtest/gtest.h>

// The largest single allocation of this program, to see a queue that grows without need.
static std::size_t largest_allocation = 0;
// None of these is inlined: g++ would see only one side of malloc() and free(), and warn.
[[gnu::noinline]] void* operator new(std::size_t size) {
  largest_allocation = std::max(largest_allocation, size);
  if (void* memory = std::malloc(size)) {
    return memory;
  }
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*size*/) noexcept {
  std::free(memory);
}

namespace orrery::event_queue_test {
namespace {

struct Recorder final : EventHandler {
  explicit Recorder(EventQueue& q) : queue(q) {}
  void on_event(std::uint64_t argument) override {
    arguments.push_back(argument);
    times.push_back(queue.now());
  }
  EventQueue& queue;
  std::vector<std::uint64_t> arguments;
  std::vector<Picoseconds> times;
};

TEST(EventQueue, EmptyQueueHasNoNextTime) {
  EventQueue queue;
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.next_time(), Picoseconds::max());
  EXPECT_FALSE(queue.run_one());
  EXPECT_EQ(queue.run_until(Picoseconds{100}), 0U);
  EXPECT_EQ(queue.now(), Picoseconds{100});
  EXPECT_EQ(queue.run_until(Picoseconds::max()), 0U);
  EXPECT_EQ(queue.now(), Picoseconds{100}) << "the end of time is no time to wait for";
}

TEST(EventQueue, EqualTimesKeepTheirOrderThoughScheduledFromDifferentBases) {
  EventQueue queue;
  Recorder recorder(queue);
  // 1000 is scheduled with the base at 0, then with the base at 512 and at 999: three different buckets.
  queue.schedule(Picoseconds{1000}, recorder, 1);
  queue.schedule(Picoseconds{512}, recorder, 0);
  ASSERT_TRUE(queue.run_one());
  queue.schedule(Picoseconds{1000}, recorder, 2);
  queue.schedule(Picoseconds{999}, recorder, 0);
  ASSERT_TRUE(queue.run_one());
  queue.schedule(Picoseconds{1000}, recorder, 3);
  ASSERT_TRUE(queue.run_one());
  queue.schedule(Picoseconds{1000}, recorder, 4);  // while events of that time are due
  queue.run_until(Picoseconds{1000});
  EXPECT_EQ(recorder.arguments, (std::vector<std::uint64_t>{0, 0, 1, 2, 3, 4}));
  EXPECT_EQ(queue.dispatched(), 6U);
  EXPECT_EQ(queue.pending(), 0U);
}

TEST(EventQueue, ThePastIsNow) {
  EventQueue queue;
  Recorder recorder(queue);
  queue.advance_to(Picoseconds{5000});
  queue.schedule(Picoseconds{5000}, recorder, 1);
  queue.schedule(Picoseconds{10}, recorder, 2);
  queue.schedule(Picoseconds{0}, recorder, 3);
  EXPECT_EQ(queue.next_time(), Picoseconds{5000});
  queue.run_until(Picoseconds{5000});
  EXPECT_EQ(recorder.arguments, (std::vector<std::uint64_t>{1, 2, 3}));
  for (const Picoseconds time : recorder.times) {
    EXPECT_EQ(time, Picoseconds{5000});
  }
}

TEST(EventQueue, LookingDoesNotMoveTheBase) {
  EventQueue queue;
  Recorder recorder(queue);
  queue.schedule(Picoseconds{1 << 20}, recorder, 9);
  EXPECT_EQ(queue.next_time(), Picoseconds{1 << 20});
  for (const std::uint64_t time : {7U, 6U, 5U, 4U}) {  // each earlier than what a look has seen
    queue.schedule(Picoseconds{time}, recorder, time);
    EXPECT_EQ(queue.next_time(), Picoseconds{time});
  }
  queue.run_until(Picoseconds{2 << 20});
  EXPECT_EQ(recorder.arguments, (std::vector<std::uint64_t>{4, 5, 6, 7, 9}));
}

TEST(EventQueue, AdvanceStopsAtTheNextEvent) {
  EventQueue queue;
  Recorder recorder(queue);
  queue.schedule(Picoseconds{100}, recorder, 0);
  queue.advance_to(Picoseconds{1000});
  EXPECT_EQ(queue.now(), Picoseconds{100});
  queue.advance_to(Picoseconds{50});
  EXPECT_EQ(queue.now(), Picoseconds{100}) << "time never goes back";
  queue.run_one();
  EXPECT_EQ(recorder.times.front(), Picoseconds{100});
}

TEST(EventQueue, TheLastPicosecondCanBeUsed) {
  EventQueue queue;
  Recorder recorder(queue);
  const Picoseconds last{Picoseconds::max().count - 1};
  queue.schedule(last, recorder, 1);
  queue.schedule(Picoseconds::max(), recorder, 2);
  queue.schedule(Picoseconds{1}, recorder, 0);
  while (queue.run_one()) {
  }
  EXPECT_EQ(recorder.arguments, (std::vector<std::uint64_t>{0, 1, 2}));
  EXPECT_EQ(queue.now(), Picoseconds::max());
}

// An event that begets an event at its own time, beside another that waits: the bucket never empties.
struct Chain final : EventHandler {
  explicit Chain(EventQueue& q) : queue(q) {}
  void on_event(std::uint64_t left) override {
    ++handled;
    if (left != 0) {
      queue.schedule(queue.now(), *this, left - 1);
    }
  }
  EventQueue& queue;
  std::uint64_t handled = 0;
};

TEST(EventQueue, EndlessWorkAtOneTimeTakesNoMemory) {
  largest_allocation = 0;
  EventQueue queue;
  Chain chain(queue);
  constexpr std::uint64_t links = 200'000;
  queue.schedule(Picoseconds{3}, chain, links);
  queue.schedule(Picoseconds{3}, chain, links);
  queue.run_until(Picoseconds{3});
  EXPECT_EQ(chain.handled, 2 * (links + 1));
  EXPECT_TRUE(queue.empty());
  EXPECT_LT(largest_allocation, 512U * 1024) << "of " << 2 * links << " events, two pend at any time";
}

// Random histories. Each operation is also done to the multimap; what the queue handles must be its begin().
struct Oracle final : EventHandler {
  void on_event(std::uint64_t argument) override {
    ASSERT_FALSE(expected.empty());
    const auto first = expected.begin();
    ASSERT_EQ(queue.now().count, first->first);
    ASSERT_EQ(argument, first->second);
    expected.erase(first);
    // Every eighth event schedules from inside, at its own time or later.
    if (argument % 8 == 0) {
      add(queue.now().count + (argument % 3 == 0 ? 0 : random() % 5000));
    }
  }
  void add(std::uint64_t time) {
    expected.emplace(time < queue.now().count ? queue.now().count : time, next);
    queue.schedule(Picoseconds{time}, *this, next++);
  }
  EventQueue queue;
  std::multimap<std::uint64_t, std::uint64_t> expected;
  std::mt19937_64 random;
  std::uint64_t next = 0;
};

TEST(EventQueue, AgreesWithAMultimapOverAMillionOperations) {
  Oracle oracle;
  oracle.random.seed(20240611);
  for (int operation = 0; operation < 1'000'000 && !::testing::Test::HasFatalFailure(); ++operation) {
    const std::uint64_t now = oracle.queue.now().count;
    switch (oracle.random() % 8) {
      case 0:
        oracle.add(now);
        break;
      case 1:
        oracle.add(now + oracle.random() % 16);
        break;
      case 2:
        oracle.add(now + oracle.random() % 100'000);
        break;
      case 3:
        oracle.add(now + (std::uint64_t{1} << (oracle.random() % 30)));
        break;
      case 4:
        oracle.add(now - std::min<std::uint64_t>(now, oracle.random() % 1000));
        break;  // the past
      case 5: {
        const std::uint64_t until = now + oracle.random() % 3000;
        oracle.queue.run_until(Picoseconds{until});
        ASSERT_EQ(oracle.queue.now().count, until);
        ASSERT_TRUE(oracle.expected.empty() || oracle.expected.begin()->first > until);
        break;
      }
      case 6:
        oracle.queue.advance_to(Picoseconds{now + oracle.random() % 100});
        break;
      default: {
        const bool any = !oracle.expected.empty();
        ASSERT_EQ(oracle.queue.run_one(), any);
        break;
      }
    }
    ASSERT_EQ(oracle.queue.pending(), oracle.expected.size());
    ASSERT_EQ(oracle.queue.next_time().count,
              oracle.expected.empty() ? Picoseconds::max().count : oracle.expected.begin()->first);
  }
  while (oracle.queue.run_one() && !::testing::Test::HasFatalFailure()) {
  }
  EXPECT_TRUE(oracle.expected.empty());
  EXPECT_EQ(oracle.queue.dispatched(), oracle.next);
}

}  // namespace
}  // namespace orrery::event_queue_test
