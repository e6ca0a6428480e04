// One connected client: its sockets around a Session.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "common/file_descriptor.h"
#include "qemu_bridge/output_queue.h"
#include "qemu_bridge/session.h"

namespace orrery::bridge {

// Owned by shared_ptr: what the io_context still holds for it keeps it alive, not open.
class Connection final : private SessionOutput, public std::enable_shared_from_this<Connection> {
 public:
  // `closed` is called once, when the session is over and the sockets are shut.
  Connection(boost::asio::io_context& io, FileDescriptor socket, pcie::FunctionAccess& function,
             SessionObserver& observer, const SessionOptions& options, std::size_t max_unread,
             std::function<void()> closed);

  // Begins to wait for input.
  void start();
  // Takes in what one read of each channel brings, without waiting; true if there was something.
  bool poll();
  void close(std::string_view reason);
  // The peer has shut the connection; what it sent before may still be unread.
  [[nodiscard]] bool peer_has_gone() const;
  [[nodiscard]] Session& session() { return session_; }

 private:
  struct Stream {
    Stream(boost::asio::io_context& io, FileDescriptor handle, std::size_t max_unread)
        : socket(io, handle.release()), out(max_unread) {}
    boost::asio::posix::stream_descriptor socket;
    OutputQueue out;
    bool waits_to_write = false;
  };

  // SessionOutput
  bool send(Channel channel, std::span<const std::byte> head, std::span<const std::byte> body,
            std::span<const int> descriptors) override;
  FileDescriptor open_command_channel() override;
  void call_soon() override;

  [[nodiscard]] std::optional<Stream>& stream(Channel channel) { return channel == Channel::main ? main_ : command_; }
  void wait_for_input(Channel channel);
  bool take_input(Channel channel);
  void flush(Channel channel);
  void wait_to_write(Channel channel);
  // After anything that may have produced output or ended the session.
  void settle();
  void shut();

  boost::asio::io_context& io_;
  std::size_t max_unread_;
  std::function<void()> closed_;
  std::optional<Stream> main_;
  std::optional<Stream> command_;
  bool busy_ = false;    // inside the session: settle() follows
  bool posted_ = false;  // a run of the deferred work is on its way
  bool shut_ = false;
  Session session_;  // last: it may send while it is made or unmade
};

}  // namespace orrery::bridge
