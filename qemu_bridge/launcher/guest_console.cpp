#include "qemu_bridge/launcher/guest_console.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <utility>

#include "common/file_descriptor.h"
#include "qemu_bridge/launcher/system_text.h"

namespace orrery::bridge {

namespace asio = boost::asio;

namespace {

constexpr std::size_t kept_bytes = 64 * 1024;
constexpr std::size_t longest_line = 4096;  // a longer one is looked at in pieces of this size
constexpr std::chrono::milliseconds between_looks{20};

}  // namespace

std::string panic_line(std::string_view line) {
  // Messages of Linux (kernel/panic.c, arch/x86/boot/compressed) and of a firmware without a boot loader.
  static constexpr std::array<std::string_view, 4> signs{"Kernel panic - not syncing", "-- System halted",
                                                         "Unable to mount root fs", "No bootable device"};
  const bool found = std::any_of(signs.begin(), signs.end(),
                                 [&](std::string_view sign) { return line.find(sign) != std::string_view::npos; });
  return found ? std::string(line) : std::string();
}

class GuestConsole::State : public std::enable_shared_from_this<State> {
 public:
  State(asio::io_context& io, std::string capture) : timer_(io), capture_(std::move(capture)) {}

  void wait_for(std::vector<std::string> markers, std::chrono::milliseconds time_limit, Found found) {
    markers_ = std::move(markers);
    found_ = std::move(found);
    deadline_ = std::chrono::steady_clock::now() + time_limit;
    // From the start again: the marker may have come before anybody waited for it.
    file_.reset();
    line_.clear();
    tail_.clear();
    panic_.clear();
    ++wait_;
    asio::post(timer_.get_executor(), [self = shared_from_this(), wait = wait_] {
      if (wait == self->wait_) {
        self->look();
      }
    });
  }

  void cancel() {
    ++wait_;
    found_ = {};
    timer_.cancel();
  }

  void read_on() {
    // A marker ends a look early; a guest that never stops writing mustn't keep us here.
    std::string ignored;
    for (unsigned looks = 0; looks < 64 && !take_new(ignored).empty(); ++looks) {
    }
  }

  [[nodiscard]] std::string shown() const { return printable(tail_); }
  [[nodiscard]] const std::string& panic() const { return panic_; }
  [[nodiscard]] const std::string& capture() const { return capture_; }

 private:
  void look() {
    std::string failure;
    const std::string marker = take_new(failure);
    if (!marker.empty()) {
      finish(ConsoleResult::Kind::marker, marker);
    } else if (!panic_.empty()) {
      finish(ConsoleResult::Kind::panic, panic_);
    } else if (!failure.empty()) {
      finish(ConsoleResult::Kind::failed, failure);
    } else if (std::chrono::steady_clock::now() >= deadline_) {
      finish(ConsoleResult::Kind::timed_out, {});
    } else {
      timer_.expires_after(between_looks);
      timer_.async_wait([self = shared_from_this(), wait = wait_](const boost::system::error_code& cancelled) {
        if (!cancelled && wait == self->wait_) {
          self->look();
        }
      });
    }
  }

  void finish(ConsoleResult::Kind kind, const std::string& text) {
    ++wait_;
    if (auto found = std::exchange(found_, {})) {
      found({kind, text});
    }
  }

  // Reads what has been written since; returns the first marker in it, if any. A line is looked at as
  // soon as there is some of it: a prompt has no end.
  std::string take_new(std::string& failure) {
    if (!file_) {
      file_.reset(::open(capture_.c_str(), O_RDONLY | O_CLOEXEC));
      if (!file_) {
        if (errno != ENOENT) {
          failure = fmt::format("{} can't be read: {}", capture_, system_text(errno));
        }
        return {};
      }
    }
    std::array<char, 16 * 1024> chunk{};
    // A guest that writes without end must not keep us here: at most 4 MiB a look.
    for (unsigned reads = 0; reads < 256; ++reads) {
      const ssize_t got = ::read(file_.get(), chunk.data(), chunk.size());
      if (got < 0) {
        failure = fmt::format("{} can't be read: {}", capture_, system_text(errno));
      }
      if (got <= 0) {
        return {};
      }
      const std::string_view bytes(chunk.data(), static_cast<std::size_t>(got));
      tail_.append(bytes);
      if (tail_.size() > kept_bytes) {
        tail_.erase(0, tail_.size() - kept_bytes);
      }
      if (std::string marker = scan(bytes); !marker.empty()) {
        return marker;
      }
    }
    return {};
  }

  std::string scan(std::string_view bytes) {
    while (!bytes.empty()) {
      const auto end = bytes.find('\n');
      const std::string_view part = bytes.substr(0, std::min(end, longest_line));
      line_.append(part);
      const std::string text = printable(line_);
      for (const std::string& marker : markers_) {
        if (text.find(marker) != std::string::npos) {
          return marker;
        }
      }
      if (panic_.empty()) {
        panic_ = panic_line(text);
      }
      bytes.remove_prefix(std::min(bytes.size(), part.size() + (part.size() == end ? 1 : 0)));
      if (part.size() == end) {
        line_.clear();
      } else if (line_.size() > longest_line) {
        line_.erase(0, line_.size() - longest_line / 2);  // half stays: a marker may span the cut
      }
    }
    return {};
  }

  asio::steady_timer timer_;
  std::string capture_;
  FileDescriptor file_;
  std::vector<std::string> markers_;
  Found found_;
  std::chrono::steady_clock::time_point deadline_;
  unsigned wait_ = 0;
  std::string line_;  // the unfinished last line
  std::string tail_;
  std::string panic_;
};

GuestConsole::GuestConsole(asio::io_context& io, std::string capture)
    : state_(std::make_shared<State>(io, std::move(capture))) {}

GuestConsole::~GuestConsole() {
  state_->cancel();
}

void GuestConsole::wait_for(std::vector<std::string> markers, std::chrono::milliseconds time_limit, Found found) {
  state_->wait_for(std::move(markers), time_limit, std::move(found));
}

void GuestConsole::cancel_wait() {
  state_->cancel();
}

std::vector<std::string> GuestConsole::last_lines(std::size_t count) {
  state_->read_on();
  return bridge::last_lines(state_->shown(), count);
}

std::string GuestConsole::excerpt(std::size_t count) {
  const std::vector<std::string> lines = last_lines(count);
  std::string text;
  if (!state_->panic().empty()) {
    text = fmt::format("the kernel gave up: {}; ", state_->panic());
  }
  if (lines.empty()) {
    return text + "its console is empty";
  }
  text += fmt::format("the last {} lines of its console:", lines.size());
  for (const std::string& line : lines) {
    text += "\n  " + line;
  }
  return text;
}

const std::string& GuestConsole::panic() {
  state_->read_on();
  return state_->panic();
}

const std::string& GuestConsole::capture() const {
  return state_->capture();
}

}  // namespace orrery::bridge
