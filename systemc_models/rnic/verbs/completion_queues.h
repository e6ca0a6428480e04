// Completion queues: CQEs in guest memory, and the events that announce them.
#pragma once

#include <cstdint>

#include "systemc_models/rnic/verbs/core.h"
#include "systemc_models/rnic/verbs/event_queues.h"
#include "systemc_models/rnic/verbs/ring_writer.h"
#include "systemc_models/rnic/verbs/sparse_table.h"

namespace orrery::rnic {

class CompletionQueues final : private EventHandler {
 public:
  CompletionQueues(Core& core, EventQueues& eqs) : core_(core), eqs_(eqs), queues_(max_cqs) {}

  // Of a valid context only moderation, EQ, UAR and flags change.
  ControlResult write(std::uint32_t cqn, const CqContext& context);
  ControlResult read(std::uint32_t cqn, CqContext& into) const;
  ControlResult destroy(std::uint32_t cqn);
  [[nodiscard]] Lifetime* lifetime(std::uint32_t cqn);
  void reset(std::uint32_t function);

  // Appends a completion; false: there is no such CQ of this function, or it has overrun.
  bool post(std::uint32_t function, std::uint32_t cqn, const Completion& completion);
  // One-shot arm: an event follows the next completion (or the next solicited or failed one), or at once if there is
  // one that `consumer` hasn't seen. False: refused.
  bool arm(std::uint32_t function, std::uint32_t uar, std::uint32_t cqn, std::uint32_t consumer, bool solicited_only);

 private:
  enum class Arm : std::uint8_t { off, any, solicited };
  struct Queue final : RingWriter::Owner, DmaClient {
    CqContext context;
    Lifetime life;
    RingWriter ring;
    std::uint32_t number = 0;
    std::uint32_t consumer = 0;  // as far as known
    Arm armed = Arm::off;
    bool overrun = false;
    bool reading_consumer = false;
    bool solicited_waiting = false;  // among what waits in the ring writer
    bool solicited_sent = false;     // among what is on the way
    std::uint32_t unannounced = 0;   // landed since the last event, for moderation
    std::uint32_t generation = 0;
    std::byte record[8] = {};
    CompletionQueues* all = nullptr;
    void on_landed(std::uint32_t count, bool ok) override;
    void on_dma(std::uint64_t cookie, bool ok) override;
  };

  void on_event(std::uint64_t argument) override;
  void flush(Queue& queue);
  void fail(Queue& queue);
  void announce(Queue& queue);
  static constexpr std::uint32_t index_mask = 0xff'ffffU;

  Core& core_;
  EventQueues& eqs_;
  SparseTable<Queue, 64> queues_;
};

}  // namespace orrery::rnic
