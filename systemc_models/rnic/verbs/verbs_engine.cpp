#include "systemc_models/rnic/verbs/verbs_engine.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "systemc_models/rnic/verbs/engine_parts.h"

namespace orrery::rnic {
namespace {

template <class Context>
bool copy_in(std::span<const std::byte> bytes, Context& into) {
  if (bytes.size() != sizeof(Context)) {
    return false;
  }
  std::memcpy(&into, bytes.data(), sizeof(Context));
  return true;
}

template <class Context>
ControlResult copy_out(const Context& context, std::span<std::byte> into) {
  if (into.size() != sizeof(Context)) {
    return ControlResult::bad_value;
  }
  std::memcpy(into.data(), &context, sizeof(Context));
  return ControlResult::ok;
}

}  // namespace

VerbsEngine::VerbsEngine(const VerbsSettings& settings, const QueueFormat& format, EventSink& sink)
    : parts_(std::make_unique<Parts>(settings, format, sink)) {}
VerbsEngine::~VerbsEngine() = default;

void VerbsEngine::attach(std::uint32_t function, pcie::DevicePort& port) {
  parts_->attach(function, port);
}

void VerbsEngine::attach(fabric::Port& port, fabric::PacketPool& pool) {
  parts_->core.port = &port;
  parts_->core.packets = &pool;
  parts_->wire.attach(port);
}

ControlResult VerbsEngine::write_context(ContextKind kind, std::uint32_t index, std::span<const std::byte> bytes) {
  Parts& p = *parts_;
  p.reap();
  switch (kind) {
    case ContextKind::function: {
      FunctionContext context;
      if (!copy_in(bytes, context)) {
        return ControlResult::bad_value;
      }
      if (index >= max_functions) {
        return ControlResult::bad_index;
      }
      p.core.functions.at(index) = context;
      return ControlResult::ok;
    }
    case ContextKind::qp: {
      QpContext context;
      return copy_in(bytes, context) ? p.write_qp(index, context) : ControlResult::bad_value;
    }
    case ContextKind::cq: {
      CqContext context;
      return copy_in(bytes, context) ? p.cqs.write(index, context) : ControlResult::bad_value;
    }
    case ContextKind::eq: {
      EqContext context;
      return copy_in(bytes, context) ? p.eqs.write(index, context) : ControlResult::bad_value;
    }
    case ContextKind::srq: {
      SrqContext context;
      return copy_in(bytes, context) ? p.srqs.write(index, context) : ControlResult::bad_value;
    }
    case ContextKind::mkey: {
      MkeyContext context;
      return copy_in(bytes, context) ? p.write_mkey(index, context) : ControlResult::bad_value;
    }
    case ContextKind::address: {
      AddressContext context;
      return copy_in(bytes, context) ? p.addresses.write(index, context) : ControlResult::bad_value;
    }
    case ContextKind::mac: {
      MacContext context;
      return copy_in(bytes, context) ? p.core.macs.write(index, context) : ControlResult::bad_value;
    }
    case ContextKind::group: {
      GroupContext context;
      return copy_in(bytes, context) ? p.write_group(index, context) : ControlResult::bad_value;
    }
    case ContextKind::send_queue:
    case ContextKind::receive_queue: {
      FrameQueueContext context;
      return copy_in(bytes, context) ? p.ethernet.write(kind, index, context) : ControlResult::bad_value;
    }
    case ContextKind::fault:
    case ContextKind::frame_counters:
    case ContextKind::queue_counters:
      break;
  }
  return ControlResult::bad_index;
}

ControlResult VerbsEngine::read_context(ContextKind kind, std::uint32_t index, std::span<std::byte> into) const {
  Parts& p = *parts_;
  switch (kind) {
    case ContextKind::function:
      return index < max_functions ? copy_out(p.core.functions.at(index), into) : ControlResult::bad_index;
    case ContextKind::qp: {
      const QueuePair* qp = p.find_qp(index);
      QpContext context;
      if (qp == nullptr) {
        return ControlResult::bad_index;
      }
      qp->read_back(context);
      return copy_out(context, into);
    }
    case ContextKind::cq: {
      CqContext context;
      const ControlResult result = p.cqs.read(index, context);
      return result == ControlResult::ok ? copy_out(context, into) : result;
    }
    case ContextKind::eq: {
      EqContext context;
      const ControlResult result = p.eqs.read(index, context);
      return result == ControlResult::ok ? copy_out(context, into) : result;
    }
    case ContextKind::srq: {
      SrqContext context;
      const ControlResult result = p.srqs.read(index, context);
      return result == ControlResult::ok ? copy_out(context, into) : result;
    }
    case ContextKind::mkey: {
      const MkeyContext* context = p.core.keys.find(index);
      return context != nullptr ? copy_out(*context, into) : ControlResult::bad_index;
    }
    case ContextKind::address: {
      AddressContext context;
      const ControlResult result = p.addresses.read(index, context);
      return result == ControlResult::ok ? copy_out(context, into) : result;
    }
    case ContextKind::mac: {
      MacContext context;
      const ControlResult result = p.core.macs.read(index, context);
      return result == ControlResult::ok ? copy_out(context, into) : result;
    }
    case ContextKind::group:
      return index < p.groups.size() ? copy_out(p.groups[index], into) : ControlResult::bad_index;
    case ContextKind::fault: {
      const FaultRecord* record = p.find_fault(index);
      return record != nullptr ? copy_out(*record, into) : ControlResult::bad_index;
    }
    case ContextKind::send_queue:
    case ContextKind::receive_queue: {
      FrameQueueContext context;
      const ControlResult result = p.ethernet.read(kind, index, context);
      return result == ControlResult::ok ? copy_out(context, into) : result;
    }
    case ContextKind::frame_counters:
      return index < max_functions ? copy_out(p.ethernet.counters(index), into) : ControlResult::bad_index;
    case ContextKind::queue_counters:
      return index < max_counter_sets ? copy_out(p.core.queue_counters[index], into) : ControlResult::bad_index;
  }
  return ControlResult::bad_index;
}

ControlResult VerbsEngine::destroy_context(ContextKind kind, std::uint32_t index) {
  Parts& p = *parts_;
  ControlResult result = ControlResult::ok;
  switch (kind) {
    case ContextKind::function:
      if (index >= max_functions) {
        return ControlResult::bad_index;
      }
      p.core.functions.at(index) = {};
      return ControlResult::ok;
    case ContextKind::address:
      p.addresses.destroy(index);
      return ControlResult::ok;
    case ContextKind::mac:
      return p.core.macs.destroy(index);
    case ContextKind::group:
      return p.write_group(index, {});
    case ContextKind::qp:
      result = p.destroy_qp(index);
      break;
    case ContextKind::cq:
      result = p.cqs.destroy(index);
      break;
    case ContextKind::eq:
      result = p.eqs.destroy(index);
      break;
    case ContextKind::srq:
      result = p.srqs.destroy(index);
      break;
    case ContextKind::mkey:
      result = p.write_mkey(index, {});
      break;
    case ContextKind::send_queue:
    case ContextKind::receive_queue:
      result = p.ethernet.destroy(kind, index);
      break;
    case ContextKind::queue_counters:
      if (index >= max_counter_sets) {
        return ControlResult::bad_index;
      }
      p.core.queue_counters[index] = {};
      return ControlResult::ok;
    case ContextKind::fault:
    case ContextKind::frame_counters:
      return ControlResult::bad_index;
  }
  if (result != ControlResult::ok) {
    return result;
  }
  if (p.settle(kind, index)) {
    return ControlResult::ok;
  }
  p.wait_for(kind, index);
  return ControlResult::busy;
}

bool VerbsEngine::idle(ContextKind kind, std::uint32_t index) const {
  return parts_->settle(kind, index);
}

ControlResult VerbsEngine::write_translation(std::uint32_t first, std::span<const std::uint64_t> entries) {
  return parts_->core.translation.write(first, entries) ? ControlResult::ok : ControlResult::bad_index;
}

ControlResult VerbsEngine::write_pages(std::uint32_t function, std::uint32_t first, std::span<std::uint64_t> pages) {
  Core& core = parts_->core;
  if (function >= max_functions) {
    return ControlResult::bad_index;
  }
  for (std::uint64_t& page : pages) {
    page = core.functions.typed(function, page);
  }
  return write_translation(first, pages);
}

void VerbsEngine::set_peer_windows(std::uint32_t function, std::span<const pcie::PeerWindow> windows) {
  if (function < max_functions) {
    parts_->core.functions.set_device_windows(function, windows);
  }
}

ControlResult VerbsEngine::read_translation(std::uint32_t first, std::span<std::uint64_t> into) const {
  return parts_->core.translation.read(first, into) ? ControlResult::ok : ControlResult::bad_index;
}

ControlResult VerbsEngine::arm_srq(std::uint32_t srqn, std::uint32_t limit) {
  return parts_->srqs.arm(srqn, limit);
}

ControlResult VerbsEngine::post_event(std::uint32_t function, std::uint32_t eqn, const Event& event) {
  return parts_->core.usable(function) && parts_->eqs.post(function, eqn, event) ? ControlResult::ok
                                                                                 : ControlResult::bad_index;
}

ControlResult VerbsEngine::complete_work_request(std::uint32_t qpn, CompletionCode code) {
  QueuePair* qp = parts_->find_qp(qpn);
  if (qp == nullptr) {
    return ControlResult::bad_index;
  }
  return qp->requester().complete_work_request(code) ? ControlResult::ok : ControlResult::wrong_state;
}

std::span<const std::byte> VerbsEngine::work_request(std::uint32_t qpn) const {
  QueuePair* qp = parts_->find_qp(qpn);
  return qp == nullptr ? std::span<const std::byte>() : qp->requester().work_request();
}

ControlResult VerbsEngine::resume_fault(std::uint32_t token, bool failed) {
  QueuePair* qp = parts_->find_qp(token & ~responder_token);
  if (qp == nullptr) {
    return ControlResult::bad_index;
  }
  const bool there =
      (token & responder_token) != 0 ? qp->responder().resume_fault(failed) : qp->requester().resume_fault(failed);
  return there ? ControlResult::ok : ControlResult::wrong_state;
}

void VerbsEngine::reset(std::uint32_t function) {
  if (function < max_functions) {
    parts_->reset(function);
  }
}

void VerbsEngine::ring_send(std::uint32_t function, std::uint32_t uar, std::uint32_t qpn) {
  Parts& p = *parts_;
  if (function >= max_functions) {
    return;
  }
  VerbsCounters& counters = p.core.counters[function];
  ++counters.doorbells;
  if (qpn >= max_qps) {
    if (!p.core.usable(function) || !p.ethernet.ring(function, uar, qpn)) {
      ++counters.doorbells_refused;
    }
    return;
  }
  QueuePair* qp = p.find_qp(qpn);
  if (!p.core.usable(function) || qp == nullptr || qp->context.function != function || qp->context.uar != uar) {
    ++counters.doorbells_refused;
    return;
  }
  qp->requester().doorbell();
}

void VerbsEngine::arm_cq(std::uint32_t function, std::uint32_t uar, std::uint32_t cqn, std::uint32_t consumer,
                         bool solicited_only, std::uint32_t sequence) {
  static_cast<void>(sequence);  // tells arms apart for a driver that polls its record; a doorbell is an arm
  if (function >= max_functions) {
    return;
  }
  VerbsCounters& counters = parts_->core.counters[function];
  ++counters.doorbells;
  if (!parts_->core.usable(function) || !parts_->cqs.arm(function, uar, cqn, consumer, solicited_only)) {
    ++counters.doorbells_refused;
  }
}

void VerbsEngine::update_eq(std::uint32_t function, std::uint32_t uar, std::uint32_t eqn, std::uint32_t consumer,
                            bool arm) {
  if (function >= max_functions) {
    return;
  }
  VerbsCounters& counters = parts_->core.counters[function];
  ++counters.doorbells;
  if (!parts_->core.usable(function) || !parts_->eqs.update(function, uar, eqn, consumer, arm)) {
    ++counters.doorbells_refused;
  }
}

const VerbsCounters& VerbsEngine::counters(std::uint32_t function) const {
  return parts_->core.counters[function % max_functions];
}

const FrameCounters& VerbsEngine::frame_counters(std::uint32_t function) const {
  return parts_->ethernet.counters(function % max_functions);
}

}  // namespace orrery::rnic
