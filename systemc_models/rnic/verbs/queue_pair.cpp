#include "systemc_models/rnic/verbs/queue_pair.h"

#include <algorithm>

#include "systemc_models/rnic/verbs/requester.h"
#include "systemc_models/rnic/verbs/responder.h"

namespace orrery::rnic {
namespace {

// IBTA §10.3.1, figure 124; the way to error and to reset is open from everywhere.
bool transition_allowed(QpState from, QpState to) {
  if (to == QpState::reset || to == QpState::error) {
    return true;
  }
  switch (from) {
    case QpState::reset:
      return to == QpState::init;
    case QpState::init:
      return to == QpState::init || to == QpState::rtr;
    case QpState::rtr:
      return to == QpState::rtr || to == QpState::rts;
    case QpState::rts:
      return to == QpState::rts || to == QpState::sqd;
    case QpState::sqd:
      return to == QpState::sqd || to == QpState::rts;
    case QpState::sqe:
      return to == QpState::sqe || to == QpState::rts;
    case QpState::error:
      return false;
  }
  return false;
}

}  // namespace

QueuePair::QueuePair(Blocks& b, std::uint32_t n, const QpContext& wanted) : blocks(b), number(n), context(wanted) {
  context.state = QpState::reset;
  begin_life();
}

QueuePair::~QueuePair() = default;

void QueuePair::begin_life() {
  requester_ = std::make_unique<Requester>(*this);
  responder_ = make_responder(*this);
  route.reset();
}

bool QueuePair::Halves::quiet() const {
  return requester->quiet() && responder->quiet();
}

ControlResult QueuePair::check(const QpContext& c) const {
  const bool mtu_good = c.mtu == 256 || c.mtu == 512 || c.mtu == 1024 || c.mtu == 2048 || c.mtu == 4096;
  if (c.state > QpState::error || c.type > QpType::control || c.function != context.function ||
      c.log_send_blocks > 15 || c.log_receive_entries > 15 || c.log_receive_stride < 4 || c.log_receive_stride > 11 ||
      c.counter_set >= max_counter_sets || c.ack_timeout > 31 || c.retry_count > 7 || c.rnr_retry > 7 ||
      c.min_rnr_timer > 31 ||
      (c.type != QpType::control && c.state >= QpState::rtr && c.state <= QpState::sqd && !mtu_good) ||
      (context.state != QpState::reset && c.type != context.type)) {
    return ControlResult::bad_value;
  }
  return transition_allowed(context.state, c.state) ? ControlResult::ok : ControlResult::wrong_state;
}

ControlResult QueuePair::modify(const QpContext& wanted) {
  if (const ControlResult result = check(wanted); result != ControlResult::ok) {
    return result;
  }
  std::erase_if(former_, [](const Halves& halves) { return halves.quiet(); });
  const QpState from = context.state;
  const QpState to = wanted.state;
  const bool type_changes = wanted.type != context.type;
  context = wanted;
  if (from == QpState::reset && type_changes) {
    begin_life();
  }
  if (to == QpState::reset) {
    if (from != QpState::reset) {
      abandon();
      former_.push_back({std::move(requester_), std::move(responder_)});
      begin_life();
    }
    return ControlResult::ok;
  }
  if (to == QpState::error) {
    if (from != QpState::error) {
      if (from == QpState::reset) {
        requester_->begin();
        responder_->begin();
      }
      requester_->enter_error();
      responder_->enter_error();
    } else {
      requester_->doorbell();
      responder_->poll_again();
    }
    return ControlResult::ok;
  }
  if (from == QpState::reset) {
    requester_->begin();
    responder_->begin();
  }
  if (to >= QpState::rtr && !datagram() && context.type != QpType::control) {
    route = blocks.addresses.route(context.function, context.path);
  }
  if (from == QpState::init && to == QpState::rtr) {
    responder_->start_connection();
  }
  if (from == QpState::rtr && to == QpState::rts) {
    requester_->start_connection();
  }
  if (to == QpState::rts) {
    requester_->resume(from == QpState::rtr || from == QpState::sqe);
  }
  if (to == QpState::sqd && from == QpState::rts && requester_->drained()) {
    blocks.core.report(EventCode::send_queue_drained, context.function, number);
  }
  return ControlResult::ok;
}

void QueuePair::fail(QpErrorCause cause) {
  if (context.state == QpState::error || context.state == QpState::reset) {
    return;
  }
  context.state = QpState::error;
  blocks.core.report(EventCode::qp_error, context.function, number, static_cast<std::uint32_t>(cause));
  requester_->enter_error();
  responder_->enter_error();
}

void QueuePair::fail_send_queue() {
  if (context.state != QpState::rts && context.state != QpState::sqd) {
    return;
  }
  context.state = QpState::sqe;
  blocks.core.report(EventCode::qp_error, context.function, number, static_cast<std::uint32_t>(QpErrorCause::local));
  requester_->enter_error();
}

void QueuePair::count_completion(CompletionCode code, bool requester) {
  if (code == CompletionCode::success) {
    return;
  }
  QueueCounters& c = queue_counters();
  ++(requester ? c.requester_errors : c.responder_errors);
  switch (code) {
    case CompletionCode::local_length:
      ++(requester ? c.requester_length : c.responder_length);
      break;
    case CompletionCode::local_protection:
    case CompletionCode::local_access:
      ++(requester ? c.requester_protection : c.responder_protection);
      break;
    case CompletionCode::flushed:
      ++(requester ? c.requester_flushed : c.responder_flushed);
      break;
    case CompletionCode::local_qp_operation:
      ++c.requester_operation;
      break;
    case CompletionCode::memory_window_bind:
      ++c.requester_bind;
      break;
    case CompletionCode::bad_response:
      ++c.requester_bad_response;
      break;
    case CompletionCode::remote_invalid_request:
      ++c.requester_invalid_request;
      break;
    case CompletionCode::remote_access:
      ++c.requester_remote_access;
      break;
    case CompletionCode::remote_operation:
      ++c.requester_remote_operation;
      break;
    case CompletionCode::transport_retry_exceeded:
      ++c.requester_retries_exceeded;
      break;
    case CompletionCode::rnr_retry_exceeded:
      ++c.requester_rnr_exceeded;
      break;
    case CompletionCode::success:
    case CompletionCode::aborted:
      break;
  }
}

void QueuePair::abandon() {
  requester_->abandon();
  responder_->abandon();
}

void QueuePair::forget_dma() {
  requester_->forget_dma();
  responder_->forget_dma();
  for (Halves& halves : former_) {
    halves.requester->forget_dma();
    halves.responder->forget_dma();
  }
}

bool QueuePair::quiet() const {
  return requester_->quiet() && responder_->quiet() &&
         std::all_of(former_.begin(), former_.end(), [](const Halves& halves) { return halves.quiet(); });
}

void QueuePair::read_back(QpContext& into) const {
  into = context;
  if (context.state >= QpState::rts) {
    into.send_psn = requester_->next_psn();
  }
  if (context.state >= QpState::rtr) {
    into.receive_psn = responder_->expected_psn();
  }
}

}  // namespace orrery::rnic
