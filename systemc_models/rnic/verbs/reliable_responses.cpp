// What the reliable responder sends: acknowledges, READ responses, results of atomics.
#include <algorithm>

#include "systemc_models/rnic/verbs/reliable_responder.h"

namespace orrery::rnic {
namespace {

using fabric::RoceOperation;

}  // namespace

fabric::ContentHandle ReliableResponder::make_reply(RoceOperation operation, fabric::Psn psn) {
  const fabric::ContentHandle handle = core_.packets->make();
  fabric::PacketContent& content = core_.packets->at(handle);
  content.is_roce = true;
  fabric::RoceHeaders& h = content.roce;
  h.network = qp_.route->network;
  h.bth.opcode = fabric::opcode_of(
      qp_.context.type == QpType::xrc ? fabric::RoceTransport::xrc : fabric::RoceTransport::rc, operation);
  h.bth.destination_qp = qp_.context.remote_qp;
  h.bth.psn = psn.value;
  h.aeth = {fabric::aeth::ack_no_credits, msn_};
  return handle;
}

void ReliableResponder::send_ack(const fabric::AckInfo& info) {
  if (!qp_.route) {
    return;
  }
  const fabric::ContentHandle handle = make_reply(RoceOperation::acknowledge, info.cumulative);
  fabric::RoceHeaders& h = core_.packets->at(handle).roce;
  h.bth.extended = true;
  h.ack = fabric::to_wire(info);
  h.network.udp_source_port = info.entropy != 0 ? info.entropy : h.network.udp_source_port;
  qp_.blocks.wire.send(qp_.context.function, handle, h.network.udp_source_port, qp_.route->local);
}

void ReliableResponder::send_nak(fabric::Psn psn, std::uint8_t syndrome) {
  if (!qp_.route) {
    return;
  }
  const fabric::ContentHandle handle = make_reply(RoceOperation::acknowledge, psn);
  fabric::RoceHeaders& h = core_.packets->at(handle).roce;
  h.aeth.syndrome = syndrome;
  qp_.blocks.wire.send(qp_.context.function, handle, h.network.udp_source_port, qp_.route->local);
}

// ---- Duplicates (IBTA §9.7.5.1.4) --------------------------------------------------------------------------------

void ReliableResponder::on_duplicate(const fabric::Packet& packet, const fabric::PacketContent& content,
                                     const fabric::DataArrival& arrival) {
  const fabric::RoceHeaders& h = content.roce;
  const RoceOperation op = fabric::operation_of(h.bth.opcode);
  if (op == RoceOperation::read_request) {
    // Still waiting for its turn, or for the transmitter: it will be answered.
    for (std::uint32_t i = actions_.first(); i != actions_.end(); ++i) {
      if (actions_.at(i).kind == Action::Kind::read && fabric::distance(actions_.at(i).psn, arrival.psn) >= 0 &&
          fabric::distance(actions_.at(i).psn, arrival.psn) < static_cast<std::int32_t>(actions_.at(i).packets)) {
        return;
      }
    }
    for (std::uint32_t i = responses_.first(); i != responses_.end(); ++i) {
      const Response& r = responses_.at(i);
      if (fabric::distance(r.psn, arrival.psn) >= static_cast<std::int32_t>(r.made) &&
          fabric::distance(r.psn, arrival.psn) < static_cast<std::int32_t>(r.packets)) {
        return;
      }
    }
    if (!qp_.has(qp_remote_read) || !fabric::before(arrival.psn, receiver_->expected()) ||
        responses_.size() >= max_responses) {
      return;
    }
    Response response;
    response.psn = arrival.psn;
    response.address = h.reth.address;
    response.rkey = h.reth.rkey;
    response.length = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(h.reth.length, std::uint64_t{arrival.packets} * qp_.context.mtu));
    response.packets = arrival.packets;
    response.entropy = packet.entropy;
    respond(response);
    return;
  }
  if (op == RoceOperation::compare_swap || op == RoceOperation::fetch_add) {
    // Executed once; the result is remembered.
    const auto found = std::find_if(replays_.begin(), replays_.end(),
                                    [&](const Replay& replay) { return replay.set && replay.psn == arrival.psn; });
    if (found != replays_.end()) {
      send_atomic(arrival.psn, found->original, packet.entropy);
    }
    return;
  }
  receiver_->on_data(arrival);
  receiver_->flush();
}

// ---- READ --------------------------------------------------------------------------------------------------------

void ReliableResponder::run_read(const Action& action) {
  // Refused now, so that nothing after it is done, although its turn to be answered is later.
  KeyRequest request = qp_.key_request(action.rkey, action.address, action.bytes, key_remote_read);
  request.reserved_allowed = false;
  if (!core_.keys.permits(request)) {
    ++qp_.counters().key_violations;
    fail_at({true, action.psn, fabric::aeth::nak_remote_access, QpErrorCause::access_violation});
    return;
  }
  ++qp_.queue_counters().read_requests;
  Response response;
  response.psn = action.psn;
  response.address = action.address;
  response.rkey = action.rkey;
  response.length = action.bytes;
  response.packets = action.packets;
  response.entropy = action.entropy;
  respond(response);
}

void ReliableResponder::respond(const Response& response) {
  responses_.push(response);
  make_responses();
}

// Gathers responses, some at once; they leave in order.
void ReliableResponder::make_responses() {
  while (!responses_.empty() && prepared_.size() < max_prepared && !flushing()) {
    Response& response = responses_.front();
    if (!make_response(response)) {
      if (!responses_.empty()) {
        responses_.pop();
      }
      check_failure();
      continue;
    }
    if (response.made == response.packets) {
      responses_.pop();
    }
  }
  if (!prepared_.empty() && prepared_.front().ready) {
    qp_.blocks.wire.ready(*this);
  }
}

