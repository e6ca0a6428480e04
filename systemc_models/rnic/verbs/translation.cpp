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
