#include "systemc_models/rnic/self_test_engine.h"

#include <algorithm>

#include "common/address.h"
#include "systemc_models/rnic/test_pattern.h"

namespace orrery::models {

SelfTestEngine::SelfTestEngine(Listener& listener) : listener_(listener) {
  buffers_ = std::make_unique_for_overwrite<std::byte[]>(std::size_t{slot_count + 1} * functional_chunk);
  for (unsigned i = 0; i < slot_count; ++i) {
    slots_[i].buffer = buffers_.get() + std::size_t{i} * functional_chunk;
    slots_[i].transfer.context = i;
    slots_[i].transfer.listener = this;
  }
}

void SelfTestEngine::attach(pcie::DevicePort& port) {
  port_ = &port;
}

void SelfTestEngine::begin(const SelfTest& test) {
  pcie::Simulation& simulation = port_->simulation();
  test_ = test;
  result_ = {};
  result_.start = simulation.now();
  launched_ = 0;
  checksum_ = 0;
  running_ = true;
  if (test.operation > ORRERY_RNIC_OP_COMPARE || test.loops == 0 || !range_is_valid(test.address, test.length)) {
    result_.error = ORRERY_RNIC_ERROR_SETUP;
  }
  // A guest's START is a posted write: whatever follows happens in an event of its own.
  simulation.events.schedule(simulation.now(), *this, generation_);
}

void SelfTestEngine::abort() {
  if (running_ && result_.error == ORRERY_RNIC_ERROR_NONE) {
    result_.error = ORRERY_RNIC_ERROR_ABORTED;
  }
}

void SelfTestEngine::reset() {
  ++generation_;
  running_ = false;
  active_ = 0;
  result_ = {};
  for (Slot& slot : slots_) {
    slot.busy = false;
  }
}

void SelfTestEngine::on_event(std::uint64_t argument) {
  if (argument != generation_) {
    return;
  }
  launch();
  end_if_over();
}

// Chunks end at multiples of the chunk size on the bus, so that cutting the range up adds no TLP. One call
// fills at most one buffer with the pattern when slots come free one by one, and slot_count at the start.
void SelfTestEngine::launch() {
  const std::uint64_t chunk = port_->simulation().timed ? timed_chunk : functional_chunk;
  for (Slot& slot : slots_) {
    if (result_.error != ORRERY_RNIC_ERROR_NONE || launched_ == test_.length) {
      return;
    }
    if (slot.busy) {
      continue;
    }
    pcie::DmaTransfer& transfer = slot.transfer;
    transfer.address = test_.address + launched_;
    transfer.length = std::min(chunk - transfer.address % chunk, test_.length - launched_);
    transfer.buffer = slot.buffer;
    transfer.kind =
        test_.operation == ORRERY_RNIC_OP_WRITE ? pcie::DmaTransfer::Kind::write : pcie::DmaTransfer::Kind::read;
    transfer.confirm = transfer.kind == pcie::DmaTransfer::Kind::write;
    slot.offset = launched_;
    slot.busy = true;
    ++active_;
    launched_ += transfer.length;
    if (transfer.kind == pcie::DmaTransfer::Kind::write) {
      make_test_pattern(test_.seed + result_.loops, slot.offset, {slot.buffer, transfer.length});
    }
    port_->start(transfer);
  }
}

void SelfTestEngine::check(Slot& slot) {
  const std::span<const std::byte> found{slot.buffer, slot.transfer.length};
  checksum_ += test_checksum(slot.offset, found);
  if (test_.operation != ORRERY_RNIC_OP_COMPARE) {
    return;
  }
  const std::span<std::byte> expected{buffers_.get() + std::size_t{slot_count} * functional_chunk, found.size()};
  make_test_pattern(test_.seed + result_.loops, slot.offset, expected);
  const auto [at, reference] = std::mismatch(found.begin(), found.end(), expected.begin());
  if (at == found.end()) {
    return;
  }
  // Chunks may end in any order; the first differing byte of those that were under way is reported.
  const std::uint64_t offset = slot.offset + static_cast<std::uint64_t>(at - found.begin());
  if (result_.error == ORRERY_RNIC_ERROR_NONE ||
      (result_.error == ORRERY_RNIC_ERROR_MISMATCH && offset < mismatch_offset_)) {
    mismatch_offset_ = offset;
    result_.error = ORRERY_RNIC_ERROR_MISMATCH;
    result_.address = test_.address + offset;
    result_.expected = std::to_integer<std::uint32_t>(*reference);
    result_.found = std::to_integer<std::uint32_t>(*at);
  }
}

void SelfTestEngine::on_dma_done(pcie::DmaTransfer& transfer) {
  Slot& slot = slots_[transfer.context];
  slot.busy = false;
  --active_;
  const bool write = transfer.kind == pcie::DmaTransfer::Kind::write;
  if (transfer.status != pcie::CompletionStatus::success) {
    if (result_.error == ORRERY_RNIC_ERROR_NONE) {
      result_.error = write ? ORRERY_RNIC_ERROR_DMA_WRITE : ORRERY_RNIC_ERROR_DMA_READ;
      result_.completion = static_cast<std::uint32_t>(transfer.status);
      result_.address = transfer.failed_address;
    }
  } else if (!write) {
    check(slot);
  }
  if (active_ == 0 && launched_ == test_.length && result_.error == ORRERY_RNIC_ERROR_NONE) {
    ++result_.loops;
    result_.checksum = checksum_;
    if (result_.loops < test_.loops) {
      launched_ = 0;
      checksum_ = 0;
    }
  }
  launch();
  end_if_over();
}

void SelfTestEngine::end_if_over() {
  if (!running_ || active_ != 0) {
    return;
  }
  running_ = false;
  result_.end = port_->simulation().now();
  listener_.on_test_done();
}

}  // namespace orrery::models
