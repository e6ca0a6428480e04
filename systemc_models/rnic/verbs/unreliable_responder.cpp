#include "systemc_models/rnic/verbs/unreliable_responder.h"

#include <utility>

namespace orrery::rnic {

using fabric::RoceOperation;

void UnreliableResponder::start_connection() {
  expected_ = fabric::Psn::of(qp_.context.receive_psn);
}

void UnreliableResponder::on_request(const fabric::Packet& packet, const fabric::PacketContent& content) {
  if (flushing()) {
    return;
  }
  if (!held_.empty()) {  // order matters: behind those that wait for a receive WQE
    if (held_.size() < max_held) {
      core_.packets->add_reference(packet.content);
      held_.push_back(packet);
    }
    return;
  }
  handle(packet, content);
}

void UnreliableResponder::handle(const fabric::Packet& packet, const fabric::PacketContent& content) {
  const fabric::RoceHeaders& h = content.roce;
  const fabric::OpcodeLayout& layout = fabric::layout_of(h.bth.opcode);
  const RoceOperation op = fabric::operation_of(h.bth.opcode);
  const fabric::Psn psn = fabric::Psn::of(h.bth.psn);
  const bool write = op >= RoceOperation::write_first && op <= RoceOperation::write_only_immediate;
  const bool send = op <= RoceOperation::send_only_immediate;
  const auto bytes = content.bytes();
  const std::uint32_t mtu = qp_.context.mtu;
  const bool in_order = psn == expected_;
  if (!in_order && !layout.starts_message) {
    drop_message();
    expected_ = psn + 1;
    return;
  }
  if (in_message_ && (layout.starts_message || write != is_write_)) {
    drop_message();
  }
  const bool sized =
      layout.ends_message ? bytes.size() <= mtu && (layout.starts_message || !bytes.empty()) : bytes.size() == mtu;
  if (!(write || send) || !sized || (!layout.starts_message && !in_message_) || (write && !qp_.has(qp_remote_write))) {
    drop_message();
    expected_ = psn + 1;
    return;
  }
  if (layout.starts_message) {
    messages_.push({});
    in_message_ = true;
    is_write_ = write;
    offset_ = 0;
    address_ = h.reth.address;
    rkey_ = h.reth.rkey;
    length_ = h.reth.length;
  }
  const std::uint32_t number = messages_.end() - 1;
  if ((send && layout.starts_message) || (write && layout.immediate)) {
    bool held = false;
    if (!take_receive(packet, messages_.at(number), held)) {
      if (held && layout.starts_message) {  // it will come again
        messages_.at(number).dropped = true;
        in_message_ = false;
      }
      if (!held) {
        drop_message();
        expected_ = psn + 1;
      }
      complete_messages();
      return;
    }
  }
  expected_ = psn + 1;
  if (!bytes.empty()) {
    std::uint32_t index = free_placing_;
    if (index == none) {
      placing_.emplace_back();
      index = static_cast<std::uint32_t>(placing_.size() - 1);
    } else {
      free_placing_ = placing_[index].next_free;
    }
    CompletionCode code = CompletionCode::success;
    bool started = false;
    if (write) {
      KeyRequest request = qp_.key_request(rkey_, address_ + offset_, bytes.size(), key_remote_write);
      request.reserved_allowed = false;
      core_.segments.clear();
      started =
          offset_ + bytes.size() <= length_ && core_.keys.resolve(request, core_.segments).status == WalkStatus::ok;
      if (started) {
        core_.dma.write(qp_.context.function, core_.segments.all(), bytes.data(), core_.settings.confirm_payload, *this,
                        index);
      }
    } else {
      ReceiveSource* from = source();
      const Placed placed = from == nullptr || messages_.at(number).wqe->malformed
                                ? Placed::denied
                                : place(*messages_.at(number).wqe, from->pd(), offset_, bytes, index);
      started = placed == Placed::started;
      code = placed == Placed::too_long ? CompletionCode::local_length : CompletionCode::local_protection;
    }
    if (!started) {
      placing_[index].next_free = std::exchange(free_placing_, index);
      if (write) {  // a peer without rights: IBTA table 60, dropped
        ++qp_.counters().key_violations;
        drop_message();
      } else {
        messages_.at(number).code = code;
        messages_.at(number).completes = true;
        messages_.at(number).whole = true;
        in_message_ = false;
      }
      complete_messages();
      return;
    }
    placing_[index].content = packet.content;
    placing_[index].message = number;
    core_.packets->add_reference(packet.content);
    ++messages_.at(number).placing;
    offset_ += bytes.size();
    qp_.counters().payload_bytes_received += bytes.size();
  }
  if (layout.ends_message) {
    qp_.queue_counters().write_requests += write ? 1 : 0;
    Message& message = messages_.at(number);
    message.whole = true;
    in_message_ = false;
    message.completes = message.wqe != nullptr;
    message.completion.kind = write ? CompletionKind::receive_write_immediate
                                    : (layout.immediate ? CompletionKind::receive_immediate : CompletionKind::receive);
    message.completion.immediate = layout.immediate ? h.immediate : 0;
    message.completion.solicited = h.bth.solicited;
    message.completion.byte_count = static_cast<std::uint32_t>(offset_);
  }
  complete_messages();
}

// False: the message has no receive WQE (dropped), or the packet waits for one (held).
bool UnreliableResponder::take_receive(const fabric::Packet& packet, Message& message, bool& held) {
  if (spare_ != nullptr) {
    message.wqe = std::exchange(spare_, nullptr);
    return true;
  }
  ReceiveSource* from = source();
  const Take taken = from == nullptr ? Take::empty : from->take(*this, message.wqe);
  held = taken == Take::wait;
  if (held) {
    note_wait(qp_.context.srq);
    core_.packets->add_reference(packet.content);
    held_.push_back(packet);
  }
  return taken == Take::got;
}

void UnreliableResponder::receive_ready() {
  std::vector<fabric::Packet> waiting = std::exchange(held_, {});
  for (const fabric::Packet& packet : waiting) {
    on_request(packet, core_.packets->at(packet.content));
    core_.packets->release(packet.content);
  }
}

void UnreliableResponder::drop_message() {
  if (in_message_) {
    Message& message = messages_.at(messages_.end() - 1);
    message.dropped = true;
    in_message_ = false;
    if (message.wqe != nullptr && spare_ == nullptr && message.code == CompletionCode::success) {
      spare_ = std::exchange(message.wqe, nullptr);  // receive WQEs complete in their order: the next message's
    }
    complete_messages();
  }
}

void UnreliableResponder::complete_messages() {
  while (!messages_.empty() && !flushing()) {
    const Message message = messages_.front();
    if (message.placing != 0 || !(message.whole || message.dropped)) {
      return;
    }
    messages_.pop();
    if (message.dropped && message.code == CompletionCode::success) {
      continue;
    }
    if (message.wqe == nullptr) {
      continue;
    }
    Completion completion = message.completion;
    completion.code = message.code;
    completion.vendor_code = message.code == CompletionCode::success ? std::uint8_t{0} : std::uint8_t{1};
    complete(*message.wqe, completion, none);
    if (message.code != CompletionCode::success) {
      qp_.fail(QpErrorCause::local);
    }
  }
}

void UnreliableResponder::on_dma(std::uint64_t cookie, bool ok) {
  const auto index = static_cast<std::uint32_t>(cookie);
  Placing& placing = placing_[index];
  core_.packets->release(std::exchange(placing.content, {}));
  if (messages_.has(placing.message)) {
    Message& message = messages_.at(placing.message);
    --message.placing;
    if (!ok) {
      message.code = CompletionCode::local_protection;
      message.dropped = true;
    }
  }
  placing.next_free = std::exchange(free_placing_, index);
  if (flushing()) {
    flush();
  } else {
    complete_messages();
  }
}

void UnreliableResponder::stop() {
  for (const fabric::Packet& packet : held_) {
    core_.packets->release(packet.content);
  }
  held_.clear();
  in_message_ = false;
}

void UnreliableResponder::release_receives(bool completes) {
  while (!messages_.empty()) {
    const Message message = messages_.front();
    messages_.pop();
    if (message.wqe != nullptr) {
      completes ? flush_one(*message.wqe, none) : qp_.blocks.scatters.give_back(*message.wqe);
    }
  }
  if (spare_ != nullptr) {
    Scatter& wqe = *std::exchange(spare_, nullptr);
    completes ? flush_one(wqe, none) : qp_.blocks.scatters.give_back(wqe);
  }
}

void UnreliableResponder::forget_dma() {
  abandon();
  for (Placing& placing : placing_) {
    core_.packets->release(std::exchange(placing.content, {}));
  }
}

}  // namespace orrery::rnic
