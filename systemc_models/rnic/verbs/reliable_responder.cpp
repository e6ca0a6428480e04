#include "systemc_models/rnic/verbs/reliable_responder.h"

#include <algorithm>
#include <utility>

namespace orrery::rnic {
namespace {

using fabric::RoceOperation;

bool is_send_operation(RoceOperation op) {
  return op <= RoceOperation::send_only_immediate || op == RoceOperation::send_last_invalidate ||
         op == RoceOperation::send_only_invalidate;
}
bool is_write_operation(RoceOperation op) {
  return op >= RoceOperation::write_first && op <= RoceOperation::write_only_immediate;
}

CompletionKind completion_of(const fabric::OpcodeLayout& layout, RoceOperation op) {
  if (is_write_operation(op)) {
    return CompletionKind::receive_write_immediate;
  }
  if (layout.ieth) {
    return CompletionKind::receive_invalidate;
  }
  return layout.immediate ? CompletionKind::receive_immediate : CompletionKind::receive;
}

}  // namespace

ReliableResponder::~ReliableResponder() {
  while (!prepared_.empty()) {
    core_.packets->release(prepared_.front().content);
    prepared_.pop();
  }
}

void ReliableResponder::start_connection() {
  fabric::ReceiverSettings settings = core_.settings.receiver;
  settings.initial_psn = fabric::Psn::of(qp_.context.receive_psn);
  fabric::ReceiverHost& host = *this;
  receiver_ = std::make_unique<fabric::ReliableReceiver>(qp_.blocks.timers, host, settings);
  arriving_.assign(settings.bitmap_packets / 64, 0);
  arriving_mask_ = settings.bitmap_packets - 1;
  next_seen_ = settings.initial_psn;
}

std::uint32_t ReliableResponder::expected_psn() const {
  return receiver_ != nullptr ? receiver_->expected().value : qp_.context.receive_psn;
}

bool ReliableResponder::arriving(fabric::Psn psn) const {
  const std::uint32_t bit = psn.value & arriving_mask_;
  return ((arriving_[bit / 64] >> (bit % 64)) & 1U) != 0;
}

void ReliableResponder::set_arriving(fabric::Psn psn, bool value) {
  const std::uint32_t bit = psn.value & arriving_mask_;
  const std::uint64_t mask = std::uint64_t{1} << (bit % 64);
  arriving_[bit / 64] = value ? arriving_[bit / 64] | mask : arriving_[bit / 64] & ~mask;
}

// ---- Arrival ---------------------------------------------------------------------------------------------------

void ReliableResponder::on_request(const fabric::Packet& packet, const fabric::PacketContent& content) {
  if (receiver_ == nullptr || flushing()) {
    return;
  }
  if (!established_) {
    established_ = true;
    if (qp_.state() == QpState::rtr) {
      core_.report(EventCode::communication, qp_.context.function, qp_.number);
    }
  }
  const fabric::RoceHeaders& h = content.roce;
  const fabric::OpcodeLayout& layout = fabric::layout_of(h.bth.opcode);
  fabric::DataArrival arrival;
  arrival.psn = fabric::Psn::of(h.bth.psn);
  arrival.entropy = packet.entropy;
  arrival.ce = packet.ecn == fabric::Ecn::ce;
  arrival.ack_request = h.bth.ack_request;
  arrival.last = layout.ends_message;
  if (fabric::operation_of(h.bth.opcode) == RoceOperation::read_request) {
    arrival.packets = std::max<std::uint32_t>(
        1, static_cast<std::uint32_t>((std::uint64_t{h.reth.length} + qp_.context.mtu - 1) / qp_.context.mtu));
  }
  if (const std::uint32_t known = known_responses(arrival); known != 0 && known < arrival.packets) {
    // An earlier request asked for the first of these responses only. What is new must be taken in as new: the peer
    // needn't ask for it again, and all that follows waits for it.
    fabric::DataArrival first = arrival;
    first.packets = known;
    ++qp_.queue_counters().duplicate_requests;
    on_duplicate(packet, content, first);
    arrival.psn = arrival.psn + known;
    arrival.packets -= known;
    if (!flushing() && receiver_->check(arrival.psn, arrival.packets) == fabric::Arrival::fresh &&
        (!failure_.set || fabric::before(arrival.psn, failure_.psn))) {
      on_fresh(packet, content, arrival, known);
    }
    return;
  }
  switch (receiver_->check(arrival.psn, arrival.packets)) {
    case fabric::Arrival::outside:
      return;
    case fabric::Arrival::duplicate:
      ++qp_.queue_counters().duplicate_requests;
      on_duplicate(packet, content, arrival);
      return;
    case fabric::Arrival::fresh:
      break;
  }
  if (arriving(arrival.psn) || (failure_.set && !fabric::before(arrival.psn, failure_.psn))) {
    return;
  }
  if (const std::int32_t gap = fabric::distance(next_seen_, arrival.psn); gap >= 0) {
    qp_.queue_counters().out_of_sequence += gap > 0 ? 1 : 0;
    next_seen_ = arrival.psn + arrival.packets;
  }
  on_fresh(packet, content, arrival);
}

// How many of a READ's responses, from its first one on, have been asked for before.
std::uint32_t ReliableResponder::known_responses(const fabric::DataArrival& arrival) const {
  if (arrival.packets == 1) {
    return 0;
  }
  const std::int32_t behind = fabric::distance(arrival.psn, receiver_->expected());
  std::uint32_t known = behind > 0 ? std::min(arrival.packets, static_cast<std::uint32_t>(behind)) : 0U;
  while (known < arrival.packets && receiver_->has_arrived(arrival.psn + known)) {
    ++known;
  }
  return known;
}

// `skipped`: of a READ, the responses before arrival.psn.
void ReliableResponder::on_fresh(const fabric::Packet& packet, const fabric::PacketContent& content,
                                 const fabric::DataArrival& arrival, std::uint32_t skipped) {
  const fabric::RoceHeaders& h = content.roce;
  const fabric::OpcodeLayout& layout = fabric::layout_of(h.bth.opcode);
  const RoceOperation op = fabric::operation_of(h.bth.opcode);
  const Failure invalid{true, arrival.psn, fabric::aeth::nak_invalid_request, QpErrorCause::bad_request};
  // Without the placement header (another vendor's sender) packets are only understood in order; ours always has it.
  if (layout.extension != fabric::RoceExtension::none && !h.bth.extended) {
    fail_at(invalid);
    return;
  }
  const std::uint64_t bytes = content.bytes().size();
  const std::uint32_t mtu = qp_.context.mtu;
  const bool sized =
      !layout.payload || (layout.ends_message ? bytes <= mtu && (layout.starts_message || bytes != 0) : bytes == mtu);
  const bool write = is_write_operation(op);
  const bool atomic = op == RoceOperation::compare_swap || op == RoceOperation::fetch_add;
  const bool read = op == RoceOperation::read_request;
  if (!sized || !(is_send_operation(op) || write || atomic || read) || (write && !qp_.has(qp_remote_write)) ||
      (read && !qp_.has(qp_remote_read)) || (atomic && !qp_.has(qp_remote_atomic)) ||
      ((read || atomic) && qp_.context.max_read_in == 0) || actions_.size() >= max_actions) {
    fail_at(invalid);
    return;
  }
  if (read || atomic) {
    Action action;
    action.kind = read ? Action::Kind::read : Action::Kind::atomic;
    action.psn = arrival.psn;
    action.packets = arrival.packets;
    action.entropy = packet.entropy;
    const std::uint64_t skipped_bytes = std::uint64_t{skipped} * mtu;
    action.address = read ? h.reth.address + skipped_bytes : h.atomic.address;
    action.rkey = read ? h.reth.rkey : h.atomic.rkey;
    action.bytes = static_cast<std::uint32_t>(h.reth.length - skipped_bytes);
    action.compares = op == RoceOperation::compare_swap;
    action.swap_add = h.atomic.swap_or_add;
    action.compare = h.atomic.compare;
    insert(action);
    arrived(arrival);
    return;
  }
  std::uint32_t receive = 0;
  if (is_send_operation(op) || layout.immediate) {
    switch (ensure_receive(content, arrival.psn, receive)) {
      case Ensure::wait:
        hold(packet);
        return;
      case Ensure::refused:
        return;
      case Ensure::ready:
        break;
    }
  }
  qp_.counters().payload_bytes_received += bytes;
  set_arriving(arrival.psn, true);
  if (!(write ? place_write(packet, content, arrival) : place_send(packet, content, arrival, receive))) {
    set_arriving(arrival.psn, false);
    return;
  }
  qp_.queue_counters().write_requests += write && layout.starts_message ? 1 : 0;
  if (layout.consumes_receive && layout.ends_message) {
    Action action;
    action.kind = Action::Kind::receive;
    action.psn = arrival.psn;
    action.receive = receive;
    action.completion = completion_of(layout, op);
    action.bytes = static_cast<std::uint32_t>(h.placement.offset + bytes);
    action.immediate = layout.ieth ? h.invalidate_rkey : h.immediate;
    action.solicited = h.bth.solicited;
    insert(action);
  }
  if (bytes == 0) {
    set_arriving(arrival.psn, false);
    arrived(arrival);
  }
}

void ReliableResponder::hold(const fabric::Packet& packet) {
  if (held_.size() < max_held) {
    core_.packets->add_reference(packet.content);
    held_.push_back(packet);
  }
}

void ReliableResponder::receive_ready() {
  std::vector<fabric::Packet> held = std::exchange(held_, {});
  for (const fabric::Packet& packet : held) {
    on_request(packet, core_.packets->at(packet.content));
    core_.packets->release(packet.content);
  }
  if (held_.empty()) {
    held.clear();
    held_ = std::move(held);  // keeps its memory
  }
}

// Makes sure that the receive WQE which the packet belongs to is there. Own queues and SRQs are consumed in the order
// of the peer's messages; XRC, whose messages name their SRQ, as they come.
ReliableResponder::Ensure ReliableResponder::ensure_receive(const fabric::PacketContent& content, fabric::Psn psn,
                                                            std::uint32_t& receive) {
  const std::uint32_t steps = (content.roce.placement.receive - receives_.first()) & fabric::Psn::mask;
  if (steps >= max_open_receives) {
    receiver_->refuse();
    return Ensure::refused;  // so far ahead, or behind, only a peer that lies sends
  }
  receive = receives_.first() + steps;
  while (!receives_.has(receive)) {
    receives_.push({});
  }
  const bool xrc = qp_.context.type == QpType::xrc;
  const std::uint32_t srqn = xrc ? content.roce.xrc_srq : qp_.context.srq;
  for (std::uint32_t number = xrc ? receive : receives_.first(); number != receive + 1; ++number) {
    if (receives_.at(number).wqe != nullptr) {
      continue;
    }
    ReceiveSource* from = source(srqn);
    if (xrc && from != nullptr) {
      const SharedReceiveQueue* srq = qp_.blocks.srqs.find(qp_.context.function, srqn);
      from = srq->context().xrc_domain != none && srq->context().xrc_domain == qp_.context.xrc_domain ? from : nullptr;
    }
    if (from == nullptr) {
      fail_at({true, psn, fabric::aeth::nak_invalid_request, QpErrorCause::bad_request});
      return Ensure::refused;
    }
    Scatter* wqe = nullptr;
    switch (from->take(*this, wqe)) {
      case Take::got:
        receives_.at(number) = {wqe, xrc ? srqn : none, from->pd()};
        break;
      case Take::wait:
        note_wait(srqn);
        return Ensure::wait;
      case Take::empty:
        receiver_->refuse();
        ++qp_.queue_counters().out_of_buffer;
        if (psn == receiver_->expected()) {
          ++qp_.counters().rnr_naks_sent;
          send_nak(psn, static_cast<std::uint8_t>(fabric::aeth::rnr_nak | (qp_.context.min_rnr_timer & 0x1fU)));
        }
        return Ensure::refused;
    }
  }
  return Ensure::ready;
}

// ---- Order -----------------------------------------------------------------------------------------------------

void ReliableResponder::arrived(const fabric::DataArrival& arrival) {
  receiver_->on_data(arrival);
  if (arrival.last) {
    msn_ = (msn_ + 1) & fabric::Psn::mask;
  }
  run_actions();
  if (!flushing()) {
    receiver_->flush();
    check_failure();
  }
}

void ReliableResponder::insert(const Action& action) {
  actions_.push(action);
  for (std::uint32_t at = actions_.end() - 1; at != actions_.first(); --at) {
    if (!fabric::before(actions_.at(at).psn, actions_.at(at - 1).psn)) {
      break;
    }
    std::swap(actions_.at(at), actions_.at(at - 1));
  }
}

void ReliableResponder::run_actions() {
  if (running_) {
    return;
  }
  running_ = true;
  while (!actions_.empty() && !flushing() && atomics_in_flight == 0) {
    const Action action = actions_.front();
    if (!fabric::before(action.psn, receiver_->expected()) ||
        (failure_.set && !fabric::before(action.psn, failure_.psn))) {
      break;
    }
    if (action.kind == Action::Kind::read && responses_.size() >= max_responses) {
      break;
    }
    actions_.pop();
    switch (action.kind) {
      case Action::Kind::receive:
        if (!run_receive(action)) {
          fail_at({true, action.psn, fabric::aeth::nak_invalid_request, QpErrorCause::bad_request});
        }
        break;
      case Action::Kind::read:
        run_read(action);
        break;
      case Action::Kind::atomic:
        run_atomic(action);
        break;
    }
  }
  running_ = false;
}

// Completes the oldest receive WQE. False: the peer has numbered its messages wrongly.
bool ReliableResponder::run_receive(const Action& action) {
  if (receives_.empty() || action.receive != receives_.first() || receives_.front().wqe == nullptr) {
    return false;
  }
  const Receive receive = receives_.front();
  receives_.pop();
  if (action.completion == CompletionKind::receive_invalidate &&
      !core_.keys.invalidate(qp_.context.function, qp_.context.pd, qp_.number, action.immediate)) {
    // IBTA §9.4.1.1.3: a key that may not be invalidated is an access violation.
    Completion completion;
    completion.code = CompletionCode::local_access;
    completion.kind = CompletionKind::receive;
    completion.vendor_code = 2;
    complete(*receive.wqe, completion, receive.srq);
    fail_at({true, action.psn, fabric::aeth::nak_remote_access, QpErrorCause::access_violation});
    return true;
  }
  Completion completion;
  completion.kind = action.completion;
  completion.solicited = action.solicited;
  completion.immediate = action.immediate;
  completion.byte_count = action.bytes;
  complete(*receive.wqe, completion, receive.srq);
  return true;
}

void ReliableResponder::fail_at(const Failure& failure) {
  if (!failure_.set || fabric::before(failure.psn, failure_.psn)) {
    failure_ = failure;
  }
  check_failure();
}

void ReliableResponder::check_failure() {
  if (!failure_.set || flushing() || running_ || responding() || fabric::before(receiver_->expected(), failure_.psn)) {
    return;
  }
  const Failure failure = failure_;
  ++qp_.counters().naks_sent;
  QueueCounters& counted = qp_.queue_counters();
  counted.responder_invalid_request += failure.syndrome == fabric::aeth::nak_invalid_request ? 1 : 0;
  counted.responder_remote_access += failure.syndrome == fabric::aeth::nak_remote_access ? 1 : 0;
  send_nak(failure.psn, failure.syndrome);
  if (failure.code != CompletionCode::success && receives_.has(failure.receive) &&
      receives_.at(failure.receive).wqe != nullptr && failure.receive == receives_.first()) {
    const Receive receive = receives_.front();
    receives_.pop();
    Completion completion;
    completion.code = failure.code;
    completion.kind = CompletionKind::receive;
    completion.vendor_code = 1;
    complete(*receive.wqe, completion, receive.srq);
  }
  qp_.fail(failure.cause);
}

// The page for the packet `psn` is absent: the firmware is told, the peer has to try again (IBTA §9.7.5.2.8).
void ReliableResponder::fault_at(fabric::Psn psn, std::uint32_t key, std::uint64_t address, std::uint32_t packet_bytes,
                                 std::uint32_t length, std::uint32_t flags) {
  if (fault_denied_ && denied_key_ == key) {
    fail_at({true, psn,
             (flags & fault_rdma) != 0 ? fabric::aeth::nak_remote_access : fabric::aeth::nak_remote_operation,
             QpErrorCause::access_violation});
    return;
  }
  if (fault_.token == none) {
    ++qp_.counters().page_faults;
    fault_ = {};
    fault_.token = qp_.number | 0x8000'0000U;
    fault_.qp = qp_.number;
    fault_.function = qp_.context.function;
    fault_.flags = flags | fault_responder;
    fault_.key = key;
    fault_.address = address;
    fault_.length = length;
    fault_.packet_length = packet_bytes;
    core_.report(EventCode::page_fault, qp_.context.function, qp_.number, fault_.token);
  }
  if (fabric::distance(psn, receiver_->expected()) >= 0) {
    ++qp_.counters().rnr_naks_sent;
    send_nak(psn, static_cast<std::uint8_t>(fabric::aeth::rnr_nak | (qp_.context.min_rnr_timer & 0x1fU)));
  }
}

bool ReliableResponder::resume_fault(bool failed) {
  if (fault_.token == none) {
    return false;
  }
  fault_denied_ = failed;
  denied_key_ = fault_.key;
  fault_ = {};
  return true;
}

// ---- End -------------------------------------------------------------------------------------------------------

void ReliableResponder::stop() {
  if (receiver_ != nullptr) {
    receiver_->stop();
  }
  for (const fabric::Packet& packet : held_) {
    core_.packets->release(packet.content);
  }
  held_.clear();
  actions_.clear();
  responses_.clear();
}

void ReliableResponder::release_receives(bool completes) {
  while (!prepared_.empty()) {
    core_.packets->release(prepared_.front().content);
    prepared_.pop();
  }
  while (!receives_.empty()) {
    const Receive receive = receives_.front();
    receives_.pop();
    if (receive.wqe == nullptr) {
      continue;
    }
    if (completes) {
      flush_one(*receive.wqe, receive.srq);
    } else {
      qp_.blocks.scatters.give_back(*receive.wqe);
    }
  }
}

void ReliableResponder::forget_dma() {
  abandon();
  for (Placing& placing : placing_) {
    core_.packets->release(std::exchange(placing.content, {}));
  }
}

bool ReliableResponder::quiet() const {
  return Responder::quiet() && atomics_in_flight == 0 && !Wire::queued(*this);
}

}  // namespace orrery::rnic
