// The receiving side of a QP: what all types share. Receive WQEs, their scatter lists, completions, the error flush.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fabric/transport/timer_pool.h"
#include "systemc_models/rnic/verbs/queue_pair.h"
#include "systemc_models/rnic/verbs/receive_queues.h"

namespace orrery::rnic {

class Responder : protected ReceiveWaiter, protected DmaClient, private fabric::TimerClient {
 public:
  explicit Responder(QueuePair& qp);
  virtual ~Responder();
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;

  // reset → init: the receive queue exists.
  void begin();
  // init → rtr: packets from context.receive_psn on.
  virtual void start_connection() = 0;
  // A request packet for this QP, which can_receive(). The content is the caller's.
  virtual void on_request(const fabric::Packet& packet, const fabric::PacketContent& content) = 0;
  void enter_error();
  // The driver has said "error" again: it may have posted more to be flushed.
  void poll_again();
  void abandon();
  virtual void forget_dma() { abandon(); }
  [[nodiscard]] virtual bool quiet() const;

  // False: there is no fault.
  virtual bool resume_fault(bool failed) {
    static_cast<void>(failed);
    return false;
  }
  [[nodiscard]] const FaultRecord& fault() const { return fault_; }
  [[nodiscard]] virtual std::uint32_t expected_psn() const { return qp_.context.receive_psn; }

 protected:
  enum class Placed : std::uint8_t { started, too_long, denied, absent };

  // The source of receive WQEs: own queue, SRQ `srqn` (XRC), or null.
  [[nodiscard]] ReceiveSource* source(std::uint32_t srqn);
  [[nodiscard]] ReceiveSource* source() { return source(qp_.context.srq); }
  // Begins to write `bytes` at `offset` of the list; they stay until on_dma(cookie).
  Placed place(const Scatter& wqe, std::uint32_t pd, std::uint64_t offset, std::span<const std::byte> bytes,
               std::uint64_t cookie);
  // Completes the WQE and gives it back. `srqn`: of an XRC message, else none.
  void complete(Scatter& wqe, Completion completion, std::uint32_t srqn);
  // The flush may be able to go on: DMA has ended, WQEs have come.
  void flush();
  [[nodiscard]] bool flushing() const { return flushing_; }
  [[nodiscard]] bool abandoned() const { return abandoned_; }
  // The responder waits at this SRQ, if it is one.
  void note_wait(std::uint32_t srqn);

  // Stops what the type has under way; called by enter_error() and abandon().
  virtual void stop() = 0;
  // No DMA is on the way: gives WQEs in use back, oldest first, each completed as flushed (flush_one) if `completes`.
  virtual void release_receives(bool completes) = 0;
  void flush_one(Scatter& wqe, std::uint32_t srqn);
  virtual void receive_ready() = 0;

  QueuePair& qp_;
  Core& core_;
  FaultRecord fault_;

 private:
  void on_receive_ready() final;
  void on_receive_failed() final;
  void on_timer() override;

  OwnReceiveQueue own_;
  bool flushing_ = false;
  bool abandoned_ = false;            // nothing completes any more
  std::vector<std::uint32_t> waits_;  // SRQs
  bool last_receive_reported_ = false;
  std::uint32_t timer_;
  unsigned polls_ = 0;
};

std::unique_ptr<Responder> make_responder(QueuePair& qp);

}  // namespace orrery::rnic
