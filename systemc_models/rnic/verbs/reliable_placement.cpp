// Data of SENDs and WRITEs on its way into guest memory.
#include <utility>

#include "systemc_models/rnic/verbs/reliable_responder.h"

namespace orrery::rnic {

std::uint32_t ReliableResponder::take_placing() {
  if (free_placing_ == none) {
    placing_.emplace_back();
    return static_cast<std::uint32_t>(placing_.size() - 1);
  }
  return std::exchange(free_placing_, placing_[free_placing_].next_free);
}

bool ReliableResponder::place_send(const fabric::Packet& packet, const fabric::PacketContent& content,
                                   const fabric::DataArrival& arrival, std::uint32_t receive) {
  const Receive& into = receives_.at(receive);
  const auto bytes = content.bytes();
  const std::uint64_t offset = content.roce.placement.offset;
  if (into.wqe->malformed) {
    fail_at({true, arrival.psn, fabric::aeth::nak_remote_operation, QpErrorCause::local,
             CompletionCode::local_qp_operation, receive});
    return false;
  }
  if (bytes.empty()) {
    return true;
  }
  const std::uint32_t index = take_placing();
  const Placed placed = place(*into.wqe, into.pd, offset, bytes, placing_tag | index);
  if (placed == Placed::started) {
    core_.packets->add_reference(packet.content);
    placing_[index] = {packet.content, arrival, receive, true, none};
    return true;
  }
  placing_[index].next_free = std::exchange(free_placing_, index);
  if (placed == Placed::absent) {
    fault_at(arrival.psn, into.wqe->list.entries[0].key, into.wqe->list.entries[0].address + offset,
             static_cast<std::uint32_t>(bytes.size()), static_cast<std::uint32_t>(bytes.size()), fault_write);
    return false;
  }
  const bool too_long = placed == Placed::too_long;
  fail_at({true, arrival.psn, too_long ? fabric::aeth::nak_invalid_request : fabric::aeth::nak_remote_operation,
           too_long ? QpErrorCause::bad_request : QpErrorCause::local,
           too_long ? CompletionCode::local_length : CompletionCode::local_protection, receive});
  return false;
}

bool ReliableResponder::place_write(const fabric::Packet& packet, const fabric::PacketContent& content,
                                    const fabric::DataArrival& arrival) {
  const auto bytes = content.bytes();
  if (bytes.empty()) {
    return true;
  }
  const fabric::RoceHeaders& h = content.roce;
  const bool first = fabric::layout_of(h.bth.opcode).reth;
  const std::uint64_t address = first ? h.reth.address : h.placement.address;
  const std::uint32_t rkey = first ? h.reth.rkey : h.placement.rkey;
  SegmentList& segments = core_.segments;
  segments.clear();
  KeyRequest request = qp_.key_request(rkey, address, bytes.size(), key_remote_write);
  request.reserved_allowed = false;
  const WalkResult walk = core_.keys.resolve(request, segments);
  if (walk.status == WalkStatus::absent) {
    fault_at(arrival.psn, rkey, address + walk.offset, static_cast<std::uint32_t>(bytes.size()),
             first ? h.reth.length : static_cast<std::uint32_t>(bytes.size()), fault_write | fault_rdma);
    return false;
  }
  // A message must not be longer than it said: IBTA §9.7.4.1.6.
  if (walk.status == WalkStatus::denied || (first && bytes.size() > h.reth.length)) {
    ++qp_.counters().key_violations;
    fail_at({true, arrival.psn, fabric::aeth::nak_remote_access, QpErrorCause::access_violation});
    return false;
  }
  const std::uint32_t index = take_placing();
  placing_[index] = {packet.content, arrival, 0, false, none};
  core_.packets->add_reference(packet.content);
  core_.dma.write(qp_.context.function, segments.all(), bytes.data(), core_.settings.confirm_payload, *this,
                  placing_tag | index);
  return true;
}

void ReliableResponder::on_dma(std::uint64_t cookie, bool ok) {
  const auto number = static_cast<std::uint32_t>(cookie);
  if ((cookie & response_tag) != 0) {
    if (prepared_.has(number)) {
      prepared_.at(number).ready = true;
      if (!ok && !flushing()) {
        fail_at({true, fabric::Psn::of(core_.packets->at(prepared_.at(number).content).roce.bth.psn),
                 fabric::aeth::nak_remote_operation, QpErrorCause::local});
      }
      if (!flushing() && number == prepared_.first()) {
        qp_.blocks.wire.ready(*this);
      }
    }
  } else {
    const Placing placed = placing_[number];
    core_.packets->release(placed.content);
    placing_[number].content = {};
    placing_[number].next_free = std::exchange(free_placing_, number);
    if (!flushing()) {
      set_arriving(placed.arrival.psn, false);
      if (ok) {
        arrived(placed.arrival);
      } else {
        Failure failure{true, placed.arrival.psn, fabric::aeth::nak_remote_operation, QpErrorCause::local};
        if (placed.to_receive) {
          failure.code = CompletionCode::local_protection;
          failure.receive = placed.receive;
        }
        fail_at(failure);
      }
    }
  }
  if (flushing()) {
    flush();
  }
}

}  // namespace orrery::rnic