bool ReliableResponder::make_response(Response& response) {
  const std::uint32_t mtu = qp_.context.mtu;
  const std::uint64_t offset = std::uint64_t{response.made} * mtu;
  const auto bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(mtu, response.length - offset));
  const bool first = response.made == 0;
  const bool last = response.made + 1 == response.packets;
  const fabric::Psn psn = response.psn + response.made;
  SegmentList& segments = core_.segments;
  segments.clear();
  KeyRequest request = qp_.key_request(response.rkey, response.address + offset, bytes, key_remote_read);
  request.reserved_allowed = false;
  const WalkResult walk = core_.keys.resolve(request, segments);
  if (walk.status == WalkStatus::absent) {
    fault_at(psn, response.rkey, response.address + offset + walk.offset, bytes, response.length, fault_rdma);
    return false;
  }
  if (walk.status == WalkStatus::denied) {
    ++qp_.counters().key_violations;
    responses_.pop();
    fail_at({true, psn, fabric::aeth::nak_remote_access, QpErrorCause::access_violation});
    responses_.clear();
    return false;
  }
  const RoceOperation operation =
      first ? (last ? RoceOperation::read_response_only : RoceOperation::read_response_first)
            : (last ? RoceOperation::read_response_last : RoceOperation::read_response_middle);
  Prepared prepared;
  prepared.content = make_reply(operation, psn);
  prepared.ready = bytes == 0;
  // As many paths as a sender has, in turn.
  const fabric::PathSettings& paths = core_.settings.sender.paths;
  prepared.entropy =
      paths.policy == fabric::PathPolicy::single
          ? response.entropy
          : static_cast<std::uint16_t>(0xc000U | ((qp_.number * 127 + psn.value % paths.paths) & 0x3fffU));
  core_.packets->at(prepared.content).roce.network.udp_source_port = prepared.entropy;
  if (bytes != 0) {
    std::byte* into = core_.packets->reserve(prepared.content, bytes).data();
    core_.dma.read(qp_.context.function, segments.all(), into, *this, response_tag | prepared_.end(),
                   core_.settings.timing.gather);
  }
  qp_.counters().payload_bytes_sent += bytes;
  prepared_.push(prepared);
  ++response.made;
  return true;
}

bool ReliableResponder::transmit_next() {
  if (flushing() || prepared_.empty() || !prepared_.front().ready) {
    return false;
  }
  const Prepared prepared = prepared_.front();
  // A failed gather stops here: the negative acknowledge has its PSN.
  if (failure_.set && core_.packets->at(prepared.content).roce.bth.psn == failure_.psn.value) {
    while (!prepared_.empty() && prepared_.front().ready) {
      core_.packets->release(prepared_.front().content);
      prepared_.pop();
    }
    responses_.clear();
    check_failure();
    return false;
  }
  prepared_.pop();
  qp_.blocks.wire.send(qp_.context.function, prepared.content, prepared.entropy, qp_.route->local);
  if (prepared_.size() <= max_prepared / 2 && !responses_.empty()) {
    make_responses();
  }
  if (!responding()) {
    run_actions();
    check_failure();
  }
  return !prepared_.empty() && prepared_.front().ready;
}

// ---- Atomics -------------------------------------------------------------------------------------------------------

void ReliableResponder::run_atomic(const Action& action) {
  SegmentList& segments = core_.segments;
  segments.clear();
  KeyRequest request = qp_.key_request(action.rkey, action.address, 8, key_remote_atomic);
  request.reserved_allowed = false;
  const WalkResult walk =
      (action.address & 7U) != 0 ? WalkResult{WalkStatus::denied} : core_.keys.resolve(request, segments);
  if (walk.status == WalkStatus::ok) {
    AtomicOperation operation;
    operation.kind = action.compares ? AtomicOperation::Kind::compare_swap : AtomicOperation::Kind::fetch_add;
    operation.function = qp_.context.function;
    operation.target = segments.all().front();
    operation.swap_add = action.swap_add;
    operation.compare = action.compare;
    atomic_ = action;
    qp_.blocks.atomics.start(operation, *this);
    return;
  }
  const bool misaligned = (action.address & 7U) != 0;
  ++qp_.counters().key_violations;
  // An absent page, too: an atomic that has arrived can't be asked for again without being executed.
  fail_at({true, action.psn, misaligned ? fabric::aeth::nak_invalid_request : fabric::aeth::nak_remote_access,
           misaligned ? QpErrorCause::bad_request : QpErrorCause::access_violation});
}

void ReliableResponder::on_atomic(std::uint64_t original, bool ok) {
  if (flushing()) {
    flush();
    return;
  }
  if (!ok) {
    fail_at({true, atomic_.psn, fabric::aeth::nak_remote_operation, QpErrorCause::local});
    return;
  }
  ++qp_.queue_counters().atomic_requests;
  replays_[next_replay_++ % replays_.size()] = {true, atomic_.psn, original};
  send_atomic(atomic_.psn, original, atomic_.entropy);
  run_actions();
  check_failure();
}

void ReliableResponder::send_atomic(fabric::Psn psn, std::uint64_t original, std::uint16_t entropy) {
  const fabric::ContentHandle handle = make_reply(RoceOperation::atomic_acknowledge, psn);
  fabric::RoceHeaders& h = core_.packets->at(handle).roce;
  h.atomic_original = original;
  h.network.udp_source_port = entropy;
  qp_.blocks.wire.send(qp_.context.function, handle, entropy, qp_.route->local);
}

}  // namespace orrery::rnic
