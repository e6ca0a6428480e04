#include "qemu_bridge/relay/relay_endpoint.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "common/listening_socket.h"
#include "qemu_bridge/output_queue.h"
#include "qemu_bridge/socket_input.h"

namespace orrery::bridge {
namespace {

using boost::asio::posix::descriptor_base;
using boost::asio::posix::stream_descriptor;

constexpr std::chrono::milliseconds retry_interval{200};

}  // namespace

class RelayEndpoint::Impl final : public std::enable_shared_from_this<Impl>, private RelayOutput {
 public:
  Impl(boost::asio::io_context& io, RelayEndpointOptions options, RelayObserver& observer)
      : io_(io),
        options_(std::move(options)),
        observer_(observer),
        listening_(options_.listen),
        acceptor_(io, ::fcntl(listening_.fd(), F_DUPFD_CLOEXEC, 0)),
        accept_retry_(io),
        server_retry_(io) {}

  void wait_for_client() {
    acceptor_.async_wait(descriptor_base::wait_read, [self = weak_from_this()](const boost::system::error_code& error) {
      const std::shared_ptr<Impl> impl = self.lock();
      if (!error && impl && !impl->stopped_) {
        impl->accept();
      }
    });
  }

  void stop() {
    stopped_ = true;
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    accept_retry_.cancel();
    server_retry_.cancel();
    close_all();
  }

  [[nodiscard]] const std::filesystem::path& path() const { return listening_.path(); }
  [[nodiscard]] Relay::State state() const { return relay_ ? relay_->state() : Relay::State::absent; }

 private:
  struct Stream {
    Stream(boost::asio::io_context& io, FileDescriptor handle, std::size_t max_unread)
        : socket(io, handle.release()), out(max_unread) {}
    stream_descriptor socket;
    OutputQueue out;
    bool waits_to_read = false;
    bool waits_to_write = false;
  };

  [[nodiscard]] std::shared_ptr<Stream>& stream(RelaySide side) { return streams_[static_cast<std::size_t>(side)]; }

  // RelayOutput
  bool send(RelaySide side, std::span<const std::byte> head, std::span<const std::byte> body,
            std::span<const int> descriptors) override {
    Stream* to = stream(side).get();
    if (to == nullptr) {
      return false;
    }
    if (to->out.append(head, body, descriptors)) {
      return true;
    }
    // Over the limit; it may just not have been offered to the kernel yet.
    return to->out.flush(to->socket.native_handle()) != OutputQueue::Flush::failed &&
           to->out.append(head, body, descriptors);
  }

