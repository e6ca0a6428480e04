// Fields of the structures that drivers and device exchange, described rather than programmed: name, offset of the
// big-endian 32-bit word, highest and lowest bit. Freestanding.
#pragma once

#include <cstdint>

#include "firmware/hal.h"
#include "firmware/interface/registers.h"

namespace orrery::firmware {

struct Field {
  const char* name;
  std::uint16_t offset;  // bytes from the start of its structure, multiple of 4
  std::uint8_t high;     // bits of the word, 31 most significant
  std::uint8_t low;

  [[nodiscard]] constexpr std::uint32_t mask() const {
    return (high - low == 31 ? 0xffff'ffffU : (1U << (high - low + 1)) - 1) << low;
  }
  [[nodiscard]] constexpr std::uint32_t get(std::uint32_t word) const { return (word & mask()) >> low; }
  [[nodiscard]] constexpr std::uint32_t put(std::uint32_t word, std::uint32_t value) const {
    return (word & ~mask()) | ((value << low) & mask());
  }
};
// Two words, the upper one first.
struct WideField {
  const char* name;
  std::uint16_t offset;
};

constexpr std::uint32_t swap32(std::uint32_t value) {
  return __builtin_bswap32(value);
}

// A structure in the shared SRAM, big-endian as guests have it. Ranges are the caller's to keep.
class View {
 public:
  View(const Hal& hal, std::uint32_t local) : hal_(&hal), local_(local) {}

  [[nodiscard]] std::uint32_t word(std::uint32_t offset) const {
    return swap32(read32(*hal_, rnic::reg::sram + local_ + offset));
  }
  void set_word(std::uint32_t offset, std::uint32_t value) const {
    write32(*hal_, rnic::reg::sram + local_ + offset, swap32(value));
  }
  [[nodiscard]] std::uint64_t wide(std::uint32_t offset) const {
    const std::uint64_t high = word(offset);
    return high << 32 | word(offset + 4);
  }
  void set_wide(std::uint32_t offset, std::uint64_t value) const {
    set_word(offset, static_cast<std::uint32_t>(value >> 32));
    set_word(offset + 4, static_cast<std::uint32_t>(value));
  }
  [[nodiscard]] std::uint32_t get(const Field& field) const { return field.get(word(field.offset)); }
  void set(const Field& field, std::uint32_t value) const {
    set_word(field.offset, field.put(word(field.offset), value));
  }
  [[nodiscard]] std::uint64_t get(const WideField& field) const { return wide(field.offset); }
  void set(const WideField& field, std::uint64_t value) const { set_wide(field.offset, value); }
  void clear(std::uint32_t bytes) const {
    for (std::uint32_t at = 0; at < bytes; at += 4) {
      set_word(at, 0);
    }
  }
  [[nodiscard]] View at(std::uint32_t offset) const { return {*hal_, local_ + offset}; }
  [[nodiscard]] std::uint32_t local() const { return local_; }

 private:
  const Hal* hal_;
  std::uint32_t local_;
};

}  // namespace orrery::firmware
