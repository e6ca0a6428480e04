#include "fabric/instance_link/token_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "common/error.h"
#include "common/file_descriptor.h"

namespace orrery::instance_link {

std::vector<std::byte> read_token(const std::string& path) {
  const auto make_one = [&] {
    return fmt::format("make one for both servers: (umask 077; head -c 32 /dev/urandom | base64 > {})", path);
  };
  // Not to wait for a pipe's writer.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0) {
    throw Error(fmt::format("token file {}: {}", path, std::strerror(errno)), make_one());
  }
  if (!S_ISREG(status.st_mode)) {
    throw Error(fmt::format("token file {} isn't a regular file", path), make_one());
  }
  if (status.st_uid != ::geteuid() && status.st_uid != 0) {
    throw Error(fmt::format("token file {} belongs to user {}", path, status.st_uid), "name a file of your own");
  }
  if ((status.st_mode & 077U) != 0) {
    throw Error(fmt::format("token file {} is open to other users (mode {:04o})", path, status.st_mode & 07777U),
                fmt::format("make it private: chmod 600 {}", path));
  }
  std::vector<std::byte> token(most_token_bytes + 1);
  std::size_t used = 0;
  while (used < token.size()) {
    const ssize_t got = ::read(file.get(), token.data() + used, token.size() - used);
    if (got < 0 && errno != EINTR) {
      throw Error(fmt::format("token file {}: {}", path, std::strerror(errno)), make_one());
    }
    if (got == 0) {
      break;
    }
    used += got > 0 ? static_cast<std::size_t>(got) : 0;
  }
  if (used > most_token_bytes) {
    throw Error(fmt::format("token file {} has more than {} bytes", path, most_token_bytes), make_one());
  }
  const auto is_space = [](std::byte byte) { return std::strchr(" \t\r\n", std::to_integer<int>(byte)) != nullptr; };
  while (used > 0 && token[used - 1] != std::byte{0} && is_space(token[used - 1])) {
    --used;
  }
  token.resize(used);
  if (used < least_token_bytes) {
    throw Error(fmt::format("token file {} holds {} bytes, too few for a secret", path, used), make_one());
  }
  return token;
}

}  // namespace orrery::instance_link
