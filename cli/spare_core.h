// Whether this thread may spin without taking a core from somebody.
//
// A thread that looks for messages instead of sleeping is worth a wake-up only while a core has nothing else to do;
// with as many runnable threads as cores it takes its time from them, from guests' vCPUs above all. Linux's KVM asks
// the same of its run queue before it polls (Documentation/virt/kvm/halt-polling.rst, "further considerations").
#pragma once

#include <charconv>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string_view>

namespace orrery::cli {

// The number of runnable threads of the machine from a text of /proc/loadavg: the fourth field, "runnable/all"
// (proc_loadavg(5)). None if the text isn't one.
inline std::optional<std::size_t> runnable_threads(std::string_view loadavg) {
  for (int field = 0; field < 3; ++field) {
    const std::size_t space = loadavg.find(' ');
    if (space == std::string_view::npos) {
      return std::nullopt;
    }
    loadavg.remove_prefix(space + 1);
  }
  std::size_t count = 0;
  const auto [end, error] = std::from_chars(loadavg.data(), loadavg.data() + loadavg.size(), count);
  if (error != std::errc{} || end == loadavg.data() + loadavg.size() || *end != '/') {
    return std::nullopt;
  }
  return count;
}

// One thread's.
class SpareCore {
 public:
  using Clock = std::chrono::steady_clock;

  // Where there is no /proc/loadavg, no core is ever spare.
  SpareCore();
  ~SpareCore();
  SpareCore(const SpareCore&) = delete;
  SpareCore& operator=(const SpareCore&) = delete;

  // True: no more threads are runnable, this one included, than there are cores for this process. Looked up at most
  // once a millisecond; `now` is the time of asking.
  bool spare(Clock::time_point now);

 private:
  int loadavg_;
  std::size_t cores_;
  bool spare_ = false;
  Clock::time_point looked_{};
};

}  // namespace orrery::cli
