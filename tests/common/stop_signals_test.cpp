#include "common/stop_signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/error.h"

namespace orrery::stop_signals_test {
namespace {

// Each case has a process of its own: signals, and what was the first of them, are the process's.
int status_of(void (*body)()) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(99);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(StopSignals, AreKeptInOrderAndEndNothing) {
  const int status = status_of([] {
    unsigned char bytes[8];
    const StopSignals signals;
    if (stop_signal() != 0 || ::read(signals.descriptor(), bytes, sizeof bytes) != -1) {
      ::_exit(1);
    }
    throw_if_stopped();
    ::raise(SIGTERM);
    ::raise(SIGINT);
    ::raise(SIGHUP);
    if (::read(signals.descriptor(), bytes, sizeof bytes) != 3 || bytes[0] != SIGTERM || bytes[1] != SIGINT ||
        bytes[2] != SIGHUP || stop_signal() != SIGTERM) {
      ::_exit(2);
    }
    try {
      throw_if_stopped();
    } catch (const Error&) {
      ::_exit(0);
    }
  });
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(StopSignals, TheFourthEndsTheProcess) {
  const int status = status_of([] {
    const StopSignals signals;
    for (int i = 0; i < 4; ++i) {
      ::raise(SIGINT);
    }
  });
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGINT);
}

TEST(StopSignals, LeaveTheSignalsAsTheyWere) {
  const int status = status_of([] {
    { const StopSignals signals; }
    ::raise(SIGTERM);
  });
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

TEST(StopSignals, HangupStaysIgnoredUnderNohup) {
  const int status = status_of([] {
    ::signal(SIGHUP, SIG_IGN);
    const StopSignals signals;
    ::raise(SIGHUP);
    ::_exit(stop_signal());
  });
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace orrery::stop_signals_test
