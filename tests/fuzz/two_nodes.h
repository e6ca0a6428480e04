// What the fuzz targets of the RNIC's data path share: two nodes on a wire, run for a while, then ended and looked at.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tests/fuzz/require.h"
#include "tests/systemc_models/rnic/verbs_node.h"

namespace orrery::fuzz {

// At most `longest` of simulated time, and so many events: nothing may hang.
inline void run(pcie::Simulation& simulation, Picoseconds longest = 1_ms) {
  const Picoseconds end = simulation.now() + longest;
  for (unsigned i = 0; i < 20'000 && simulation.events.next_time() <= end && simulation.events.run_one(); ++i) {
  }
}

// A page that nobody has a right to write.
class Guard {
 public:
  explicit Guard(test::Node& node) : node_(node), at_(node.allocate(bytes)) {
    std::memset(node_.memory.at(at_), value, bytes);
  }
  [[nodiscard]] bool untouched() const {
    const std::byte* first = node_.memory.at(at_);
    return std::all_of(first, first + bytes, [](std::byte x) { return x == static_cast<std::byte>(value); });
  }

 private:
  static constexpr std::size_t bytes = 4096;
  static constexpr int value = 0x77;
  test::Node& node_;
  std::uint64_t at_;
};

// Both functions are reset with whatever is under way; nothing is left, and nothing went astray.
inline void finish(pcie::Simulation& simulation, fabric::PacketPool& pool, test::Node& a, test::Node& b) {
  for (test::Node* node : {&a, &b}) {
    node->memory.cancel_all();
    node->engine.reset(0);
  }
  for (unsigned i = 0; i < 100'000 && simulation.events.run_one(); ++i) {
  }
  require(a.memory.stray == 0 && b.memory.stray == 0, "DMA stays in the guest's memory");
  require(pool.outstanding() == 0, "every packet is given back");
}

}  // namespace orrery::fuzz
