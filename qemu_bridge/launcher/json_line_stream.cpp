#include "qemu_bridge/launcher/json_line_stream.h"

#include <fmt/format.h>
#include <sys/un.h>

#include <array>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <deque>
#include <utility>

namespace orrery::bridge {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

constexpr std::chrono::milliseconds between_attempts{20};

bool may_come_yet(const error_code& failed) {
  return failed == asio::error::connection_refused || failed == boost::system::errc::no_such_file_or_directory ||
         failed == asio::error::try_again || failed == asio::error::no_buffer_space;  // how asio gives a full backlog
}

}  // namespace

class JsonLineStream::State : public std::enable_shared_from_this<State> {
 public:
  State(asio::io_context& io, Options options, Message on_message, Closed on_closed)
      : options_(options),
        on_message_(std::move(on_message)),
        on_closed_(std::move(on_closed)),
        socket_(io),
        timer_(io) {}

  void connect(const std::string& path, std::chrono::milliseconds time_limit, Connected done) {
    connected_ = std::move(done);
    deadline_ = std::chrono::steady_clock::now() + time_limit;
    if (path.size() >= sizeof(sockaddr_un::sun_path)) {
      asio::post(socket_.get_executor(), [self = shared_from_this(), path] {
        self->finish_connect(fmt::format("{}: longer than a UNIX socket's path may be", path));
      });
      return;
    }
    path_ = path;
    attempt();
  }

  void send(std::string text) {
    if (!open_) {
      return;
    }
    unsent_ += text.size();
    if (unsent_ > options_.most_unsent) {
      lose("the peer doesn't read what it is sent");
      return;
    }
    outgoing_.push_back(std::move(text));
    if (outgoing_.size() == 1) {
      write();
    }
  }

  void adopt(FileDescriptor socket) {
    socket_.assign(asio::local::stream_protocol(), socket.release());
    open_ = true;
    read();
  }

  void close() {
    open_ = false;
    connected_ = {};
    on_message_ = {};
    on_closed_ = {};
    shut();
  }

  [[nodiscard]] bool is_open() const { return open_; }

 private:
  void attempt() {
    error_code ignored;
    socket_.close(ignored);
    socket_.async_connect(asio::local::stream_protocol::endpoint(path_),
                          [self = shared_from_this()](const error_code& failed) { self->attempted(failed); });
  }

  void attempted(const error_code& failed) {
    if (!connected_) {
      return;  // closed meanwhile
    }
    if (!failed) {
      open_ = true;
      read();
      finish_connect({});
      return;
    }
    if (!may_come_yet(failed) || std::chrono::steady_clock::now() >= deadline_) {
      finish_connect(fmt::format("{}: {}", path_, failed.message()));
      return;
    }
    timer_.expires_after(between_attempts);
    timer_.async_wait([self = shared_from_this()](const error_code& cancelled) {
      if (!cancelled && self->connected_) {
        self->attempt();
      }
    });
  }

  void finish_connect(const std::string& failure) {
    if (auto done = std::exchange(connected_, {})) {
      done(failure);
    }
  }

  void read() {
    socket_.async_read_some(
        asio::buffer(chunk_), [self = shared_from_this()](const error_code& failed, std::size_t bytes) {
          if (!self->open_) {
            return;
          }
          if (failed) {
            self->lose(failed == asio::error::eof ? "the peer closed the connection" : failed.message());
            return;
          }
          self->take(std::string_view(self->chunk_.data(), bytes));
          if (self->open_) {
            self->read();
          }
        });
  }

  void take(std::string_view bytes) {
    while (!bytes.empty() && open_) {
      const auto end = bytes.find('\n');
      const std::string_view part = bytes.substr(0, end);
      if (line_.size() + part.size() > options_.longest_line) {
        lose(fmt::format("the peer sent a line longer than {} bytes", options_.longest_line));
        return;
      }
      line_.append(part);
      if (end == std::string_view::npos) {
        return;
      }
      bytes.remove_prefix(end + 1);
      std::string line = std::exchange(line_, {});
      whole(line);
    }
  }

  void whole(std::string_view line) {
    if (options_.resynchronise) {
      if (const auto mark = line.rfind('\xff'); mark != std::string_view::npos) {
        line.remove_prefix(mark + 1);
      }
    }
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) {
      return;
    }
    nlohmann::json message = nlohmann::json::parse(line, nullptr, false);
    if (!message.is_object()) {
      if (!options_.resynchronise) {
        lose("the peer sent a line that is not a JSON object");
      }
      return;
    }
    if (on_message_) {
      // A copy: the handler may close this stream, which empties on_message_.
      const Message handler = on_message_;
      handler(std::move(message));
    }
  }

  void write() {
    asio::async_write(socket_, asio::buffer(outgoing_.front()),
                      [self = shared_from_this()](const error_code& failed, std::size_t) {
                        if (!self->open_) {
                          return;
                        }
                        if (failed) {
                          self->lose(failed.message());
                          return;
                        }
                        self->unsent_ -= self->outgoing_.front().size();
                        self->outgoing_.pop_front();
                        if (!self->outgoing_.empty()) {
                          self->write();
                        }
                      });
  }

  void lose(const std::string& reason) {
    open_ = false;
    shut();
    // Not from inside send(): the caller is in the middle of something.
    asio::post(socket_.get_executor(), [self = shared_from_this(), reason] {
      if (auto handler = std::exchange(self->on_closed_, {})) {
        handler(reason);
      }
    });
  }

  void shut() {
    error_code ignored;
    timer_.cancel();
    socket_.close(ignored);
  }

  Options options_;
  Message on_message_;
  Closed on_closed_;
  Connected connected_;
  asio::local::stream_protocol::socket socket_;
  asio::steady_timer timer_;
  std::chrono::steady_clock::time_point deadline_;
  std::string path_;
  std::array<char, 16 * 1024> chunk_{};
  std::string line_;
  std::deque<std::string> outgoing_;  // the front is being written: it stays until it is
  std::size_t unsent_ = 0;
  bool open_ = false;
};

JsonLineStream::JsonLineStream(asio::io_context& io, Options options, Message on_message, Closed on_closed)
    : state_(std::make_shared<State>(io, options, std::move(on_message), std::move(on_closed))) {}

JsonLineStream::~JsonLineStream() {
  state_->close();
}

void JsonLineStream::connect(const std::string& path, std::chrono::milliseconds time_limit, Connected done) {
  state_->connect(path, time_limit, std::move(done));
}

void JsonLineStream::adopt(FileDescriptor socket) {
  state_->adopt(std::move(socket));
}

void JsonLineStream::send(const nlohmann::json& message, const std::string& prefix) {
  state_->send(prefix + message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n');
}

void JsonLineStream::close() {
  state_->close();
}
bool JsonLineStream::is_open() const {
  return state_->is_open();
}

}  // namespace orrery::bridge
