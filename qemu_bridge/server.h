// The vfio-user server of one function: a UNIX socket, at most one client at a time.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

#include "pcie/function_access.h"
#include "qemu_bridge/observer.h"
#include "qemu_bridge/session.h"

namespace orrery::bridge {

struct ServerOptions {
  std::filesystem::path socket;  // see ListeningSocket
  SessionOptions session;
  // Bytes that a client may leave unread, per channel, before it is disconnected. At least 2 MiB: one
  // answer can have 1 MiB.
  std::size_t max_unread = std::size_t{8} * 1024 * 1024;
};

// Listens from construction to destruction. When a client goes, the next may connect; one that comes
// while another is connected gets the error EBUSY to its first message. Everything happens on the
// thread that runs the io_context (or calls poll()); calls of the function and of the observer too.
class Server {
 public:
  // `io`, `function` and `observer` (may be null) outlive the server. Throws Error if it can't listen.
  Server(boost::asio::io_context& io, pcie::FunctionAccess& function, ServerOptions options,
         SessionObserver* observer = nullptr);
  // Disconnects the client and removes the socket.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // For a loop that spins instead of sleeping: takes what the client has sent, without asking the
  // io_context. True if there was something. The io_context must still be polled now and then, for new
  // clients and slow ones.
  bool poll();

  // A client is connected (it may not have negotiated yet).
  [[nodiscard]] bool connected() const;
  // Its session, or null. Valid until control returns to the io_context.
  [[nodiscard]] Session* session();
  // Ends the client's connection, if there is one.
  void disconnect(std::string_view reason);
  [[nodiscard]] const std::filesystem::path& socket() const;

  struct Counters {
    std::uint64_t clients = 0;  // accepted as the function's client
    std::uint64_t refused = 0;  // came while another was connected
  };
  [[nodiscard]] Counters counters() const;

 private:
  class Listener;
  std::shared_ptr<Listener> listener_;
};

}  // namespace orrery::bridge
