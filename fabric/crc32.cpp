#include "fabric/crc32.h"

#include <array>
#include <bit>
#include <cstring>

namespace orrery::fabric {

namespace {

static_assert(std::endian::native == std::endian::little);
constexpr unsigned slices = 16;

// table[k][b]: the CRC of byte b followed by k zero bytes.
constexpr std::array<std::array<std::uint32_t, 256>, slices> make_tables() {
  std::array<std::array<std::uint32_t, 256>, slices> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (unsigned bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1U) != 0 ? 0xedb8'8320U : 0U);
    }
    tables[0][byte] = crc;
  }
  for (unsigned k = 1; k < slices; ++k) {
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t shorter = tables[k - 1][byte];
      tables[k][byte] = (shorter >> 8) ^ tables[0][shorter & 255U];
    }
  }
  return tables;
}
constexpr auto tables = make_tables();

// Four bytes of a word that `after` more bytes of the block follow.
std::uint32_t word(std::uint32_t value, unsigned after) {
  return tables[after + 3][value & 255U] ^ tables[after + 2][(value >> 8) & 255U] ^
         tables[after + 1][(value >> 16) & 255U] ^ tables[after][value >> 24];
}

}  // namespace

std::uint32_t crc32_update(std::uint32_t state, std::span<const std::byte> bytes) {
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= slices; left -= slices, at += slices) {
    std::array<std::uint32_t, 4> words;
    std::memcpy(words.data(), at, slices);
    state = word(words[0] ^ state, 12) ^ word(words[1], 8) ^ word(words[2], 4) ^ word(words[3], 0);
  }
  for (; left > 0; --left, ++at) {
    state = (state >> 8) ^ tables[0][(state ^ static_cast<std::uint32_t>(*at)) & 255U];
  }
  return state;
}

}  // namespace orrery::fabric
