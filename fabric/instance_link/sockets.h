// Instance links over UNIX and TCP sockets: listens, connects, connects again, and gives each connection's bytes to a
// Peer.
//
// A side that connects tries until somebody is there, and again when the connection has ended. Everything happens on
// the thread that runs the io_context.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <memory>
#include <vector>

#include "fabric/instance_link/link_options.h"
#include "fabric/instance_link/uplinks.h"

namespace orrery::instance_link {

class Sockets {
 public:
  // Throws Error: a token file that isn't fit, an address that can't be listened on. A UNIX socket is made with mode
  // 0600 in a private directory (ListeningSocket). `io` and `uplinks` outlive it.
  Sockets(boost::asio::io_context& io, Uplinks& uplinks, const std::vector<LinkOptions>& links);
  // Tells the peers that the server stops, and closes.
  ~Sockets();
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;

  // Reads what peers have sent from now on: once from each connection, at most 256 KiB, so that a peer that sends
  // without end doesn't keep the io_context from returning. To be called before each turn of the io_context.
  void resume();
  // Where link `index` listens or connects to, the port that was free filled in.
  [[nodiscard]] Endpoint endpoint(std::size_t index) const;
  // A line for each peer that has been, and for what was refused, in the log. For the end of a run.
  void report() const;

  struct Counters {
    std::uint64_t opened = 0;   // handshakes that succeeded
    std::uint64_t refused = 0;  // connections that ended without one
    std::uint64_t lost = 0;     // open links that ended
  };
  [[nodiscard]] const Counters& counters() const;

 private:
  class State;
  class Listener;
  class Connector;
  std::shared_ptr<State> state_;
};

}  // namespace orrery::instance_link
