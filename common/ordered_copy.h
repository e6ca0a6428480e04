// Copying into memory that somebody else polls.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstring>

namespace orrery {

// As memcpy, but in ascending order: whoever sees a byte sees every byte before it (with acquire ordering). Drivers
// rely on it: they poll the last byte of a completion queue entry or of a message, and take the rest as written
// (PCIe Base 6.3 §2.4.3 leaves the order within a TLP open; devices and root complexes write a line at once and
// lines upwards). memcpy gives no such order, and glibc's writes the tail of small blocks first.
inline void copy_in_order(std::byte* to, const std::byte* from, std::size_t size) {
  constexpr std::size_t step = 16;  // one vector register: a single store
  while (size >= step) {
    std::memcpy(to, from, step);
    std::atomic_thread_fence(std::memory_order_release);
    to += step;
    from += step;
    size -= step;
  }
  for (; size > 0; --size, ++to, ++from) {
    *to = *from;
    std::atomic_thread_fence(std::memory_order_release);
  }
}

}  // namespace orrery
