#include "common/page_shadow.h"

#include <algorithm>
#include <cstring>

namespace orrery {

std::byte* PageShadow::page(Key key) {
  std::unique_ptr<std::byte[]>& entry = pages_[key];
  if (entry == nullptr) {
    entry = std::make_unique<std::byte[]>(page_bytes);  // zeroed
  }
  return entry.get();
}

void PageShadow::before_read(unsigned file, std::uint64_t offset, std::span<const std::byte> bytes,
                             Listener& listener) {
  while (!bytes.empty()) {
    const std::size_t at = offset % page_bytes;
    const std::size_t size = std::min(bytes.size(), page_bytes - at);
    const std::span<const std::byte> now = bytes.first(size);
    std::byte* known = page({file, offset / page_bytes}) + at;
    if (std::memcmp(known, now.data(), size) != 0) {
      std::size_t i = 0;
      while (i < size) {
        if (known[i] == now[i]) {
          ++i;
          continue;
        }
        // Grow the run until joined_gap equal bytes in a row, or the end.
        std::size_t end = i + 1;
        for (std::size_t j = end; j < size && j - end < joined_gap; ++j) {
          if (known[j] != now[j]) {
            end = j + 1;
          }
        }
        listener.on_difference(file, offset + i, now.subspan(i, end - i));
        i = end;
      }
      std::memcpy(known, now.data(), size);
    }
    bytes = bytes.subspan(size);
    offset += size;
  }
}

void PageShadow::after_write(unsigned file, std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t at = offset % page_bytes;
    const std::size_t size = std::min(bytes.size(), page_bytes - at);
    std::memcpy(page({file, offset / page_bytes}) + at, bytes.data(), size);
    bytes = bytes.subspan(size);
    offset += size;
  }
}

void PageShadow::forget(unsigned file) {
  std::erase_if(pages_, [file](const auto& entry) { return entry.first.file == file; });
}

}  // namespace orrery
