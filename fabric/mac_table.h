// Learned MAC addresses of a switch: open addressing, fixed size, no allocation after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/time.h"
#include "fabric/packet.h"

namespace orrery::fabric {

class MacTable {
 public:
  // `capacity`: addresses that it holds, at least 1; an address last seen `ageing` ago or longer is forgotten.
  MacTable(std::size_t capacity, Picoseconds ageing);

  // Notes that `address` sends from `port`. Group addresses and zero are never learned (802.1Q-2018 §8.7).
  void learn(MacAddress address, std::uint16_t port, Picoseconds now);
  // The port of an address; -1 if it isn't known (any more).
  [[nodiscard]] int find(MacAddress address, Picoseconds now) const;
  [[nodiscard]] std::size_t size() const { return used_; }

 private:
  struct Entry {
    std::uint64_t address = 0;  // 0: empty
    Picoseconds seen;
    std::uint16_t port = 0;
  };
  [[nodiscard]] std::size_t slot_of(MacAddress address) const;

  std::size_t capacity_;
  Picoseconds ageing_;
  std::size_t used_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace orrery::fabric
