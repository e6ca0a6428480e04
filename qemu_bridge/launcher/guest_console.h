// What a guest writes to its serial console: captured by QEMU into a file, followed here.
//
// Looks for lines that say how far the guest has got, and for a kernel that panics. What is shown to the
// user is free of terminal control sequences. One thread: the io_context's.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

namespace orrery::bridge {

// Printed by our own images once everything is up, and by every getty.
inline constexpr const char* guest_ready_marker = "orrery-guest: ready";
inline constexpr const char* login_marker = "login:";

struct ConsoleResult {
  enum class Kind : std::uint8_t {
    marker,     // `text` is the marker that was found first
    panic,      // the kernel gave up; `text` is its line
    timed_out,  // none of it in time
    failed,     // the capture can't be read; `text` says why
  };
  Kind kind = Kind::timed_out;
  std::string text;
};

class GuestConsole {
 public:
  using Found = std::function<void(const ConsoleResult&)>;

  // `capture` may not exist yet.
  GuestConsole(boost::asio::io_context& io, std::string capture);
  ~GuestConsole();  // no handler is called any more
  GuestConsole(const GuestConsole&) = delete;
  GuestConsole& operator=(const GuestConsole&) = delete;

  // Calls `found` once: when a marker has appeared anywhere in the capture (before or after this call),
  // when the kernel has panicked, or when the time is up. One wait at a time: a new one replaces it.
  void wait_for(std::vector<std::string> markers, std::chrono::milliseconds time_limit, Found found);
  void cancel_wait();

  // The last lines that were written (of the last 64 KiB), printable; reads what is there now.
  [[nodiscard]] std::vector<std::string> last_lines(std::size_t count);
  // "kernel panic: …; the last 20 lines of its console:\n  …", for the end of a message.
  [[nodiscard]] std::string excerpt(std::size_t count = 20);

  // The line with which the guest's kernel gave up, see panic_line(); reads what is there now.
  [[nodiscard]] const std::string& panic();

  [[nodiscard]] const std::string& capture() const;

 private:
  class State;
  std::shared_ptr<State> state_;
};

// The line with which a Linux kernel, or its early code, says that it has given up; empty: it hasn't.
[[nodiscard]] std::string panic_line(std::string_view line);

}  // namespace orrery::bridge
