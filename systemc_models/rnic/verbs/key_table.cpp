#include "systemc_models/rnic/verbs/key_table.h"

#include <algorithm>

namespace orrery::rnic {
namespace {

constexpr std::uint32_t write_rights = key_local_write | key_remote_write | key_remote_atomic;
constexpr std::uint32_t local_rights = key_local_read | key_local_write;

}  // namespace

const MkeyContext* KeyTable::usable(const KeyRequest& request, std::uint32_t key) const {
  const MkeyContext* context = keys_.find(key >> 8);
  if (context == nullptr || context->state != KeyState::valid || context->function != request.function ||
      context->variant != (key & 0xffU) || (context->qp != none && context->qp != request.qp)) {
    return nullptr;
  }
  return context->pd == request.pd ? context : nullptr;
}

bool KeyTable::within(const MkeyContext& key, std::uint64_t address, std::uint64_t length) {
  if (address + (length - 1) < address) {
    return false;
  }
  const std::uint64_t offset = address - key.start;
  return (key.whole_space != 0 && key.length == 0) ||
         (address >= key.start && offset <= key.length && length <= key.length - offset);
}

bool KeyTable::permits(const KeyRequest& request) const {
  if (request.length == 0) {
    return true;
  }
  const MkeyContext* context = usable(request, request.key);
  return context != nullptr && (context->access & request.access) == request.access &&
         within(*context, request.address, request.length);
}

WalkResult KeyTable::resolve(const KeyRequest& request, SegmentList& into) const {
  if (request.length == 0) {
    return {};
  }
  Walk walk{request, into};
  return resolve_key(walk, request.key, request.address, request.length, request.access, 0);
}

WalkResult KeyTable::resolve_key(Walk& walk, std::uint32_t key, std::uint64_t address, std::uint64_t length,
                                 std::uint32_t access, unsigned depth) const {
  if (key == reserved_key || key == null_key || key == dump_fill_key) {
    return resolve_special(walk, key, address, length, access);
  }
  const MkeyContext* context = usable(walk.request, key);
  if (context == nullptr || (context->access & access) != access || !within(*context, address, length)) {
    return {WalkStatus::denied};
  }
  const std::uint64_t offset = address - context->start;
  switch (context->mode) {
    case KeyMode::physical: {
      const auto bus = windows_.bus(walk.request.function, address, length);
      if (!bus || length > 0x8000'0000U || !walk.into.add(*bus, length, pcie::AddressType::untranslated)) {
        return {WalkStatus::denied};
      }
      return {};
    }
    case KeyMode::pages: {
      if (context->page_shift < 12 || context->page_shift > 63) {
        return {WalkStatus::denied};
      }
      const std::uint64_t first_page_offset = context->start & ((std::uint64_t{1} << context->page_shift) - 1);
      const bool writes = (access & write_rights) != 0;
      const bool reads = (access & ~(key_local_write | key_remote_write)) != 0;
      return walk_pages(memory_, windows_, walk.request.function, context->translation, context->translation_count,
                        context->page_shift, first_page_offset + offset, length,
                        (writes ? translation::writable : 0) | (reads ? translation::readable : 0), walk.into);
    }
    case KeyMode::indirect:
      if (depth == max_depth) {
        return {WalkStatus::denied};
      }
      return resolve_list(walk, *context, offset, length, access, depth + 1);
  }
  return {WalkStatus::denied};
}

// The keys without a context (contexts.h).
WalkResult KeyTable::resolve_special(Walk& walk, std::uint32_t key, std::uint64_t address, std::uint64_t length,
                                     std::uint32_t access) const {
  if ((access & ~local_rights) != 0 || length > 0x8000'0000U) {
    return {WalkStatus::denied};
  }
  if (key != reserved_key) {
    return {walk.into.add_nothing(length) ? WalkStatus::ok : WalkStatus::denied};
  }
  const auto bus = windows_.bus(walk.request.function, address, length);
  const bool allowed = walk.request.reserved_allowed && bus.has_value();
  return {allowed && walk.into.add(*bus, length, pcie::AddressType::untranslated) ? WalkStatus::ok
                                                                                  : WalkStatus::denied};
}

WalkResult KeyTable::resolve_list(Walk& walk, const MkeyContext& key, std::uint64_t offset, std::uint64_t length,
                                  std::uint32_t access, unsigned depth) const {
  // The rights that count for a remote access are the outer key's; a piece needs the local ones.
  const std::uint32_t inner = ((access & write_rights) != 0 ? key_local_write : 0U) |
                              ((access & (key_local_read | key_remote_read)) != 0 ? key_local_read : 0U);
  const std::uint32_t elements = key.translation_count / 2;
  std::uint64_t done = 0;
  std::uint32_t i = 0;
  // Elements of a fixed size can be counted off. (The first word of an element says its size.)
  if (elements != 0 && static_cast<std::uint32_t>(memory_.at(key.translation)) == 0 && key.page_shift < 64) {
    i = static_cast<std::uint32_t>(std::min<std::uint64_t>(offset >> key.page_shift, elements));
    offset -= std::uint64_t{i} << key.page_shift;
  }
  for (; i < elements && done < length; ++i) {
    if (++walk.scanned > max_scanned) {
      return {WalkStatus::denied, done};
    }
    const std::uint64_t word = memory_.at(std::uint64_t{key.translation} + 2ULL * i);
    const std::uint32_t count = static_cast<std::uint32_t>(word);
    const std::uint64_t size = count != 0 ? count : std::uint64_t{1} << (key.page_shift & 63U);
    if (offset >= size) {
      offset -= size;
      continue;
    }
    const std::uint64_t piece = std::min(size - offset, length - done);
    const std::uint64_t address = memory_.at(std::uint64_t{key.translation} + 2ULL * i + 1) + offset;
    WalkResult result = resolve_key(walk, static_cast<std::uint32_t>(word >> 32), address, piece, inner, depth);
    if (result.status != WalkStatus::ok) {
      result.offset += done;
      return result;
    }
    done += piece;
    offset = 0;
  }
  return {done == length ? WalkStatus::ok : WalkStatus::denied, done};
}

bool KeyTable::invalidate(std::uint32_t function, std::uint32_t pd, std::uint32_t qp, std::uint32_t key) {
  const KeyRequest request{.function = function, .pd = pd, .qp = qp, .key = key};
  if (usable(request, key) == nullptr) {
    return false;
  }
  keys_.find(key >> 8)->state = KeyState::free;
  return true;
}

}  // namespace orrery::rnic
