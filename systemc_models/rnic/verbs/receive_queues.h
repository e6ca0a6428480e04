// Where receive work requests come from: a QP's own receive queue, or a shared one.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "systemc_models/rnic/verbs/core.h"
#include "systemc_models/rnic/verbs/queue_fetcher.h"
#include "systemc_models/rnic/verbs/sparse_table.h"

namespace orrery::rnic {

// A receive WQE in use, or the scatter list of a READ.
struct Scatter {
  ReceiveWorkRequest list;
  std::uint16_t index = 0;  // of the WQE, for its CQE
  bool malformed = false;
  Scatter* next_free = nullptr;
};

class ScatterPool {
 public:
  Scatter& take() {
    if (free_ == nullptr) {
      return all_.emplace_back();
    }
    Scatter& s = *free_;
    free_ = s.next_free;
    return s;
  }
  void give_back(Scatter& s) {
    s.next_free = free_;
    free_ = &s;
  }

 private:
  std::deque<Scatter> all_;
  Scatter* free_ = nullptr;
};

// Waits for receive WQEs.
class ReceiveWaiter {
 public:
  // take() will answer `got` or `empty` now.
  virtual void on_receive_ready() = 0;
  // The queue can't be read any more.
  virtual void on_receive_failed() = 0;

 protected:
  ~ReceiveWaiter() = default;
};

enum class Take : std::uint8_t { got, wait, empty };

class ReceiveSource {
 public:
  // The next receive WQE of the queue, now the caller's. wait: the waiter is told when it is worth asking again.
  virtual Take take(ReceiveWaiter& waiter, Scatter*& into) = 0;
  // The waiter doesn't wait any more.
  virtual void cancel(ReceiveWaiter& waiter) = 0;
  [[nodiscard]] virtual std::uint32_t pd() const = 0;

 protected:
  ~ReceiveSource() = default;
};

// A QP's own receive queue. There is no doorbell: the record is read when a WQE is needed.
class OwnReceiveQueue final : public ReceiveSource, private QueueFetcher::Owner {
 public:
  void begin(Core& core, ScatterPool& pool, const QueueFetcher::Shape& shape, std::uint32_t pd);
  void end();
  [[nodiscard]] bool open() const { return fetcher_.open(); }
  Take take(ReceiveWaiter& waiter, Scatter*& into) override;
  void cancel(ReceiveWaiter& waiter) override {
    if (waiter_ == &waiter) {
      waiter_ = nullptr;
    }
  }
  [[nodiscard]] std::uint32_t pd() const override { return pd_; }
  [[nodiscard]] bool quiet() const { return fetcher_.dma_in_flight == 0; }
  void forget() { fetcher_.end(); }

 private:
  void on_fetched() override;
  void on_fetch_failed() override;

  Core* core_ = nullptr;
  ScatterPool* pool_ = nullptr;
  QueueFetcher fetcher_;
  ReceiveWaiter* waiter_ = nullptr;
  std::uint32_t pd_ = 0;
  bool empty_ = false;  // only while the waiter is told
};

// One SRQ: entries linked by the driver, read many at a time in the hope that links follow indices.
class SharedReceiveQueue final : public ReceiveSource, private DmaClient {
 public:
  void begin(Core& core, ScatterPool& pool, std::uint32_t number, const SrqContext& context);
  void end();
  Take take(ReceiveWaiter& waiter, Scatter*& into) override;
  void cancel(ReceiveWaiter& waiter) override;
  void arm(std::uint32_t limit) { context_.limit = limit; }
  [[nodiscard]] std::uint32_t pd() const override { return context_.pd; }
  [[nodiscard]] const SrqContext& context() const { return context_; }
  void invalidate() { context_ = {}; }
  Lifetime life;

 private:
  static constexpr std::uint32_t batch_bytes = 4096;
  enum Cookie : std::uint64_t { record_cookie = 1, entries_cookie = 2 };
  void on_dma(std::uint64_t cookie, bool ok) override;
  void fetch_record();
  void fetch_entries();
  void harvest();
  void notify();
  void fail();
  void check_limit();

  Core* core_ = nullptr;
  ScatterPool* pool_ = nullptr;
  SrqContext context_;
  std::uint32_t number_ = 0;
  bool open_ = false;
  std::uint32_t busy_ = 0;      // epoch of the DMA on the way; 0: none
  std::uint32_t epoch_ = 0;     // of this life
  std::uint16_t posted_ = 0;    // by the record
  std::uint16_t fetched_ = 0;   // entries harvested
  std::uint16_t next_ = 0;      // index of the next entry to fetch
  std::uint32_t batch_ = 0;     // entries of the DMA on the way
  bool empty_ = false;          // only while waiters are told
  std::deque<Scatter*> ready_;  // harvested, not taken
  std::vector<ReceiveWaiter*> waiters_;
  std::vector<std::byte> buffer_;
  std::array<std::byte, 8> record_{};
};

class SharedReceiveQueues {
 public:
  SharedReceiveQueues(Core& core, ScatterPool& pool) : core_(core), pool_(pool), queues_(max_srqs) {}
  ControlResult write(std::uint32_t srqn, const SrqContext& context);
  ControlResult read(std::uint32_t srqn, SrqContext& into) const;
  ControlResult arm(std::uint32_t srqn, std::uint32_t limit);
  ControlResult destroy(std::uint32_t srqn);
  [[nodiscard]] Lifetime* lifetime(std::uint32_t srqn);
  void reset(std::uint32_t function);
  // A valid SRQ of this function, or null.
  [[nodiscard]] SharedReceiveQueue* find(std::uint32_t function, std::uint32_t srqn);

 private:
  Core& core_;
  ScatterPool& pool_;
  SparseTable<SharedReceiveQueue, 16> queues_;
};

}  // namespace orrery::rnic
