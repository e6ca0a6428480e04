// Remote atomic operations: one at a time, so that each is atomic towards all others of this RNIC (IBTA §9.4.5,
// atomicity towards other atomics of the same HCA).
#pragma once

#include <array>
#include <cstdint>
#include <deque>

#include "systemc_models/rnic/verbs/core.h"

namespace orrery::rnic {

struct AtomicOperation {
  enum class Kind : std::uint8_t { compare_swap, fetch_add } kind = Kind::compare_swap;
  std::uint32_t function = 0;
  BusSegment target;  // 8 bytes
  std::uint64_t swap_add = 0;
  std::uint64_t compare = 0;
};

class AtomicClient {
 public:
  // `original`: what memory held. ok: false if memory could not be read or written.
  virtual void on_atomic(std::uint64_t original, bool ok) = 0;
  std::uint32_t atomics_in_flight = 0;

 protected:
  ~AtomicClient() = default;
};

class AtomicUnit final : private DmaClient {
 public:
  explicit AtomicUnit(Core& core) : core_(core) {}
  // on_atomic() comes later, never from inside. The client stays until then (atomics_in_flight).
  void start(const AtomicOperation& operation, AtomicClient& client);
  // The function's DMA is gone: so are its operations.
  void forget(std::uint32_t function);

 private:
  void on_dma(std::uint64_t cookie, bool ok) override;
  void next();
  void finish(bool ok);
  struct Entry {
    AtomicOperation operation;
    AtomicClient* client;
  };
  enum Cookie : std::uint64_t { read_cookie = 1, write_cookie = 2 };

  Core& core_;
  std::deque<Entry> queue_;  // the front one is being executed
  std::array<std::byte, 8> bytes_{};
  std::uint64_t original_ = 0;
};

}  // namespace orrery::rnic
