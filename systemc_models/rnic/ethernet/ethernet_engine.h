// The netdev's data path: Ethernet send and receive queues, and which queue a received frame belongs to.
//
// A frame goes to each function that has its destination address, or that takes it as multicast or because it is
// promiscuous; there to one of the ready receive queues of more than one entry, by a hash of its addresses and ports.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "systemc_models/rnic/ethernet/receive_queue.h"
#include "systemc_models/rnic/ethernet/send_queue.h"
#include "systemc_models/rnic/verbs/sparse_table.h"

namespace orrery::rnic {

class EthernetEngine final : public FrameSink {
 public:
  EthernetEngine(Core& core, CompletionQueues& cqs, ScatterPool& scatters, Wire& wire);

  // ContextKind::send_queue and receive_queue only.
  ControlResult write(ContextKind kind, std::uint32_t index, const FrameQueueContext& context);
  ControlResult read(ContextKind kind, std::uint32_t index, FrameQueueContext& into) const;
  ControlResult destroy(ContextKind kind, std::uint32_t index);
  [[nodiscard]] Lifetime* lifetime(ContextKind kind, std::uint32_t index);
  void reset(std::uint32_t function);
  // False: refused.
  bool ring(std::uint32_t function, std::uint32_t uar, std::uint32_t number);
  [[nodiscard]] const FrameCounters& counters(std::uint32_t function) const {
    return blocks_.core.frame_counters[function];
  }

  void on_frame(const fabric::Packet& packet) override;

 private:
  void list_ready_queues();
  [[nodiscard]] bool wants(std::uint32_t function, const fabric::Packet& packet) const;
  void deliver(std::uint32_t function, const fabric::Packet& packet);

  FrameBlocks blocks_;
  ScatterPool& scatters_;
  SparseTable<SendQueue, 16> send_queues_;
  SparseTable<ReceiveQueue, 16> receive_queues_;
  std::array<std::vector<ReceiveQueue*>, max_functions> ready_;
};

}  // namespace orrery::rnic
