#include "qemu_bridge/relay/dma_record.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <iterator>
#include <utility>

namespace orrery::bridge {

SharedDescriptor DmaRecord::share(FileDescriptor descriptor) {
  struct stat status {};
  // Only plain files (memfds among them) have inodes that tell them apart.
  if (::fstat(descriptor.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return std::make_shared<const FileDescriptor>(std::move(descriptor));
  }
  std::erase_if(files_, [](const auto& file) { return file.second.expired(); });
  const FileKey key{status.st_dev, status.st_ino, ::fcntl(descriptor.get(), F_GETFL) & O_ACCMODE};
  std::weak_ptr<const FileDescriptor>& known = files_[key];
  SharedDescriptor shared = known.lock();
  if (!shared) {
    shared = std::make_shared<const FileDescriptor>(std::move(descriptor));
    known = shared;
  }
  return shared;
}

bool DmaRecord::has_room(const SharedDescriptor& file) const {
  return maps_.size() < max_maps && (!file || file_maps_.size() < max_files || file_maps_.contains(file.get()));
}

int DmaRecord::check(const wire::DmaMap& map, const SharedDescriptor& file) const {
  const auto after = maps_.upper_bound(map.address + (map.size - 1));
  if (after != maps_.begin()) {
    const auto& [start, last] = *std::prev(after);
    if (start + (last.size - 1) >= map.address) {
      return EEXIST;
    }
  }
  return has_room(file) ? 0 : ENOSPC;
}

int DmaRecord::check(const wire::DmaUnmap& unmap) const {
  if ((unmap.flags & wire::dma_unmap_all) != 0) {
    return 0;
  }
  const auto cuts = [&](std::uint64_t at) {  // a mapping has bytes on both sides of `at`
    const auto next = maps_.lower_bound(at);
    return next != maps_.begin() && std::prev(next)->first + (std::prev(next)->second.size - 1) >= at;
  };
  const std::uint64_t last = unmap.address + (unmap.size - 1);
  return cuts(unmap.address) || (last != UINT64_MAX && cuts(last + 1)) ? EINVAL : 0;
}

bool DmaRecord::add(const wire::DmaMap& map, SharedDescriptor file) {
  carve(map.address, map.size);
  if (!has_room(file)) {
    return false;
  }
  insert(map.address, {map.size, map.offset, map.flags, std::move(file)});
  return true;
}

void DmaRecord::remove(const wire::DmaUnmap& unmap) {
  if ((unmap.flags & wire::dma_unmap_all) != 0) {
    maps_.clear();
    file_maps_.clear();
  } else {
    carve(unmap.address, unmap.size);
  }
}

void DmaRecord::insert(std::uint64_t address, Map map) {
  if (map.file) {
    ++file_maps_[map.file.get()];
  }
  maps_.emplace(address, std::move(map));
}

DmaRecord::Maps::iterator DmaRecord::erase(Maps::iterator it) {
  if (const auto uses = file_maps_.find(it->second.file.get()); uses != file_maps_.end() && --uses->second == 0) {
    file_maps_.erase(uses);
  }
  return maps_.erase(it);
}

void DmaRecord::carve(std::uint64_t address, std::uint64_t size) {
  const std::uint64_t last = address + (size - 1);
  auto it = maps_.upper_bound(address);
  if (it != maps_.begin() && std::prev(it)->first + (std::prev(it)->second.size - 1) >= address) {
    --it;
  }
  while (it != maps_.end() && it->first <= last) {
    const auto [start, map] = *it;
    const std::uint64_t map_last = start + (map.size - 1);
    it = erase(it);
    if (start < address) {
      insert(start, {address - start, map.offset, map.flags, map.file});
    }
    if (map_last > last) {
      const std::uint64_t gone = last + 1 - start;
      insert(last + 1, {map_last - last, map.file ? map.offset + gone : 0, map.flags, map.file});
      return;
    }
  }
}

void DmaRecord::replay(std::vector<RelayRequest>& requests) const {
  for (const auto& [address, map] : maps_) {
    RelayRequest request{wire::Command::dma_map,
                         payload_of(wire::DmaMap{sizeof(wire::DmaMap), map.flags, map.offset, address, map.size}),
                         {}};
    if (map.file) {
      request.descriptors.push_back(map.file);
    }
    requests.push_back(std::move(request));
  }
}

}  // namespace orrery::bridge
