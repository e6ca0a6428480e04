// One connection of an instance link: a socket's bytes to a Peer and back, time limits, and what the log says of it.
// Part of the shell; only sockets.cpp uses it.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fabric/instance_link/link_options.h"
#include "fabric/instance_link/session.h"
#include "fabric/instance_link/sockets.h"
#include "fabric/instance_link/uplinks.h"

namespace orrery::instance_link {

class Connection;
using StreamSocket = boost::asio::generic::stream_protocol::socket;

// What the connections share. Handlers hold it, so that those that run after the end find it stopped.
struct LinkState {
  LinkState(boost::asio::io_context& its_io, Uplinks& its_uplinks) : io(its_io), uplinks(its_uplinks) {}

  boost::asio::io_context& io;
  Uplinks& uplinks;
  bool stopped = false;
  Sockets::Counters counters;
  std::vector<std::shared_ptr<Connection>> connections;  // each takes itself out when it has ended
  // Refused since the last link of that key, by reason: whoever connects again and again doesn't fill the log.
  std::map<std::pair<std::string, Refusal>, std::uint64_t> complaints;
};

class Connection final : public std::enable_shared_from_this<Connection>, private Peer::Transport {
 public:
  // `ended`, which may be empty, is called after the end, unless the state was stopped.
  Connection(std::shared_ptr<LinkState> state, const LinkOptions& link, std::vector<std::byte> token,
             StreamSocket socket, std::function<void(Refusal)> ended);

  void start();
  // Reads once more, if it isn't reading.
  void read();
  void stop();
  [[nodiscard]] bool ended() const { return !socket_.is_open(); }
  [[nodiscard]] bool opened() const { return opened_; }
  // A line of what went over it, in the log.
  void report();

 private:
  void expire_after(std::chrono::milliseconds limit, void (*what)(Connection&));
  void on_read(const boost::system::error_code& error, std::size_t bytes);
  void on_output() override;
  void flush();
  void on_open() override;
  void on_closed(Refusal reason, bool by_peer) override;
  void complain(Refusal reason, bool by_peer, const std::string& who) const;
  void end();

  std::shared_ptr<LinkState> state_;
  LinkOptions link_;
  StreamSocket socket_;
  boost::asio::steady_timer deadline_;
  std::function<void(Refusal)> ended_;
  std::vector<std::byte> buffer_;
  Session::Output output_;  // being written
  bool reading_ = false;
  bool writing_ = false;
  bool flush_posted_ = false;
  bool opened_ = false;
  bool closing_ = false;
  Refusal reason_ = Refusal::none;
  Peer peer_;
};

}  // namespace orrery::instance_link
