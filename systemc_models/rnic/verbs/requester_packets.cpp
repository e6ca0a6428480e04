// From work requests to packets on the wire.
#include <algorithm>

#include "fabric/wire_codec.h"
#include "systemc_models/rnic/verbs/requester.h"

namespace orrery::rnic {
namespace {

using fabric::RoceOperation;
constexpr std::uint64_t gather_tag = std::uint64_t{1} << 32;

RoceOperation operation_of(SendOpcode op, bool first, bool last) {
  switch (op) {
    case SendOpcode::send:
      return first ? (last ? RoceOperation::send_only : RoceOperation::send_first)
                   : (last ? RoceOperation::send_last : RoceOperation::send_middle);
    case SendOpcode::send_immediate:
      return last ? (first ? RoceOperation::send_only_immediate : RoceOperation::send_last_immediate)
                  : (first ? RoceOperation::send_first : RoceOperation::send_middle);
    case SendOpcode::send_invalidate:
      return last ? (first ? RoceOperation::send_only_invalidate : RoceOperation::send_last_invalidate)
                  : (first ? RoceOperation::send_first : RoceOperation::send_middle);
    case SendOpcode::write:
      return first ? (last ? RoceOperation::write_only : RoceOperation::write_first)
                   : (last ? RoceOperation::write_last : RoceOperation::write_middle);
    case SendOpcode::write_immediate:
      return last ? (first ? RoceOperation::write_only_immediate : RoceOperation::write_last_immediate)
                  : (first ? RoceOperation::write_first : RoceOperation::write_middle);
    case SendOpcode::compare_swap:
      return RoceOperation::compare_swap;
    default:
      return RoceOperation::fetch_add;
  }
}

fabric::RoceTransport transport_of(QpType type) {
  switch (type) {
    case QpType::rc:
      return fabric::RoceTransport::rc;
    case QpType::uc:
      return fabric::RoceTransport::uc;
    case QpType::xrc:
      return fabric::RoceTransport::xrc;
    default:
      return fabric::RoceTransport::ud;
  }
}

std::uint32_t wire_size(const fabric::RoceHeaders& headers, std::uint32_t payload) {
  return std::max(fabric::frame_bytes(headers, payload) + fabric::fcs_bytes, 64U);
}

}  // namespace

// Makes packets of current_ until it is finished (true) or something has to be waited for (false).
bool Requester::produce() {
  while (active_) {
    if (prepared_.size() >= max_prepared || !produce_packet()) {
      return false;
    }
  }
  return true;
}

bool Requester::produce_packet() {
  Prepared prepared;
  prepared.slot = current_slot_;
  prepared.local = (qp_.datagram() ? datagram_route_ : qp_.route)->local;
  if ((current_.opcode == SendOpcode::read || is_atomic(current_.opcode)) && !response_pages_present()) {
    return false;
  }
  if (current_.opcode == SendOpcode::read) {
    prepared.ready = prepared.last = true;
    prepared_.push(prepared);
    active_ = false;
    message_ = (message_ + 1) & fabric::Psn::mask;
    qp_.blocks.wire.ready(*this);
    return true;
  }
  const bool atomic = is_atomic(current_.opcode);
  const auto bytes =
      atomic ? 0U : static_cast<std::uint32_t>(std::min<std::uint64_t>(mtu(), current_.length - offset_));
  const bool first = offset_ == 0;
  const bool last = atomic || offset_ + bytes == current_.length;
  prepared.content = make_packet(offset_, bytes, first, last);
  fabric::PacketContent& content = core_.packets->at(prepared.content);
  prepared.last = last;
  prepared.wire_bytes = wire_size(content.roce, bytes);
  prepared.port = content.roce.network.udp_source_port;
  prepared.ready = true;
  if (bytes != 0) {
    std::byte* into = core_.packets->reserve(prepared.content, bytes).data();
    bool pending = false;
    if (!gather(bytes, into, gather_tag | prepared_.end(), pending)) {
      core_.packets->release(prepared.content);
      return false;
    }
    prepared.ready = !pending;
  }
  prepared_.push(prepared);
  offset_ += bytes;
  advance_cursor(bytes);
  qp_.counters().payload_bytes_sent += bytes;
  if (last) {
    active_ = false;
    message_ = (message_ + 1) & fabric::Psn::mask;
    if (is_send(current_.opcode) || current_.opcode == SendOpcode::write_immediate) {
      receive_ = (receive_ + 1) & fabric::Psn::mask;
    }
  }
  if (prepared.ready) {
    qp_.blocks.wire.ready(*this);
  }
  return true;
}

// Moves the list's cursor past `bytes`.
void Requester::advance_cursor(std::uint32_t bytes) {
  std::uint64_t left = bytes;
  while (left != 0 && entry_ < current_.entry_count) {
    const std::uint64_t piece = std::min<std::uint64_t>(left, current_.entries[entry_].length - entry_offset_);
    left -= piece;
    entry_offset_ += piece;
    if (entry_offset_ == current_.entries[entry_].length) {
      ++entry_;
      entry_offset_ = 0;
    }
  }
}

// A page of the list isn't there: the queue stands still until resume_fault(). `within`: bytes into the entry;
// `committed`: bytes of the message before the page.
void Requester::wait_for_page(const DataEntry& entry, std::uint64_t within, std::uint64_t piece,
                              std::uint32_t packet_length, std::uint64_t committed) {
  ++qp_.counters().page_faults;
  fault_ = {};
  fault_.token = qp_.number;
  fault_.qp = qp_.number;
  fault_.function = qp_.context.function;
  fault_.key = entry.key;
  fault_.wqe_index = current_.index;
  fault_.address = entry.address + within;
  fault_.length = static_cast<std::uint32_t>(piece);
  fault_.packet_length = packet_length;
  fault_.committed = static_cast<std::uint32_t>(committed);
  core_.report(EventCode::page_fault, qp_.context.function, qp_.number, fault_.token);
}

// Where the response will go is looked at before it is asked for: then the page can still be waited for. One that goes
// in between fails the request. Rights are checked when the response is here.
bool Requester::response_pages_present() {
  constexpr std::uint64_t most_at_once = 65536;  // few enough pages for one segment list
  std::uint64_t done = 0;
  for (std::uint32_t i = 0; i < current_.entry_count; ++i) {
    const DataEntry& e = current_.entries[i];
    for (std::uint64_t within = 0; within < e.length; within += most_at_once) {
      const std::uint64_t piece = std::min<std::uint64_t>(most_at_once, e.length - within);
      core_.segments.clear();
      const WalkResult walk =
          core_.keys.resolve(qp_.key_request(e.key, e.address + within, piece, key_local_write), core_.segments);
      if (walk.status == WalkStatus::absent) {
        wait_for_page(e, within + walk.offset, piece, mtu(), done + within + walk.offset);
        return false;
      }
    }
    done += e.length;
  }
  return true;
}

// Brings the next bytes of the message to `into`: inline data at once, the rest by DMA (pending). False: the message
// has failed, or waits for a page.
bool Requester::gather(std::uint32_t bytes, std::byte* into, std::uint64_t cookie, bool& pending) {
  bool some_inline = false;
  std::uint32_t entry = entry_;
  std::uint64_t within = entry_offset_;
  SegmentList& segments = core_.segments;
  segments.clear();
  for (std::uint64_t done = 0; done < bytes && entry < current_.entry_count; ++entry, within = 0) {
    const DataEntry& e = current_.entries[entry];
    const std::uint64_t piece = std::min<std::uint64_t>(bytes - done, e.length - within);
    if (e.is_inline) {
      some_inline = true;
      if (!segments.add_nothing(piece)) {  // a gap that is filled below
        fail_current(CompletionCode::local_qp_operation);
        return false;
      }
    } else {
      pending = true;
      const WalkResult walk =
          core_.keys.resolve(qp_.key_request(e.key, e.address + within, piece, key_local_read), segments);
      if (walk.status == WalkStatus::absent) {
        wait_for_page(e, within + walk.offset, piece, bytes, offset_ + done + walk.offset);
        return false;
      }
      if (walk.status == WalkStatus::denied) {
        ++qp_.counters().key_violations;
        fail_current(CompletionCode::local_protection);
        return false;
      }
    }
    done += piece;
  }
  if (pending) {
    core_.dma.read(qp_.context.function, segments.all(), into, *this, cookie, core_.settings.timing.gather);
  }
  if (some_inline) {
    gather_inline(bytes, into);
  }
  return true;
}

// The inline pieces among the next bytes of the message. After the start of a DMA, which leaves zeroes in their places.
void Requester::gather_inline(std::uint32_t bytes, std::byte* into) const {
  std::uint32_t entry = entry_;
  std::uint64_t within = entry_offset_;
  for (std::uint64_t done = 0; done < bytes && entry < current_.entry_count; ++entry, within = 0) {
    const DataEntry& e = current_.entries[entry];
    const std::uint64_t piece = std::min<std::uint64_t>(bytes - done, e.length - within);
    if (e.is_inline) {
      std::copy_n(wqe_.begin() + static_cast<std::ptrdiff_t>(e.address + within), piece, into + done);
    }
    done += piece;
  }
}

fabric::ContentHandle Requester::make_packet(std::uint64_t offset, std::uint32_t bytes, bool first, bool last) {
  const fabric::ContentHandle handle = core_.packets->make();
  fabric::PacketContent& content = core_.packets->at(handle);
  content.is_roce = true;
  fabric::RoceHeaders& h = content.roce;
  const SendOpcode op = current_.opcode;
  const QpType type = qp_.context.type;
  h.bth.opcode = fabric::opcode_of(transport_of(type), operation_of(op, first, last));
  h.bth.solicited = last && current_.solicited;
  h.bth.ack_request = last && qp_.reliable();
  h.immediate = current_.immediate;
  h.invalidate_rkey = current_.immediate;
  if (qp_.datagram()) {
    h.network = datagram_route_->network;
    h.bth.destination_qp = current_.datagram.qp;
    const std::uint32_t qkey = current_.datagram.qkey;
    h.deth.qkey = (qkey & 0x8000'0000U) != 0 ? qp_.context.qkey : qkey;  // IBTA §10.2.5
    h.deth.source_qp = type == QpType::gsi ? 1 : (type == QpType::smi ? 0 : qp_.number);
    return handle;
  }
  h.network = qp_.route->network;
  h.bth.destination_qp = qp_.context.remote_qp;
  h.xrc_srq = current_.srq & 0xff'ffffU;
  if (is_write(op)) {
    h.reth = {current_.remote_address, current_.remote_key, static_cast<std::uint32_t>(current_.length)};
  } else if (is_atomic(op)) {
    h.atomic = {current_.remote_address, current_.remote_key, current_.swap_add, current_.compare};
  }
  if (qp_.reliable()) {
    h.bth.extended = fabric::layout_of(h.bth.opcode).extension != fabric::RoceExtension::none;
    h.placement = {message_, receive_, static_cast<std::uint32_t>(offset), current_.remote_address + offset,
                   current_.remote_key};
  }
  static_cast<void>(bytes);
  return handle;
}

void Requester::pop_prepared() {
  const Prepared& prepared = prepared_.front();
  if (prepared.last && slots_.has(prepared.slot)) {
    slots_.at(prepared.slot).sent = true;
  }
  prepared_.pop();
}

bool Requester::transmit_next() {
  if (!running() || flushing_ || prepared_.empty() || !prepared_.front().ready || prepared_.front().failed) {
    return false;
  }
  Prepared& prepared = prepared_.front();
  if (!(prepared.content.empty() ? transmit_read(prepared) : transmit_data(prepared))) {
    return false;
  }
  if (prepared_.size() <= max_prepared / 2) {
    pump();
  }
  return !prepared_.empty() && prepared_.front().ready;
}

bool Requester::transmit_data(Prepared& prepared) {
  const fabric::ContentHandle handle = prepared.content;
  const bool local = prepared.local;
  const std::uint32_t number = prepared.slot;
  fabric::PacketContent& content = core_.packets->at(handle);
  if (!qp_.reliable()) {
    const fabric::Psn psn = unreliable_psn_;
    unreliable_psn_ = psn + 1;
    content.roce.bth.psn = psn.value;
    const std::uint16_t port = prepared.port;
    const bool multicast = qp_.datagram() && content.roce.network.destination_mac.is_multicast();
    const bool last = prepared.last;
    pop_prepared();
    if (multicast) {  // the members of this RNIC, too
      core_.packets->add_reference(handle);
      qp_.blocks.wire.send_copy(qp_.context.function, handle, port);
    }
    qp_.blocks.wire.send(qp_.context.function, handle, port, local);
    if (last) {
      complete_slots();
    }
    return true;
  }
  const bool responds = slots_.at(number).scatter != nullptr;
  if (responds && requests_.size() >= qp_.context.max_read_out) {
    return false;
  }
  if (!sender_->may_send(prepared.wire_bytes)) {
    return false;
  }
  const fabric::ReliableSender::Ticket ticket =
      responds ? sender_->send_request(prepared.wire_bytes, 1) : sender_->send(prepared.wire_bytes);
  content.roce.bth.psn = ticket.psn.value;
  content.roce.network.udp_source_port = ticket.entropy;
  outstanding_.push({handle, number, responds});
  if (responds) {
    requests_.push(ticket.psn);
  }
  Slot& slot = slots_.at(number);
  if (!slot.on_wire) {
    slot.on_wire = true;
    slot.first = ticket.psn;
  }
  slot.last = ticket.psn;
  pop_prepared();
  core_.packets->add_reference(handle);
  qp_.blocks.wire.send(qp_.context.function, handle, ticket.entropy, local);
  return true;
}

// Asks for as many responses as the windows allow; a long READ takes several requests.
bool Requester::transmit_read(Prepared& prepared) {
  if (requests_.size() >= qp_.context.max_read_out) {
    return false;
  }
  const std::uint32_t number = prepared.slot;
  Slot& slot = slots_.at(number);
  const auto total = static_cast<std::uint32_t>(std::max<std::uint64_t>(1, (slot.length + mtu() - 1) / mtu()));
  std::uint32_t count = std::min(total - prepared.asked, max_read_chunk);
  const std::uint32_t bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(mtu(), slot.length)) + 100;
  while (count > 1 && !sender_->may_send(bytes, count)) {
    count /= 2;
  }
  if (!sender_->may_send(bytes, count)) {
    return false;
  }
  const std::uint64_t offset = std::uint64_t{prepared.asked} * mtu();
  const fabric::ReliableSender::Ticket ticket = sender_->send_request(bytes, count);
  for (std::uint32_t i = 0; i < count; ++i) {
    outstanding_.push({{}, number, true});
  }
  requests_.push(ticket.psn + (count - 1));
  if (!slot.on_wire) {
    slot.on_wire = true;
    slot.first = ticket.psn;
  }
  slot.last = ticket.psn + (count - 1);
  const fabric::ContentHandle handle =
      make_read(slot, offset, std::min<std::uint64_t>(std::uint64_t{count} * mtu(), slot.length - offset));
  core_.packets->at(handle).roce.bth.psn = ticket.psn.value;
  const bool local = prepared.local;
  prepared.asked += count;
  if (prepared.asked == total) {
    pop_prepared();
  }
  qp_.blocks.wire.send(qp_.context.function, handle, ticket.entropy, local);
  return true;
}

fabric::ContentHandle Requester::make_read(const Slot& slot, std::uint64_t offset, std::uint64_t bytes) {
  const fabric::ContentHandle handle = core_.packets->make();
  fabric::PacketContent& content = core_.packets->at(handle);
  content.is_roce = true;
  fabric::RoceHeaders& h = content.roce;
  h.network = qp_.route->network;
  h.bth.opcode = fabric::opcode_of(transport_of(qp_.context.type), RoceOperation::read_request);
  h.bth.destination_qp = qp_.context.remote_qp;
  h.bth.ack_request = true;
  h.bth.extended = fabric::layout_of(h.bth.opcode).extension != fabric::RoceExtension::none;
  h.xrc_srq = slot.srq & 0xff'ffffU;
  h.reth = {slot.remote_address + offset, slot.remote_key, static_cast<std::uint32_t>(bytes)};
  h.placement = {slot.message, receive_, static_cast<std::uint32_t>(offset), slot.remote_address + offset,
                 slot.remote_key};
  return handle;
}

void Requester::transmit(fabric::Psn psn, std::uint16_t entropy, unsigned attempt, std::uint32_t packets) {
  static_cast<void>(attempt);
  count_timeouts();
  const auto number = outstanding_.first() + static_cast<std::uint32_t>(fabric::distance(outstanding_first_, psn));
  if (flushing_ || !outstanding_.has(number)) {
    return;
  }
  const Outstanding& outstanding = outstanding_.at(number);
  const bool local = qp_.route->local;
  if (!outstanding.content.empty()) {
    core_.packets->add_reference(outstanding.content);
    qp_.blocks.wire.send(qp_.context.function, outstanding.content, entropy, local);
    return;
  }
  if (!slots_.has(outstanding.slot)) {
    return;
  }
  const Slot& slot = slots_.at(outstanding.slot);
  const std::uint64_t offset = static_cast<std::uint64_t>(fabric::distance(slot.first, psn)) * mtu();
  const std::uint64_t left = slot.length > offset ? slot.length - offset : 0;
  const fabric::ContentHandle handle =
      make_read(slot, offset, std::min<std::uint64_t>(std::uint64_t{packets} * mtu(), left));
  core_.packets->at(handle).roce.bth.psn = psn.value;
  qp_.blocks.wire.send(qp_.context.function, handle, entropy, local);
}

}  // namespace orrery::rnic
