// A queue pair: its context, its two sides, and its state.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "fabric/transport/timer_pool.h"
#include "firmware/interface/contexts.h"
#include "systemc_models/rnic/verbs/addresses.h"
#include "systemc_models/rnic/verbs/atomic_unit.h"
#include "systemc_models/rnic/verbs/completion_queues.h"
#include "systemc_models/rnic/verbs/core.h"
#include "systemc_models/rnic/verbs/receive_queues.h"
#include "systemc_models/rnic/verbs/send_engine.h"
#include "systemc_models/rnic/verbs/wire.h"

namespace orrery::rnic {

class Requester;
class Responder;

// What QPs use besides the core.
struct Blocks {
  Core& core;
  CompletionQueues& cqs;
  SharedReceiveQueues& srqs;
  ScatterPool& scatters;
  Addresses& addresses;
  Wire& wire;
  SendEngine& send_engine;
  AtomicUnit& atomics;
  fabric::TimerPool& timers;
};

class QueuePair {
 public:
  QueuePair(Blocks& b, std::uint32_t n, const QpContext& wanted);
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  Blocks& blocks;
  const std::uint32_t number;
  QpContext context;
  std::optional<Route> route;  // connected types, from rtr on

  [[nodiscard]] QpState state() const { return context.state; }
  [[nodiscard]] bool reliable() const { return context.type == QpType::rc || context.type == QpType::xrc; }
  [[nodiscard]] bool datagram() const {
    return context.type == QpType::ud || context.type == QpType::gsi || context.type == QpType::smi;
  }
  // XRC receives through the SRQ that a message names, whatever the flag says.
  [[nodiscard]] bool has_own_receive_queue() const { return has(qp_has_receive_queue) && context.type != QpType::xrc; }
  [[nodiscard]] bool has(QpFlags flag) const { return (context.flags & flag) != 0; }
  [[nodiscard]] bool can_receive() const {
    return context.state >= QpState::rtr && context.state <= QpState::sqd && context.type != QpType::control;
  }
  [[nodiscard]] Requester& requester() { return *requester_; }
  [[nodiscard]] Responder& responder() { return *responder_; }

  // Takes over attributes and enters the state they name.
  ControlResult modify(const QpContext& wanted);
  // The hardware's own way to error: reports the cause, flushes both queues.
  void fail(QpErrorCause cause);
  // A local error of a send queue without a connection: only it stops (IBTA §10.3.1.6).
  void fail_send_queue();
  // Everything stops; nothing completes. Afterwards it can be destroyed once quiet().
  void abandon();
  // The function's DMA was cancelled: nothing will come back.
  void forget_dma();
  [[nodiscard]] bool quiet() const;
  // The context with what the hardware knows better.
  void read_back(QpContext& into) const;

  // Key request of this QP's own rights, for `key`.
  [[nodiscard]] KeyRequest key_request(std::uint32_t key, std::uint64_t address, std::uint64_t length,
                                       std::uint32_t access) const {
    return {context.function, context.pd, number, key, address, length, access, has(qp_reserved_key)};
  }
  [[nodiscard]] VerbsCounters& counters() { return blocks.core.counters[context.function]; }
  [[nodiscard]] QueueCounters& queue_counters() { return blocks.core.queue_counters[context.counter_set]; }
  // Before a CQE of that code is written.
  void count_completion(CompletionCode code, bool requester);

 private:
  // The halves of one life, from reset to reset. Former ones stay until their DMA has ended.
  struct Halves {
    std::unique_ptr<Requester> requester;
    std::unique_ptr<Responder> responder;
    [[nodiscard]] bool quiet() const;
  };
  [[nodiscard]] ControlResult check(const QpContext& c) const;
  void begin_life();

  std::unique_ptr<Requester> requester_;
  std::unique_ptr<Responder> responder_;
  std::vector<Halves> former_;
};

}  // namespace orrery::rnic
