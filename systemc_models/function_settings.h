// What the configuration space of a device model shows about its link.
#pragma once

namespace orrery::models {

struct FunctionLink {
  unsigned generation = 5;     // highest link generation, 1 … 6
  unsigned width = 16;         // lanes: 1, 2, 4, 8 or 16
  unsigned max_payload = 512;  // bytes supported: 128 … 4096, power of two
};

}  // namespace orrery::models
