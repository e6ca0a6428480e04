#include "qemu_bridge/launcher/guest_files.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "common/error.h"
#include "common/file_descriptor.h"
#include "qemu_bridge/launcher/system_text.h"

namespace orrery::bridge {

namespace fs = std::filesystem;

namespace {

FileDescriptor open_regular(const std::string& path, std::string_view what) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) {
    throw Error(fmt::format("{} {} can't be read: {}", what, path, system_text(errno)));
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || S_ISDIR(status.st_mode)) {
    throw Error(fmt::format("{} {} is a directory, not a file", what, path));
  }
  return file;
}

std::size_t read_some(int fd, char* into, std::size_t size, const std::string& path) {
  while (true) {
    const ssize_t got = ::read(fd, into, size);
    if (got >= 0) {
      return static_cast<std::size_t>(got);
    }
    if (errno != EINTR) {
      throw Error(fmt::format("{} can't be read: {}", path, system_text(errno)));
    }
  }
}

// Writes a new private file; one that isn't finished is removed.
class NewFile {
 public:
  explicit NewFile(std::string path)
      : path_(std::move(path)),
        file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600)) {
    if (!file_) {
      fail(errno);
    }
  }
  ~NewFile() {
    // Only a file is ours to take back: the path may name a device.
    struct stat status {};
    if (!finished_ && file_ && ::fstat(file_.get(), &status) == 0 && S_ISREG(status.st_mode)) {
      ::unlink(path_.c_str());
    }
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(std::string_view bytes) {
    size_ += bytes.size();
    while (!bytes.empty()) {
      const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
      if (written < 0 && errno != EINTR) {
        fail(errno);
      }
      bytes.remove_prefix(written < 0 ? 0 : static_cast<std::size_t>(written));
    }
  }
  void append(const std::string& from, std::string_view what) {
    const FileDescriptor file = open_regular(from, what);
    std::string chunk(1 << 20, '\0');
    while (const std::size_t got = read_some(file.get(), chunk.data(), chunk.size(), from)) {
      write(std::string_view(chunk).substr(0, got));
    }
  }
  void finish() {
    if (::close(file_.release()) != 0) {
      fail(errno);
    }
    finished_ = true;
  }
  [[nodiscard]] std::uint64_t size() const { return size_; }

 private:
  [[noreturn]] void fail(int reason) const {
    throw Error(fmt::format("{} can't be written: {}", path_, system_text(reason)),
                reason == ENOSPC || reason == EDQUOT
                    ? "free some space there, or set XDG_RUNTIME_DIR to a directory with room"
                    : "");
  }
  std::string path_;
  FileDescriptor file_;
  std::uint64_t size_ = 0;
  bool finished_ = false;
};

struct Magic {
  std::size_t offset;
  std::string_view bytes;
  const char* format;
};

using namespace std::string_view_literals;

// Headers as QEMU's block drivers know them (docs/interop/qcow2.txt, vhdx, vmdk … specifications).
constexpr std::array<Magic, 9> image_magics{{
    {0, "QFI\xfb\0\0\0\1"sv, "qcow"},
    {0, "QFI\xfb"sv, "qcow2"},
    {0, "KDMV"sv, "vmdk"},
    {0, "COWD"sv, "vmdk"},
    {0, "vhdxfile"sv, "vhdx"},
    {0, "conectix"sv, "vpc"},
    {0, "QED\0"sv, "qed"},
    {0, "WithoutFreeSpace"sv, "parallels"},
    {64, "\x7f\x10\xda\xbe"sv, "vdi"},
}};

constexpr std::array<Magic, 4> compressed_magics{{
    {0, "\x1f\x8b"sv, "gzip"},
    {0,
     "\xfd"
     "7zXZ\0"sv,
     "xz"},
    {0, "BZh"sv, "bzip2"},
    {0, "\x28\xb5\x2f\xfd"sv, "zstd"},
}};

template <std::size_t N>
const char* match(const std::array<Magic, N>& magics, std::string_view header) {
  for (const Magic& magic : magics) {
    if (header.size() >= magic.offset && header.substr(magic.offset, magic.bytes.size()) == magic.bytes) {
      return magic.format;
    }
  }
  return nullptr;
}

FileDescriptor bound_socket(std::uint16_t port) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  if (!socket || ::bind(socket.get(), generic, sizeof address) != 0) {
    const int reason = errno;
    throw Error(fmt::format("TCP port {} on 127.0.0.1 can't be used: {}", port, system_text(reason)),
                reason == EADDRINUSE ? "choose another port, or end what uses it" : "");
  }
  return socket;
}

// QEMU says of any other file "could not load kernel …: No such file or directory".
void require_kernel(const std::string& path) {
  const FileDescriptor file = open_regular(path, "kernel");
  std::string head(0x206, '\0');
  std::size_t got = 0;
  while (got < head.size()) {
    const std::size_t more = read_some(file.get(), head.data() + got, head.size() - got, path);
    if (more == 0) {
      break;
    }
    got += more;
  }
  // Linux's boot protocol (Documentation/arch/x86/boot.rst): "HdrS" at 0x202. QEMU also starts ELF files (PVH,
  // multiboot).
  const std::string_view bytes = std::string_view(head).substr(0, got);
  if (!bytes.starts_with("\x7f"
                         "ELF"sv) &&
      (got < head.size() || bytes.substr(0x202, 4) != "HdrS"sv)) {
    throw Error(fmt::format("kernel {} is {}", path, got == 0 ? "empty" : "neither a bzImage nor an ELF file"),
                "give a Linux kernel, such as /boot/vmlinuz-*, or the name of one that set-up fetched");
  }
}

