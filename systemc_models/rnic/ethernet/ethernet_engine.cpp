#include "systemc_models/rnic/ethernet/ethernet_engine.h"

#include <algorithm>

namespace orrery::rnic {

EthernetEngine::EthernetEngine(Core& core, CompletionQueues& cqs, ScatterPool& scatters, Wire& wire)
    : blocks_{core, cqs, wire, {}},
      scatters_(scatters),
      send_queues_(max_send_queues),
      receive_queues_(max_receive_queues) {}

ControlResult EthernetEngine::write(ContextKind kind, std::uint32_t index, const FrameQueueContext& context) {
  Core& core = blocks_.core;
  if (context.function >= max_functions || core.dma.port(context.function) == nullptr || core.packets == nullptr) {
    return ControlResult::bad_value;
  }
  if (kind == ContextKind::send_queue) {
    return index < max_qps || index - max_qps >= max_send_queues
               ? ControlResult::bad_index
               : send_queues_.make(index - max_qps).write(blocks_, index, context);
  }
  if (index >= max_receive_queues) {
    return ControlResult::bad_index;
  }
  const ControlResult result = receive_queues_.make(index).write(blocks_, scatters_, index, context);
  list_ready_queues();
  return result;
}

ControlResult EthernetEngine::read(ContextKind kind, std::uint32_t index, FrameQueueContext& into) const {
  if (kind == ContextKind::send_queue) {
    const SendQueue* queue = index < max_qps ? nullptr : send_queues_.find(index - max_qps);
    if (queue == nullptr || !queue->valid()) {
      return ControlResult::bad_index;
    }
    into = queue->context();
    return ControlResult::ok;
  }
  const ReceiveQueue* queue = receive_queues_.find(index);
  if (queue == nullptr || !queue->valid()) {
    return ControlResult::bad_index;
  }
  into = queue->context();
  return ControlResult::ok;
}

ControlResult EthernetEngine::destroy(ContextKind kind, std::uint32_t index) {
  FrameQueueContext context;
  if (const ControlResult result = read(kind, index, context); result != ControlResult::ok) {
    return result;
  }
  if (kind == ContextKind::send_queue) {
    SendQueue& queue = send_queues_.make(index - max_qps);
    queue.retire();
  } else {
    receive_queues_.make(index).retire();
    list_ready_queues();
  }
  *lifetime(kind, index) = {true, blocks_.core.dma.barrier()};
  return ControlResult::ok;
}

Lifetime* EthernetEngine::lifetime(ContextKind kind, std::uint32_t index) {
  if (kind == ContextKind::send_queue) {
    SendQueue* queue = index < max_qps ? nullptr : send_queues_.find(index - max_qps);
    return queue == nullptr ? nullptr : &queue->life;
  }
  ReceiveQueue* queue = receive_queues_.find(index);
  return queue == nullptr ? nullptr : &queue->life;
}

void EthernetEngine::reset(std::uint32_t function) {
  const auto forget = [&](std::uint32_t, auto& queue) {
    if ((queue.valid() || queue.life.destroyed) && queue.context().function == function) {
      queue.forget();
    }
  };
  send_queues_.for_each(forget);
  receive_queues_.for_each(forget);
  list_ready_queues();
}

bool EthernetEngine::ring(std::uint32_t function, std::uint32_t uar, std::uint32_t number) {
  SendQueue* queue = number < max_qps ? nullptr : send_queues_.find(number - max_qps);
  if (queue == nullptr || !queue->valid() || queue->context().function != function || queue->context().uar != uar ||
      queue->context().state == FrameQueueState::reset) {
    return false;
  }
  queue->doorbell();
  return true;
}

// By number, so that the same frames go the same way in every run.
void EthernetEngine::list_ready_queues() {
  for (auto& list : ready_) {
    list.clear();
  }
  receive_queues_.for_each([&](std::uint32_t, ReceiveQueue& queue) {
    if (queue.takes_frames()) {
      ready_[queue.context().function].push_back(&queue);
    }
  });
}

bool EthernetEngine::wants(std::uint32_t function, const fabric::Packet& packet) const {
  const FunctionContext& context = blocks_.core.functions.at(function);
  if (!blocks_.core.usable(function) || context.port_down != 0) {
    return false;
  }
  // A switch that floods may bring back what the function sent itself.
  if (blocks_.core.macs.has(function, packet.source_mac.value)) {
    return false;
  }
  return packet.destination_mac.is_multicast() || blocks_.core.macs.has(function, packet.destination_mac.value) ||
         context.promiscuous != 0;
}

void EthernetEngine::on_frame(const fabric::Packet& packet) {
  for (std::uint32_t function = 0; function < max_functions; ++function) {
    if (blocks_.core.dma.port(function) != nullptr && wants(function, packet)) {
      blocks_.core.packets->add_reference(packet.content);
      deliver(function, packet);
    }
  }
  blocks_.core.packets->release(packet.content);
}

void EthernetEngine::deliver(std::uint32_t function, const fabric::Packet& packet) {
  constexpr std::uint64_t fcs_bytes = 4;
  FrameCounters& counters = blocks_.core.frame_counters[function];
  const std::span<const std::byte> frame = blocks_.core.packets->at(packet.content).bytes();
  const std::uint32_t mtu = blocks_.core.functions.at(function).mtu;
  FrameCounter* counter = packet.destination_mac.is_broadcast()   ? &counters.received_broadcast
                          : packet.destination_mac.is_multicast() ? &counters.received_multicast
                                                                  : &counters.received_unicast;
  const bool too_long = mtu != 0 && frame.size() + fcs_bytes > mtu;
  counter = too_long ? &counters.received_errors : counter;
  ++counter->frames;
  counter->bytes += frame.size();
  const std::vector<ReceiveQueue*>& queues = ready_[function];
  if (too_long || queues.empty()) {
    counters.no_buffer += too_long ? 0 : 1;
    blocks_.core.packets->release(packet.content);
    return;
  }
  queues[queues.size() == 1 ? 0 : receive_hash(frame) % queues.size()]->deliver(packet);
}

}  // namespace orrery::rnic
