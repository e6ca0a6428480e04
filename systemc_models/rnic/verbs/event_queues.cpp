#include "systemc_models/rnic/verbs/event_queues.h"

namespace orrery::rnic {

ControlResult EventQueues::write(std::uint32_t index, const EqContext& context) {
  if (index >= queues_.size() || context.function != index / max_eqs) {
    return ControlResult::bad_index;
  }
  if (context.log_entries > 22) {
    return ControlResult::bad_value;
  }
  Queue& queue = queues_.make(index);
  if (queue.life.destroyed) {
    return ControlResult::busy;
  }
  const bool begins = queue.context.valid == 0 && context.valid != 0;
  queue.context = context;
  if (begins) {
    queue.all = this;
    queue.consumer = 0;
    queue.armed = false;
    queue.ring.begin(core_, queue, {context.function, context.buffer, context.log_entries, core_.format.event_size()});
  }
  return ControlResult::ok;
}

ControlResult EventQueues::read(std::uint32_t index, EqContext& into) const {
  const Queue* queue = queues_.find(index);
  if (queue == nullptr) {
    return ControlResult::bad_index;
  }
  into = queue->context;
  return ControlResult::ok;
}

ControlResult EventQueues::destroy(std::uint32_t index) {
  Queue* queue = queues_.find(index);
  if (queue == nullptr || queue->context.valid == 0) {
    return ControlResult::bad_index;
  }
  queue->context.valid = 0;
  queue->ring.end();
  queue->life = {true, core_.dma.barrier()};
  return ControlResult::ok;
}

Lifetime* EventQueues::lifetime(std::uint32_t index) {
  Queue* queue = queues_.find(index);
  return queue == nullptr ? nullptr : &queue->life;
}

void EventQueues::reset(std::uint32_t function) {
  for (std::uint32_t i = 0; i < max_eqs; ++i) {
    if (Queue* queue = queues_.find(function * max_eqs + i); queue != nullptr) {
      queue->context = {};
      queue->life = {};
      queue->ring.forget();
    }
  }
}

bool EventQueues::post(std::uint32_t function, std::uint32_t eqn, const Event& event) {
  Queue* queue = eqn < max_eqs && function < max_functions ? queues_.find(function * max_eqs + eqn) : nullptr;
  if (queue == nullptr || queue->context.valid == 0) {
    return false;
  }
  VerbsCounters& counters = core_.counters[function];
  if (((queue->ring.produced() - queue->consumer) & index_mask) >= queue->ring.size()) {
    ++counters.events_lost;
    return true;
  }
  ++counters.events;
  const std::uint32_t pass = queue->ring.pass();
  core_.format.encode_event(event, pass, queue->ring.append());
  if (!queue->ring.write()) {
    ++counters.events_lost;
  }
  return true;
}

bool EventQueues::update(std::uint32_t function, std::uint32_t uar, std::uint32_t eqn, std::uint32_t consumer,
                         bool arm) {
  Queue* queue = eqn < max_eqs && function < max_functions ? queues_.find(function * max_eqs + eqn) : nullptr;
  if (queue == nullptr || queue->context.valid == 0 || queue->context.uar != uar) {
    return false;
  }
  queue->consumer = consumer & index_mask;
  if (arm) {
    queue->armed = true;
    if ((queue->ring.landed() & index_mask) != queue->consumer) {
      interrupt(*queue);
    }
  }
  return true;
}

void EventQueues::interrupt(Queue& queue) {
  queue.armed = false;
  ++core_.counters[queue.context.function].interrupts;
  core_.dma.port(queue.context.function)->msix(queue.context.vector);
}

void EventQueues::Queue::on_landed(std::uint32_t count, bool ok) {
  static_cast<void>(count);
  VerbsCounters& counters = all->core_.counters[context.function];
  if (!ok) {
    ++counters.events_lost;
  }
  if (!ring.write()) {
    ++counters.events_lost;
  }
  if (armed) {
    all->interrupt(*this);
  }
}

}  // namespace orrery::rnic