  void accept() {
    FileDescriptor socket(::accept4(listening_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
      // The client stays in the backlog, and the socket readable: don't spin on it.
      later(accept_retry_, &Impl::wait_for_client);
      return;
    }
    if (socket && !stream(RelaySide::client)) {
      stream(RelaySide::client) = std::make_shared<Stream>(io_, std::move(socket), options_.max_unread);
      relay_.emplace(static_cast<RelayOutput&>(*this), observer_);
      connect_to_server();
      settle();
    }
    wait_for_client();
  }

  void later(boost::asio::steady_timer& timer, void (Impl::*what)()) {
    timer.expires_after(retry_interval);
    timer.async_wait([self = weak_from_this(), what](const boost::system::error_code& error) {
      const std::shared_ptr<Impl> impl = self.lock();
      if (!error && impl && !impl->stopped_) {
        (*impl.*what)();
      }
    });
  }

  void retry_server() {
    retrying_ = false;
    connect_to_server();
  }

  void connect_to_server() {
    if (!relay_ || stream(RelaySide::server)) {
      return;
    }
    if (FileDescriptor socket = connect_to_socket(options_.server)) {
      stream(RelaySide::server) = std::make_shared<Stream>(io_, std::move(socket), options_.max_unread);
      relay_->server_connected();
      settle();
    } else {
      connect_later();
    }
  }

  void connect_later() {
    if (!retrying_) {
      retrying_ = true;
      later(server_retry_, &Impl::retry_server);
    }
  }

  void take_input(RelaySide side) {
    SocketInput input = receive(stream(side)->socket.native_handle(), relay_->space(side));
    if (input.result == SocketInput::Result::some) {
      relay_->received(side, input.bytes, input.descriptors, input.descriptors_lost);
    } else if (input.result != SocketInput::Result::nothing) {
      end(side, input.result == SocketInput::Result::end ? "it closed the connection"
                                                         : std::generic_category().message(errno));
    }
    settle();
  }

  // One side's connection is over, or no use any more.
  void end(RelaySide side, const std::string& reason) {
    if (side == RelaySide::client) {
      close_all();
      return;
    }
    close(side);
    relay_->server_gone(reason);
  }

  void close(RelaySide side) {
    if (const std::shared_ptr<Stream> closing = std::exchange(stream(side), nullptr)) {
      boost::system::error_code ignored;
      closing->socket.close(ignored);
    }
  }

  void close_all() {
    close(RelaySide::client);
    close(RelaySide::server);
    if (relay_) {
      relay_.reset();
      observer_.on_client_gone();
    }
  }

  // After anything that may have produced output or ended a connection.
  void settle() {
    if (relay_ && stream(RelaySide::server)) {
      flush(RelaySide::server);
    }
    if (relay_ && stream(RelaySide::client)) {
      flush(RelaySide::client);
    }
    if (relay_ && !relay_->client_wanted()) {
      close_all();
    }
    if (!relay_) {
      return;
    }
    if (stream(RelaySide::server) && !relay_->server_wanted()) {
      close(RelaySide::server);
    }
    if (!stream(RelaySide::server)) {
      connect_later();
    }
    wait_for_input(RelaySide::server);
    if (relay_->wants_client_input()) {
      wait_for_input(RelaySide::client);
    }
  }

  void flush(RelaySide side) {
    const std::shared_ptr<Stream> to = stream(side);
    if (to->out.empty() || to->waits_to_write) {
      return;
    }
    switch (to->out.flush(to->socket.native_handle())) {
      case OutputQueue::Flush::done:
        break;
      case OutputQueue::Flush::blocked:
        to->waits_to_write = true;
        wait(to, side, descriptor_base::wait_write, [to](Impl& impl) {
          to->waits_to_write = false;
          impl.settle();
        });
        break;
      case OutputQueue::Flush::failed:
        end(side, std::generic_category().message(errno));
        // What the relay has answered meanwhile.
        if (side == RelaySide::server && stream(RelaySide::client)) {
          flush(RelaySide::client);
        }
        break;
    }
  }

  void wait_for_input(RelaySide side) {
    const std::shared_ptr<Stream> from = stream(side);
    if (from && !from->waits_to_read) {
      from->waits_to_read = true;
      wait(from, side, descriptor_base::wait_read, [from, side](Impl& impl) {
        from->waits_to_read = false;
        impl.take_input(side);
      });
    }
  }

  // Calls `then` when the stream is ready, if it is still this side's.
  template <class Then>
  void wait(const std::shared_ptr<Stream>& on, RelaySide side, descriptor_base::wait_type what, Then then) {
    on->socket.async_wait(what, [self = weak_from_this(), on, side, then](const boost::system::error_code& error) {
      const std::shared_ptr<Impl> impl = self.lock();
      if (!error && impl && impl->stream(side) == on) {
        then(*impl);
      }
    });
  }

  boost::asio::io_context& io_;
  RelayEndpointOptions options_;
  RelayObserver& observer_;
  ListeningSocket listening_;
  stream_descriptor acceptor_;
  boost::asio::steady_timer accept_retry_;
  boost::asio::steady_timer server_retry_;
  std::array<std::shared_ptr<Stream>, 2> streams_;  // by RelaySide
  std::optional<Relay> relay_;                      // of the connected client
  bool retrying_ = false;                           // server_retry_ runs
  bool stopped_ = false;
};

RelayEndpoint::RelayEndpoint(boost::asio::io_context& io, RelayEndpointOptions options, RelayObserver& observer)
    : impl_(std::make_shared<Impl>(io, std::move(options), observer)) {
  impl_->wait_for_client();
}

RelayEndpoint::~RelayEndpoint() {
  impl_->stop();
}

const std::filesystem::path& RelayEndpoint::socket() const {
  return impl_->path();
}

Relay::State RelayEndpoint::state() const {
  return impl_->state();
}

}  // namespace orrery::bridge
