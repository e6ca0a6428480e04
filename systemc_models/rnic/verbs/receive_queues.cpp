#include "systemc_models/rnic/verbs/receive_queues.h"

#include <algorithm>
#include <utility>

namespace orrery::rnic {

// ---- Own -------------------------------------------------------------------------------------------------------

void OwnReceiveQueue::begin(Core& core, ScatterPool& pool, const QueueFetcher::Shape& shape, std::uint32_t pd) {
  core_ = &core;
  pool_ = &pool;
  pd_ = pd;
  waiter_ = nullptr;
  fetcher_.begin(core, *this, shape);
}

void OwnReceiveQueue::end() {
  fetcher_.end();
  waiter_ = nullptr;
}

Take OwnReceiveQueue::take(ReceiveWaiter& waiter, Scatter*& into) {
  const auto units = fetcher_.available();
  if (!units.empty()) {
    Scatter& wqe = pool_->take();
    wqe.index = fetcher_.consumed();
    wqe.malformed = !core_->format.decode_receive(units.first(fetcher_.unit_bytes()), wqe.list);
    fetcher_.consume(1);
    ++core_->counters[fetcher_.shape().function].receive_requests;
    into = &wqe;
    return Take::got;
  }
  if (empty_ || !fetcher_.open()) {
    return Take::empty;
  }
  waiter_ = &waiter;
  if (!fetcher_.fetching()) {
    fetcher_.ring();
  }
  return fetcher_.open() ? Take::wait : Take::empty;
}

void OwnReceiveQueue::on_fetched() {
  if (ReceiveWaiter* waiter = std::exchange(waiter_, nullptr); waiter != nullptr) {
    empty_ = true;  // if there is still none
    waiter->on_receive_ready();
    empty_ = false;
  }
}

void OwnReceiveQueue::on_fetch_failed() {
  if (ReceiveWaiter* waiter = std::exchange(waiter_, nullptr); waiter != nullptr) {
    waiter->on_receive_failed();
  }
}

// ---- Shared ----------------------------------------------------------------------------------------------------

void SharedReceiveQueue::begin(Core& core, ScatterPool& pool, std::uint32_t number, const SrqContext& context) {
  core_ = &core;
  pool_ = &pool;
  number_ = number;
  context_ = context;
  open_ = true;
  ++epoch_;
  busy_ = 0;
  posted_ = fetched_ = next_ = 0;
  buffer_.resize(std::max<std::size_t>(batch_bytes, std::size_t{1} << context.log_stride));
}

void SharedReceiveQueue::end() {
  open_ = false;
  waiters_.clear();
  for (Scatter* wqe : ready_) {
    pool_->give_back(*wqe);
  }
  ready_.clear();
}

void SharedReceiveQueue::fail() {
  open_ = false;
  core_->report(EventCode::srq_error, context_.function, number_);
  const std::vector<ReceiveWaiter*> waiters = std::exchange(waiters_, {});
  for (ReceiveWaiter* waiter : waiters) {
    waiter->on_receive_failed();
  }
}

Take SharedReceiveQueue::take(ReceiveWaiter& waiter, Scatter*& into) {
  if (!ready_.empty()) {
    into = ready_.front();
    ready_.pop_front();
    ++core_->counters[context_.function].receive_requests;
    check_limit();
    return Take::got;
  }
  if (empty_ || !open_) {
    return Take::empty;
  }
  if (std::find(waiters_.begin(), waiters_.end(), &waiter) == waiters_.end()) {
    waiters_.push_back(&waiter);
  }
  if (busy_ == 0) {
    fetched_ != posted_ ? fetch_entries() : fetch_record();
  }
  return open_ ? Take::wait : Take::empty;
}

void SharedReceiveQueue::cancel(ReceiveWaiter& waiter) {
  std::erase(waiters_, &waiter);
}

// IBTA §10.2.9.3: one event when fewer than `limit` entries are left.
void SharedReceiveQueue::check_limit() {
  const std::uint32_t left = static_cast<std::uint16_t>(posted_ - fetched_) + static_cast<std::uint32_t>(ready_.size());
  if (context_.limit == 0 || left >= context_.limit) {
    return;
  }
  // More may have been posted than we know of.
  if (busy_ == 0) {
    fetch_record();
  }
}

void SharedReceiveQueue::fetch_record() {
  const auto bus = core_->functions.bus(context_.function, context_.doorbell_record, record_.size());
  if (!bus) {
    fail();
    return;
  }
  busy_ = epoch_;
  const BusSegment segment{*bus, static_cast<std::uint32_t>(record_.size()), pcie::AddressType::untranslated};
  core_->dma.read(context_.function, {&segment, 1}, record_.data(), *this,
                  record_cookie | (std::uint64_t{epoch_} << 8));
}

void SharedReceiveQueue::fetch_entries() {
  const std::uint32_t size = 1U << context_.log_entries;
  const std::uint32_t stride = 1U << context_.log_stride;
  next_ = static_cast<std::uint16_t>(next_ & (size - 1));
  const std::uint32_t known = static_cast<std::uint16_t>(posted_ - fetched_);
  batch_ = std::min({known, size - next_, std::max(1U, batch_bytes / stride)});
  const WalkResult walk = walk_buffer(core_->translation, core_->functions, context_.function, context_.buffer,
                                      std::uint64_t{next_} * stride, std::uint64_t{batch_} * stride, core_->segments);
  if (walk.status != WalkStatus::ok) {
    fail();
    return;
  }
  busy_ = epoch_;
  core_->dma.read(context_.function, core_->segments.all(), buffer_.data(), *this,
                  entries_cookie | (std::uint64_t{epoch_} << 8));
}

// Follows the links as far as they stay within what was read.
void SharedReceiveQueue::harvest() {
  const std::uint32_t stride = 1U << context_.log_stride;
  const std::uint32_t size = 1U << context_.log_entries;
  const std::uint32_t first = next_;
  for (std::uint32_t i = 0; i < batch_; ++i) {
    const std::uint32_t at = next_ - first;
    if (next_ < first || at >= batch_) {
      break;
    }
    Scatter& wqe = pool_->take();
    wqe.index = next_;
    wqe.malformed = !core_->format.decode_srq(std::span(buffer_).subspan(std::size_t{at} * stride, stride), wqe.list);
    next_ = static_cast<std::uint16_t>(wqe.list.next & (size - 1));
    ready_.push_back(&wqe);
    ++fetched_;
  }
}

void SharedReceiveQueue::on_dma(std::uint64_t cookie, bool ok) {
  if (!open_ || (cookie >> 8) != epoch_) {
    return;
  }
  busy_ = 0;
  if (!ok) {
    fail();
    return;
  }
  if ((cookie & 0xffU) == record_cookie) {
    const std::uint16_t posted = core_->format.receive_producer(record_);
    if (static_cast<std::uint16_t>(posted - fetched_) > (1U << context_.log_entries)) {
      fail();
      return;
    }
    posted_ = posted;
    const std::uint32_t left =
        static_cast<std::uint16_t>(posted_ - fetched_) + static_cast<std::uint32_t>(ready_.size());
    if (context_.limit != 0 && left < context_.limit) {
      context_.limit = 0;
      core_->report(EventCode::srq_limit, context_.function, number_);
    }
    if (!open_ || waiters_.empty()) {
      return;
    }
    if (fetched_ != posted_) {
      fetch_entries();
      return;
    }
  } else {
    harvest();
  }
  notify();
}

void SharedReceiveQueue::notify() {
  // Those who wait again meanwhile are told next time.
  const std::vector<ReceiveWaiter*> waiters = std::exchange(waiters_, {});
  for (ReceiveWaiter* waiter : waiters) {
    if (ready_.empty() && fetched_ != posted_) {  // the rest needs another read
      waiters_.push_back(waiter);
      continue;
    }
    empty_ = fetched_ == posted_;
    waiter->on_receive_ready();
    empty_ = false;
  }
  if (open_ && !waiters_.empty() && busy_ == 0) {
    fetched_ != posted_ ? fetch_entries() : fetch_record();
  }
}

// ---- All SRQs --------------------------------------------------------------------------------------------------

ControlResult SharedReceiveQueues::write(std::uint32_t srqn, const SrqContext& context) {
  if (srqn >= queues_.size()) {
    return ControlResult::bad_index;
  }
  if (context.function >= max_functions || context.log_entries > 15 || context.log_stride < 4 ||
      context.log_stride > 11) {
    return ControlResult::bad_value;
  }
  SharedReceiveQueue& queue = queues_.make(srqn);
  if (queue.life.destroyed) {
    return ControlResult::busy;
  }
  if (queue.context().valid != 0 && context.valid != 0) {
    if (queue.context().function != context.function) {
      return ControlResult::bad_value;
    }
    queue.arm(context.limit);
    return ControlResult::ok;
  }
  if (context.valid != 0) {
    queue.begin(core_, pool_, srqn, context);
  }
  return ControlResult::ok;
}

ControlResult SharedReceiveQueues::read(std::uint32_t srqn, SrqContext& into) const {
  const SharedReceiveQueue* queue = queues_.find(srqn);
  if (queue == nullptr) {
    return ControlResult::bad_index;
  }
  into = queue->context();
  return ControlResult::ok;
}

ControlResult SharedReceiveQueues::arm(std::uint32_t srqn, std::uint32_t limit) {
  SharedReceiveQueue* queue = queues_.find(srqn);
  if (queue == nullptr || queue->context().valid == 0) {
    return ControlResult::bad_index;
  }
  queue->arm(limit);
  return ControlResult::ok;
}

ControlResult SharedReceiveQueues::destroy(std::uint32_t srqn) {
  SharedReceiveQueue* queue = queues_.find(srqn);
  if (queue == nullptr || queue->context().valid == 0) {
    return ControlResult::bad_index;
  }
  queue->end();
  queue->invalidate();
  queue->life = {true, core_.dma.barrier()};
  return ControlResult::ok;
}

Lifetime* SharedReceiveQueues::lifetime(std::uint32_t srqn) {
  SharedReceiveQueue* queue = queues_.find(srqn);
  return queue == nullptr ? nullptr : &queue->life;
}

void SharedReceiveQueues::reset(std::uint32_t function) {
  queues_.for_each([&](std::uint32_t, SharedReceiveQueue& queue) {
    if (queue.context().function == function && (queue.context().valid != 0 || queue.life.destroyed)) {
      queue.end();
      queue.invalidate();
      queue.life = {};
    }
  });
}

SharedReceiveQueue* SharedReceiveQueues::find(std::uint32_t function, std::uint32_t srqn) {
  SharedReceiveQueue* queue = queues_.find(srqn);
  return queue != nullptr && queue->context().valid != 0 && queue->context().function == function ? queue : nullptr;
}

}  // namespace orrery::rnic
