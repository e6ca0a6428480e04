// SIGINT, SIGTERM and SIGHUP while something is under way that has to be put away first.
#pragma once

namespace orrery {

// While it lives, these signals end nothing: each is written as one byte, its number, into a pipe. So none is lost
// between the start of a program and its event loop, nor while the loop's work is being undone. The fourth
// ends the process at once, whatever it is doing. A SIGHUP that is ignored (nohup) stays ignored.
// One at a time; used from the main thread.
class StopSignals {
 public:
  // Throws Error if there is no pipe.
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The pipe's read end, non-blocking; belongs to this object.
  [[nodiscard]] int descriptor() const;
};

// Number of the first signal that a StopSignals has caught in this process; 0: none.
[[nodiscard]] int stop_signal();
// Throws Error("interrupted") if there was one: for work that blocks without an event loop.
void throw_if_stopped();

}  // namespace orrery
