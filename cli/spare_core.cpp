#include "cli/spare_core.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <thread>

namespace orrery::cli {
namespace {

// A look costs about half a microsecond.
constexpr std::chrono::milliseconds look_interval(1);

}  // namespace

SpareCore::SpareCore()
    // Only the cores this process may run on: hardware_concurrency asks sched_getaffinity(2).
    : loadavg_(::open("/proc/loadavg", O_RDONLY | O_CLOEXEC)), cores_(std::thread::hardware_concurrency()) {}

SpareCore::~SpareCore() {
  if (loadavg_ >= 0) {
    ::close(loadavg_);
  }
}

bool SpareCore::spare(Clock::time_point now) {
  if (now - looked_ < look_interval) {
    return spare_;
  }
  looked_ = now;
  std::array<char, 128> text{};
  const ssize_t size = loadavg_ < 0 ? -1 : ::pread(loadavg_, text.data(), text.size(), 0);
  const auto runnable = size <= 0 ? std::nullopt : runnable_threads({text.data(), static_cast<std::size_t>(size)});
  spare_ = runnable && *runnable <= cores_;
  return spare_;
}

}  // namespace orrery::cli
