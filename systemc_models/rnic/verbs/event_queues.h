// Event queues: EQEs in guest memory, and the interrupts that announce them.
#pragma once

#include <cstdint>

#include "systemc_models/rnic/verbs/core.h"
#include "systemc_models/rnic/verbs/ring_writer.h"
#include "systemc_models/rnic/verbs/sparse_table.h"

namespace orrery::rnic {

class EventQueues {
 public:
  explicit EventQueues(Core& core) : core_(core), queues_(max_functions * max_eqs) {}

  ControlResult write(std::uint32_t index, const EqContext& context);
  ControlResult read(std::uint32_t index, EqContext& into) const;
  ControlResult destroy(std::uint32_t index);
  [[nodiscard]] Lifetime* lifetime(std::uint32_t index);
  void reset(std::uint32_t function);

  // Appends an event; false: no such EQ. A full one loses and counts it.
  bool post(std::uint32_t function, std::uint32_t eqn, const Event& event);
  // One-shot arm: an interrupt follows the next EQE that lands, or at once if there is one that `consumer` hasn't seen.
  // False: refused.
  bool update(std::uint32_t function, std::uint32_t uar, std::uint32_t eqn, std::uint32_t consumer, bool arm);

 private:
  struct Queue final : RingWriter::Owner {
    EqContext context;
    Lifetime life;
    RingWriter ring;
    std::uint32_t consumer = 0;  // 24 bits
    bool armed = false;
    EventQueues* all = nullptr;
    void on_landed(std::uint32_t count, bool ok) override;
  };
  void interrupt(Queue& queue);
  static constexpr std::uint32_t index_mask = 0xff'ffffU;

  Core& core_;
  SparseTable<Queue, 16> queues_;
};

}  // namespace orrery::rnic
