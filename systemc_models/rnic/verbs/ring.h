// A FIFO whose elements keep their number while it grows: a ring of a power of two.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace orrery::rnic {

template <class T>
class Ring {
 public:
  [[nodiscard]] bool empty() const { return first_ == end_; }
  [[nodiscard]] std::uint32_t size() const { return end_ - first_; }
  // Numbers of the oldest element and of the next new one, modulo 2^32.
  [[nodiscard]] std::uint32_t first() const { return first_; }
  [[nodiscard]] std::uint32_t end() const { return end_; }
  [[nodiscard]] bool has(std::uint32_t number) const { return number - first_ < size(); }
  [[nodiscard]] T& at(std::uint32_t number) { return items_[number & mask_]; }
  [[nodiscard]] T& front() { return at(first_); }
  T& push(T value) {
    if (size() == items_.size()) {
      grow();
    }
    T& place = at(end_++);
    place = std::move(value);
    return place;
  }
  void pop() { ++first_; }
  void clear() { first_ = end_; }

 private:
  void grow() {
    std::vector<T> larger(items_.empty() ? 16 : items_.size() * 2);
    const auto mask = static_cast<std::uint32_t>(larger.size() - 1);
    for (std::uint32_t i = first_; i != end_; ++i) {
      larger[i & mask] = std::move(items_[i & mask_]);
    }
    items_ = std::move(larger);
    mask_ = mask;
  }

  std::vector<T> items_;
  std::uint32_t mask_ = 0;
  std::uint32_t first_ = 0;
  std::uint32_t end_ = 0;
};

}  // namespace orrery::rnic
