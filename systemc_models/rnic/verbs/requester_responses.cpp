// Acknowledges and responses, and what DMA reports.
#include <algorithm>
#include <cstring>
#include <utility>

#include "systemc_models/rnic/verbs/requester.h"

namespace orrery::rnic {
namespace {

constexpr std::uint64_t placing_tag = std::uint64_t{2} << 32;

}  // namespace

Requester::Slot* Requester::slot_of(fabric::Psn psn) {
  const std::int32_t steps = fabric::distance(outstanding_first_, psn);
  const auto number = outstanding_.first() + static_cast<std::uint32_t>(steps);
  if (steps < 0 || !outstanding_.has(number) || !slots_.has(outstanding_.at(number).slot)) {
    return nullptr;
  }
  return &slots_.at(outstanding_.at(number).slot);
}

void Requester::on_acknowledge(const fabric::PacketContent& content) {
  if (sender_ == nullptr || flushing_) {
    return;
  }
  const fabric::RoceHeaders& h = content.roce;
  const fabric::Psn psn = fabric::Psn::of(h.bth.psn);
  const std::uint8_t syndrome = h.aeth.syndrome;
  fabric::AckInfo plain;
  plain.has_trigger = false;
  if (fabric::aeth::is_ack(syndrome)) {
    plain.cumulative = psn;
    sender_->on_ack(h.bth.extended ? fabric::from_wire(psn, h.ack) : plain);
    return;
  }
  if (fabric::aeth::is_rnr_nak(syndrome)) {
    ++qp_.counters().rnr_naks_received;
    ++qp_.queue_counters().received_rnr_naks;
    sender_->on_rnr_nak(psn, fabric::rnr_delay(syndrome & 0x1fU));
    return;
  }
  if (!fabric::aeth::is_nak(syndrome)) {
    return;
  }
  ++qp_.counters().naks_received;
  if (syndrome == fabric::aeth::nak_sequence_error) {
    ++qp_.queue_counters().received_sequence_naks;
    sender_->on_sequence_nak(psn);
    return;
  }
  if (slot_of(psn) == nullptr) {
    return;  // stale
  }
  // All before it has arrived (IBTA §9.7.5.2.6).
  plain.cumulative = psn - 1;
  sender_->on_ack(plain);
  if (slot_of(psn) == nullptr || flushing_) {
    return;
  }
  const std::int32_t steps = fabric::distance(outstanding_first_, psn);
  const std::uint32_t slot = outstanding_.at(outstanding_.first() + static_cast<std::uint32_t>(steps)).slot;
  switch (syndrome) {
    case fabric::aeth::nak_invalid_request:
      fail_slot(slot, CompletionCode::remote_invalid_request);
      break;
    case fabric::aeth::nak_remote_access:
      fail_slot(slot, CompletionCode::remote_access);
      break;
    default:
      fail_slot(slot, CompletionCode::remote_operation);
      break;
  }
}

void Requester::acknowledged(fabric::Psn upto) {
  while (!outstanding_.empty() && fabric::distance(outstanding_first_, upto) >= 0) {
    core_.packets->release(outstanding_.front().content);
    outstanding_.pop();
    outstanding_first_ = outstanding_first_ + 1;
  }
  while (!requests_.empty() && fabric::distance(requests_.front(), upto) >= 0) {
    requests_.pop();
  }
  complete_slots();
}

void Requester::window_opened() {
  if (!flushing_ && !prepared_.empty() && prepared_.front().ready) {
    qp_.blocks.wire.ready(*this);
  }
}

// The sender finds packets lost by themselves or many at once; it calls here for each that goes again.
void Requester::count_timeouts() {
  const std::uint64_t now = sender_->counters().timeouts;
  qp_.queue_counters().acknowledge_timeouts += static_cast<std::uint32_t>(now - timeouts_counted_);
  timeouts_counted_ = now;
}

void Requester::failed(fabric::SendFailure reason) {
  count_timeouts();
  if (!slots_.empty()) {
    fail_slot(slots_.first(), reason == fabric::SendFailure::rnr_retry_exceeded
                                  ? CompletionCode::rnr_retry_exceeded
                                  : CompletionCode::transport_retry_exceeded);
  }
}

void Requester::on_response(const fabric::Packet& packet, const fabric::PacketContent& content) {
  if (sender_ == nullptr || flushing_) {
    return;
  }
  const fabric::Psn psn = fabric::Psn::of(content.roce.bth.psn);
  const std::int32_t steps = fabric::distance(outstanding_first_, psn);
  const auto number = outstanding_.first() + static_cast<std::uint32_t>(steps);
  if (steps < 0 || !outstanding_.has(number) || !outstanding_.at(number).response) {
    return;
  }
  const std::uint32_t slot_number = outstanding_.at(number).slot;
  if (!slots_.has(slot_number)) {
    return;
  }
  Slot& slot = slots_.at(slot_number);
  const bool atomic = fabric::operation_of(content.roce.bth.opcode) == fabric::RoceOperation::atomic_acknowledge;
  const std::uint64_t offset = static_cast<std::uint64_t>(fabric::distance(slot.first, psn)) * mtu();
  const std::uint64_t expected = std::min<std::uint64_t>(mtu(), slot.length - std::min(slot.length, offset));
  if (atomic != is_atomic(slot.opcode) || (!atomic && content.bytes().size() != expected)) {
    fail_slot(slot_number, CompletionCode::bad_response);
    return;
  }
  ++slot.placing;  // so that the acknowledge below doesn't complete it
  const bool fresh = sender_->on_response(psn, packet.entropy, packet.ecn == fabric::Ecn::ce);
  if (flushing_ || !slots_.has(slot_number)) {
    return;
  }
  if (!fresh || slots_.at(slot_number).failed || expected == 0) {
    --slots_.at(slot_number).placing;
    complete_slots();
    return;
  }
  qp_.counters().payload_bytes_received += expected;
  if (atomic) {
    place_atomic(slot_number, content.roce.atomic_original);
  } else {
    place_response(packet, content, slot_number, offset);
  }
}

void Requester::place_response(const fabric::Packet& packet, const fabric::PacketContent& content, std::uint32_t slot,
                               std::uint64_t offset) {
  if (free_placing_ == none) {
    placing_.push_back(std::make_unique<Placing>());
    placing_.back()->next_free = none;
    free_placing_ = static_cast<std::uint32_t>(placing_.size() - 1);
  }
  const std::uint32_t index = free_placing_;
  Placing& placing = *placing_[index];
  if (!scatter(slots_.at(slot), offset, content.bytes(), placing_tag | index)) {
    --slots_.at(slot).placing;
    fail_slot(slot, CompletionCode::local_protection);
    return;
  }
  free_placing_ = placing.next_free;
  placing.content = packet.content;
  placing.slot = slot;
  core_.packets->add_reference(packet.content);
}

void Requester::place_atomic(std::uint32_t slot, std::uint64_t original) {
  if (free_placing_ == none) {
    placing_.push_back(std::make_unique<Placing>());
    placing_.back()->next_free = none;
    free_placing_ = static_cast<std::uint32_t>(placing_.size() - 1);
  }
  const std::uint32_t index = free_placing_;
  Placing& placing = *placing_[index];
  placing.value = core_.format.atomic_result(original);
  if (!scatter(slots_.at(slot), 0, std::as_bytes(std::span(&placing.value, 1)), placing_tag | index)) {
    --slots_.at(slot).placing;
    fail_slot(slot, CompletionCode::local_protection);
    return;
  }
  free_placing_ = placing.next_free;
  placing.content = {};
  placing.slot = slot;
}

// Begins the DMA of response bytes to the slot's list. False: a key forbids it.
bool Requester::scatter(const Slot& slot, std::uint64_t offset, std::span<const std::byte> bytes,
                        std::uint64_t cookie) {
  SegmentList& segments = core_.segments;
  segments.clear();
  std::uint64_t skip = offset;
  std::uint64_t left = bytes.size();
  const ReceiveWorkRequest& list = slot.scatter->list;
  for (std::uint32_t i = 0; i < list.entry_count && left != 0; ++i) {
    const DataEntry& e = list.entries[i];
    if (skip >= e.length) {
      skip -= e.length;
      continue;
    }
    const std::uint64_t piece = std::min<std::uint64_t>(left, e.length - skip);
    const WalkResult walk =
        core_.keys.resolve(qp_.key_request(e.key, e.address + skip, piece, key_local_write), segments);
    if (walk.status != WalkStatus::ok) {
      ++qp_.counters().key_violations;
      return false;
    }
    left -= piece;
    skip = 0;
  }
  if (left != 0 || segments.empty()) {
    return false;
  }
  core_.dma.write(qp_.context.function, segments.all(), bytes.data(), core_.settings.confirm_payload, *this, cookie);
  return true;
}

void Requester::on_dma(std::uint64_t cookie, bool ok) {
  const auto number = static_cast<std::uint32_t>(cookie);
  if ((cookie & placing_tag) != 0) {
    Placing& placing = *placing_[number];
    core_.packets->release(placing.content);
    placing.content = {};
    placing.next_free = free_placing_;
    free_placing_ = number;
    if (slots_.has(placing.slot)) {
      --slots_.at(placing.slot).placing;
      if (!ok && !flushing_) {
        fail_slot(placing.slot, CompletionCode::local_access);
      }
    }
  } else if (prepared_.has(number)) {
    Prepared& prepared = prepared_.at(number);
    prepared.ready = true;
    if (!ok) {
      prepared.failed = true;
      active_ = active_ && prepared.slot != current_slot_;
      if (!flushing_) {
        fail_slot(prepared.slot, CompletionCode::local_protection);
      }
    } else if (!flushing_ && number == prepared_.first()) {
      qp_.blocks.wire.ready(*this);
    }
  }
  if (flushing_) {
    flush();
  } else {
    complete_slots();
  }
}

}  // namespace orrery::rnic
