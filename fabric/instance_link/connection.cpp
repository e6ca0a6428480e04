#include "fabric/instance_link/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <span>

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>

#include "common/log.h"
#include "fabric/instance_link/proof.h"

namespace orrery::instance_link {

namespace asio = boost::asio;

namespace {

constexpr std::size_t read_bytes = std::size_t{256} << 10;
constexpr int socket_buffer_bytes = 4 << 20;
constexpr std::chrono::milliseconds handshake_limit{5'000};
constexpr std::chrono::milliseconds farewell_limit{1'000};

// What the system doesn't grant only costs speed.
void tune(int fd, const Endpoint& endpoint) {
  const auto set = [&](int level, int option, int value) {
    static_cast<void>(::setsockopt(fd, level, option, &value, sizeof(value)));
  };
  set(SOL_SOCKET, SO_SNDBUF, socket_buffer_bytes);
  set(SOL_SOCKET, SO_RCVBUF, socket_buffer_bytes);
  if (endpoint.kind == Endpoint::Kind::tcp) {
    set(IPPROTO_TCP, TCP_NODELAY, 1);
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
  }
}

SessionSettings settings_of(const LinkOptions& link, std::vector<std::byte> token) {
  SessionSettings settings;
  settings.role = link.listen ? Role::listener : Role::connector;
  settings.planes = link.planes;
  settings.token = std::move(token);
  settings.nonce = make_nonce();
  settings.expected_peer = link.peer;
  return settings;
}

}  // namespace

Connection::Connection(std::shared_ptr<LinkState> state, const LinkOptions& link, std::vector<std::byte> token,
                       StreamSocket socket, std::function<void(Refusal)> ended)
    : state_(std::move(state)),
      link_(link),
      socket_(std::move(socket)),
      deadline_(state_->io),
      ended_(std::move(ended)),
      buffer_(read_bytes),
      peer_(state_->uplinks, settings_of(link, std::move(token)), static_cast<Peer::Transport&>(*this)) {}

void Connection::start() {
  tune(socket_.native_handle(), link_.endpoint);
  expire_after(handshake_limit, [](Connection& self) { self.peer_.session().close(Refusal::handshake_timeout); });
  peer_.session().start();
  read();
}

void Connection::read() {
  if (reading_ || !socket_.is_open()) {
    return;
  }
  reading_ = true;
  socket_.async_read_some(asio::buffer(buffer_),
                          [self = shared_from_this()](const boost::system::error_code& error, std::size_t bytes) {
                            self->reading_ = false;
                            self->on_read(error, bytes);
                          });
}

void Connection::stop() {
  peer_.session().close(Refusal::stopped);
  end();
}

void Connection::report() {
  const PeerCounters& c = peer_.counters();
  log(LogLevel::info, "{}: {}: {} frames sent ({} bytes), {} received ({} bytes), {} refused, {} not sent in time",
      link_.key, peer_.session().peer().name, c.sent, c.sent_bytes, c.received, c.received_bytes, c.refused(),
      c.congested);
}

void Connection::expire_after(std::chrono::milliseconds limit, void (*what)(Connection&)) {
  deadline_.expires_after(limit);
  deadline_.async_wait([weak = weak_from_this(), what](const boost::system::error_code& error) {
    if (const std::shared_ptr<Connection> self = weak.lock(); self && !error && !self->ended()) {
      what(*self);
    }
  });
}

void Connection::on_read(const boost::system::error_code& error, std::size_t bytes) {
  if (ended()) {
    return;
  }
  if (error) {
    peer_.session().lost();
    end();
    return;
  }
  peer_.session().receive(std::span(buffer_).first(bytes));
  if (closing_) {  // only the end of the stream is waited for
    read();
  }
}

void Connection::on_output() {
  if (!writing_ && !flush_posted_) {
    // After this turn of the loop: what it sends goes out together.
    flush_posted_ = true;
    asio::post(state_->io, [self = shared_from_this()] {
      self->flush_posted_ = false;
      self->flush();
    });
  }
}

void Connection::flush() {
  if (writing_ || ended()) {
    return;
  }
  if (!peer_.session().has_output()) {
    if (closing_) {
      boost::system::error_code ignored;
      socket_.shutdown(StreamSocket::shutdown_send, ignored);
    }
    return;
  }
  peer_.session().take_output(output_);
  writing_ = true;
  asio::async_write(socket_, asio::buffer(output_.memory.data(), output_.used),
                    [self = shared_from_this()](const boost::system::error_code& error, std::size_t) {
                      self->writing_ = false;
                      if (self->ended()) {
                        return;
                      }
                      if (error) {
                        self->peer_.session().lost();
                        self->end();
                        return;
                      }
                      self->flush();
                    });
}

void Connection::on_open() {
  opened_ = true;
  ++state_->counters.opened;
  std::erase_if(state_->complaints, [this](const auto& entry) { return entry.first.first == link_.key; });
  deadline_.cancel();
  log(LogLevel::info, "{}: linked to {} over {}", link_.key, peer_.session().peer().name, link_.endpoint.text());
}

void Connection::on_closed(Refusal reason, bool by_peer) {
  reason_ = reason;
  closing_ = true;
  const std::string who = peer_.session().peer().name.empty() ? link_.endpoint.text() : peer_.session().peer().name;
  if (opened_) {
    ++state_->counters.lost;
    if (!state_->stopped) {
      const bool orderly = reason == Refusal::stopped;
      log(orderly ? LogLevel::info : LogLevel::warning, "{}: the link to {} has ended: {}{}", link_.key, who,
          by_peer && !orderly ? "it says: " : "", describe(reason));
      report();
    }
  } else if (!state_->stopped) {
    ++state_->counters.refused;
    complain(reason, by_peer, who);
  }
  // The goodbye goes out; then the peer's end of the stream is waited for, since closing now could take it back.
  expire_after(farewell_limit, [](Connection& self) { self.end(); });
  on_output();
}

void Connection::complain(Refusal reason, bool by_peer, const std::string& who) const {
  const std::uint64_t count = ++state_->complaints[{link_.key, reason}];
  if ((count & (count - 1)) != 0) {
    return;
  }
  const std::string advice = remedy(reason);
  log(reason == Refusal::connection_lost ? LogLevel::debug : LogLevel::error, "{}: no link with {}: {}{}{}{}",
      link_.key, who, by_peer ? "it says: " : "", describe(reason), advice.empty() ? "" : "; ", advice);
}

void Connection::end() {
  if (ended()) {
    return;
  }
  if (!writing_ && peer_.session().has_output()) {  // a last goodbye, if it goes without waiting
    peer_.session().take_output(output_);
    static_cast<void>(
        ::send(socket_.native_handle(), output_.memory.data(), output_.used, MSG_NOSIGNAL | MSG_DONTWAIT));
  }
  boost::system::error_code ignored;
  deadline_.cancel();
  socket_.close(ignored);
  asio::post(state_->io, [self = shared_from_this()] {
    std::erase(self->state_->connections, self);
    if (!self->state_->stopped && self->ended_) {
      self->ended_(self->reason_);
    }
  });
}

}  // namespace orrery::instance_link
