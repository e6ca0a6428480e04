#include "fabric/mac_table.h"

#include <algorithm>
#include <bit>

namespace orrery::fabric {

// Twice as many slots as addresses, so that there is always an empty one to end a search.
MacTable::MacTable(std::size_t capacity, Picoseconds ageing)
    : capacity_(std::max<std::size_t>(capacity, 1)), ageing_(ageing), entries_(std::bit_ceil(2 * capacity_)) {}

std::size_t MacTable::slot_of(MacAddress address) const {
  return static_cast<std::size_t>((address.value * 0x9e37'79b9'7f4a'7c15U) >> 20) & (entries_.size() - 1);
}

void MacTable::learn(MacAddress address, std::uint16_t port, Picoseconds now) {
  if (address.value == 0 || address.is_multicast()) {
    return;
  }
  Entry* room = nullptr;
  for (std::size_t slot = slot_of(address);; slot = (slot + 1) & (entries_.size() - 1)) {
    Entry& entry = entries_[slot];
    if (entry.address == address.value) {
      entry.seen = now;
      entry.port = port;
      return;
    }
    if (entry.address == 0) {
      if (room == nullptr && used_ < capacity_) {
        ++used_;
        room = &entry;
      }
      break;
    }
    if (room == nullptr && entry.seen + ageing_ <= now) {
      room = &entry;  // forgotten: its place serves, once the address proves not to be further on
    }
  }
  if (room != nullptr) {
    *room = {address.value, now, port};
  }
}

int MacTable::find(MacAddress address, Picoseconds now) const {
  for (std::size_t slot = slot_of(address);; slot = (slot + 1) & (entries_.size() - 1)) {
    const Entry& entry = entries_[slot];
    if (entry.address == 0) {
      return -1;
    }
    if (entry.address == address.value) {
      return entry.seen + ageing_ > now ? entry.port : -1;
    }
  }
}

}  // namespace orrery::fabric
