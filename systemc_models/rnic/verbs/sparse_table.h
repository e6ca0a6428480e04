// A table by number whose memory is taken in pages of entries when they are first used.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace orrery::rnic {

template <class T, std::uint32_t page_entries = 256>
class SparseTable {
  static_assert((page_entries & (page_entries - 1)) == 0);

 public:
  explicit SparseTable(std::uint32_t size)
      : size_(size), pages_((std::size_t{size} + page_entries - 1) / page_entries) {}

  [[nodiscard]] std::uint32_t size() const { return size_; }
  // The entry, or null if it was never made. Any index is allowed.
  [[nodiscard]] T* find(std::uint32_t index) {
    if (index >= size_ || pages_[index / page_entries] == nullptr) {
      return nullptr;
    }
    return &(*pages_[index / page_entries])[index % page_entries];
  }
  [[nodiscard]] const T* find(std::uint32_t index) const { return const_cast<SparseTable*>(this)->find(index); }
  // index < size().
  T& make(std::uint32_t index) {
    auto& page = pages_[index / page_entries];
    if (page == nullptr) {
      page = std::make_unique<std::array<T, page_entries>>();
    }
    return (*page)[index % page_entries];
  }
  template <class Visit>
  void for_each(Visit visit) {
    for (std::size_t p = 0; p < pages_.size(); ++p) {
      if (pages_[p] != nullptr) {
        for (std::uint32_t i = 0; i < page_entries; ++i) {
          visit(static_cast<std::uint32_t>(p * page_entries + i), (*pages_[p])[i]);
        }
      }
    }
  }

 private:
  std::uint32_t size_;
  std::vector<std::unique_ptr<std::array<T, page_entries>>> pages_;
};

}  // namespace orrery::rnic
