#include "systemc_models/rnic/verbs/requester.h"

#include <algorithm>
#include <utility>

namespace orrery::rnic {

Requester::~Requester() {
  qp_.blocks.send_engine.leave(*this);
  drop_packets();
}

void Requester::begin() {
  if (!qp_.has(qp_has_send_queue)) {
    return;
  }
  const QpContext& c = qp_.context;
  fetcher_.begin(core_, *this,
                 {c.function, c.buffer, c.send_offset, block_bytes, c.log_send_blocks, c.doorbell_record, true});
}

void Requester::start_connection() {
  const QpContext& c = qp_.context;
  outstanding_first_ = fabric::Psn::of(c.send_psn);
  unreliable_psn_ = outstanding_first_;
  message_ = receive_ = 0;
  if (!qp_.reliable()) {
    return;
  }
  fabric::SenderSettings settings = core_.settings.sender;
  settings.initial_psn = outstanding_first_;
  settings.window_packets = std::min(settings.window_packets, core_.settings.receiver.bitmap_packets);
  settings.ack_timeout = static_cast<std::uint8_t>(c.ack_timeout);
  settings.retry_count = static_cast<std::uint8_t>(c.retry_count);
  settings.rnr_retry_count = static_cast<std::uint8_t>(c.rnr_retry);
  settings.paths.stream = (std::uint64_t{c.remote_qp} << 32) | qp_.number;
  settings.congestion.mtu_bytes = c.mtu + 100;  // headers
  fabric::SenderHost& host = *this;
  sender_ = std::make_unique<fabric::ReliableSender>(qp_.blocks.timers, host, settings);
  timeouts_counted_ = 0;
}

void Requester::resume(bool afresh) {
  if (afresh) {
    flushing_ = halted_ = false;
  }
  fetcher_.ring();
  pump();
}

void Requester::doorbell() {
  if (qp_.state() >= QpState::rts) {
    fetcher_.ring();
  }
}

std::uint32_t Requester::next_psn() const {
  return sender_ != nullptr ? sender_->next_psn().value : unreliable_psn_.value;
}

void Requester::on_fetched() {
  if (flushing_) {
    flush();
  } else {
    pump();
  }
}

void Requester::on_fetch_failed() {
  fatal();
}

void Requester::fatal() {
  qp_.fail(QpErrorCause::fatal);
}

// Starts work requests and makes packets until something has to be waited for.
void Requester::pump() {
  if (pumping_ || flushing_) {
    return;
  }
  pumping_ = true;
  while (running() && !halted_ && fault_.token == none && (active_ || start_next()) && produce()) {
  }
  pumping_ = false;
}

// Takes the next WQE from the queue; false: there is none, or it has to wait.
bool Requester::start_next() {
  if (blocked_ || qp_.state() != QpState::rts || slots_.size() >= max_slots || prepared_.size() >= max_prepared) {
    return false;
  }
  const auto bytes = fetcher_.available();
  if (bytes.empty()) {
    return false;
  }
  const std::uint32_t blocks = core_.format.send_blocks(bytes);
  if (!decoded_) {
    if (std::size_t{blocks} * block_bytes > bytes.size()) {
      if (!fetcher_.fetching() && !fetcher_.behind()) {
        fatal();  // it ends beyond what the driver has posted
      }
      return false;
    }
    core_.format.decode_send(bytes, qp_.context.type, current_);
    decoded_ = true;
  }
  if ((current_.fence && reads_ != 0) || !qp_.blocks.send_engine.take(*this)) {
    return false;
  }
  decoded_ = false;
  if (current_.is_inline || current_.opcode == SendOpcode::firmware) {
    wqe_bytes_ = std::min<std::uint32_t>(blocks * block_bytes, max_work_request);
    std::copy_n(bytes.begin(), wqe_bytes_, wqe_.begin());
  }
  fetcher_.consume(blocks);
  ++qp_.counters().send_requests;
  Slot slot;
  slot.opcode = current_.opcode;
  slot.raw_opcode = current_.raw_opcode;
  slot.signalled = current_.signalled || qp_.has(qp_signal_all);
  slot.index = current_.index;
  slot.length = current_.length;
  slot.remote_address = current_.remote_address;
  slot.remote_key = current_.remote_key;
  slot.srq = current_.srq;
  slots_.push(slot);
  current_slot_ = slots_.end() - 1;
  return admit();
}

// Checks current_ and begins it. False: it will not become packets (the pump goes on with the next if it may).
bool Requester::admit() {
  const QpType type = qp_.context.type;
  const SendOpcode op = current_.opcode;
  const bool local = op == SendOpcode::nop || op == SendOpcode::firmware ||
                     (op == SendOpcode::local_invalidate && !qp_.datagram() && type != QpType::control);
  const bool rdma = is_write(op) || op == SendOpcode::read;
  bool allowed = local;
  if (qp_.reliable()) {
    allowed = allowed || is_send(op) || rdma || op == SendOpcode::compare_swap || op == SendOpcode::fetch_add;
  } else if (type == QpType::uc) {
    allowed = allowed || op == SendOpcode::send || op == SendOpcode::send_immediate || is_write(op);
  } else if (qp_.datagram()) {
    allowed = allowed || op == SendOpcode::send || op == SendOpcode::send_immediate;
  }
  const bool responds = op == SendOpcode::read || is_atomic(op);
  if (!allowed || (responds && qp_.context.max_read_out == 0) || (current_.is_inline && responds)) {
    fail_current(CompletionCode::local_qp_operation);
    return false;
  }
  Slot& slot = slots_.at(current_slot_);
  if (op == SendOpcode::firmware) {
    blocked_ = true;
    core_.report(EventCode::work_request, qp_.context.function, qp_.number, current_.index);
    return false;
  }
  if (op == SendOpcode::nop) {
    slot.sent = true;
    complete_slots();
    return true;
  }
  if (op == SendOpcode::local_invalidate) {
    if (!core_.keys.invalidate(qp_.context.function, qp_.context.pd, qp_.number, current_.immediate)) {
      fail_current(CompletionCode::memory_window_bind);
      return false;
    }
    slot.sent = true;
    complete_slots();
    return true;
  }
  if (is_atomic(op) && (current_.length != 8 || (current_.remote_address & 7U) != 0)) {
    fail_current(current_.length != 8 ? CompletionCode::local_length : CompletionCode::local_qp_operation);
    return false;
  }
  const std::uint64_t longest =
      qp_.datagram() ? mtu() : std::uint64_t{1} << std::min<std::uint32_t>(qp_.context.log_max_message, 31);
  if (current_.length > longest) {
    fail_current(CompletionCode::local_length);
    return false;
  }
  if (qp_.datagram()) {
    datagram_route_ = qp_.blocks.addresses.route(qp_.context.function, current_.datagram.path);
    if (!datagram_route_) {
      fail_current(CompletionCode::local_qp_operation);
      return false;
    }
  } else if (!qp_.route) {
    fail_current(CompletionCode::local_qp_operation);
    return false;
  }
  if (responds) {
    Scatter& list = qp_.blocks.scatters.take();
    list.list.length = current_.length;
    list.list.entry_count = current_.entry_count;
    std::copy_n(current_.entries.begin(), current_.entry_count, list.list.entries.begin());
    slot.scatter = &list;
    ++reads_;
  }
  slot.message = message_;
  active_ = true;
  offset_ = 0;
  entry_ = 0;
  entry_offset_ = 0;
  return true;
}

void Requester::fail_current(CompletionCode code) {
  active_ = false;
  halted_ = true;
  fail_slot(current_slot_, code);
}

void Requester::fail_slot(std::uint32_t number, CompletionCode code) {
  if (!slots_.has(number)) {
    return;
  }
  halted_ = true;
  Slot& slot = slots_.at(number);
  if (!slot.failed) {
    slot.failed = true;
    slot.code = code;
  }
  complete_slots();
}

// Completions leave in the order of the queue.
void Requester::complete_slots() {
  if (flushing_) {
    return;
  }
  bool progress = false;
  while (!slots_.empty()) {
    Slot& slot = slots_.front();
    if (slot.failed) {
      if (slot.placing != 0) {
        return;
      }
      const Slot failed_slot = slot;
      slots_.pop();
      if (failed_slot.scatter != nullptr) {
        qp_.blocks.scatters.give_back(*failed_slot.scatter);
        --reads_;
      }
      blocked_ = false;
      post(failed_slot, failed_slot.code);
      queue_error();
      return;
    }
    const bool answered = !slot.on_wire || !qp_.reliable() || fabric::before(slot.last, outstanding_first_);
    if (!slot.sent || !answered || slot.placing != 0) {
      break;
    }
    const Slot done = slot;
    slots_.pop();
    progress = true;
    if (done.scatter != nullptr) {
      qp_.blocks.scatters.give_back(*done.scatter);
      --reads_;
    }
    if (done.signalled) {
      post(done, CompletionCode::success);
      if (flushing_) {
        return;  // the CQ has failed
      }
    }
  }
  if (progress && slots_.empty() && qp_.state() == QpState::sqd && !active_) {
    core_.report(EventCode::send_queue_drained, qp_.context.function, qp_.number);
  }
  if (progress && !pumping_) {
    pump();
  }
}

void Requester::post(const Slot& slot, CompletionCode code) {
  Completion completion;
  completion.code = code;
  completion.kind = CompletionKind::request;
  completion.raw_opcode = slot.raw_opcode;
  completion.vendor_code = code == CompletionCode::success ? std::uint8_t{0} : std::uint8_t{1};
  completion.wqe_index = slot.index;
  completion.qp = qp_.number;
  completion.user_index = qp_.context.user_index;
  completion.byte_count = static_cast<std::uint32_t>(slot.length);
  completion.timestamp = core_.now().count / 1000;
  qp_.count_completion(code, true);
  if (!qp_.blocks.cqs.post(qp_.context.function, qp_.context.send_cq, completion)) {
    fatal();
  }
}

// A local error, or one that the peer has reported: IBTA §10.3.1.6/7.
void Requester::queue_error() {
  if (qp_.reliable() || qp_.context.type == QpType::control) {
    qp_.fail(QpErrorCause::local);
  } else {
    qp_.fail_send_queue();
  }
}

void Requester::enter_error() {
  flushing_ = true;
  active_ = decoded_ = blocked_ = false;
  fault_ = {};
  if (sender_ != nullptr) {
    sender_->stop();
  }
  fetcher_.ring();
  flush();
}

// Once no DMA is on the way for them, all work requests complete as flushed.
void Requester::flush() {
  if (dma_in_flight != 0 || !flushing_) {
    return;
  }
  drop_packets();
  if (abandoned_) {
    return;
  }
  while (!slots_.empty() && flushing_) {
    const Slot slot = slots_.front();
    slots_.pop();
    if (slot.scatter != nullptr) {
      qp_.blocks.scatters.give_back(*slot.scatter);
      --reads_;
    }
    post(slot, slot.failed ? slot.code : CompletionCode::flushed);
  }
  for (auto bytes = fetcher_.available(); !bytes.empty(); bytes = fetcher_.available()) {
    const std::uint32_t blocks = core_.format.send_blocks(bytes);
    if (std::size_t{blocks} * block_bytes > bytes.size()) {
      return;
    }
    core_.format.decode_send(bytes, qp_.context.type, current_);
    fetcher_.consume(blocks);
    Slot slot;
    slot.raw_opcode = current_.raw_opcode;
    slot.index = current_.index;
    post(slot, CompletionCode::flushed);
  }
}

// No DMA may be on the way into or out of them.
void Requester::drop_packets() {
  if (core_.packets == nullptr) {
    return;
  }
  while (!prepared_.empty()) {
    core_.packets->release(prepared_.front().content);
    prepared_.pop();
  }
  while (!outstanding_.empty()) {
    core_.packets->release(outstanding_.front().content);
    outstanding_.pop();
  }
  requests_.clear();
}

void Requester::abandon() {
  flushing_ = abandoned_ = true;
  active_ = decoded_ = blocked_ = false;
  fault_ = {};
  if (sender_ != nullptr) {
    sender_->stop();
  }
  fetcher_.end();
  while (!slots_.empty()) {
    if (slots_.front().scatter != nullptr) {
      qp_.blocks.scatters.give_back(*slots_.front().scatter);
    }
    slots_.pop();
  }
  reads_ = 0;
  flush();
}

void Requester::forget_dma() {
  abandon();
  for (const std::unique_ptr<Placing>& placing : placing_) {
    core_.packets->release(std::exchange(placing->content, {}));
  }
}

bool Requester::quiet() const {
  return dma_in_flight == 0 && fetcher_.dma_in_flight == 0 && !Wire::queued(*this);
}

std::span<const std::byte> Requester::work_request() const {
  return blocked_ ? std::span(wqe_).first(wqe_bytes_) : std::span<const std::byte>();
}

bool Requester::complete_work_request(CompletionCode code) {
  if (!blocked_) {
    return false;
  }
  blocked_ = false;
  if (code != CompletionCode::success) {
    fail_current(code);
    return true;
  }
  slots_.at(current_slot_).sent = true;
  complete_slots();
  pump();
  return true;
}

bool Requester::resume_fault(bool failed) {
  if (fault_.token == none) {
    return false;
  }
  fault_ = {};
  if (failed) {
    fail_current(CompletionCode::local_protection);
  }
  pump();
  return true;
}

}  // namespace orrery::rnic
