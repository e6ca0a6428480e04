#include "cli/console_stream.h"

#include <termios.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <string_view>

#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include "cli/output.h"

namespace orrery::cli {

namespace {
constexpr char leave_key = 0x1d;  // Ctrl-]
}

class ConsoleStream::State : public std::enable_shared_from_this<State> {
 public:
  State(boost::asio::io_context& io, std::string path, bool input, std::function<void()> leave)
      : socket_(io), retry_(io), input_(io), path_(std::move(path)), leave_(std::move(leave)), wants_input_(input) {}

  void start() {
    connect();
    if (wants_input_) {
      take_terminal();
      boost::system::error_code failed;
      input_.assign(dup(STDIN_FILENO), failed);
      if (!failed) {
        read_input();
      }
    }
  }

  void stop() {
    stopped_ = true;
    boost::system::error_code ignored;
    socket_.close(ignored);
    input_.close(ignored);
    retry_.cancel();
    if (raw_) {
      tcsetattr(STDIN_FILENO, TCSANOW, &before_);
      raw_ = false;
    }
  }

 private:
  void connect() {
    boost::system::error_code failed;
    socket_.connect(boost::asio::local::stream_protocol::endpoint(path_), failed);
    if (!failed) {
      read_console();
      return;
    }
    socket_.close(failed);
    retry_.expires_after(std::chrono::milliseconds(50));
    retry_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (!error && !self->stopped_) {
        self->connect();
      }
    });
  }

  void read_console() {
    socket_.async_read_some(boost::asio::buffer(from_guest_),
                            [self = shared_from_this()](const boost::system::error_code& error, std::size_t bytes) {
                              write_output(std::string_view(self->from_guest_.data(), bytes));
                              if (!error && !self->stopped_) {
                                self->read_console();
                              }
                            });
  }

  void read_input() {
    input_.async_read_some(boost::asio::buffer(typed_),
                           [self = shared_from_this()](const boost::system::error_code& error, std::size_t bytes) {
                             if (error || self->stopped_) {
                               return;
                             }
                             for (std::size_t i = 0; i < bytes; ++i) {
                               if (self->raw_ && self->typed_[i] == leave_key) {
                                 self->leave_();  // the second time ends the guest at once, so read on
                                 self->read_input();
                                 return;
                               }
                             }
                             boost::system::error_code lost;  // a guest that has gone takes no input
                             boost::asio::write(self->socket_, boost::asio::buffer(self->typed_.data(), bytes), lost);
                             self->read_input();
                           });
  }

  void take_terminal() {
    if (isatty(STDIN_FILENO) == 0 || tcgetattr(STDIN_FILENO, &before_) != 0) {
      return;
    }
    termios raw = before_;
    cfmakeraw(&raw);
    raw.c_oflag |= OPOST | ONLCR;
    raw_ = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
  }

  boost::asio::local::stream_protocol::socket socket_;
  boost::asio::steady_timer retry_;
  boost::asio::posix::stream_descriptor input_;
  std::string path_;
  std::function<void()> leave_;
  bool wants_input_;
  bool stopped_ = false;
  bool raw_ = false;
  termios before_{};
  std::array<char, 4096> from_guest_{};
  std::array<char, 256> typed_{};
};

ConsoleStream::ConsoleStream(boost::asio::io_context& io, std::string socket_path, bool input,
                             std::function<void()> leave)
    : state_(std::make_shared<State>(io, std::move(socket_path), input, std::move(leave))) {
  state_->start();
}

ConsoleStream::~ConsoleStream() {
  state_->stop();
}

}  // namespace orrery::cli
