#include "fabric/instance_link/sockets.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/error.h"
#include "common/file_descriptor.h"
#include "common/listening_socket.h"
#include "common/log.h"
#include "fabric/instance_link/connection.h"
#include "fabric/instance_link/token_file.h"

namespace orrery::instance_link {

namespace asio = boost::asio;

namespace {

using StreamEndpoint = asio::generic::stream_protocol::endpoint;

constexpr std::chrono::milliseconds retry_soon{300};
constexpr std::chrono::milliseconds retry_refused{2'000};
constexpr std::chrono::milliseconds retry_descriptors{100};
constexpr std::size_t most_connections = 64;

StreamEndpoint stream_endpoint(const Endpoint& endpoint) {
  if (endpoint.kind == Endpoint::Kind::unix_socket) {
    return asio::local::stream_protocol::endpoint(endpoint.path);
  }
  return asio::ip::tcp::endpoint(asio::ip::make_address(endpoint.host), endpoint.port);
}

FileDescriptor listen_on_tcp(const std::string& key, Endpoint& endpoint) {
  const StreamEndpoint address = stream_endpoint(endpoint);
  FileDescriptor socket(::socket(address.data()->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket) {
    const int on = 1;  // without it, only an address is longer in coming back
    static_cast<void>(::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)));
  }
  if (!socket || ::bind(socket.get(), address.data(), static_cast<socklen_t>(address.size())) != 0 ||
      ::listen(socket.get(), 16) != 0) {
    throw Error(fmt::format("{}: can't listen on {}: {}", key, endpoint.text(), std::strerror(errno)),
                "name an address of this machine and a free port above 1023");
  }
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size) == 0) {
    endpoint.port = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&bound)->sin6_port
                                                      : reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
  }
  return socket;
}

}  // namespace

class Sockets::State final : public LinkState, public std::enable_shared_from_this<Sockets::State> {
 public:
  using LinkState::LinkState;

  void start(const std::vector<LinkOptions>& links);
  void stop();
  void add(std::shared_ptr<Connection> connection);
  [[nodiscard]] std::optional<Endpoint> listening_endpoint(std::size_t index) const;

  std::vector<LinkOptions> options;
  std::vector<std::shared_ptr<Listener>> listeners;
  std::vector<std::shared_ptr<Connector>> connectors;
};

class Sockets::Listener final : public std::enable_shared_from_this<Sockets::Listener> {
 public:
  Listener(const std::shared_ptr<State>& state, LinkOptions link, std::vector<std::byte> token)
      : state_(state), link_(std::move(link)), token_(std::move(token)), acceptor_(state->io), retry_(state->io) {
    if (link_.endpoint.kind == Endpoint::Kind::unix_socket) {
      unix_socket_.emplace(link_.endpoint.path);
    } else {
      tcp_socket_ = listen_on_tcp(link_.key, link_.endpoint);
      if (!link_.endpoint.is_local()) {
        log(LogLevel::warning,
            "{}: {} can be reached from other machines: peers prove that they know the token, but "
            "frames travel in the clear",
            link_.key, link_.endpoint.text());
      }
    }
    acceptor_.assign(::fcntl(fd(), F_DUPFD_CLOEXEC, 0));
  }

  void wait() {
    acceptor_.async_wait(asio::posix::descriptor_base::wait_read,
                         [weak = weak_from_this()](const boost::system::error_code& error) {
                           const std::shared_ptr<Listener> self = weak.lock();
                           if (self && !error && !self->state_->stopped) {
                             self->accept();
                           }
                         });
  }
  void stop() {
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    retry_.cancel();
  }
  [[nodiscard]] const Endpoint& endpoint() const { return link_.endpoint; }
  [[nodiscard]] const std::string& key() const { return link_.key; }

 private:
  [[nodiscard]] int fd() const { return unix_socket_ ? unix_socket_->fd() : tcp_socket_.get(); }

  void accept() {
    sockaddr_storage from{};
    socklen_t size = sizeof(from);
    FileDescriptor socket(::accept4(fd(), reinterpret_cast<sockaddr*>(&from), &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
      retry_.expires_after(retry_descriptors);  // it stays in the backlog, and the socket readable: don't spin on it
      retry_.async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
        if (const std::shared_ptr<Listener> self = weak.lock(); self && !error && !self->state_->stopped) {
          self->wait();
        }
      });
      return;
    }
    if (socket) {
      welcome(std::move(socket));
    }
    wait();
  }

  void welcome(FileDescriptor socket) {
    if (state_->connections.size() >= most_connections) {
      ++state_->counters.refused;
      return;
    }
    const int family = unix_socket_ ? AF_UNIX : stream_endpoint(link_.endpoint).data()->sa_family;
    StreamSocket stream(state_->io);
    stream.assign(asio::generic::stream_protocol(family, 0), socket.release());
    state_->add(std::make_shared<Connection>(state_, link_, token_, std::move(stream), nullptr));
  }

  std::shared_ptr<State> state_;
  LinkOptions link_;
  std::vector<std::byte> token_;
  std::optional<ListeningSocket> unix_socket_;
  FileDescriptor tcp_socket_;
  asio::posix::stream_descriptor acceptor_;
  asio::steady_timer retry_;
};

