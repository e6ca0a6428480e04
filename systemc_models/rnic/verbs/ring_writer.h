// Entries that the hardware appends to a ring in guest memory: CQEs and EQEs.
//
// One DMA of a ring is on the way at a time; what is appended meanwhile goes with the next one. So entries land in
// order, and a busy ring costs one transfer for many entries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "systemc_models/rnic/verbs/core.h"

namespace orrery::rnic {

class RingWriter final : private DmaClient {
 public:
  class Owner {
   public:
    // `count` more entries are in guest memory (ok), or their DMA failed.
    virtual void on_landed(std::uint32_t count, bool ok) = 0;

   protected:
    ~Owner() = default;
  };
  struct Shape {
    std::uint32_t function = 0;
    QueueBuffer buffer;
    std::uint32_t log_entries = 0;
    std::uint32_t entry_size = 64;
    bool collapsed = false;  // every entry is written to the first place
  };

  // Starts a ring at index 0.
  void begin(Core& core, Owner& owner, const Shape& shape);
  void end() { open_ = false; }
  // The function was reset: its DMA is forgotten.
  void forget();

  [[nodiscard]] std::uint32_t size() const { return 1U << shape_.log_entries; }
  [[nodiscard]] std::uint32_t produced() const { return produced_; }  // entries appended, modulo 2^32
  [[nodiscard]] std::uint32_t landed() const { return landed_; }
  [[nodiscard]] std::uint32_t pass() const { return produced_ >> shape_.log_entries; }  // of the next entry
  [[nodiscard]] std::uint32_t waiting() const { return filled_; }                       // appended, not on the way
  [[nodiscard]] bool busy() const { return dma_in_flight != 0; }
  // Bytes of a new entry, to be filled before write().
  std::span<std::byte> append();
  // Sends what waits, unless DMA is on the way (then its end does). False: the ring's pages can't be reached.
  bool write();

 private:
  void on_dma(std::uint64_t cookie, bool ok) override;

  Core* core_ = nullptr;
  Owner* owner_ = nullptr;
  Shape shape_;
  bool open_ = false;
  std::uint32_t produced_ = 0;
  std::uint32_t landed_ = 0;
  std::uint32_t sent_ = 0;    // handed to DMA
  std::uint32_t filled_ = 0;  // entries in filling_
  std::vector<std::byte> filling_;
  std::vector<std::byte> sending_;
};

}  // namespace orrery::rnic
