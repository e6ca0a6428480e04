#include "systemc_models/rnic/verbs/translation.h"

#include <algorithm>

namespace orrery::rnic {

bool TranslationMemory::write(std::uint32_t first, std::span<const std::uint64_t> entries) {
  if (first > table_.size() || entries.size() > table_.size() - first) {
    return false;
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    table_.make(first + static_cast<std::uint32_t>(i)) = entries[i];
  }
  return true;
}

bool TranslationMemory::read(std::uint32_t first, std::span<std::uint64_t> into) const {
  if (first > table_.size() || into.size() > table_.size() - first) {
    return false;
  }
  for (std::size_t i = 0; i < into.size(); ++i) {
    into[i] = at(first + i);
  }
  return true;
}

void FunctionWindows::set_device_windows(std::uint32_t function, std::span<const pcie::PeerWindow> windows) {
  std::vector<DeviceWindow> now;
  for (const pcie::PeerWindow& window : windows.first(std::min(windows.size(), most_device_windows))) {
    const auto& before = device_windows_[function];
    const auto same = std::find_if(before.begin(), before.end(), [&](const DeviceWindow& known) {
      return known.window.iova == window.iova && known.window.size == window.size && known.window.hpa == window.hpa;
    });
    if (same != before.end()) {
      now.push_back(*same);
    } else {
      last_life_ = last_life_ % (translation::window_mask >> translation::window_shift) + 1;
      now.push_back({window, last_life_});
    }
  }
  device_windows_[function] = std::move(now);
}

std::uint64_t FunctionWindows::typed(std::uint32_t function, std::uint64_t entry) const {
  entry &= ~(translation::device_memory | translation::window_mask);
  const std::uint64_t address = entry & translation::address_mask;
  for (const DeviceWindow& known : device_windows_[function]) {
    if (address - known.window.iova < known.window.size) {
      const std::uint64_t hpa = known.window.hpa + (address - known.window.iova);
      return hpa | (entry & ~translation::address_mask) | translation::device_memory |
             known.life << translation::window_shift;
    }
  }
  return entry;
}

bool FunctionWindows::device(std::uint32_t function, std::uint64_t entry, std::uint64_t address,
                             std::uint64_t length) const {
  const std::uint64_t life = (entry & translation::window_mask) >> translation::window_shift;
  for (const DeviceWindow& known : device_windows_[function]) {
    const std::uint64_t offset = address - known.window.hpa;
    if (known.life == life && offset < known.window.size && length <= known.window.size - offset) {
      return true;
    }
  }
  return false;
}

WalkResult walk_pages(const TranslationMemory& memory, const FunctionWindows& windows, std::uint32_t function,
                      std::uint32_t first, std::uint32_t count, std::uint32_t page_shift, std::uint64_t offset,
                      std::uint64_t length, std::uint64_t needed, SegmentList& into) {
  if (page_shift < 12 || page_shift > 63) {
    return {WalkStatus::denied};
  }
  const std::uint64_t page_bytes = std::uint64_t{1} << page_shift;
  for (std::uint64_t done = 0; done < length;) {
    const std::uint64_t page = (offset + done) >> page_shift;
    const std::uint64_t within = (offset + done) & (page_bytes - 1);
    const std::uint64_t piece = std::min(length - done, page_bytes - within);
    if (page >= count) {
      return {WalkStatus::denied, done};
    }
    const std::uint64_t entry = memory.at(first + page);
    if ((entry & (translation::readable | translation::writable)) == 0) {
      return {WalkStatus::absent, done};
    }
    if ((entry & needed) != needed) {
      return {WalkStatus::denied, done};
    }
    const std::uint64_t address = (entry & translation::address_mask & ~(page_bytes - 1)) + within;
    if ((entry & translation::device_memory) != 0) {
      if (!windows.device(function, entry, address, piece)) {
        return {WalkStatus::absent, done};
      }
      if (!into.add(address, piece, pcie::AddressType::translated)) {
        return {WalkStatus::denied, done};
      }
    } else {
      const auto bus = windows.bus(function, address, piece);
      if (!bus || !into.add(*bus, piece, pcie::AddressType::untranslated)) {
        return {WalkStatus::denied, done};
      }
    }
    done += piece;
  }
  return {};
}

WalkResult walk_buffer(const TranslationMemory& memory, const FunctionWindows& windows, std::uint32_t function,
                       const QueueBuffer& buffer, std::uint64_t offset, std::uint64_t length, SegmentList& into) {
  into.clear();
  return walk_pages(memory, windows, function, buffer.translation, buffer.page_count, buffer.page_shift,
                    buffer.offset + offset, length, 0, into);
}

}  // namespace orrery::rnic
