#include "systemc_models/rnic/verbs/engine_parts.h"

#include <algorithm>

#include "fabric/wire_codec.h"

namespace orrery::rnic {
namespace {

// How often a destroyed context is asked whether its DMA has drained.
constexpr Picoseconds drain_poll{1'000'000};
constexpr std::uint32_t multicast_qp = 0xff'ffffU;

fabric::Gid gid_of(const std::uint8_t (&bytes)[16]) {
  fabric::Gid gid;
  std::copy(std::begin(bytes), std::end(bytes), gid.begin());
  return gid;
}

}  // namespace

VerbsEngine::Parts::Parts(const VerbsSettings& settings, const QueueFormat& format, EventSink& sink)
    : core(settings, format, sink),
      addresses(core.functions, core.macs),
      eqs(core),
      cqs(core, eqs),
      srqs(core, scatters),
      wire(core, *this),
      send_engine(core),
      atomics(core),
      ethernet(core, cqs, scatters, wire),
      qps(max_qps),
      groups(settings.max_groups) {
  for (auto& pair : management_) {
    pair = {none, none};
  }
  wire.set_frame_sink(&ethernet);
}

VerbsEngine::Parts::~Parts() = default;

void VerbsEngine::Parts::attach(std::uint32_t function, pcie::DevicePort& port) {
  if (function >= max_functions) {
    return;
  }
  core.dma.attach(function, port);
  if (core.simulation == nullptr) {
    core.simulation = &port.simulation();
    timers = std::make_unique<fabric::TimerPool>(core.simulation->events);
    blocks =
        std::make_unique<Blocks>(Blocks{core, cqs, srqs, scatters, addresses, wire, send_engine, atomics, *timers});
  }
}

// ---- Contexts --------------------------------------------------------------------------------------------------

QueuePair* VerbsEngine::Parts::find_qp(std::uint32_t qpn) const {
  const auto* entry = qps.find(qpn);
  return entry == nullptr ? nullptr : entry->get();
}

ControlResult VerbsEngine::Parts::write_qp(std::uint32_t qpn, const QpContext& context) {
  if (qpn < 2 || qpn >= max_qps) {
    return ControlResult::bad_index;
  }
  if (context.function >= max_functions || core.dma.port(context.function) == nullptr || core.packets == nullptr) {
    return ControlResult::bad_value;
  }
  if (leaving_.contains(qpn)) {
    return ControlResult::busy;
  }
  QueuePair* qp = find_qp(qpn);
  if (qp != nullptr) {
    return qp->modify(context);
  }
  auto made = std::make_unique<QueuePair>(*blocks, qpn, context);
  if (const ControlResult result = made->modify(context); result != ControlResult::ok) {
    return result;
  }
  qps.make(qpn) = std::move(made);
  if (context.type == QpType::smi || context.type == QpType::gsi) {
    management_[context.function][context.type == QpType::gsi ? 1 : 0] = qpn;
  }
  return ControlResult::ok;
}

ControlResult VerbsEngine::Parts::destroy_qp(std::uint32_t qpn) {
  QueuePair* qp = find_qp(qpn);
  if (qp == nullptr) {
    return ControlResult::bad_index;
  }
  for (std::uint32_t& number : management_[qp->context.function]) {
    number = number == qpn ? none : number;
  }
  qp->context.state = QpState::reset;
  qp->abandon();
  leaving_[qpn] = std::move(*qps.find(qpn));
  return ControlResult::ok;
}

ControlResult VerbsEngine::Parts::write_mkey(std::uint32_t index, const MkeyContext& context) {
  if (index >= max_mkeys) {
    return ControlResult::bad_index;
  }
  if (context.function >= max_functions || context.mode > KeyMode::indirect || context.state > KeyState::valid) {
    return ControlResult::bad_value;
  }
  core.keys.make(index) = context;
  if (core.dma.in_flight() != 0) {
    mkey_barriers_[index] = core.dma.barrier();
  }
  return ControlResult::ok;
}

ControlResult VerbsEngine::Parts::write_group(std::uint32_t index, const GroupContext& context) {
  if (index >= groups.size()) {
    return ControlResult::bad_index;
  }
  GroupContext& group = groups[index];
  if (group.valid != 0) {
    const auto found = members_.find(gid_of(group.gid));
    if (found != members_.end()) {
      const auto member = std::find(found->second.begin(), found->second.end(), group.qp);
      if (member != found->second.end()) {
        found->second.erase(member);
      }
      if (found->second.empty()) {
        members_.erase(found);
      }
    }
  }
  group = context;
  if (group.valid != 0) {
    members_[gid_of(group.gid)].push_back(group.qp);
  }
  return ControlResult::ok;
}

const FaultRecord* VerbsEngine::Parts::find_fault(std::uint32_t token) const {
  QueuePair* qp = find_qp(token & ~responder_token);
  if (qp == nullptr) {
    return nullptr;
  }
  const FaultRecord& record = (token & responder_token) != 0 ? qp->responder().fault() : qp->requester().fault();
  return record.token == token ? &record : nullptr;
}

void VerbsEngine::Parts::reset(std::uint32_t function) {
  core.dma.forget(function);
  atomics.forget(function);
  qps.for_each([&](std::uint32_t, std::unique_ptr<QueuePair>& qp) {
    if (qp != nullptr && qp->context.function == function) {
      qp->context.state = QpState::reset;
      qp->forget_dma();
      reset_qps_.push_back(std::move(qp));
    }
  });
  for (auto at = leaving_.begin(); at != leaving_.end();) {
    if (at->second->context.function == function) {
      at->second->forget_dma();
      reset_qps_.push_back(std::move(at->second));
      at = leaving_.erase(at);
    } else {
      ++at;
    }
  }
  ethernet.reset(function);
  management_[function] = {none, none};
  cqs.reset(function);
  eqs.reset(function);
  srqs.reset(function);
  addresses.reset(function);
  core.macs.reset(function);
  core.keys.for_each([&](std::uint32_t, MkeyContext& key) {
    if (key.function == function) {
      key = {};
    }
  });
  for (std::uint32_t i = 0; i < groups.size(); ++i) {
    if (groups[i].valid != 0 && find_qp(groups[i].qp) == nullptr) {
      write_group(i, {});
    }
  }
  core.functions.at(function) = {};
  core.counters[function] = {};
  core.frame_counters[function] = {};
  reap();
}

// ---- Draining --------------------------------------------------------------------------------------------------

bool VerbsEngine::Parts::settle(ContextKind kind, std::uint32_t index) {
  Lifetime* life = nullptr;
  switch (kind) {
    case ContextKind::qp: {
      const auto found = leaving_.find(index);
      if (found == leaving_.end()) {
        const QueuePair* qp = find_qp(index);
        return qp == nullptr || qp->quiet();
      }
      if (!found->second->quiet()) {
        return false;
      }
      leaving_.erase(found);
      return true;
    }
    case ContextKind::mkey: {
      const auto found = mkey_barriers_.find(index);
      if (found == mkey_barriers_.end()) {
        return true;
      }
      if (!core.dma.drained(found->second)) {
        return false;
      }
      mkey_barriers_.erase(found);
      return true;
    }
    case ContextKind::cq:
      life = cqs.lifetime(index);
      break;
    case ContextKind::eq:
      life = eqs.lifetime(index);
      break;
    case ContextKind::srq:
      life = srqs.lifetime(index);
      break;
    case ContextKind::send_queue:
    case ContextKind::receive_queue:
      life = ethernet.lifetime(kind, index);
      break;
    default:
      return true;
  }
  if (life == nullptr || !life->destroyed) {
    return true;
  }
  if (!core.dma.drained(life->barrier)) {
    return false;
  }
  life->destroyed = false;
  return true;
}

void VerbsEngine::Parts::wait_for(ContextKind kind, std::uint32_t index) {
  waiting_.push_back({kind, index});
  if (!polling_) {
    polling_ = true;
    core.events().schedule(core.now() + drain_poll, *this, 0);
  }
}

void VerbsEngine::Parts::on_event(std::uint64_t argument) {
  static_cast<void>(argument);
  polling_ = false;
  std::vector<Waiting> waiting;
  std::swap(waiting, waiting_);
  for (const Waiting& w : waiting) {
    if (settle(w.kind, w.index)) {
      core.sink.on_context_idle(w.kind, w.index);
    } else {
      wait_for(w.kind, w.index);
    }
  }
  reap();
}

void VerbsEngine::Parts::reap() {
  std::erase_if(reset_qps_, [](const std::unique_ptr<QueuePair>& qp) { return qp->quiet(); });
  if (mkey_barriers_.size() > 64) {
    std::erase_if(mkey_barriers_, [&](const auto& entry) { return core.dma.drained(entry.second); });
  }
}

// ---- Received packets (IBTA §9.6) --------------------------------------------------------------------------------

bool VerbsEngine::Parts::transport_matches(const QueuePair& qp, fabric::RoceTransport transport) {
  switch (qp.context.type) {
    case QpType::rc:
      return transport == fabric::RoceTransport::rc;
    case QpType::uc:
      return transport == fabric::RoceTransport::uc;
    case QpType::xrc:
      return transport == fabric::RoceTransport::xrc;
    case QpType::ud:
    case QpType::gsi:
    case QpType::smi:
      return transport == fabric::RoceTransport::ud;
    case QpType::control:
      return false;
  }
  return false;
}

void VerbsEngine::Parts::on_roce(const fabric::Packet& packet, const fabric::PacketContent& content) {
  const fabric::Bth& bth = content.roce.bth;
  if (!fabric::layout_of(bth.opcode).valid || bth.opcode == fabric::opcode_cnp) {
    return;
  }
  if (bth.destination_qp == multicast_qp) {
    deliver_group(packet, content);
    return;
  }
  std::uint32_t qpn = bth.destination_qp;
  if (qpn < 2) {
    const auto function = addresses.owner(content.roce.network.destination);
    qpn = function ? management_[*function][qpn] : none;
  }
  if (QueuePair* qp = find_qp(qpn); qp != nullptr) {
    deliver(*qp, packet, content);
  } else if (const auto function = addresses.owner(content.roce.network.destination); function) {
    count_received(*function, packet);
  }
}

void VerbsEngine::Parts::count_received(std::uint32_t function, const fabric::Packet& packet) {
  FrameCounters& counters = core.frame_counters[function];
  count_frame(packet.destination_mac.is_multicast() ? counters.roce_received_multicast : counters.roce_received_unicast,
              packet.wire_bytes - fabric::fcs_bytes);
}

void VerbsEngine::Parts::deliver(QueuePair& qp, const fabric::Packet& packet, const fabric::PacketContent& content) {
  const fabric::RoceHeaders& h = content.roce;
  const std::uint32_t function = qp.context.function;
  const FunctionContext& context = core.functions.at(function);
  if (!core.usable(function) || context.port_down != 0) {
    return;
  }
  const bool multicast = packet.destination_mac.is_multicast();
  const bool for_function = qp.route ? h.network.destination == qp.route->network.source
                                     : multicast || addresses.owner(h.network.destination) == function;
  if (for_function && !multicast) {
    count_received(function, packet);
  }
  if (context.roce == 0 || !transport_matches(qp, fabric::transport_of(h.bth.opcode))) {
    return;
  }
  if (qp.datagram()) {
    if (qp.can_receive()) {
      if (for_function) {
        qp.responder().on_request(packet, content);
      } else {
        ++core.counters[function].datagrams_dropped;
      }
    }
    return;
  }
  // A connection takes packets of its own peer only (§9.6.1.2).
  if (!qp.route || h.network.source != qp.route->network.destination ||
      h.network.destination != qp.route->network.source) {
    return;
  }
  if (fabric::layout_of(h.bth.opcode).request) {
    if (qp.can_receive()) {
      qp.responder().on_request(packet, content);
    }
    return;
  }
  if (qp.state() != QpState::rts && qp.state() != QpState::sqd) {
    return;
  }
  if (fabric::operation_of(h.bth.opcode) == fabric::RoceOperation::acknowledge) {
    qp.requester().on_acknowledge(content);
  } else {
    qp.requester().on_response(packet, content);
  }
}

void VerbsEngine::Parts::deliver_group(const fabric::Packet& packet, const fabric::PacketContent& content) {
  const auto found = members_.find(content.roce.network.destination);
  if (found == members_.end()) {
    return;
  }
  const std::vector<std::uint32_t> numbers = found->second;
  std::uint64_t counted = 0;  // functions
  for (const std::uint32_t qpn : numbers) {
    QueuePair* qp = find_qp(qpn);
    if (qp != nullptr && qp->datagram()) {
      const std::uint64_t function = std::uint64_t{1} << qp->context.function;
      if ((counted & function) == 0 && core.functions.at(qp->context.function).port_down == 0) {
        counted |= function;
        count_received(qp->context.function, packet);
      }
      deliver(*qp, packet, content);
    }
  }
}

}  // namespace orrery::rnic
