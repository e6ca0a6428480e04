// Joins this program's terminal to a guest's serial console.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

namespace orrery::cli {

// From construction to destruction: what the guest writes goes to standard output; what is typed goes to the
// guest if `input` is set. On a terminal, input is raw (Ctrl-C reaches the guest) and Ctrl-] calls `leave`.
class ConsoleStream {
 public:
  // `socket_path` may not exist yet; it is tried for until the stream is destroyed.
  ConsoleStream(boost::asio::io_context& io, std::string socket_path, bool input, std::function<void()> leave);
  ~ConsoleStream();
  ConsoleStream(const ConsoleStream&) = delete;
  ConsoleStream& operator=(const ConsoleStream&) = delete;

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace orrery::cli
