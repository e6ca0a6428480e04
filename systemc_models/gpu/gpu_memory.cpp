#include "systemc_models/gpu/gpu_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/error.h"

namespace orrery::models {

GpuMemory::GpuMemory(const std::string& name, std::uint64_t size) : size_(size) {
  constexpr std::uint64_t page = 4096;
  constexpr std::uint64_t limit = std::uint64_t{1} << 46;  // half of a 47-bit user address space
  if (size == 0 || size % page != 0 || size > limit) {
    throw Error(fmt::format("{}: {} bytes of memory is not a size a GPU can have", name, size),
                fmt::format("give a multiple of {} from {} to {}", page, page, limit));
  }
  fd_ = ::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd_ < 0) {
    throw Error(fmt::format("{}: the host refuses a memory file: {}", name, std::strerror(errno)),
                "raise the limit of open files (ulimit -n), or use fewer GPUs");
  }
  if (::ftruncate(fd_, static_cast<off_t>(size)) != 0 ||
      ::fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    const int reason = errno;
    ::close(fd_);
    throw Error(fmt::format("{}: the host refuses {} bytes of sparse memory: {}", name, size, std::strerror(reason)),
                "give the GPU less memory, or raise the file size limit (ulimit -f)");
  }
  void* mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_, 0);
  if (mapped == MAP_FAILED) {
    const int reason = errno;
    ::close(fd_);
    throw Error(fmt::format("{}: the host can't map {} bytes of sparse memory: {}", name, size, std::strerror(reason)),
                "give the GPU less memory, or raise the address space limit (ulimit -v)");
  }
  data_ = static_cast<std::byte*>(mapped);
}

GpuMemory::~GpuMemory() {
  ::munmap(data_, size_);
  ::close(fd_);
}

void GpuMemory::erase() {
  if (::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(size_)) != 0) {
    // A host without hole punching: the promise to read zero holds all the same, at the price of touching it.
    std::memset(data_, 0, size_);
  }
}

}  // namespace orrery::models
