// qemu-guest-agent's protocol (QEMU's docs/interop/qemu-ga.rst and qemu-ga-ref), for `orrery exec`.
//
// The agent's UNIX socket takes one client at a time. A command that lasts lets go of it between questions, so that
// several programs can have commands under way in one guest; one object has one at a time. The guest is not
// trusted: what it answers is bounded and checked. One thread: the io_context's.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>

namespace orrery::bridge {

// What a command in the guest came to.
struct GuestExecResult {
  // Not empty: the command didn't run, or its end isn't known; the other members say nothing then.
  std::string failure;
  std::string remedy;
  int exit_code = 0;              // as a shell gives it: 128 + signal if a signal ended it
  std::string output;             // stdout, bytes as they were
  std::string errors;             // stderr
  bool output_truncated = false;  // the agent keeps at most 16 MiB of each
  bool errors_truncated = false;
};

class GuestAgent {
 public:
  using Done = std::function<void(const GuestExecResult&)>;

  // `socket_path` is the host's end of the virtio-serial port org.qemu.guest_agent.0.
  GuestAgent(boost::asio::io_context& io, std::string socket_path);
  ~GuestAgent();  // gives up; no handler is called any more
  GuestAgent(const GuestAgent&) = delete;
  GuestAgent& operator=(const GuestAgent&) = delete;

  // Waits until the agent answers, at most `time_limit`; `failure` empty: it does.
  void ping(std::chrono::milliseconds time_limit, std::function<void(const std::string& failure)> done);

  // Runs command[0] (looked up in the guest's PATH) with the other words as its arguments, standard
  // input from `input` (at most 16 MiB), and collects its output. After `time_limit` the command is
  // killed in the guest, and the result is a failure that says so. One at a time; `done` is called once,
  // never from inside the call.
  void exec(std::vector<std::string> command, std::string input, std::chrono::milliseconds time_limit, Done done);

  // How long the first answer of a connection may take before the guest is taken to have no agent.
  void set_answer_limit(std::chrono::milliseconds limit);

 private:
  class State;
  std::shared_ptr<State> state_;
};

// RFC 4648 base64 with padding. decode returns false on anything else.
[[nodiscard]] std::string base64_encode(std::string_view bytes);
[[nodiscard]] bool base64_decode(std::string_view text, std::string& bytes);

}  // namespace orrery::bridge
