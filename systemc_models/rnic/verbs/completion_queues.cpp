#include "systemc_models/rnic/verbs/completion_queues.h"

namespace orrery::rnic {

ControlResult CompletionQueues::write(std::uint32_t cqn, const CqContext& context) {
  if (cqn >= queues_.size()) {
    return ControlResult::bad_index;
  }
  if (context.function >= max_functions || context.log_entries > 22 ||
      (context.entry_size != 64 && context.entry_size != 128)) {
    return ControlResult::bad_value;
  }
  Queue& queue = queues_.make(cqn);
  if (queue.life.destroyed) {
    return ControlResult::busy;
  }
  if (queue.context.valid != 0 && context.valid != 0) {
    CqContext& c = queue.context;
    if (c.function != context.function) {
      return ControlResult::bad_value;
    }
    c.flags = (context.flags & ~std::uint32_t{cq_collapsed}) | (c.flags & cq_collapsed);
    c.uar = context.uar;
    c.eq = context.eq;
    c.moderation_count = context.moderation_count;
    c.moderation_period_us = context.moderation_period_us;
    return ControlResult::ok;
  }
  queue.context = context;
  if (context.valid != 0) {
    queue.all = this;
    queue.number = cqn;
    queue.consumer = 0;
    queue.armed = Arm::off;
    queue.overrun = queue.solicited_waiting = queue.solicited_sent = false;
    queue.reading_consumer = false;
    queue.unannounced = 0;
    ++queue.generation;
    queue.ring.begin(core_, queue,
                     {context.function, context.buffer, context.log_entries, context.entry_size,
                      (context.flags & cq_collapsed) != 0});
  }
  return ControlResult::ok;
}

ControlResult CompletionQueues::read(std::uint32_t cqn, CqContext& into) const {
  const Queue* queue = queues_.find(cqn);
  if (queue == nullptr) {
    return ControlResult::bad_index;
  }
  into = queue->context;
  return ControlResult::ok;
}

ControlResult CompletionQueues::destroy(std::uint32_t cqn) {
  Queue* queue = queues_.find(cqn);
  if (queue == nullptr || queue->context.valid == 0) {
    return ControlResult::bad_index;
  }
  queue->context.valid = 0;
  queue->ring.end();
  queue->life = {true, core_.dma.barrier()};
  return ControlResult::ok;
}

Lifetime* CompletionQueues::lifetime(std::uint32_t cqn) {
  Queue* queue = queues_.find(cqn);
  return queue == nullptr ? nullptr : &queue->life;
}

void CompletionQueues::reset(std::uint32_t function) {
  queues_.for_each([&](std::uint32_t, Queue& queue) {
    if (queue.context.function == function && (queue.context.valid != 0 || queue.life.destroyed)) {
      queue.context = {};
      queue.life = {};
      queue.ring.forget();
    }
  });
}

bool CompletionQueues::post(std::uint32_t function, std::uint32_t cqn, const Completion& completion) {
  Queue* queue = queues_.find(cqn);
  if (queue == nullptr || queue->context.valid == 0 || queue->context.function != function || queue->overrun) {
    return false;
  }
  if (queue->ring.waiting() >= queue->ring.size()) {
    fail(*queue);
    return false;
  }
  VerbsCounters& counters = core_.counters[function];
  ++counters.completions;
  if (completion.code != CompletionCode::success) {
    ++(completion.code == CompletionCode::flushed ? counters.completions_flushed : counters.completion_errors);
  }
  queue->solicited_waiting =
      queue->solicited_waiting || completion.solicited || completion.code != CompletionCode::success;
  const std::uint32_t pass = queue->ring.pass();
  core_.format.encode_completion(completion, pass, queue->ring.append());
  flush(*queue);
  return !queue->overrun;
}

// Sends what waits, as far as the consumer has made room.
void CompletionQueues::flush(Queue& queue) {
  if (queue.ring.busy() || queue.ring.waiting() == 0 || queue.reading_consumer) {
    return;
  }
  const bool checked = (queue.context.flags & (cq_ignore_overrun | cq_collapsed)) == 0;
  if (checked && ((queue.ring.produced() - queue.consumer) & index_mask) > queue.ring.size()) {
    const auto bus = core_.functions.bus(queue.context.function, queue.context.doorbell_record, sizeof(queue.record));
    if (!bus) {
      fail(queue);
      return;
    }
    queue.reading_consumer = true;
    const BusSegment segment{*bus, sizeof(queue.record), pcie::AddressType::untranslated};
    core_.dma.read(queue.context.function, {&segment, 1}, queue.record, queue, queue.generation);
    return;
  }
  queue.solicited_sent = queue.solicited_waiting;
  queue.solicited_waiting = false;
  if (!queue.ring.write()) {
    fail(queue);
  }
}

// The consumer index that was asked for.
void CompletionQueues::Queue::on_dma(std::uint64_t cookie, bool ok) {
  if (cookie != generation || context.valid == 0) {
    return;
  }
  reading_consumer = false;
  if (ok) {
    consumer = all->core_.format.cq_consumer(record);
  }
  if (((ring.produced() - consumer) & index_mask) > ring.size()) {
    all->fail(*this);
    return;
  }
  all->flush(*this);
}

void CompletionQueues::fail(Queue& queue) {
  if (!queue.overrun) {
    queue.overrun = true;
    ++core_.counters[queue.context.function].cq_overruns;
    core_.report(EventCode::cq_overrun, queue.context.function, queue.number);
  }
}

void CompletionQueues::Queue::on_landed(std::uint32_t count, bool ok) {
  const bool solicited = solicited_sent;
  solicited_sent = false;
  unannounced += count;
  if (!ok) {
    all->fail(*this);
    return;
  }
  if (armed == Arm::any || (armed == Arm::solicited && solicited)) {
    const bool moderated = context.moderation_count > 1 && context.moderation_period_us != 0;
    if (!moderated || unannounced >= context.moderation_count) {
      all->announce(*this);
    } else if (unannounced == count) {  // the first of a batch starts the clock
      all->core_.events().schedule(
          all->core_.now() + Picoseconds{std::uint64_t{context.moderation_period_us} * 1'000'000}, *all,
          (std::uint64_t{generation} << 32) | number);
    }
  }
  all->flush(*this);
}

void CompletionQueues::on_event(std::uint64_t argument) {
  Queue* queue = queues_.find(static_cast<std::uint32_t>(argument));
  if (queue != nullptr && queue->context.valid != 0 &&
      queue->generation == static_cast<std::uint32_t>(argument >> 32) && queue->unannounced != 0 &&
      queue->armed != Arm::off) {
    announce(*queue);
  }
}

void CompletionQueues::announce(Queue& queue) {
  queue.armed = Arm::off;
  queue.unannounced = 0;
  if (queue.context.eq != none) {
    eqs_.post(queue.context.function, queue.context.eq, core_.format.completion_event(queue.number));
  }
}

bool CompletionQueues::arm(std::uint32_t function, std::uint32_t uar, std::uint32_t cqn, std::uint32_t consumer,
                           bool solicited_only) {
  Queue* queue = queues_.find(cqn);
  if (queue == nullptr || queue->context.valid == 0 || queue->context.function != function ||
      queue->context.uar != uar) {
    return false;
  }
  queue->consumer = consumer & index_mask;
  queue->armed = solicited_only ? Arm::solicited : Arm::any;
  if ((queue->ring.landed() & index_mask) != queue->consumer) {
    announce(*queue);
  } else {
    queue->unannounced = 0;
  }
  return true;
}

}  // namespace orrery::rnic
