// The memory of one GPU: sparse, and shareable with a virtual machine monitor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace orrery::models {

// `size` bytes backed by a memfd. A page costs host memory only once touched. The file's length is sealed, so
// that a process which got the descriptor can't make an access here fault.
class GpuMemory {
 public:
  // size: bytes, a multiple of 4096, at least one page. `name` appears in errors and in /proc.
  // Throws Error if the host refuses the file or the mapping.
  GpuMemory(const std::string& name, std::uint64_t size);
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;
  ~GpuMemory();

  [[nodiscard]] std::uint64_t size() const { return size_; }
  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] std::byte* data() { return data_; }
  // [offset, offset + length); empty if it leaves the memory.
  [[nodiscard]] std::span<std::byte> bytes(std::uint64_t offset, std::uint64_t length) {
    if (offset > size_ || length > size_ - offset) {
      return {};
    }
    return {data_ + offset, length};
  }
  // Gives every page back to the host; the memory then reads zero, also through other mappings of the file.
  void erase();

 private:
  std::uint64_t size_;
  int fd_ = -1;
  std::byte* data_ = nullptr;
};

}  // namespace orrery::models
