// JSON messages, one a line, over a UNIX socket: the framing that QMP and qemu-guest-agent share.
//
// The peer is not trusted: a line longer than the limit, a line that isn't a JSON object, and bytes that
// never end in a line close the stream with a reason. One thread: the io_context's.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <nlohmann/json.hpp>

#include "common/file_descriptor.h"

namespace orrery::bridge {

class JsonLineStream {
 public:
  struct Options {
    std::size_t longest_line = 1 << 20;  // bytes
    std::size_t most_unsent = 64 << 20;  // bytes queued towards a peer that doesn't read
    // qemu-guest-agent: a byte 0xff starts the stream afresh (what lies before it is dropped), and lines
    // that aren't JSON objects are passed over: the port may carry the rest of an earlier conversation.
    bool resynchronise = false;
  };
  using Connected = std::function<void(const std::string& failure)>;  // empty: connected
  using Message = std::function<void(nlohmann::json message)>;        // always an object
  using Closed = std::function<void(const std::string& reason)>;

  JsonLineStream(boost::asio::io_context& io, Options options, Message on_message, Closed on_closed);
  ~JsonLineStream();  // closes; no handler is called any more
  JsonLineStream(const JsonLineStream&) = delete;
  JsonLineStream& operator=(const JsonLineStream&) = delete;

  // Tries until the socket is there and listens, for at most `time_limit` (a program that was just
  // started makes its socket a little later). Once.
  void connect(const std::string& path, std::chrono::milliseconds time_limit, Connected done);
  // Takes over a connected socket instead. Once.
  void adopt(FileDescriptor socket);
  // Queues a message; `prefix` goes before it as it is. Nothing if the stream is closed.
  void send(const nlohmann::json& message, const std::string& prefix = {});
  // Closes without calling on_closed.
  void close();
  [[nodiscard]] bool is_open() const;

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace orrery::bridge
