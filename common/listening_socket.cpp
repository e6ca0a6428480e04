#include "common/listening_socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "common/error.h"

namespace orrery {
namespace {

std::string system_reason() {
  return std::generic_category().message(errno);
}

sockaddr_un address_of(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string& text = path.native();
  if (text.empty() || text.size() >= sizeof(address.sun_path)) {
    throw Error(fmt::format("socket path '{}' has {} bytes", text, text.size()),
                fmt::format("UNIX sockets take 1 to {}; choose a shorter directory", sizeof(address.sun_path) - 1));
  }
  std::memcpy(address.sun_path, text.data(), text.size());
  return address;
}

// Opens the directory, made if it is missing, and holds a lock on it that serialises servers starting in
// it: looking for a dead socket and replacing it are two steps.
FileDescriptor open_private_directory(const std::filesystem::path& directory) {
  const std::string& name = directory.native();
  if (::mkdir(name.c_str(), 0700) != 0 && errno != EEXIST) {
    throw Error(fmt::format("cannot create the socket directory '{}': {}", name, system_reason()),
                "create its parent directory, or name a directory you may write to");
  }
  FileDescriptor handle(::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat status {};
  if (!handle || ::fstat(handle.get(), &status) != 0) {
    throw Error(fmt::format("cannot open the socket directory '{}': {}", name, system_reason()),
                "name a directory that belongs to you");
  }
  if (status.st_uid != ::geteuid()) {
    throw Error(fmt::format("the socket directory '{}' belongs to user {}", name, status.st_uid),
                "name a directory that belongs to you");
  }
  if ((status.st_mode & 077U) != 0) {
    throw Error(
        fmt::format("the socket directory '{}' is open to other users (mode {:04o})", name, status.st_mode & 07777U),
        fmt::format("make it private: chmod 700 '{}'", name));
  }
  while (::flock(handle.get(), LOCK_EX) != 0) {
    if (errno != EINTR) {
      throw Error(fmt::format("cannot lock the socket directory '{}': {}", name, system_reason()),
                  "name a directory on a local file system");
    }
  }
  return handle;
}

void remove_dead_socket(const std::filesystem::path& path, const sockaddr_un& address) {
  const std::string& name = path.native();
  struct stat status {};
  if (::lstat(name.c_str(), &status) != 0) {
    return;  // nothing there; bind() reports anything else
  }
  if (!S_ISSOCK(status.st_mode)) {
    throw Error(fmt::format("'{}' exists and is not a socket", name), "remove it, or name another path");
  }
  const FileDescriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int connected = ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  // EAGAIN: somebody listens and has a full backlog.
  if (connected == 0 || errno != ECONNREFUSED) {
    throw Error(fmt::format("socket '{}' is in use by a live server", name), "stop that server, or name another path");
  }
  ::unlink(name.c_str());
}

}  // namespace

ListeningSocket::ListeningSocket(std::filesystem::path path) : path_(std::move(path)) {
  const sockaddr_un address = address_of(path_);
  const std::filesystem::path directory = path_.has_parent_path() ? path_.parent_path() : std::filesystem::path(".");
  const FileDescriptor lock = open_private_directory(directory);
  remove_dead_socket(path_, address);
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // The mode of the unbound socket is that of the path, less the umask: never open to others, not even
  // between two calls.
  if (!socket || ::fchmod(socket.get(), 0600) != 0 ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    throw Error(fmt::format("cannot create the socket '{}': {}", path_.native(), system_reason()),
                "name a path in a directory you may write to");
  }
  struct stat status {};
  if (::chmod(path_.c_str(), 0600) != 0 || ::lstat(path_.c_str(), &status) != 0 || ::listen(socket.get(), 16) != 0) {
    const std::string why = system_reason();
    ::unlink(path_.c_str());
    throw Error(fmt::format("cannot listen on the socket '{}': {}", path_.native(), why),
                "name a path on a local file system");
  }
  device_ = status.st_dev;
  inode_ = status.st_ino;
  socket_ = std::move(socket);
}

ListeningSocket::~ListeningSocket() {
  struct stat status {};
  if (socket_ && ::lstat(path_.c_str(), &status) == 0 && status.st_dev == device_ && status.st_ino == inode_) {
    ::unlink(path_.c_str());
  }
}

FileDescriptor connect_to_socket(const std::filesystem::path& path) {
  if (path.native().size() >= sizeof(sockaddr_un::sun_path)) {
    errno = ENAMETOOLONG;
    return {};
  }
  const sockaddr_un address = address_of(path);
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return {};
  }
  return socket;
}

}  // namespace orrery
