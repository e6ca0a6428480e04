#include "systemc_models/host/dram.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "common/error.h"
#include "systemc_models/host/mapping_guard.h"

namespace orrery::models {

namespace {
// Frames are handed out in units of a large page, so that the IOMMU can map guests with 2 MiB entries.
constexpr std::uint64_t frame_unit = std::uint64_t{2} << 20;
constexpr std::uint64_t page_bytes = 4096;

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}
}  // namespace

struct Dram::File {
  unsigned number = 0;
  dev_t device = 0;
  ino_t inode = 0;
  std::unique_ptr<GuardedMapping> mapping;
  Hpa address;
  std::uint64_t users = 0;
};

struct Dram::Call {
  pcie::HostMemoryListener& listener;
  std::uint64_t context;
};

Dram::Dram(const DramSettings& settings) : settings_(settings) {}
Dram::~Dram() = default;

std::optional<Hpa> Dram::take_frames(unsigned node, std::uint64_t size, const Entry& entry) {
  const std::uint64_t first = base(node);
  const std::uint64_t limit = first + settings_.bytes_per_socket;
  const std::uint64_t bytes = round_up(size, frame_unit);
  std::uint64_t start = first;
  for (const auto& range : ranges_.ranges()) {  // sorted: the first gap that is large enough
    if (range.start < first || range.start >= limit) {
      continue;
    }
    if (range.start - start >= bytes) {
      break;
    }
    start = range.start + round_up(range.size, frame_unit);
  }
  if (start > limit || limit - start < bytes || !ranges_.insert(start, size, entry)) {
    return std::nullopt;
  }
  return Hpa{start};
}

std::optional<Dram::Window> Dram::acquire(const pcie::FileWindow& window, std::uint64_t size, unsigned node,
                                          std::string* why) {
  struct stat status {};
  if (window.fd < 0 || fstat(window.fd, &status) != 0) {
    *why = "the descriptor is not open";
    return std::nullopt;
  }
  const int flags = fcntl(window.fd, F_GETFL);
  if (!S_ISREG(status.st_mode) || (flags & O_ACCMODE) != O_RDWR) {
    *why = "guest memory must be a regular file or memfd that is open for reading and writing";
    return std::nullopt;
  }
  const auto file_size = static_cast<std::uint64_t>(status.st_size) / page_bytes * page_bytes;
  if (!range_is_valid(window.offset, size) || window.offset > file_size || size > file_size - window.offset) {
    *why = fmt::format("the window of {:#x} bytes at {:#x} exceeds the file of {:#x} bytes", size, window.offset,
                       file_size);
    return std::nullopt;
  }
  const auto known = std::find_if(files_.begin(), files_.end(), [&](const std::unique_ptr<File>& f) {
    return f->device == status.st_dev && f->inode == status.st_ino;
  });
  if (known != files_.end()) {
    File& file = **known;
    if (window.offset + size > file.mapping->size()) {
      *why = "the file has grown since it was mapped first";
      return std::nullopt;
    }
    ++file.users;
    return Window{file.address + window.offset, file.number};
  }
  auto file = std::make_unique<File>();
  file->device = status.st_dev;
  file->inode = status.st_ino;
  try {
    file->mapping = std::make_unique<GuardedMapping>(window.fd, file_size);
  } catch (const Error& error) {
    *why = error.what();
    return std::nullopt;
  }
  Entry entry;
  entry.node = std::min(node, settings_.sockets - 1);
  entry.file = file.get();
  const std::optional<Hpa> address = take_frames(entry.node, file_size, entry);
  if (!address) {
    *why = fmt::format("socket {} has no {} MiB of free frames: raise memory.size_gib", entry.node, file_size >> 20);
    return std::nullopt;
  }
  file->number = next_file_++;
  file->address = *address;
  file->users = 1;
  mapped_bytes_ += file_size;
  const Window result{file->address + window.offset, file->number};
  files_.push_back(std::move(file));
  return result;
}

void Dram::release(unsigned number) {
  const auto file =
      std::find_if(files_.begin(), files_.end(), [&](const std::unique_ptr<File>& f) { return f->number == number; });
  if (file == files_.end() || --(*file)->users != 0) {
    return;
  }
  mapped_bytes_ -= (*file)->mapping->size();
  ranges_.erase((*file)->address.value);
  files_.erase(file);
}

std::optional<Dram::FileInfo> Dram::describe(int fd) const {
  struct stat status {};
  if (fstat(fd, &status) != 0) {
    return std::nullopt;
  }
  for (const auto& file : files_) {
    if (file->device == status.st_dev && file->inode == status.st_ino) {
      return FileInfo{file->number, file->mapping->size(), find(file->address).node};
    }
  }
  return std::nullopt;
}

void Dram::retain(unsigned number) {
  for (const auto& file : files_) {
    if (file->number == number) {
      ++file->users;
    }
  }
}

std::optional<Hpa> Dram::acquire_remote(pcie::MessageMemory& messages, Iova iova, std::uint64_t size) {
  Entry entry;
  entry.remote = {&messages, iova};
  return take_frames(0, size, entry);
}

void Dram::release_remote(Hpa address) {
  ranges_.erase(address.value);
}

std::vector<unsigned> Dram::truncated() {
  std::vector<unsigned> numbers;
  for (const auto& file : files_) {
    if (file->mapping->take_truncated()) {
      numbers.push_back(file->number);
    }
  }
  return numbers;
}

pcie::HostMemory::Window Dram::find(Hpa address) const {
  const auto* range = ranges_.find(address.value);
  if (range == nullptr) {
    return {};
  }
  const std::uint64_t offset = address.value - range->start;
  pcie::HostMemory::Window window;
  window.contiguous = range->size - offset;
  window.node = range->value.node;
  if (range->value.file != nullptr) {
    window.kind = Kind::direct;
    window.bytes = range->value.file->mapping->data() + offset;
  } else {
    window.kind = Kind::remote;
  }
  return window;
}

void Dram::device_reads(Hpa address, std::span<const std::byte> bytes) {
  if (observer_ == nullptr) {
    return;
  }
  const auto* range = ranges_.find(address.value);
  if (range != nullptr && range->value.file != nullptr) {
    const std::uint64_t offset = address.value - range->start;
    observer_->before_device_read(range->value.file->number, offset,
                                  {range->value.file->mapping->data() + offset, bytes.size()});
  }
}

void Dram::device_wrote(Hpa address, std::span<const std::byte> bytes) {
  if (observer_ == nullptr) {
    return;
  }
  const auto* range = ranges_.find(address.value);
  if (range != nullptr && range->value.file != nullptr) {
    observer_->after_device_write(range->value.file->number, address.value - range->start, bytes);
  }
}

void Dram::finish(void* call, bool ok) {
  const std::unique_ptr<Call> owned(static_cast<Call*>(call));
  owned->listener.on_host_memory(owned->context, ok);
}

void Dram::read_remote(Hpa address, std::span<std::byte> into, pcie::HostMemoryListener& listener,
                       std::uint64_t context) {
  const auto* range = ranges_.find(address.value);
  const Remote& remote = range->value.remote;
  remote.messages->read(remote.iova + (address.value - range->start), into, &Dram::finish, new Call{listener, context});
}

void Dram::write_remote(Hpa address, std::span<const std::byte> from, pcie::HostMemoryListener& listener,
                        std::uint64_t context) {
  const auto* range = ranges_.find(address.value);
  const Remote& remote = range->value.remote;
  remote.messages->write(remote.iova + (address.value - range->start), from, &Dram::finish,
                         new Call{listener, context});
}

}  // namespace orrery::models
