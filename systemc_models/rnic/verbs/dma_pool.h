// DMA of the RNIC's blocks: pooled transfers over bus segments, and the knowledge of which are still on the way.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

#include "firmware/interface/contexts.h"
#include "pcie/device.h"

namespace orrery::rnic {

// A contiguous piece of the bus. Host memory: an IOVA, AT = 00b; device memory: an HPA, AT = 10b.
struct BusSegment {
  std::uint64_t address = 0;
  std::uint32_t length = 0;
  pcie::AddressType at = pcie::AddressType::untranslated;
  bool nothing = false;  // no memory: reads as zeroes, what is written is dropped
};

// Segments of one access, filled by KeyTable and Ring. Too many for one: the access is refused.
class SegmentList {
 public:
  static constexpr std::uint32_t capacity = 256;

  void clear() { count_ = 0; }
  [[nodiscard]] std::span<const BusSegment> all() const { return {items_.data(), count_}; }
  [[nodiscard]] bool empty() const { return count_ == 0; }
  // Neighbours on the bus become one. False: full.
  bool add(std::uint64_t address, std::uint64_t length, pcie::AddressType at) {
    if (count_ != 0) {
      BusSegment& last = items_[count_ - 1];
      if (last.at == at && !last.nothing && last.address + last.length == address &&
          last.length + length <= 0x8000'0000U) {
        last.length += static_cast<std::uint32_t>(length);
        return true;
      }
    }
    if (count_ == capacity) {
      return false;
    }
    items_[count_++] = {address, static_cast<std::uint32_t>(length), at, false};
    return true;
  }
  bool add_nothing(std::uint64_t length) {
    if (count_ == capacity) {
      return false;
    }
    items_[count_++] = {0, static_cast<std::uint32_t>(length), pcie::AddressType::untranslated, true};
    return true;
  }

 private:
  std::uint32_t count_ = 0;
  std::array<BusSegment, capacity> items_;
};

// Whoever starts DMA. It must outlive what it started: dma_in_flight counts that.
class DmaClient {
 public:
  // Every segment of the operation has ended; ok: all successfully.
  virtual void on_dma(std::uint64_t cookie, bool ok) = 0;
  std::uint32_t dma_in_flight = 0;

 protected:
  ~DmaClient() = default;
};

// One thread. Nothing is allocated once the pool has grown to a run's working set.
class DmaPool final : private pcie::DmaListener, private EventHandler {
 public:
  DmaPool() = default;
  DmaPool(const DmaPool&) = delete;
  DmaPool& operator=(const DmaPool&) = delete;

  void attach(std::uint32_t function, pcie::DevicePort& port) { ports_[function] = &port; }
  [[nodiscard]] pcie::DevicePort* port(std::uint32_t function) const { return ports_[function]; }

  // Starts an operation over `segments`, which must not be empty, in their order from or to `buffer`. on_dma() comes
  // later, never from inside. `after`: the requests leave only then.
  void read(std::uint32_t function, std::span<const BusSegment> segments, std::byte* into, DmaClient& client,
            std::uint64_t cookie, Picoseconds after = {});
  void write(std::uint32_t function, std::span<const BusSegment> segments, const std::byte* from, bool confirm,
             DmaClient& client, std::uint64_t cookie);

  // Everything started before has ended once drained(barrier()).
  [[nodiscard]] std::uint64_t barrier() const { return next_sequence_; }
  [[nodiscard]] bool drained(std::uint64_t barrier) const { return oldest_ == nullptr || oldest_->sequence >= barrier; }
  [[nodiscard]] std::uint64_t in_flight() const { return in_flight_; }
  // Forgets what is on the way for the function: its port has cancelled it, or does not matter any more. No on_dma().
  void forget(std::uint32_t function);

 private:
  struct Operation {
    pcie::DmaTransfer transfer;
    Operation* leader = nullptr;  // of the operation's segments; keeps the fields below
    DmaClient* client = nullptr;
    std::uint64_t cookie = 0;
    std::uint32_t remaining = 0;
    std::uint32_t function = 0;
    bool ok = true;
    bool nothing = false;  // ends by an event of ours
    bool delayed = false;  // starts by one, at start_at
    Picoseconds start_at;
    std::uint64_t sequence = 0;
    Operation* newer = nullptr;
    Operation* older = nullptr;
    Operation* next_free = nullptr;
  };

  void on_dma_done(pcie::DmaTransfer& transfer) override;
  void on_event(std::uint64_t argument) override;
  void start(std::uint32_t function, std::span<const BusSegment> segments, pcie::DmaTransfer::Kind kind,
             std::byte* buffer, bool confirm, DmaClient& client, std::uint64_t cookie, Picoseconds after);
  Operation& take();
  void give_back(Operation& operation);

  std::array<pcie::DevicePort*, max_functions> ports_{};
  std::deque<Operation> operations_;
  Operation* free_ = nullptr;
  Operation* oldest_ = nullptr;  // in flight, by sequence
  Operation* newest_ = nullptr;
  std::uint64_t next_sequence_ = 1;
  std::uint64_t in_flight_ = 0;
};

}  // namespace orrery::rnic
