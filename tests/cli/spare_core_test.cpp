#include "cli/spare_core.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace orrery::cli {
namespace {

TEST(SpareCore, ReadsTheFourthFieldOfLoadavg) {
  EXPECT_EQ(runnable_threads("0.20 0.18 0.12 1/80 11206\n"), 1u);  // proc_loadavg(5)'s own example
  EXPECT_EQ(runnable_threads("10.00 8.00 5.00 124/1800 9"), 124u);
}

TEST(SpareCore, RefusesWhatIsNoLoadavg) {
  for (const char* text : {"", "0.20", "0.20 0.18 0.12", "0.20 0.18 0.12 ", "0.20 0.18 0.12 x/80", "0.20 0.18 0.12 1",
                           "0.20 0.18 0.12 1 80", "0.20 0.18 0.12 -1/80", "0 0 0 99999999999999999999999/1"}) {
    EXPECT_EQ(runnable_threads(text), std::nullopt) << '"' << text << '"';
  }
}

// With a busy thread for every core, this one is one too many: however loaded the machine is otherwise.
TEST(SpareCore, NoneIsSpareWhileEveryCoreIsBusy) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> busy;
  for (unsigned core = 0; core < std::thread::hardware_concurrency(); ++core) {
    busy.emplace_back([&stop] {
      while (!stop.load(std::memory_order_relaxed)) {
      }
    });
  }
  SpareCore cores;
  bool spare = true;
  // The threads need a moment to come up.
  const auto begin = SpareCore::Clock::now();
  while (spare && SpareCore::Clock::now() - begin < std::chrono::seconds(10)) {
    spare = cores.spare(SpareCore::Clock::now());
  }
  stop = true;
  for (std::thread& thread : busy) {
    thread.join();
  }
  EXPECT_FALSE(spare);
}

}  // namespace
}  // namespace orrery::cli
