// Numbered objects in a bounded pool. Freestanding; all zero is an empty table, so that a table may lie in memory that
// nobody has touched and that costs nothing until used.
#pragma once

#include <cstdint>

namespace orrery::firmware {

enum class ObjectState : std::uint8_t { free = 0, used = 1, draining = 2 };

// What every object has; the objects of a table derive from it.
struct Object {
  std::uint32_t references = 0;  // of other objects; it can't be destroyed before they are
  std::uint32_t next = 0;        // free: index of the next free one
  std::uint16_t function = 0;
  ObjectState state = ObjectState::free;
  std::uint8_t kind = 0;  // the table's own
};

// Numbers are `first` … `first + capacity - 1`. A freed number is given again as late as possible.
template <class T, std::uint32_t capacity, std::uint32_t first>
class ObjectTable {
  static_assert(first > 0);

 public:
  [[nodiscard]] static constexpr std::uint32_t lowest() { return first; }

  // A number, or 0 if there is none left. The object is as T{} but for function and state.
  [[nodiscard]] std::uint32_t allocate(std::uint32_t function) {
    std::uint32_t number = 0;
    if (touched_ < capacity) {
      number = first + touched_++;
    } else if (free_head_ != 0) {
      number = free_head_;
      free_head_ = entries_[number - first].next;
      free_tail_ = free_head_ == 0 ? 0 : free_tail_;
    } else {
      return 0;
    }
    T& object = entries_[number - first];
    object = T{};
    object.function = static_cast<std::uint16_t>(function);
    object.state = ObjectState::used;
    ++used_;
    return number;
  }
  void release(std::uint32_t number) {
    T& object = entries_[number - first];
    object = T{};
    if (free_tail_ == 0) {
      free_head_ = number;
    } else {
      entries_[free_tail_ - first].next = number;
    }
    free_tail_ = number;
    --used_;
  }
  // The function's own object of that number in use; null if there is none.
  [[nodiscard]] T* find(std::uint32_t function, std::uint32_t number) {
    if (number < first || number - first >= touched_) {
      return nullptr;
    }
    T& object = entries_[number - first];
    return object.state == ObjectState::used && object.function == function ? &object : nullptr;
  }
  // In any state, of any function. `number` is one that allocate() gave.
  [[nodiscard]] T& operator[](std::uint32_t number) { return entries_[number - first]; }
  [[nodiscard]] std::uint32_t used() const { return used_; }
  [[nodiscard]] std::uint32_t end() const { return first + touched_; }

 private:
  std::uint32_t touched_;  // numbers given at least once
  std::uint32_t free_head_;
  std::uint32_t free_tail_;
  std::uint32_t used_;
  T entries_[capacity];
};

}  // namespace orrery::firmware
