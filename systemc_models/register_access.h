// Turning BAR accesses of any size into 32-bit register words, the same way for every device model.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "pcie/device.h"

namespace orrery::models {

// The half of a 64-bit register that lives at the 32-bit word `offset`.
constexpr std::uint32_t half_of(std::uint64_t value, std::uint64_t offset) {
  return static_cast<std::uint32_t>((offset & 4U) != 0 ? value >> 32 : value);
}

// Replaces that half.
constexpr std::uint64_t with_half(std::uint64_t value, std::uint64_t offset, std::uint32_t half) {
  const std::uint64_t wide = half;
  return (offset & 4U) != 0 ? (value & 0xffff'ffffU) | (wide << 32) : (value & ~std::uint64_t{0xffff'ffffU}) | wide;
}

// Reads [offset, offset + into.size()) of a register file whose aligned 32-bit words read_word(offset) gives,
// each word once, in ascending order.
template <class ReadWord>
void read_registers(std::uint64_t offset, std::span<std::byte> into, ReadWord&& read_word) {
  std::size_t done = 0;
  while (done < into.size()) {
    const std::uint64_t at = offset + done;
    const std::size_t skip = at & 3U;
    const std::size_t bytes = std::min<std::size_t>(4 - skip, into.size() - done);
    const std::uint32_t word = read_word(at - skip);
    std::memcpy(into.data() + done, reinterpret_cast<const std::byte*>(&word) + skip, bytes);
    done += bytes;
  }
}

// Writes whole aligned words in ascending order; returns false, having done nothing, for any other write.
template <class WriteWord>
bool write_registers(std::uint64_t offset, std::span<const std::byte> from, WriteWord&& write_word) {
  if ((offset & 3U) != 0 || from.empty() || (from.size() & 3U) != 0) {
    return false;
  }
  for (std::size_t done = 0; done < from.size(); done += 4) {
    std::uint32_t word = 0;
    std::memcpy(&word, from.data() + done, 4);
    write_word(offset + done, word);
  }
  return true;
}

// Keeps the two halves of a 64-bit counter together for a reader that can only read 32 bits at a time:
// reading the low half latches the high one for the read that follows.
class CounterLatch {
 public:
  [[nodiscard]] std::uint32_t read(std::uint64_t offset, std::uint64_t live) {
    if ((offset & 4U) == 0) {
      high_offset_ = offset + 4;
      high_ = static_cast<std::uint32_t>(live >> 32);
      return static_cast<std::uint32_t>(live);
    }
    const bool latched = offset == high_offset_;
    high_offset_ = 0;
    return latched ? high_ : static_cast<std::uint32_t>(live >> 32);
  }

 private:
  std::uint64_t high_offset_ = 0;  // 0: nothing latched (no counter has its high half there)
  std::uint32_t high_ = 0;
};

// The port counters in the order in which the register maps list them, 8 bytes each; 0 beyond the last.
[[nodiscard]] inline std::uint64_t port_counter(const pcie::PortCounters& counters, std::uint64_t index) {
  switch (index) {
    case 0:
      return counters.write_bytes_sent;
    case 1:
      return counters.write_bytes_received;
    case 2:
      return counters.read_bytes_requested;
    case 3:
      return counters.completion_bytes_sent;
    case 4:
      return counters.completion_bytes_received;
    case 5:
      return counters.msix_sent;
    case 6:
      return counters.errors;
    case 7:
      return counters.unexpected_completions;
    default:
      return 0;
  }
}
inline constexpr std::uint64_t port_counter_count = 8;

}  // namespace orrery::models
