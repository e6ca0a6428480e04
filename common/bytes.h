// Little-endian encoding of small structures, and a reader of untrusted bytes that cannot run past their end.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

static_assert(std::endian::native == std::endian::little, "files and wire structures are little-endian");

class ByteWriter {
 public:
  template <std::unsigned_integral T>
  void put(T value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof(T));
  }
  void put(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  // Length (32 bits), then the bytes.
  void put_text(std::string_view text) {
    put(static_cast<std::uint32_t>(text.size()));
    put(std::as_bytes(std::span(text.data(), text.size())));
  }
  [[nodiscard]] std::size_t size() const { return bytes_.size(); }
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  void clear() { bytes_.clear(); }

 private:
  std::vector<std::byte> bytes_;
};

// After the first get that asks for more than there is, good() is false and every get yields zero.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <std::unsigned_integral T>
  T get() {
    T value = 0;
    const std::span<const std::byte> piece = take(sizeof(T));
    if (!piece.empty()) {
      std::memcpy(&value, piece.data(), sizeof(T));
    }
    return value;
  }
  // The next `size` bytes; empty if there are fewer.
  std::span<const std::byte> take(std::size_t size) {
    if (!good_ || size > bytes_.size()) {
      good_ = false;
      return {};
    }
    const std::span<const std::byte> piece = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return piece;
  }
  std::string get_text(std::size_t limit) {
    const std::uint32_t size = get<std::uint32_t>();
    if (size > limit) {
      good_ = false;
    }
    const std::span<const std::byte> piece = take(size);
    return {reinterpret_cast<const char*>(piece.data()), piece.size()};
  }
  [[nodiscard]] bool good() const { return good_; }
  [[nodiscard]] std::size_t left() const { return bytes_.size(); }

 private:
  std::span<const std::byte> bytes_;
  bool good_ = true;
};

}  // namespace orrery
