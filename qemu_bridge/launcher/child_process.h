// A program that we start, watch and end: QEMU, virtiofsd, the probes.
//
// The child has its own process group (a terminal's Ctrl-C doesn't reach it), no descriptor of ours but
// its output pipes, umask 077 (sockets that it makes are ours alone), and dies with us: the kernel kills
// it when the thread that started it ends, so start it on a thread that lives as long as it shall. It is
// only ever signalled through its pidfd, which can't name another process.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>

namespace orrery::bridge {

struct ChildOptions {
  std::string program;                 // a path, not looked up in PATH
  std::vector<std::string> arguments;  // behind the program's name
  // Set in the child's environment, over what it inherits.
  std::vector<std::pair<std::string, std::string>> environment;
  // Of stdout and stderr together, the last this many bytes are kept.
  std::size_t output_tail_bytes = std::size_t{16} * 1024;
};

// How a child ended.
struct ChildExit {
  int status = 0;  // exit status, if signal is 0
  int signal = 0;
  [[nodiscard]] bool success() const { return status == 0 && signal == 0; }
  // "ended with exit status 1", "was killed by signal 9 (Killed)".
  [[nodiscard]] std::string sentence() const;
};

class ChildProcess {
 public:
  using ExitHandler = std::function<void(const ChildExit&)>;

  // Starts it. Throws Error if the program can't be run (naming it and the system's reason).
  // on_exit is called once, on the io_context, after the output has been read to its end; not after this
  // object is gone.
  ChildProcess(boost::asio::io_context& io, const ChildOptions& options, ExitHandler on_exit = {});
  // Kills it, if it still runs, and waits for its end.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  [[nodiscard]] int pid() const;
  // The start time in clock ticks since boot (proc(5), stat field 22): with the pid, names this process.
  [[nodiscard]] std::uint64_t start_time() const;
  // Empty while it runs (as far as the io_context has been told).
  [[nodiscard]] const std::optional<ChildExit>& exit() const;
  // Asks the kernel whether it has ended, without the io_context's help; exit() follows later.
  [[nodiscard]] bool has_ended() const;
  // What it has written until now, both streams, in the order in which they arrived; control characters other than line
  // ends are '?'.
  [[nodiscard]] std::string output_tail() const;

  // Sends a signal; nothing if it has ended.
  void signal(int number);
  void kill();
  // SIGTERM, and SIGKILL if it still runs after `grace`.
  void terminate(std::chrono::milliseconds grace);

 private:
  class State;
  std::shared_ptr<State> state_;
};

// The start time of a running process, or nothing if there is none of this pid.
[[nodiscard]] std::optional<std::uint64_t> process_start_time(int pid);

}  // namespace orrery::bridge
