// The session's DMA mappings.
#include <cerrno>
#include <iterator>
#include <optional>

#include "qemu_bridge/session.h"

namespace orrery::bridge {
namespace {

int errno_of(pcie::MapResult result) {
  switch (result) {
    case pcie::MapResult::ok:
      return 0;
    case pcie::MapResult::invalid:
      return EINVAL;
    case pcie::MapResult::overlap:
      return EEXIST;
    case pcie::MapResult::not_found:
      return ENOENT;
    case pcie::MapResult::no_peer:
      return ENXIO;
    case pcie::MapResult::io_error:
      return EIO;
  }
  return EINVAL;
}

}  // namespace

int Session::dma_map(const Message& message) {
  const auto decoded = decode_dma_map(message.payload);
  if (!decoded) {
    return decoded.error;
  }
  const wire::DmaMap& map = decoded.value;
  const bool has_descriptor = !message.descriptors.empty();
  if (message.descriptors.size() > 1 || (!has_descriptor && map.offset != 0)) {
    return EINVAL;
  }
  if (mappings_.size() >= limits().max_dma_maps) {
    return ENOSPC;
  }
  const auto after = mappings_.upper_bound(map.address + (map.size - 1));
  if (after != mappings_.begin()) {
    const auto& [start, last] = *std::prev(after);
    if (start + (last.size - 1) >= map.address) {
      return EEXIST;
    }
  }
  const pcie::DmaAccess access{(map.flags & wire::dma_map_readable) != 0, (map.flags & wire::dma_map_writeable) != 0};
  std::optional<pcie::FileWindow> window;
  std::optional<std::uint64_t> file_offset;
  if (has_descriptor) {
    window = pcie::FileWindow{message.descriptors.front().get(), map.offset};
    file_offset = map.offset;
  }
  const pcie::MapResult result =
      function_.dma_map(Iova{map.address}, map.size, access, window, has_descriptor ? nullptr : &dma_);
  observer_.on_dma_map(Iova{map.address}, map.size, access, file_offset, result);
  if (result == pcie::MapResult::ok) {
    mappings_.emplace_hint(after, map.address, Mapping{map.size, access, has_descriptor});
  }
  return errno_of(result);
}

int Session::dma_unmap(const Message& message) {
  const auto decoded = decode_dma_unmap(message.payload);
  if (!decoded) {
    return decoded.error;
  }
  const wire::DmaUnmap& request = decoded.value;
  if ((request.flags & wire::dma_unmap_all) != 0) {
    unmap_all();
  } else if (const int error = unmap(request.address, request.size); error != 0) {
    return error;
  }
  wire::DmaUnmap entry = request;
  entry.argsz = sizeof(entry);
  store(reply_payload(sizeof(entry)), entry);
  return 0;
}

// The text wants an exact match. QEMU also sweeps a range that holds several mappings when a virtual IOMMU
// changes domains, so any range is taken that cuts no mapping in two.
int Session::unmap(std::uint64_t address, std::uint64_t size) {
  const std::uint64_t last = address + (size - 1);
  const auto first = mappings_.lower_bound(address);
  if (first != mappings_.begin()) {
    const auto& [start, before] = *std::prev(first);
    if (start + (before.size - 1) >= address) {
      return EINVAL;
    }
  }
  const auto end = mappings_.upper_bound(last);
  if (first == end) {
    // Nothing there is no error: a VMM that moves a device between address spaces (QEMU, when a guest's
    // vIOMMU attaches a domain) unmaps whole spans without knowing what they hold, as VFIO allows.
    return 0;
  }
  if (const auto& [start, final] = *std::prev(end); start + (final.size - 1) > last) {
    return EINVAL;
  }
  for (auto it = first; it != end;) {
    observer_.on_dma_unmap(Iova{it->first}, it->second.size);
    const pcie::MapResult result = function_.dma_unmap(Iova{it->first}, it->second.size);
    it = mappings_.erase(it);
    if (result != pcie::MapResult::ok) {
      return errno_of(result);
    }
  }
  return 0;
}

void Session::unmap_all() {
  for (const auto& [start, mapping] : mappings_) {
    observer_.on_dma_unmap(Iova{start}, mapping.size);
  }
  function_.dma_unmap_all();
  mappings_.clear();
}

bool Session::may_access(Iova address, std::uint64_t size, bool write) const {
  auto it = mappings_.upper_bound(address.value);
  if (it == mappings_.begin()) {
    return false;
  }
  --it;
  std::uint64_t next = address.value;
  const std::uint64_t last = address.value + (size - 1);
  for (; it != mappings_.end() && it->first <= next; ++it) {
    const std::uint64_t mapping_last = it->first + (it->second.size - 1);
    const bool allowed = write ? it->second.access.write : it->second.access.read;
    if (it->second.has_descriptor || !allowed || mapping_last < next) {
      return false;
    }
    if (mapping_last >= last) {
      return true;
    }
    next = mapping_last + 1;
  }
  return false;
}

}  // namespace orrery::bridge
