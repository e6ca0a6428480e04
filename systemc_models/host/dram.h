// The server's memory by host physical address: DRAM frames of each socket, backed by guests' files.
//
// A guest's RAM arrives as windows of memory files. Each file is mapped once, whoever offers it and however
// often, and gets a contiguous range of frames on one NUMA node. Memory that a guest offers without a file
// gets frames too, but its bytes are reached by messages (pcie::MessageMemory).
// One thread. A file that its owner truncates afterwards reads as zeroes from then on; see truncated().
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/address.h"
#include "pcie/function_access.h"
#include "pcie/host_memory.h"
#include "pcie/range_map.h"

namespace orrery::models {

struct DramSettings {
  unsigned sockets = 2;
  std::uint64_t bytes_per_socket = std::uint64_t{64} << 30;
  Picoseconds latency = {90'000};         // an access from the same socket
  Picoseconds remote_socket = {108'000};  // added for the other socket
};

// Sees what devices do to memory; a recording and a replay are such observers.
class DramObserver {
 public:
  // Before a device reads [offset, offset + bytes) of file number `file`; the observer may change the bytes.
  virtual void before_device_read(unsigned file, std::uint64_t offset, std::span<std::byte> bytes) = 0;
  virtual void after_device_write(unsigned file, std::uint64_t offset, std::span<const std::byte> bytes) = 0;

 protected:
  ~DramObserver() = default;
};

class Dram final : public pcie::HostMemory {
 public:
  // Frames of socket s begin at base(s): above everything that guests and firmware place BARs at.
  static constexpr std::uint64_t base(unsigned socket) {
    return (std::uint64_t{1} << 47) + (std::uint64_t{socket} << 45);
  }

  explicit Dram(const DramSettings& settings);
  Dram(const Dram&) = delete;
  Dram& operator=(const Dram&) = delete;
  ~Dram();

  struct Window {
    Hpa address;
    unsigned file = 0;  // number of the file, by order of first use; stays with the file
  };
  // Frames for `size` bytes of a file from `offset` on. The first window of a file maps it whole, on `node`.
  // None (with *why set) if the file can't be mapped, is too short, or the node has no frames left.
  // Each success is undone by one release().
  std::optional<Window> acquire(const pcie::FileWindow& window, std::uint64_t size, unsigned node, std::string* why);
  void release(unsigned number);
  struct FileInfo {
    unsigned number = 0;
    std::uint64_t size = 0;  // bytes mapped
    unsigned node = 0;
  };
  // The file behind a descriptor, if it is mapped now.
  [[nodiscard]] std::optional<FileInfo> describe(int fd) const;
  // One more user of a file that has one.
  void retain(unsigned number);

  // Frames for memory that `messages` serves, device address `iova` at the start. Undone by release_remote().
  std::optional<Hpa> acquire_remote(pcie::MessageMemory& messages, Iova iova, std::uint64_t size);
  void release_remote(Hpa address);

  // Files that were truncated by their owner while mapped, since the last call: their numbers.
  std::vector<unsigned> truncated();
  // Bytes of files mapped now.
  [[nodiscard]] std::uint64_t mapped_bytes() const { return mapped_bytes_; }
  void set_observer(DramObserver* observer) { observer_ = observer; }

  // pcie::HostMemory.
  [[nodiscard]] pcie::HostMemory::Window find(Hpa address) const override;
  [[nodiscard]] Picoseconds access_time(unsigned node, unsigned from) const override {
    return node == from ? settings_.latency : settings_.latency + settings_.remote_socket;
  }
  void device_reads(Hpa address, std::span<const std::byte> bytes) override;
  void device_wrote(Hpa address, std::span<const std::byte> bytes) override;
  void read_remote(Hpa address, std::span<std::byte> into, pcie::HostMemoryListener& listener,
                   std::uint64_t context) override;
  void write_remote(Hpa address, std::span<const std::byte> from, pcie::HostMemoryListener& listener,
                    std::uint64_t context) override;

 private:
  struct File;
  struct Remote {
    pcie::MessageMemory* messages = nullptr;
    Iova iova;
  };
  struct Call;
  struct Entry {
    unsigned node = 0;
    File* file = nullptr;  // null: remote
    Remote remote;
  };
  std::optional<Hpa> take_frames(unsigned node, std::uint64_t size, const Entry& entry);
  static void finish(void* call, bool ok);

  DramSettings settings_;
  pcie::RangeMap<Entry> ranges_;
  std::list<std::unique_ptr<File>> files_;
  unsigned next_file_ = 0;
  std::uint64_t mapped_bytes_ = 0;
  DramObserver* observer_ = nullptr;
};

}  // namespace orrery::models
