#include "systemc_models/rnic/verbs/dma_pool.h"

#include <cstring>

namespace orrery::rnic {

DmaPool::Operation& DmaPool::take() {
  Operation* operation = free_;
  if (operation == nullptr) {
    operation = &operations_.emplace_back();
    operation->transfer.listener = this;
    operation->transfer.context = reinterpret_cast<std::uintptr_t>(operation);
  } else {
    free_ = operation->next_free;
  }
  operation->sequence = next_sequence_++;
  operation->newer = nullptr;
  operation->older = newest_;
  (newest_ != nullptr ? newest_->newer : oldest_) = operation;
  newest_ = operation;
  ++in_flight_;
  return *operation;
}

void DmaPool::give_back(Operation& operation) {
  (operation.older != nullptr ? operation.older->newer : oldest_) = operation.newer;
  (operation.newer != nullptr ? operation.newer->older : newest_) = operation.older;
  --in_flight_;
  operation.nothing = operation.delayed = false;
  operation.next_free = free_;
  free_ = &operation;
}

void DmaPool::read(std::uint32_t function, std::span<const BusSegment> segments, std::byte* into, DmaClient& client,
                   std::uint64_t cookie, Picoseconds after) {
  start(function, segments, pcie::DmaTransfer::Kind::read, into, false, client, cookie, after);
}

void DmaPool::write(std::uint32_t function, std::span<const BusSegment> segments, const std::byte* from, bool confirm,
                    DmaClient& client, std::uint64_t cookie) {
  // DevicePort only reads the buffer of a write.
  start(function, segments, pcie::DmaTransfer::Kind::write, const_cast<std::byte*>(from), confirm, client, cookie, {});
}

void DmaPool::start(std::uint32_t function, std::span<const BusSegment> segments, pcie::DmaTransfer::Kind kind,
                    std::byte* buffer, bool confirm, DmaClient& client, std::uint64_t cookie, Picoseconds after) {
  Operation* leader = nullptr;
  ++client.dma_in_flight;
  for (const BusSegment& segment : segments) {
    Operation& operation = take();
    if (leader == nullptr) {
      leader = &operation;
      leader->client = &client;
      leader->cookie = cookie;
      leader->remaining = static_cast<std::uint32_t>(segments.size());
      leader->ok = true;
    }
    operation.leader = leader;
    operation.function = function;
    pcie::DmaTransfer& transfer = operation.transfer;
    transfer.kind = kind;
    transfer.at = segment.at;
    transfer.address = segment.address;
    transfer.length = segment.length;
    transfer.buffer = buffer;
    transfer.confirm = confirm;
    operation.nothing = segment.nothing;
    if (segment.nothing) {
      if (kind == pcie::DmaTransfer::Kind::read) {
        std::memset(buffer, 0, segment.length);
      }
      transfer.status = pcie::CompletionStatus::success;
      EventQueue& events = ports_[function]->simulation().events;
      events.schedule(events.now(), *this, transfer.context);
    } else if (after != Picoseconds{}) {
      EventQueue& events = ports_[function]->simulation().events;
      operation.delayed = true;
      operation.start_at = events.now() + after;
      events.schedule(operation.start_at, *this, transfer.context);
    } else {
      ports_[function]->start(transfer);
    }
    buffer += segment.length;
  }
}

void DmaPool::on_event(std::uint64_t argument) {
  auto& operation = *reinterpret_cast<Operation*>(static_cast<std::uintptr_t>(argument));
  // Neither: it was forgotten. Forgotten and taken anew: it has a later event of its own.
  if (operation.nothing) {
    on_dma_done(operation.transfer);
  } else if (operation.delayed) {
    pcie::DevicePort& port = *ports_[operation.function];
    if (port.simulation().events.now() >= operation.start_at) {
      operation.delayed = false;
      port.start(operation.transfer);
    }
  }
}

void DmaPool::on_dma_done(pcie::DmaTransfer& transfer) {
  auto& operation = *reinterpret_cast<Operation*>(static_cast<std::uintptr_t>(transfer.context));
  Operation& leader = *operation.leader;
  leader.ok = leader.ok && transfer.status == pcie::CompletionStatus::success;
  if (&operation != &leader) {
    give_back(operation);
  }
  if (--leader.remaining == 0) {
    DmaClient& client = *leader.client;
    const std::uint64_t cookie = leader.cookie;
    const bool ok = leader.ok;
    give_back(leader);
    --client.dma_in_flight;
    client.on_dma(cookie, ok);
  }
}

void DmaPool::forget(std::uint32_t function) {
  for (Operation* operation = oldest_; operation != nullptr;) {
    Operation* next = operation->newer;
    if (operation->function == function) {
      if (operation->leader == operation) {
        --operation->client->dma_in_flight;
      }
      give_back(*operation);
    }
    operation = next;
  }
}

}  // namespace orrery::rnic
