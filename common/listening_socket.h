// Where a server listens: a UNIX socket that only its owner can reach.
#pragma once

#include <filesystem>

#include "common/file_descriptor.h"

namespace orrery {

// A listening socket and its place in the file system, which is removed with it.
class ListeningSocket {
 public:
  // Creates `path` with mode 0600. The directory is made, mode 0700, if it isn't there (one level); one
  // that others may enter or that belongs to somebody else is refused. A socket left by a dead server is
  // replaced. Throws Error, naming the path: in use by a live server, not a socket, too long (107 bytes),
  // directory unfit, or what the system said.
  explicit ListeningSocket(std::filesystem::path path);
  // Closes, and removes the path if it is still this socket.
  ~ListeningSocket();
  ListeningSocket(const ListeningSocket&) = delete;
  ListeningSocket& operator=(const ListeningSocket&) = delete;

  [[nodiscard]] int fd() const { return socket_.get(); }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  FileDescriptor socket_;
  unsigned long long device_ = 0;  // of the path's inode
  unsigned long long inode_ = 0;
};

// A connection to the socket at `path`, or none: nobody listens there (errno), or not just now. Doesn't wait.
[[nodiscard]] FileDescriptor connect_to_socket(const std::filesystem::path& path);

}  // namespace orrery
