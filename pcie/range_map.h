// Disjoint address ranges with a value each: how a router finds the port of an address.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace orrery::pcie {

// Few, rarely changing ranges; look-ups are frequent and tend to hit the range of the one before.
// One thread.
template <class Value>
class RangeMap {
 public:
  struct Range {
    std::uint64_t start = 0;
    std::uint64_t size = 0;  // bytes, >= 1; start + size - 1 does not wrap
    Value value{};
    [[nodiscard]] bool contains(std::uint64_t address) const { return address - start < size; }
  };

  // False, and nothing changes, if the range is empty, wraps or overlaps one that is there.
  bool insert(std::uint64_t start, std::uint64_t size, Value value) {
    if (size == 0 || start + (size - 1) < start || overlaps(start, size)) {
      return false;
    }
    const auto at = std::upper_bound(ranges_.begin(), ranges_.end(), start,
                                     [](std::uint64_t a, const Range& r) { return a < r.start; });
    ranges_.insert(at, Range{start, size, std::move(value)});
    last_ = 0;
    return true;
  }
  // Removes the range that starts at `start`; false if there is none.
  bool erase(std::uint64_t start) {
    const auto at = std::find_if(ranges_.begin(), ranges_.end(), [&](const Range& r) { return r.start == start; });
    if (at == ranges_.end()) {
      return false;
    }
    ranges_.erase(at);
    last_ = 0;
    return true;
  }
  void clear() {
    ranges_.clear();
    last_ = 0;
  }
  [[nodiscard]] bool overlaps(std::uint64_t start, std::uint64_t size) const {
    return std::any_of(ranges_.begin(), ranges_.end(), [&](const Range& r) {
      return start <= r.start + (r.size - 1) && r.start <= start + (size - 1);
    });
  }
  // The range that holds `address`; null if none. Valid until the next change.
  [[nodiscard]] const Range* find(std::uint64_t address) const {
    if (last_ < ranges_.size() && ranges_[last_].contains(address)) {
      return &ranges_[last_];
    }
    auto at = std::upper_bound(ranges_.begin(), ranges_.end(), address,
                               [](std::uint64_t a, const Range& r) { return a < r.start; });
    if (at == ranges_.begin()) {
      return nullptr;
    }
    --at;
    if (!at->contains(address)) {
      return nullptr;
    }
    last_ = static_cast<std::size_t>(at - ranges_.begin());
    return &*at;
  }
  // Bytes from `address` on for which find() gives the same answer; 0 stands for all up to the end.
  [[nodiscard]] std::uint64_t uniform(std::uint64_t address) const {
    if (const Range* range = find(address)) {
      return range->start + range->size - address;
    }
    const auto next = std::upper_bound(ranges_.begin(), ranges_.end(), address,
                                       [](std::uint64_t a, const Range& r) { return a < r.start; });
    return next == ranges_.end() ? 0 - address : next->start - address;
  }
  [[nodiscard]] const std::vector<Range>& ranges() const { return ranges_; }

 private:
  std::vector<Range> ranges_;
  mutable std::size_t last_ = 0;
};

}  // namespace orrery::pcie
