#include "qemu_bridge/connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "qemu_bridge/socket_input.h"

namespace orrery::bridge {

Connection::Connection(boost::asio::io_context& io, FileDescriptor socket, pcie::FunctionAccess& function,
                       SessionObserver& observer, const SessionOptions& options, std::size_t max_unread,
                       std::function<void()> closed)
    : io_(io), max_unread_(max_unread), closed_(std::move(closed)), session_(function, *this, observer, options) {
  main_.emplace(io, std::move(socket), max_unread);
}

void Connection::start() {
  wait_for_input(Channel::main);
}

bool Connection::peer_has_gone() const {
  pollfd state{main_ ? const_cast<Stream&>(*main_).socket.native_handle() : -1, POLLRDHUP, 0};
  return ::poll(&state, 1, 0) > 0 && (state.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

bool Connection::poll() {
  const bool some = take_input(Channel::main);
  return (command_ && !shut_ && take_input(Channel::command)) || some;
}

void Connection::close(std::string_view reason) {
  if (!shut_) {
    session_.close(reason);
    settle();
  }
}

void Connection::wait_for_input(Channel channel) {
  std::optional<Stream>& from = stream(channel);
  from->socket.async_wait(boost::asio::posix::descriptor_base::wait_read,
                          [self = shared_from_this(), channel](const boost::system::error_code& error) {
                            if (error || self->shut_) {
                              return;
                            }
                            self->take_input(channel);
                            if (!self->shut_) {
                              self->wait_for_input(channel);
                            }
                          });
}

bool Connection::take_input(Channel channel) {
  if (shut_) {
    return false;
  }
  const std::span<std::byte> space = session_.space(channel);
  SocketInput input = receive(stream(channel)->socket.native_handle(), space);
  if (input.result == SocketInput::Result::nothing) {
    return false;
  }
  busy_ = true;
  if (input.result == SocketInput::Result::some) {
    session_.received(channel, input.bytes, input.descriptors, input.descriptors_lost);
  } else {
    session_.close(input.result == SocketInput::Result::end
                       ? "the client closed the connection"
                       : "the connection failed: " + std::generic_category().message(errno));
  }
  busy_ = false;
  settle();
  return true;
}

bool Connection::send(Channel channel, std::span<const std::byte> head, std::span<const std::byte> body,
                      std::span<const int> descriptors) {
  std::optional<Stream>& to = stream(channel);
  if (shut_ || !to) {
    return false;
  }
  if (!to->out.append(head, body, descriptors)) {
    // Over the limit; it may just not have been offered to the kernel yet.
    if (to->out.flush(to->socket.native_handle()) == OutputQueue::Flush::failed ||
        !to->out.append(head, body, descriptors)) {
      return false;
    }
  }
  if (!busy_) {
    call_soon();
  }
  return true;
}

FileDescriptor Connection::open_command_channel() {
  std::array<int, 2> ends{};
  if (command_ || ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return {};
  }
  command_.emplace(io_, FileDescriptor(ends[0]), max_unread_);
  wait_for_input(Channel::command);
  return FileDescriptor(ends[1]);
}

void Connection::call_soon() {
  if (posted_ || shut_) {
    return;
  }
  posted_ = true;
  boost::asio::post(io_, [self = weak_from_this()] {
    if (const std::shared_ptr<Connection> connection = self.lock()) {
      connection->posted_ = false;
      if (!connection->shut_) {
        connection->busy_ = true;
        connection->session_.run_deferred();
        connection->busy_ = false;
        connection->settle();
      }
    }
  });
}

void Connection::settle() {
  if (shut_) {
    return;
  }
  flush(Channel::main);
  if (command_) {
    flush(Channel::command);
  }
  if (session_.state() == Session::State::closed) {
    shut();
  }
}

void Connection::flush(Channel channel) {
  std::optional<Stream>& to = stream(channel);
  if (to->out.empty() || to->waits_to_write) {
    return;
  }
  switch (to->out.flush(to->socket.native_handle())) {
    case OutputQueue::Flush::done:
      break;
    case OutputQueue::Flush::blocked:
      wait_to_write(channel);
      break;
    case OutputQueue::Flush::failed:
      session_.close("the connection failed: " + std::generic_category().message(errno));
      break;
  }
}

void Connection::wait_to_write(Channel channel) {
  std::optional<Stream>& to = stream(channel);
  to->waits_to_write = true;
  to->socket.async_wait(boost::asio::posix::descriptor_base::wait_write,
                        [self = shared_from_this(), channel](const boost::system::error_code& error) {
                          if (error || self->shut_) {
                            return;
                          }
                          self->stream(channel)->waits_to_write = false;
                          self->settle();
                        });
}

void Connection::shut() {
  shut_ = true;
  boost::system::error_code ignored;
  main_->socket.close(ignored);
  if (command_) {
    command_->socket.close(ignored);
  }
  // The owner forgets this connection in the call; whoever called us holds it.
  const std::function<void()> closed = std::exchange(closed_, nullptr);
  if (closed) {
    closed();
  }
}

}  // namespace orrery::bridge
