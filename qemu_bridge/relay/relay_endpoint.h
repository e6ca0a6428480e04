// A relay between two sockets: one that it listens on for a client, one where a server listens.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <string_view>

#include "qemu_bridge/relay/relay.h"

namespace orrery::bridge {

struct RelayEndpointOptions {
  std::filesystem::path listen;  // see ListeningSocket
  std::filesystem::path server;
  // Bytes that either side may leave unread before its connection is ended. At least 2 MiB: one message can have
  // 1 MiB.
  std::size_t max_unread = std::size_t{8} * 1024 * 1024;
};

// Listens from construction to destruction; one client at a time, a second one is turned away. While a client is
// connected and no server is, the server's socket is tried every fifth of a second. Everything happens on the
// thread that runs the io_context, calls of the observer too.
class RelayEndpoint {
 public:
  // `io` and `observer` outlive the endpoint. Throws Error if it can't listen.
  RelayEndpoint(boost::asio::io_context& io, RelayEndpointOptions options, RelayObserver& observer);
  // Ends both connections and removes the socket.
  ~RelayEndpoint();
  RelayEndpoint(const RelayEndpoint&) = delete;
  RelayEndpoint& operator=(const RelayEndpoint&) = delete;

  [[nodiscard]] const std::filesystem::path& socket() const;
  // absent without a client.
  [[nodiscard]] Relay::State state() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace orrery::bridge
