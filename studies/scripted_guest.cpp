#include "studies/scripted_guest.h"

#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "common/error.h"
#include "pcie/function_access.h"

namespace orrery::studies {

namespace {

constexpr std::uint64_t page_bytes = 4096;
// Where the guest's firmware would have put the BARs: a place of its own for each, so that no two guests share one.
constexpr std::uint64_t bar0_base = 0xfe'0000'0000;
constexpr std::uint64_t bar0_stride = std::uint64_t{1} << 26;
constexpr std::uint32_t bar4_base = 0xfd00'0000;
constexpr std::uint32_t bar4_stride = 1U << 20;
constexpr std::uint32_t command_register = 0x04;
constexpr std::uint32_t memory_space_and_bus_master = 0x6;

std::size_t index_of(const models::Platform& platform, const std::string& function) {
  const models::Topology& topology = platform.topology();
  const models::Topology::Endpoint* endpoint = topology.find(function);
  if (endpoint == nullptr) {
    throw Error("the server has no function " + function, "see `orrery topo`");
  }
  return static_cast<std::size_t>(endpoint - topology.endpoints.data());
}

}  // namespace

void never_happens(const models::Platform& platform, const char* what) {
  throw Error(fmt::format("{}: it hasn't happened at {:.6f} ms of simulated time", what,
                          static_cast<double>(platform.now().count) / 1e9));
}

ScriptedGuest::ScriptedGuest(models::Platform& platform, const std::string& function, std::uint64_t memory)
    : platform_(platform), name_(function), function_(platform.function(index_of(platform, function))), size_(memory) {
  const std::size_t index = index_of(platform, function);
  fd_ = memfd_create("scripted guest", MFD_CLOEXEC);
  void* mapped = MAP_FAILED;
  if (fd_ >= 0 && ftruncate(fd_, static_cast<off_t>(size_)) == 0) {
    mapped = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  }
  if (mapped == MAP_FAILED) {
    const int error = errno;
    if (fd_ >= 0) {
      close(fd_);
    }
    throw Error(fmt::format("{} bytes of memory for a guest: {}", size_, std::strerror(error)));
  }
  bytes_ = static_cast<std::byte*>(mapped);
  platform_.assign(index, name_);
  const models::Topology::Endpoint& endpoint = platform_.topology().endpoints[index];
  platform_.place_file(name_, fd_, static_cast<unsigned>(endpoint.socket));
  if (function_.dma_map(Iova{0}, size_, {true, true}, pcie::FileWindow{fd_, 0}, nullptr) != pcie::MapResult::ok) {
    munmap(bytes_, size_);
    close(fd_);
    throw Error(fmt::format("{}: {} bytes can't be mapped for DMA", name_, size_), "give a multiple of 4096");
  }
  const auto write_config = [&](std::uint32_t offset, std::uint32_t value) {
    function_.config_write(offset, std::as_bytes(std::span(&value, 1)));
  };
  const std::uint64_t bar0 = bar0_base + index * bar0_stride;
  write_config(0x10, static_cast<std::uint32_t>(bar0));
  write_config(0x14, static_cast<std::uint32_t>(bar0 >> 32));
  write_config(0x20, bar4_base + static_cast<std::uint32_t>(index) * bar4_stride);
  write_config(command_register, memory_space_and_bus_master);
}

ScriptedGuest::~ScriptedGuest() {
  function_.disconnect();
  munmap(bytes_, size_);
  close(fd_);
}

std::uint64_t ScriptedGuest::allocate(std::uint64_t bytes) {
  const std::uint64_t rounded = (bytes + page_bytes - 1) / page_bytes * page_bytes;
  if (rounded < bytes || rounded > size_ - next_) {
    throw Error(fmt::format("{}: no {} bytes of {} are left", name_, bytes, size_));
  }
  const std::uint64_t at = next_;
  next_ += rounded;
  return at;
}

std::span<std::byte> ScriptedGuest::memory(std::uint64_t address, std::uint64_t bytes) {
  if (address > size_ || bytes > size_ - address) {
    throw Error(fmt::format("{}: {} bytes at {:#x} are not its memory", name_, bytes, address));
  }
  return {bytes_ + address, bytes};
}

std::uint32_t ScriptedGuest::read32(std::uint64_t offset) {
  std::uint32_t value = 0;
  function_.bar_read(0, offset, std::as_writable_bytes(std::span(&value, 1)));
  return __builtin_bswap32(value);
}

void ScriptedGuest::write32(std::uint64_t offset, std::uint32_t value) {
  const std::uint32_t big = __builtin_bswap32(value);
  function_.bar_write(0, offset, std::as_bytes(std::span(&big, 1)));
}

void ScriptedGuest::write64(std::uint64_t offset, std::uint64_t value) {
  const std::uint64_t big = __builtin_bswap64(value);
  function_.bar_write(0, offset, std::as_bytes(std::span(&big, 1)));
}

}  // namespace orrery::studies