void refuse_directory(const std::string& name, std::string_view what) {
  std::error_code ignored;
  if (fs::is_directory(name, ignored)) {
    throw Error(fmt::format("{} {} is a directory, not a file", what, name));
  }
}

}  // namespace

std::string probe_disk_format(const std::string& path) {
  const FileDescriptor file = open_regular(path, "disk image");
  std::array<char, 512> buffer{};
  std::size_t size = 0;
  while (size < buffer.size()) {
    const std::size_t got = read_some(file.get(), buffer.data() + size, buffer.size() - size, path);
    if (got == 0) {
      break;
    }
    size += got;
  }
  if (size == 0) {
    throw Error(fmt::format("disk image {} is empty", path));
  }
  const std::string_view header(buffer.data(), size);
  if (const char* compression = match(compressed_magics, header)) {
    throw Error(fmt::format("disk image {} is a {} file", path, compression), "decompress it first");
  }
  if (const char* format = match(image_magics, header)) {
    return format;
  }
  return "raw";
}

void join_initrds(const std::vector<std::string>& archives, const std::string& joined) {
  NewFile out(joined);
  for (const std::string& archive : archives) {
    out.append(archive, "initrd");
    out.write(std::string_view("\0\0\0", 3).substr(0, (4 - out.size() % 4) % 4));
  }
  out.finish();
}

void copy_private(const std::string& from, const std::string& to) {
  NewFile out(to);
  out.append(from, "file");
  out.finish();
}

std::uint16_t find_free_loopback_port() {
  const FileDescriptor socket = bound_socket(0);
  sockaddr_in address{};
  socklen_t size = sizeof address;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw Error(fmt::format("no free TCP port on 127.0.0.1: {}", system_text(errno)));
  }
  return ntohs(address.sin_port);
}

void require_free_loopback_port(std::uint16_t port) {
  bound_socket(port);
}

GuestAssets::GuestAssets(fs::path cache) : cache_(std::move(cache)) {}

bool GuestAssets::is_path(const std::string& name) {
  std::error_code ignored;
  return name.find('/') != std::string::npos || fs::is_regular_file(name, ignored);
}

std::vector<std::string> GuestAssets::kernels() const {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(cache_ / "kernels", ignored)) {
    if (fs::is_regular_file(entry.path() / "vmlinuz", ignored)) {
      names.push_back(entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string GuestAssets::kernel(const std::string& name) const {
  if (is_path(name)) {
    require_kernel(name);
    return name;
  }
  const fs::path file = cache_ / "kernels" / name / "vmlinuz";
  std::error_code ignored;
  if (name.empty() || !fs::is_regular_file(file, ignored)) {
    refuse_directory(name, "kernel");
    const std::vector<std::string> there = kernels();
    throw Error(
        fmt::format("guest kernel '{}': no file {}", name, file.string()),
        there.empty()
            ? "run ./dev setup, which fetches guest kernels, or give the path of a bzImage"
            : fmt::format("there are {}; ./dev setup fetches what is missing, and a path to a bzImage serves too",
                          fmt::join(there, ", ")));
  }
  return file.string();
}

std::string GuestAssets::initrd(const std::string& kernel_name) const {
  if (is_path(kernel_name)) {
    throw Error(fmt::format("the kernel {} is your own, and an initrd made for it is not known", kernel_name),
                "give its initrd too (--initrd)");
  }
  const fs::path file = cache_ / "images" / kernel_name / "initrd";
  std::error_code ignored;
  if (kernel_name.empty() || !fs::is_regular_file(file, ignored)) {
    throw Error(fmt::format("guest initrd for kernel '{}': no file {}", kernel_name, file.string()),
                "run ./dev setup, which makes it, or give one (--initrd)");
  }
  return file.string();
}

std::string GuestAssets::disk(const std::string& name) const {
  if (is_path(name)) {
    open_regular(name, "disk image");
    return name;
  }
  const fs::path file = cache_ / "images/disk" / (name + ".qcow2");
  std::error_code ignored;
  if (name.empty() || !fs::is_regular_file(file, ignored)) {
    refuse_directory(name, "disk image");
    throw Error(fmt::format("disk image '{}': no file {}", name, file.string()),
                "run ./dev setup, which makes the root disk, or give the path of an image");
  }
  return file.string();
}

std::string GuestAssets::release(const std::string& kernel_name) const {
  if (is_path(kernel_name)) {
    return {};
  }
  const std::string path = (cache_ / "kernels" / kernel_name / "release").string();
  const FileDescriptor file = open_regular(path, "kernel release");
  std::string text(256, '\0');
  text.resize(read_some(file.get(), text.data(), text.size(), path));
  return text.substr(0, text.find('\n'));
}

}  // namespace orrery::bridge
