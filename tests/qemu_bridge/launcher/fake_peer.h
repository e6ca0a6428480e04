// A scripted peer on a UNIX socket, in a thread of its own: a QMP server or a guest agent that behaves,
// or doesn't.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "common/file_descriptor.h"

namespace orrery::bridge::testing {

// One accepted connection, blocking, with a time limit on every read.
class PeerConnection {
 public:
  explicit PeerConnection(int fd) : fd_(fd) {}

  // Sends bytes as they are; false if the other side has gone.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (written <= 0) {
        return false;
      }
      bytes.remove_prefix(static_cast<std::size_t>(written));
    }
    return true;
  }
  bool send_json(const nlohmann::json& message) { return send(message.dump() + "\r\n"); }

  // The next line, or "" if the other side has gone or nothing comes for five seconds.
  std::string line() {
    while (true) {
      if (const auto end = buffer_.find('\n'); end != std::string::npos) {
        std::string found = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        return found;
      }
      pollfd waiting{fd_.get(), POLLIN, 0};
      char chunk[4096];
      ssize_t got = 0;
      if (::poll(&waiting, 1, 5000) <= 0 || (got = ::recv(fd_.get(), chunk, sizeof chunk, 0)) <= 0) {
        return {};
      }
      buffer_.append(chunk, static_cast<std::size_t>(got));
    }
  }
  // The next line as JSON, without the agent's 0xff; null if there is none.
  nlohmann::json request() {
    std::string text = line();
    if (!text.empty() && text.front() == '\xff') {
      text.erase(0, 1);
    }
    return nlohmann::json::parse(text, nullptr, false);
  }
  // Reads until the other side goes.
  void drain() {
    while (!line().empty()) {
    }
  }

 private:
  FileDescriptor fd_;
  std::string buffer_;
};

class FakePeer {
 public:
  using Script = std::function<void(PeerConnection&)>;

  explicit FakePeer(Script script, unsigned connections = 1)
      : directory_(std::filesystem::temp_directory_path() /
                   ("peer-" + std::to_string(::getpid()) + "-" + std::to_string(count_++))),
        path_((directory_ / "s").string()) {
    std::filesystem::create_directory(directory_);
    listener_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path_.c_str(), sizeof address.sun_path - 1);
    if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(listener_.get(), 4) != 0) {
      throw std::runtime_error("fake peer: " + path_);
    }
    thread_ = std::thread([this, script = std::move(script), connections] {
      for (unsigned i = 0; i < connections; ++i) {
        pollfd waiting{listener_.get(), POLLIN, 0};
        if (::poll(&waiting, 1, 10'000) <= 0) {
          return;
        }
        PeerConnection connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        script(connection);
      }
    });
  }
  ~FakePeer() {
    thread_.join();
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  FakePeer(const FakePeer&) = delete;
  FakePeer& operator=(const FakePeer&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  static inline std::atomic<unsigned> count_{0};
  std::filesystem::path directory_;
  std::string path_;
  FileDescriptor listener_;
  std::thread thread_;
};

}  // namespace orrery::bridge::testing
