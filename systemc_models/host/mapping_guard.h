// Shared file mappings that survive their file being cut short by another process.
//
// An access beyond the new end raises SIGBUS. The guard's handler puts a page of zeroes in place, notes the
// truncation, and the access goes on. Faults elsewhere keep their default effect.
#pragma once

#include <cstddef>
#include <cstdint>

namespace orrery::models {

class GuardedMapping {
 public:
  // Maps `size` bytes (multiple of 4096) of a file, shared, readable and writable. Throws Error with the
  // reason of the system. The first guard of the process installs the SIGBUS handler.
  GuardedMapping(int fd, std::uint64_t size);
  GuardedMapping(const GuardedMapping&) = delete;
  GuardedMapping& operator=(const GuardedMapping&) = delete;
  ~GuardedMapping();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::uint64_t size() const { return size_; }
  // Whether an access has met the end of the file; asking resets it.
  bool take_truncated();

 private:
  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
  unsigned slot_ = 0;
};

}  // namespace orrery::models
