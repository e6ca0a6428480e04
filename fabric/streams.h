// Keeps the random streams of the fabric's components apart: links, switches and connections number themselves from 0.
#pragma once

#include <cstdint>

namespace orrery::fabric {

enum class StreamPurpose : std::uint8_t { link = 1, marking = 2, entropy = 3, path = 4 };

// A stream number for Rng; `stream` below 2^56.
constexpr std::uint64_t stream_of(StreamPurpose purpose, std::uint64_t stream) {
  return (static_cast<std::uint64_t>(purpose) << 56) | (stream & 0xff'ffff'ffff'ffffU);
}

}  // namespace orrery::fabric
