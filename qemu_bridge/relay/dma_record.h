// The DMA mappings that a client has made, as a new server must be told of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "qemu_bridge/protocol.h"
#include "qemu_bridge/relay/request.h"

namespace orrery::bridge {

// Disjoint ranges, each with the descriptor of its file, if it has one. Of a file (the memory of a guest, mapped in
// thousands of pieces) one descriptor is kept. One thread.
class DmaRecord {
 public:
  static constexpr std::size_t max_maps = wire::default_max_dma_maps;
  static constexpr std::size_t max_files = 256;

  // A descriptor as it is to be kept: the one that is already held for the same file, or the given one.
  [[nodiscard]] SharedDescriptor share(FileDescriptor descriptor);

  // False: too many maps or files.
  [[nodiscard]] bool has_room(const SharedDescriptor& file) const;
  // What a server would say: 0, or EEXIST (part of it is mapped), ENOSPC (no room).
  [[nodiscard]] int check(const wire::DmaMap& map, const SharedDescriptor& file) const;
  // EINVAL: it would cut a mapping in two.
  [[nodiscard]] int check(const wire::DmaUnmap& unmap) const;

  // A valid mapping was made, over whatever is noted there. False: there's no room; it isn't noted.
  bool add(const wire::DmaMap& map, SharedDescriptor file);
  // A valid range, or everything, was taken away; a mapping that it cuts loses just that part.
  void remove(const wire::DmaUnmap& unmap);

  [[nodiscard]] std::size_t size() const { return maps_.size(); }
  [[nodiscard]] std::size_t files() const { return file_maps_.size(); }
  // Appends the commands that make them.
  void replay(std::vector<RelayRequest>& requests) const;

 private:
  struct Map {
    std::uint64_t size = 0;
    std::uint64_t offset = 0;
    std::uint32_t flags = 0;
    SharedDescriptor file;
  };
  // Device, inode and access mode.
  using FileKey = std::tuple<std::uint64_t, std::uint64_t, int>;

  using Maps = std::map<std::uint64_t, Map>;

  void insert(std::uint64_t address, Map map);
  Maps::iterator erase(Maps::iterator it);
  void carve(std::uint64_t address, std::uint64_t size);

  Maps maps_;                                               // by address
  std::map<const FileDescriptor*, std::size_t> file_maps_;  // how many maps each file has
  std::map<FileKey, std::weak_ptr<const FileDescriptor>> files_;
};

}  // namespace orrery::bridge
