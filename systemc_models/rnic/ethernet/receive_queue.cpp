#include "systemc_models/rnic/ethernet/receive_queue.h"

#include <algorithm>

namespace orrery::rnic {

ControlResult ReceiveQueue::write(FrameBlocks& blocks, ScatterPool& scatters, std::uint32_t number,
                                  const FrameQueueContext& context) {
  if (context.log_entries > 15 || context.log_stride < 4 || context.log_stride > 10 ||
      context.function >= max_functions || context.counter_set >= max_counter_sets) {
    return ControlResult::bad_value;
  }
  if (life.destroyed) {
    return ControlResult::busy;
  }
  blocks_ = &blocks;
  scatters_ = &scatters;
  number_ = number;
  if (!valid_) {
    valid_ = true;
    context_ = context;
    context_.state = FrameQueueState::reset;
  } else if (context.function != context_.function) {
    return ControlResult::bad_value;
  }
  if (context.state == context_.state) {
    return ControlResult::ok;
  }
  if (context.state == FrameQueueState::ready && context_.state != FrameQueueState::reset) {
    return ControlResult::wrong_state;
  }
  context_.state = context.state;
  if (context.state == FrameQueueState::ready) {
    start_when_quiet_ = true;
    start();
  } else if (context.state == FrameQueueState::reset) {
    end();
  } else {
    drop_waiting();
  }
  return ControlResult::ok;
}

void ReceiveQueue::start() {
  if (!start_when_quiet_ || !quiet()) {
    return;
  }
  drop_all();
  start_when_quiet_ = leaving_ = false;
  source_.begin(blocks_->core, *scatters_,
                {context_.function, context_.buffer, 0, 1U << context_.log_stride, context_.log_entries,
                 context_.doorbell_record, false},
                context_.pd);
}

void ReceiveQueue::end() {
  source_.end();
  leaving_ = true;
  start_when_quiet_ = false;
  drop_waiting();
  if (dma_in_flight == 0) {
    drop_all();
  }
}

void ReceiveQueue::forget() {
  source_.end();
  start_when_quiet_ = false;
  drop_all();
  context_ = {};
  valid_ = false;
  life = {};
}

void ReceiveQueue::drop_waiting() {
  while (!waiting_.empty()) {
    blocks_->core.packets->release(waiting_.front());
    waiting_.pop();
  }
}

void ReceiveQueue::drop_all() {
  drop_waiting();
  while (!jobs_.empty()) {
    blocks_->core.packets->release(jobs_.front().content);
    jobs_.pop();
  }
}

void ReceiveQueue::drop_unbuffered(fabric::ContentHandle content) {
  ++blocks_->core.frame_counters[context_.function].no_buffer;
  ++blocks_->core.queue_counters.at(context_.counter_set).out_of_buffer;
  blocks_->core.packets->release(content);
}

void ReceiveQueue::deliver(const fabric::Packet& packet) {
  if (start_when_quiet_) {
    start();
  }
  if (start_when_quiet_ || !takes_frames() || waiting_.size() >= most_waiting) {
    drop_unbuffered(packet.content);
    return;
  }
  waiting_.push(packet.content);
  pump();
}

void ReceiveQueue::pump() {
  while (!waiting_.empty()) {
    Scatter* wqe = nullptr;
    const Take take = source_.take(*this, wqe);
    if (take == Take::wait || waiting_.empty()) {  // a queue that failed meanwhile has dropped them
      return;
    }
    const fabric::ContentHandle content = waiting_.front();
    waiting_.pop();
    if (take == Take::empty) {
      drop_unbuffered(content);
      continue;
    }
    place(content, *wqe);
    scatters_->give_back(*wqe);
  }
}

void ReceiveQueue::place(fabric::ContentHandle content, const Scatter& wqe) {
  Core& core = blocks_->core;
  const std::span<const std::byte> frame = core.packets->at(content).bytes();
  const std::uint32_t number = jobs_.end();
  Job& job = jobs_.push({content, wqe.index});
  core.segments.clear();
  std::uint64_t left = frame.size();
  for (std::uint32_t i = 0; i < wqe.list.entry_count && left != 0 && job.code == CompletionCode::success; ++i) {
    const DataEntry& entry = wqe.list.entries[i];
    const std::uint64_t piece = std::min<std::uint64_t>(left, entry.length);
    const KeyRequest key{.function = context_.function,
                         .pd = context_.pd,
                         .qp = number_,
                         .key = entry.key,
                         .address = entry.address,
                         .length = piece,
                         .access = key_local_write,
                         .reserved_allowed = (context_.flags & frame_queue_reserved_key) != 0};
    if (core.keys.resolve(key, core.segments).status != WalkStatus::ok) {
      job.code = CompletionCode::local_protection;
    }
    left -= piece;
  }
  if (wqe.malformed) {
    job.code = CompletionCode::local_qp_operation;
  } else if (left != 0 && job.code == CompletionCode::success) {
    job.code = CompletionCode::local_length;
  }
  if (job.code == CompletionCode::success) {
    core.dma.write(context_.function, core.segments.all(), frame.data(), false, *this, number);
  } else {
    job.done = true;
    finish();
  }
}

void ReceiveQueue::on_dma(std::uint64_t cookie, bool ok) {
  if (leaving_) {
    if (dma_in_flight == 0) {
      drop_all();
      start();
    }
    return;
  }
  Job& job = jobs_.at(static_cast<std::uint32_t>(cookie));
  job.done = true;
  job.code = ok ? job.code : CompletionCode::local_protection;
  finish();
}

void ReceiveQueue::finish() {
  Core& core = blocks_->core;
  FrameCounters& counters = blocks_->core.frame_counters[context_.function];
  while (!jobs_.empty() && jobs_.front().done) {
    const Job job = jobs_.front();
    jobs_.pop();
    const std::span<const std::byte> frame = core.packets->at(job.content).bytes();
    Completion completion;
    completion.kind = CompletionKind::receive;
    completion.code = job.code;
    completion.wqe_index = job.index;
    completion.qp = number_;
    completion.user_index = context_.user_index;
    if (job.code == CompletionCode::success) {
      completion.byte_count = static_cast<std::uint32_t>(frame.size());
      completion.timestamp = core.now().count / 1000;
      completion.frame = summarize(frame);
    } else {
      completion.vendor_code = 1;
      ++counters.received_errors.frames;
      counters.received_errors.bytes += frame.size();
    }
    core.packets->release(job.content);
    if (!blocks_->cqs.post(context_.function, context_.cq, completion) || job.code != CompletionCode::success) {
      context_.state = FrameQueueState::error;
      drop_waiting();
    }
  }
}

void ReceiveQueue::on_receive_failed() {
  context_.state = FrameQueueState::error;
  drop_waiting();
}

}  // namespace orrery::rnic