class Sockets::Connector final : public std::enable_shared_from_this<Sockets::Connector> {
 public:
  Connector(const std::shared_ptr<State>& state, LinkOptions link, std::vector<std::byte> token)
      : state_(state), link_(std::move(link)), token_(std::move(token)), socket_(state->io), retry_(state->io) {}

  void connect() {
    const StreamEndpoint endpoint = stream_endpoint(link_.endpoint);
    boost::system::error_code failed;
    socket_ = StreamSocket(state_->io);
    socket_.open(endpoint.protocol(), failed);
    if (failed) {
      on_connected(failed);
      return;
    }
    // A QEMU that is started meanwhile would hold the connection after this server's end.
    ::fcntl(socket_.native_handle(), F_SETFD, FD_CLOEXEC);
    socket_.async_connect(endpoint, [weak = weak_from_this()](const boost::system::error_code& error) {
      const std::shared_ptr<Connector> self = weak.lock();
      if (self && !self->state_->stopped) {
        self->on_connected(error);
      }
    });
  }
  void stop() {
    boost::system::error_code ignored;
    socket_.close(ignored);
    retry_.cancel();
  }

 private:
  void on_connected(const boost::system::error_code& error) {
    if (error) {
      if (!waiting_) {
        waiting_ = true;
        log(LogLevel::info, "{}: nobody listens on {} yet ({})", link_.key, link_.endpoint.text(), error.message());
      }
      connect_in(retry_soon);
      return;
    }
    waiting_ = false;
    state_->add(std::make_shared<Connection>(
        state_, link_, token_, std::move(socket_), [weak = weak_from_this()](Refusal reason) {
          if (const std::shared_ptr<Connector> self = weak.lock()) {
            const bool soon = reason == Refusal::connection_lost || reason == Refusal::stopped;
            self->connect_in(soon ? retry_soon : retry_refused);
          }
        }));
  }
  void connect_in(std::chrono::milliseconds delay) {
    retry_.expires_after(delay);
    retry_.async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
      if (const std::shared_ptr<Connector> self = weak.lock(); self && !error && !self->state_->stopped) {
        self->connect();
      }
    });
  }

  std::shared_ptr<State> state_;
  LinkOptions link_;
  std::vector<std::byte> token_;
  StreamSocket socket_;
  asio::steady_timer retry_;
  bool waiting_ = false;  // said that nobody is there
};

void Sockets::State::start(const std::vector<LinkOptions>& links) {
  options = links;
  for (const LinkOptions& link : links) {
    std::vector<std::byte> token;
    try {
      token = read_token(link.token_file);
      if (link.listen) {
        listeners.push_back(std::make_shared<Listener>(shared_from_this(), link, std::move(token)));
      } else {
        connectors.push_back(std::make_shared<Connector>(shared_from_this(), link, std::move(token)));
      }
    } catch (const Error& error) {
      const std::string what = error.what();
      throw Error(what.starts_with(link.key) ? what : fmt::format("{}: {}", link.key, what), error.remedy());
    }
  }
  for (const auto& listener : listeners) {
    listener->wait();
  }
  for (const auto& connector : connectors) {
    connector->connect();
  }
}

void Sockets::State::add(std::shared_ptr<Connection> connection) {
  const std::shared_ptr<Connection> started = connections.emplace_back(std::move(connection));
  started->start();  // which may take it out again
}

void Sockets::State::stop() {
  stopped = true;
  for (const auto& listener : listeners) {
    listener->stop();
  }
  for (const auto& connector : connectors) {
    connector->stop();
  }
  for (const auto& connection : connections) {
    connection->stop();
  }
  // They hold this state, and it them.
  listeners.clear();
  connectors.clear();
  connections.clear();
}

std::optional<Endpoint> Sockets::State::listening_endpoint(std::size_t index) const {
  for (const auto& listener : listeners) {
    if (listener->key() == options.at(index).key) {
      return listener->endpoint();
    }
  }
  return std::nullopt;
}

Sockets::Sockets(asio::io_context& io, Uplinks& uplinks, const std::vector<LinkOptions>& links)
    : state_(std::make_shared<State>(io, uplinks)) {
  try {
    state_->start(links);
  } catch (...) {
    state_->stop();
    throw;
  }
}

Sockets::~Sockets() {
  state_->stop();
}

void Sockets::resume() {
  for (const auto& connection : state_->connections) {
    connection->read();
  }
}

Endpoint Sockets::endpoint(std::size_t index) const {
  return state_->listening_endpoint(index).value_or(state_->options.at(index).endpoint);
}

void Sockets::report() const {
  for (const auto& connection : state_->connections) {
    if (connection->opened() && !connection->ended()) {
      connection->report();
    }
  }
}

const Sockets::Counters& Sockets::counters() const {
  return state_->counters;
}

}  // namespace orrery::instance_link
