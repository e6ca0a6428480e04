// What a replay already knows of guest memory, so that a recording keeps only what differs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>

namespace orrery {

// A copy of every page that a device has read or written, by file number and page. Pages never seen are
// zero, as a replay's fresh memory is. Costs one page of memory for each page that devices touch.
// One thread.
class PageShadow {
 public:
  static constexpr std::size_t page_bytes = 4096;
  // Equal bytes between two differing ones that are cheaper to repeat than to start a new record for.
  static constexpr std::size_t joined_gap = 64;

  // Told of each run of bytes that differs from what is known.
  class Listener {
   public:
    virtual void on_difference(unsigned file, std::uint64_t offset, std::span<const std::byte> bytes) = 0;

   protected:
    ~Listener() = default;
  };

  // A device is about to read `bytes` at file:offset: reports the differing runs (ascending, none longer than
  // a page), then knows them. offset + size must not wrap.
  void before_read(unsigned file, std::uint64_t offset, std::span<const std::byte> bytes, Listener& listener);
  // A device wrote `bytes`: a replay's device writes the same.
  void after_write(unsigned file, std::uint64_t offset, std::span<const std::byte> bytes);
  // Forgets a file.
  void forget(unsigned file);
  [[nodiscard]] std::size_t pages() const { return pages_.size(); }

 private:
  struct Key {
    unsigned file;
    std::uint64_t page;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const {
      return static_cast<std::size_t>((key.page * 0x9e37'79b9'7f4a'7c15U) ^ (std::uint64_t{key.file} << 32));
    }
  };
  std::byte* page(Key key);

  std::unordered_map<Key, std::unique_ptr<std::byte[]>, KeyHash> pages_;
};

}  // namespace orrery
