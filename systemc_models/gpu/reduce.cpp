#include "systemc_models/gpu/reduce.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace orrery::models {
namespace {

// Works on copies of a cache-sized block: no alignment or aliasing to think of, and compilers vectorise it.
template <class Element, class Add>
void add_blocks(std::span<std::byte> into, std::span<const std::byte> from, Add add) {
  constexpr std::size_t block = 512;
  std::array<Element, block> a;
  std::array<Element, block> b;
  std::size_t done = 0;
  while (done < into.size()) {
    const std::size_t count = std::min(block, (into.size() - done) / sizeof(Element));
    const std::size_t bytes = count * sizeof(Element);
    if (count == 0) {
      return;
    }
    std::memcpy(a.data(), into.data() + done, bytes);
    std::memcpy(b.data(), from.data() + done, bytes);
    for (std::size_t i = 0; i < count; ++i) {
      a[i] = add(a[i], b[i]);
    }
    std::memcpy(into.data() + done, a.data(), bytes);
    done += bytes;
  }
}

}  // namespace

void add_f32(std::span<std::byte> into, std::span<const std::byte> from) {
  add_blocks<std::uint32_t>(into, from, [](std::uint32_t x, std::uint32_t y) {
    const auto bits = std::bit_cast<std::uint32_t>(std::bit_cast<float>(x) + std::bit_cast<float>(y));
    return (bits & 0x7fff'ffffU) > 0x7f80'0000U ? quiet_nan_f32 : bits;
  });
}

void add_bf16(std::span<std::byte> into, std::span<const std::byte> from) {
  add_blocks<std::uint16_t>(
      into, from, [](std::uint16_t x, std::uint16_t y) { return f32_to_bf16(bf16_to_f32(x) + bf16_to_f32(y)); });
}

}  // namespace orrery::models
