#include "qemu_bridge/server.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <chrono>
#include <utility>

#include "common/listening_socket.h"
#include "qemu_bridge/connection.h"

namespace orrery::bridge {
namespace {

using boost::asio::posix::descriptor_base;
using boost::asio::posix::stream_descriptor;

// A client that came second: it is told EBUSY when it has said anything, and closed.
class Refusal final : public std::enable_shared_from_this<Refusal> {
 public:
  Refusal(boost::asio::io_context& io, FileDescriptor socket) : socket_(io, socket.release()), deadline_(io) {}

  void start() {
    deadline_.expires_after(std::chrono::seconds(5));
    deadline_.async_wait([self = weak_from_this()](const boost::system::error_code&) {
      if (const std::shared_ptr<Refusal> refusal = self.lock()) {
        boost::system::error_code ignored;
        refusal->socket_.close(ignored);
      }
    });
    socket_.async_wait(descriptor_base::wait_read, [self = shared_from_this()](const boost::system::error_code& error) {
      if (!error) {
        self->answer();
      }
      self->deadline_.cancel();
    });
  }

 private:
  void answer() {
    std::array<std::byte, sizeof(wire::Header)> bytes;
    // Descriptors that come along are not asked for, so the kernel drops them.
    if (::recv(socket_.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT) == ssize_t{sizeof(wire::Header)}) {
      const auto header = load<wire::Header>(bytes);
      if ((header.flags & (wire::type_mask | wire::flag_no_reply)) == wire::type_command) {
        store(std::span(bytes), error_header(header, EBUSY));
        [[maybe_unused]] const ssize_t sent =
            ::send(socket_.native_handle(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      }
    }
    boost::system::error_code ignored;
    socket_.close(ignored);
  }

  stream_descriptor socket_;
  boost::asio::steady_timer deadline_;
};

}  // namespace

class Server::Listener final : public std::enable_shared_from_this<Listener> {
 public:
  Listener(boost::asio::io_context& io, pcie::FunctionAccess& function, ServerOptions options,
           SessionObserver* observer)
      : io_(io),
        function_(function),
        options_(std::move(options)),
        observer_(observer != nullptr ? *observer : silent_),
        listening_(options_.socket),
        acceptor_(io, ::fcntl(listening_.fd(), F_DUPFD_CLOEXEC, 0)),
        retry_(io) {}

  void wait_for_client() {
    acceptor_.async_wait(descriptor_base::wait_read, [self = weak_from_this()](const boost::system::error_code& error) {
      const std::shared_ptr<Listener> listener = self.lock();
      if (!error && listener && !listener->stopped_) {
        listener->accept();
      }
    });
  }

  void stop() {
    stopped_ = true;
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    retry_.cancel();
    disconnect("the server stopped");
  }

  void disconnect(std::string_view reason) {
    if (const std::shared_ptr<Connection> connection = connection_) {
      connection->close(reason);
    }
  }

  bool poll() {
    const std::shared_ptr<Connection> connection = connection_;
    return connection && connection->poll();
  }

  [[nodiscard]] Connection* connection() { return connection_.get(); }
  [[nodiscard]] const std::filesystem::path& path() const { return listening_.path(); }
  [[nodiscard]] const Counters& counters() const { return counters_; }

 private:
  static constexpr std::size_t max_refusals = 8;  // waiting for their first message at once

  void accept() {
    FileDescriptor socket(::accept4(listening_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
      // The client stays in the backlog, and the socket readable: don't spin on it.
      retry_.expires_after(std::chrono::milliseconds(100));
      retry_.async_wait([self = weak_from_this()](const boost::system::error_code& error) {
        const std::shared_ptr<Listener> listener = self.lock();
        if (!error && listener && !listener->stopped_) {
          listener->wait_for_client();
        }
      });
      return;
    }
    if (socket) {
      welcome(std::move(socket));
    }
    if (!stopped_) {
      wait_for_client();
    }
  }

  void welcome(FileDescriptor socket) {
    // The last client may have died without our having read so far.
    while (connection_ && connection_->peer_has_gone() && poll()) {
    }
    if (connection_) {
      ++counters_.refused;
      refuse(std::move(socket));
      return;
    }
    ++counters_.clients;
    connection_ = std::make_shared<Connection>(io_, std::move(socket), function_, observer_, options_.session,
                                               options_.max_unread, [this] { connection_.reset(); });
    connection_->start();
  }

  void refuse(FileDescriptor socket) {
    refusals_.erase(std::remove_if(refusals_.begin(), refusals_.end(),
                                   [](const std::weak_ptr<Refusal>& refusal) { return refusal.expired(); }),
                    refusals_.end());
    if (refusals_.size() < max_refusals) {
      const auto refusal = std::make_shared<Refusal>(io_, std::move(socket));
      refusals_.push_back(refusal);
      refusal->start();
    }
  }

  boost::asio::io_context& io_;
  pcie::FunctionAccess& function_;
  ServerOptions options_;
  SessionObserver silent_;
  SessionObserver& observer_;
  ListeningSocket listening_;
  stream_descriptor acceptor_;
  boost::asio::steady_timer retry_;
  std::shared_ptr<Connection> connection_;
  std::vector<std::weak_ptr<Refusal>> refusals_;
  Counters counters_;
  bool stopped_ = false;
};

Server::Server(boost::asio::io_context& io, pcie::FunctionAccess& function, ServerOptions options,
               SessionObserver* observer)
    : listener_(std::make_shared<Listener>(io, function, std::move(options), observer)) {
  listener_->wait_for_client();
}

Server::~Server() {
  listener_->stop();
}

bool Server::poll() {
  return listener_->poll();
}

bool Server::connected() const {
  return listener_->connection() != nullptr;
}

Session* Server::session() {
  Connection* connection = listener_->connection();
  return connection != nullptr ? &connection->session() : nullptr;
}

void Server::disconnect(std::string_view reason) {
  listener_->disconnect(reason);
}

const std::filesystem::path& Server::socket() const {
  return listener_->path();
}

Server::Counters Server::counters() const {
  return listener_->counters();
}

}  // namespace orrery::bridge
