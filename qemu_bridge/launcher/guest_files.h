// Files that a guest boots from: kernels, initrds, disk images, and the cache that set-up fills.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace orrery::bridge {

// The format of a disk image by its header, never by its name: "qcow2", "qcow", "vmdk", "vdi", "vhdx",
// "vpc", "qed", "parallels", else "raw". Throws Error if the file can't be read, is empty, is a directory
// or is a compressed file (which no guest can boot from).
[[nodiscard]] std::string probe_disk_format(const std::string& path);

// Several cpio archives (compressed or not) as one initrd: one after the other, each from a multiple of
// four bytes on (Linux' Documentation/driver-api/early-userspace/buffer-format.rst). Throws Error that
// names the file that can't be read or written; what was half written is removed.
void join_initrds(const std::vector<std::string>& archives, const std::string& joined);

// Copies a file to a new one of mode 0600; throws Error.
void copy_private(const std::string& from, const std::string& to);

// A TCP port on 127.0.0.1 that is free now. Somebody may take it before QEMU does; QEMU then says so.
[[nodiscard]] std::uint16_t find_free_loopback_port();
// Throws Error if the port is taken.
void require_free_loopback_port(std::uint16_t port);

// The cache that `./dev setup` fills (cache_directory(), qemu_program.h).
class GuestAssets {
 public:
  explicit GuestAssets(std::filesystem::path cache);

  // `name` is a kernel of the cache ("7.3-cloud") or a path (it has a '/', or such a file exists).
  // Throws Error that names the path that is missing, the kernels that are there and `./dev setup`.
  [[nodiscard]] std::string kernel(const std::string& name) const;
  // The initrd made for a kernel of the cache; `name` as above. Throws Error for a kernel that is a path:
  // its initrd must be named too.
  [[nodiscard]] std::string initrd(const std::string& kernel_name) const;
  // The root disk with systemd, or the path given. Throws Error.
  [[nodiscard]] std::string disk(const std::string& name) const;
  // "6.1.0-49-cloud-amd64": the release of a kernel of the cache; empty for a path.
  [[nodiscard]] std::string release(const std::string& kernel_name) const;
  // Names of the kernels that are there, sorted.
  [[nodiscard]] std::vector<std::string> kernels() const;

  // The kernel that is booted unless another is asked for, and the name of the root disk.
  static constexpr const char* default_kernel = "7.3-cloud";
  static constexpr const char* default_disk = "root";

 private:
  [[nodiscard]] static bool is_path(const std::string& name);
  std::filesystem::path cache_;
};

}  // namespace orrery::bridge
