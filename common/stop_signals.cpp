#include "common/stop_signals.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <fmt/format.h>

#include "common/error.h"

namespace orrery {
namespace {

constexpr std::array<int, 3> numbers{SIGINT, SIGTERM, SIGHUP};
constexpr int patience = 4;

// What the handler uses; std::atomic of int is lock-free, and so allowed there.
std::atomic<int> read_end{-1};
std::atomic<int> write_end{-1};
std::atomic<int> first_signal{0};
std::atomic<int> arrived{0};
std::array<struct sigaction, numbers.size()> before{};

void on_signal(int number) {
  const int kept = errno;
  int none = 0;
  first_signal.compare_exchange_strong(none, number);
  if (arrived.fetch_add(1) + 1 >= patience) {
    ::_exit(128 + number);
  }
  const auto byte = static_cast<unsigned char>(number);
  [[maybe_unused]] const ssize_t written = ::write(write_end.load(), &byte, 1);  // a full pipe has enough of them
  errno = kept;
}

}  // namespace

StopSignals::StopSignals() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    throw Error(fmt::format("no pipe for signals: {}", std::strerror(errno)),
                "raise the limit of open files (ulimit -n)");
  }
  read_end = ends[0];
  write_end = ends[1];
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    ::sigaction(numbers[i], nullptr, &before[i]);
    if (numbers[i] != SIGHUP || before[i].sa_handler != SIG_IGN) {
      ::sigaction(numbers[i], &action, nullptr);
    }
  }
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    ::sigaction(numbers[i], &before[i], nullptr);
  }
  ::close(write_end.exchange(-1));
  ::close(read_end.exchange(-1));
}

int StopSignals::descriptor() const {
  return read_end;
}

int stop_signal() {
  return first_signal;
}

void throw_if_stopped() {
  if (stop_signal() != 0) {
    throw Error("interrupted");
  }
}

}  // namespace orrery
