#include "systemc_models/rnic/verbs/responder.h"

#include <algorithm>

#include "systemc_models/rnic/verbs/datagram_responder.h"
#include "systemc_models/rnic/verbs/reliable_responder.h"
#include "systemc_models/rnic/verbs/unreliable_responder.h"

namespace orrery::rnic {
namespace {

// A QP in error has no doorbell for receives that are posted later (drivers drain a queue that way): its record is
// looked at again after 250 us, 500 us and so on, 15 times.
constexpr Picoseconds first_poll{250'000'000};
constexpr unsigned max_polls = 15;

}  // namespace

Responder::Responder(QueuePair& qp) : qp_(qp), core_(qp.blocks.core), timer_(qp.blocks.timers.add(*this)) {}

Responder::~Responder() {
  qp_.blocks.timers.remove(timer_);
}

void Responder::begin() {
  if (!qp_.has_own_receive_queue()) {
    return;
  }
  const QpContext& c = qp_.context;
  own_.begin(core_, qp_.blocks.scatters,
             {c.function, c.buffer, 0, 1U << c.log_receive_stride, c.log_receive_entries, c.doorbell_record, false},
             c.pd);
}

ReceiveSource* Responder::source(std::uint32_t srqn) {
  if (qp_.has_own_receive_queue()) {
    return &own_;
  }
  return srqn == none ? nullptr : qp_.blocks.srqs.find(qp_.context.function, srqn);
}

Responder::Placed Responder::place(const Scatter& wqe, std::uint32_t pd, std::uint64_t offset,
                                   std::span<const std::byte> bytes, std::uint64_t cookie) {
  SegmentList& segments = core_.segments;
  segments.clear();
  std::uint64_t skip = offset;
  std::uint64_t left = bytes.size();
  for (std::uint32_t i = 0; i < wqe.list.entry_count && left != 0; ++i) {
    const DataEntry& e = wqe.list.entries[i];
    if (skip >= e.length) {
      skip -= e.length;
      continue;
    }
    const std::uint64_t piece = std::min<std::uint64_t>(left, e.length - skip);
    KeyRequest request = qp_.key_request(e.key, e.address + skip, piece, key_local_write);
    request.pd = pd;
    request.reserved_allowed = request.reserved_allowed && qp_.has_own_receive_queue();  // an SRQ's WQEs: never
    const WalkResult walk = core_.keys.resolve(request, segments);
    if (walk.status == WalkStatus::absent) {
      return Placed::absent;
    }
    if (walk.status == WalkStatus::denied) {
      ++qp_.counters().key_violations;
      return Placed::denied;
    }
    left -= piece;
    skip = 0;
  }
  if (left != 0) {
    return Placed::too_long;
  }
  core_.dma.write(qp_.context.function, segments.all(), bytes.data(), core_.settings.confirm_payload, *this, cookie);
  return Placed::started;
}

void Responder::complete(Scatter& wqe, Completion completion, std::uint32_t srqn) {
  completion.wqe_index = wqe.index;
  qp_.blocks.scatters.give_back(wqe);
  completion.qp = qp_.number;
  completion.user_index = qp_.context.user_index;
  completion.timestamp = core_.now().count / 1000;
  std::uint32_t cqn = qp_.context.receive_cq;
  if (srqn != none) {
    if (const SharedReceiveQueue* srq = qp_.blocks.srqs.find(qp_.context.function, srqn); srq != nullptr) {
      cqn = srq->context().cq;
      completion.user_index = srq->context().user_index;
    }
  }
  qp_.count_completion(completion.code, false);
  if (!qp_.blocks.cqs.post(qp_.context.function, cqn, completion)) {
    qp_.fail(QpErrorCause::fatal);
  }
}

void Responder::flush_one(Scatter& wqe, std::uint32_t srqn) {
  Completion completion;
  completion.code = CompletionCode::flushed;
  completion.kind = CompletionKind::receive;
  completion.vendor_code = 1;
  complete(wqe, completion, srqn);
}

void Responder::enter_error() {
  if (flushing_) {
    return;
  }
  flushing_ = true;
  fault_ = {};
  stop();
  polls_ = 0;
  flush();
}

void Responder::flush() {
  if (!flushing_ || dma_in_flight != 0) {
    return;
  }
  release_receives(!abandoned_);
  if (abandoned_) {
    return;
  }
  if (!qp_.has_own_receive_queue()) {
    if (!last_receive_reported_ && source() != nullptr) {
      last_receive_reported_ = true;
      core_.report(EventCode::last_receive, qp_.context.function, qp_.number);
    }
    return;
  }
  Scatter* wqe = nullptr;
  Take taken = Take::got;
  while (flushing_ && (taken = own_.take(*this, wqe)) == Take::got) {
    flush_one(*wqe, none);
  }
  if (taken == Take::empty && own_.open() && polls_ < max_polls) {
    qp_.blocks.timers.arm(timer_, core_.now() + first_poll * (std::uint64_t{1} << polls_++));
  }
}

void Responder::poll_again() {
  polls_ = 0;
  flush();
}

void Responder::on_timer() {
  flush();
}

void Responder::on_receive_ready() {
  if (flushing_) {
    flush();
  } else if (qp_.can_receive()) {
    receive_ready();
  }
}

void Responder::on_receive_failed() {
  if (!flushing_) {
    qp_.fail(QpErrorCause::fatal);
  }
}

void Responder::abandon() {
  flushing_ = abandoned_ = true;
  stop();
  qp_.blocks.timers.disarm(timer_);
  for (const std::uint32_t srqn : waits_) {
    if (SharedReceiveQueue* srq = qp_.blocks.srqs.find(qp_.context.function, srqn); srq != nullptr) {
      srq->cancel(*this);
    }
  }
  waits_.clear();
  own_.end();
  flush();
}

void Responder::note_wait(std::uint32_t srqn) {
  if (!qp_.has_own_receive_queue() && std::find(waits_.begin(), waits_.end(), srqn) == waits_.end()) {
    waits_.push_back(srqn);
  }
}

bool Responder::quiet() const {
  return dma_in_flight == 0 && own_.quiet();
}

std::unique_ptr<Responder> make_responder(QueuePair& qp) {
  if (qp.reliable()) {
    return std::make_unique<ReliableResponder>(qp);
  }
  if (qp.context.type == QpType::uc) {
    return std::make_unique<UnreliableResponder>(qp);
  }
  return std::make_unique<DatagramResponder>(qp);
}

}  // namespace orrery::rnic
