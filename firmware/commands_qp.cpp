// Queue pairs and their multicast groups.
#include "firmware/commands.h"

namespace orrery::firmware {

namespace reg = rnic::reg;
using namespace layout;
using reg::ContextOp;
using reg::ContextStatus;
using rnic::ContextKind;
using rnic::QpState;
using rnic::QpType;

namespace {

constexpr std::uint32_t context_at = 0x18;
constexpr std::uint32_t block_bytes = 64;
constexpr std::uint32_t service_control = 0x0c;

bool qp_type(std::uint32_t service, QpType& type) {
  switch (service) {
    case 0x00:
      type = QpType::rc;
      return true;
    case 0x01:
      type = QpType::uc;
      return true;
    case 0x02:
      type = QpType::ud;
      return true;
    case 0x03:
      type = QpType::xrc;
      return true;
    case 0x07:
      type = QpType::smi;
      return true;
    case 0x08:
      type = QpType::gsi;
      return true;
    case service_control:
      type = QpType::control;
      return true;
    default:
      return false;
  }
}

// Number of a completion queue of the context: none if it needs none.
bool take_cq(Firmware& fw, const Function& function, std::uint32_t cqn, bool needed, std::uint32_t& into) {
  if (fw.cqs.find(function.number, cqn) != nullptr) {
    into = cqn;
    return true;
  }
  into = rnic::none;
  return !needed;
}

std::uint32_t or_zero(std::uint32_t number) {
  return number == rnic::none ? 0 : number;
}

}  // namespace

Result create_qp(Firmware& fw, Function& function) {
  const View c = fw.input().at(context_at);
  rnic::QpContext q;
  const std::uint32_t service = c.get(qpc::type);
  if (!qp_type(service, q.type)) {
    return failed(Status::bad_parameter, Syndrome::unsupported);
  }
  if ((fw.input().word(0x08) & 0xff'ffffU) != 0) {
    return failed(Status::bad_parameter, Syndrome::unsupported);  // numbers chosen by the caller
  }
  const bool has_send = c.get(qpc::no_sq) == 0;
  const std::uint32_t rq_type = c.get(qpc::rq_type);
  const bool has_receive = rq_type == qpc::rq_own;
  if (rq_type != qpc::rq_own && rq_type != qpc::rq_srq && rq_type != qpc::rq_none) {
    return failed(Status::bad_parameter, Syndrome::value);
  }
  q.function = function.number;
  q.pd = c.get(qpc::pd);
  q.uar = c.get(qpc::uar_page);
  q.user_index = c.get(qpc::user_index);
  q.flags = (has_send ? rnic::qp_has_send_queue : 0U) | (has_receive ? rnic::qp_has_receive_queue : 0U) |
            (c.get(qpc::reserved_key) != 0 ? rnic::qp_reserved_key : 0U);
  q.log_receive_entries = c.get(qpc::log_rq_size);
  q.log_receive_stride = 4 + c.get(qpc::log_rq_stride);
  q.log_send_blocks = c.get(qpc::log_sq_size);
  q.doorbell_record = c.get(qpc::doorbell);
  // Only a send queue has a doorbell: the driver gives an XRC target no UAR page.
  if (fw.uars.find(function.number, q.uar) == nullptr && (has_send || q.uar != 0)) {
    return failed(Status::bad_resource, Syndrome::uar);
  }
  // The driver gives the control QP its protection domain with the first transition.
  if (fw.pds.find(function.number, q.pd) == nullptr && !(q.pd == 0 && service == service_control)) {
    return failed(Status::bad_resource, Syndrome::pd);
  }
  if (!take_cq(fw, function, c.get(qpc::cqn_send), has_send, q.send_cq) ||
      !take_cq(fw, function, c.get(qpc::cqn_receive), has_receive || rq_type == qpc::rq_srq, q.receive_cq)) {
    return failed(Status::bad_resource, Syndrome::cq);
  }
  if (rq_type == qpc::rq_srq) {
    q.srq = c.get(qpc::srqn);
    if (fw.srqs.find(function.number, q.srq) == nullptr) {
      return failed(Status::bad_resource, Syndrome::srq);
    }
  }
  if (q.type == QpType::xrc) {
    q.xrc_domain = c.get(qpc::xrcd);
    if (fw.xrc_domains.find(function.number, q.xrc_domain) == nullptr) {
      return failed(Status::bad_resource, Syndrome::xrcd);
    }
  }
  // The receive queue lies first in the buffer, the send queue follows.
  const std::uint64_t receive_bytes = has_receive ? 1ULL << (q.log_receive_entries + q.log_receive_stride) : 0;
  const std::uint64_t send_bytes = has_send ? static_cast<std::uint64_t>(block_bytes) << q.log_send_blocks : 0;
  q.send_offset = static_cast<std::uint32_t>(receive_bytes);

  const std::uint32_t qpn = fw.qps.allocate(function.number);
  if (qpn == 0) {
    return failed(Status::no_resources, Syndrome::exhausted);
  }
  Qp& qp = fw.qps[qpn];
  Result result;
  if (receive_bytes + send_bytes > 0) {
    result = fw.load_queue(page_list, c.get(qpc::log_page_size), c.get(qpc::page_offset), receive_bytes + send_bytes,
                           qp.run, q.buffer);
  }
  if (result.status == Status::ok) {
    result = from_hardware(fw.write_context(ContextKind::qp, qpn, &q, sizeof q));
  }
  if (result.status != Status::ok) {
    fw.release_run(qp.run);
    fw.qps.release(qpn);
    return result;
  }
  qp.service_type = static_cast<std::uint8_t>(service);
  qp.rq_type = static_cast<std::uint8_t>(rq_type);
  qp.pd = q.pd;
  qp.uar = q.uar;
  qp.send_cq = or_zero(q.send_cq);
  qp.receive_cq = or_zero(q.receive_cq);
  qp.srq = or_zero(q.srq);
  qp.xrcd = or_zero(q.xrc_domain);
  qp.page_shift = q.buffer.page_shift;
  Firmware::refer(fw.pds, qp.pd, 1);
  Firmware::refer(fw.uars, qp.uar, 1);
  Firmware::refer(fw.cqs, qp.send_cq, 1);
  Firmware::refer(fw.cqs, qp.receive_cq, 1);
  Firmware::refer(fw.srqs, qp.srq, 1);
  Firmware::refer(fw.xrc_domains, qp.xrcd, 1);
  fw.give_handle(qpn);
  return {};
}

Result destroy_qp(Firmware& fw, Function& function) {
  const Qp* qp = fw.qps.find(function.number, fw.handle());
  if (qp == nullptr) {
    return failed(Status::bad_resource, Syndrome::handle);
  }
  if (qp->references != 0) {
    return failed(Status::bad_resource_state, Syndrome::in_use);
  }
  const Result begun = begin_destroy(fw, fw.qps, fw.handle(), ContextKind::qp);
  return begun.pending ? begun : finish_destroy_qp(fw, function);
}

Result finish_destroy_qp(Firmware& fw, Function& /*function*/) {
  const std::uint32_t qpn = fw.remembered();
  Result result;
  if (fw.context_op(ContextKind::qp, qpn, ContextOp::query) == ContextStatus::draining) {
    result.pending = true;
    return result;
  }
  Qp& qp = fw.qps[qpn];
  fw.release_run(qp.run);
  Firmware::refer(fw.pds, qp.pd, -1);
  Firmware::refer(fw.uars, qp.uar, -1);
  Firmware::refer(fw.cqs, qp.send_cq, -1);
  Firmware::refer(fw.cqs, qp.receive_cq, -1);
  Firmware::refer(fw.srqs, qp.srq, -1);
  Firmware::refer(fw.xrc_domains, qp.xrcd, -1);
  fw.qps.release(qpn);
  return result;
}

// ---- Transitions ------------------------------------------------------------------------------------------------

namespace {

constexpr std::uint32_t any_state = 0xff;

// What a transition may set. The rest of the context that comes with it means nothing.
enum Sets : std::uint32_t {
  sets_init = 1U << 0,     // pkey, access rights, Q_Key: always
  sets_rtr = 1U << 1,      // path, MTU, remote QP, receive PSN, responder's limits: always
  sets_rts = 1U << 2,      // send PSN, retries, time limits, requester's limits: always
  sets_options = 1U << 3,  // what opt_param_mask names
};

struct Transition {
  std::uint16_t opcode;
  std::uint32_t from;  // any_state: any
  QpState to;
  std::uint32_t sets;
};
constexpr Transition transitions[] = {
    {0x502, qpc::state_reset, QpState::init, sets_init},
    {0x503, qpc::state_init, QpState::rtr, sets_rtr | sets_options},
    {0x504, qpc::state_rtr, QpState::rts, sets_rts | sets_options},
    {0x505, qpc::state_rts, QpState::rts, sets_options},
    {0x506, qpc::state_sqe, QpState::rts, sets_options},
    {0x507, any_state, QpState::error, 0},
    {0x50a, any_state, QpState::reset, 0},
    {0x50c, qpc::state_sqd, QpState::rts, sets_options},
    {0x50e, qpc::state_init, QpState::init, sets_init | sets_options},
};

void set_flag(std::uint32_t& flags, std::uint32_t flag, bool on) {
  flags = (flags & ~flag) | (on ? flag : 0U);
}

void set_path(const Firmware& fw, const View& c, rnic::QpContext& q) {
  const View p = c.at(qpc::path);
  rnic::PathContext& path = q.path;
  for (std::uint32_t i = 0; i < 16; ++i) {
    path.remote_gid[i] = static_cast<std::uint8_t>(p.word(ads::remote_gid + (i & ~3U)) >> (8 * (3 - i % 4)));
  }
  path.remote_mac = static_cast<std::uint64_t>(p.get(ads::mac_high)) << 32 | p.get(ads::mac_low);
  path.remote_lid = p.get(ads::rlid);
  path.address_index = p.get(ads::source_index);
  path.udp_source_port = p.get(ads::udp_source_port);
  path.flow_label = p.get(ads::flow_label);
  path.traffic_class = static_cast<std::uint8_t>(p.get(ads::traffic_class));
  path.hop_limit = static_cast<std::uint8_t>(p.get(ads::hop_limit));
  path.service_level = static_cast<std::uint8_t>(fw.ethernet() ? p.get(ads::priority) : p.get(ads::service_level));
  path.has_grh = fw.ethernet() || p.get(ads::grh) != 0 ? 1 : 0;
  if (!fw.ethernet()) {
    constexpr std::uint8_t hops = 64;
    rnic::lid_gid(path.remote_lid, path.remote_gid);
    path.remote_mac = rnic::lid_mac(path.remote_lid);
    path.address_index = 0;
    path.udp_source_port = 0;
    path.hop_limit = hops;
  }
}

void set_rights(const View& c, std::uint32_t mask, rnic::QpContext& q) {
  if ((mask & qpc::opt_remote_read) != 0) {
    set_flag(q.flags, rnic::qp_remote_read, c.get(qpc::remote_read) != 0);
  }
  if ((mask & qpc::opt_remote_write) != 0) {
    set_flag(q.flags, rnic::qp_remote_write, c.get(qpc::remote_write) != 0);
  }
  if ((mask & qpc::opt_remote_atomic) != 0) {
    set_flag(q.flags, rnic::qp_remote_atomic, c.get(qpc::remote_atomic) != 0);
  }
}

// What the mask names, of what the steps before set anyway.
void set_options(const Firmware& fw, const View& c, std::uint32_t mask, rnic::QpContext& q) {
  set_rights(c, mask, q);
  if ((mask & qpc::opt_pkey) != 0) {
    q.pkey_index = c.at(qpc::path).get(ads::pkey_index);
  }
  if ((mask & qpc::opt_qkey) != 0) {
    q.qkey = c.get(qpc::qkey);
  }
  if ((mask & qpc::opt_min_rnr) != 0) {
    q.min_rnr_timer = c.get(qpc::min_rnr_nak);
  }
  if ((mask & qpc::opt_path) != 0) {
    set_path(fw, c, q);
  }
  if ((mask & qpc::opt_sra) != 0) {
    q.max_read_out = 1U << c.get(qpc::log_sra_max);
  }
  if ((mask & qpc::opt_rra) != 0) {
    q.max_read_in = 1U << c.get(qpc::log_rra_max);
  }
  if ((mask & qpc::opt_retry) != 0) {
    q.retry_count = c.get(qpc::retry_count);
  }
  if ((mask & qpc::opt_rnr_retry) != 0) {
    q.rnr_retry = c.get(qpc::rnr_retry);
  }
  if ((mask & qpc::opt_counter_set) != 0) {
    q.counter_set = c.get(qpc::counter_set);
  }
  if ((mask & qpc::opt_timeout) != 0) {
    q.ack_timeout = c.at(qpc::path).get(ads::ack_timeout);
  }
}

Result set_init(Firmware& fw, Function& function, Qp& qp, const View& c, rnic::QpContext& q) {
  constexpr std::uint32_t rights = qpc::opt_remote_read | qpc::opt_remote_write | qpc::opt_remote_atomic;
  set_rights(c, rights, q);
  q.pkey_index = c.at(qpc::path).get(ads::pkey_index);
  q.qkey = c.get(qpc::qkey);
  q.counter_set = c.get(qpc::counter_set);
  if (q.pd == 0) {
    const std::uint32_t pd = c.get(qpc::pd);
    if (fw.pds.find(function.number, pd) == nullptr) {
      return failed(Status::bad_resource, Syndrome::pd);
    }
    q.pd = pd;
    qp.pd = pd;
    Firmware::refer(fw.pds, pd, 1);
  }
  return {};
}

Result set_rtr(const Firmware& fw, const View& c, rnic::QpContext& q) {
  const std::uint32_t mtu = c.get(qpc::mtu);
  const bool connected = q.type == QpType::rc || q.type == QpType::uc || q.type == QpType::xrc;
  if (connected && (mtu < 1 || mtu > 5)) {
    return failed(Status::bad_parameter, Syndrome::value);
  }
  q.mtu = 128U << (mtu < 1 || mtu > 5 ? 5 : mtu);
  q.log_max_message = c.get(qpc::log_message);
  q.remote_qp = c.get(qpc::remote_qpn);
  q.receive_psn = c.get(qpc::next_receive_psn);
  q.max_read_in = 1U << c.get(qpc::log_rra_max);
  q.min_rnr_timer = c.get(qpc::min_rnr_nak);
  set_path(fw, c, q);
  return {};
}

void set_rts(const View& c, rnic::QpContext& q) {
  q.send_psn = c.get(qpc::next_send_psn);
  q.retry_count = c.get(qpc::retry_count);
  q.rnr_retry = c.get(qpc::rnr_retry);
  q.max_read_out = 1U << c.get(qpc::log_sra_max);
  q.ack_timeout = c.at(qpc::path).get(ads::ack_timeout);
}

}  // namespace

Result modify_qp(Firmware& fw, Function& function) {
  const std::uint32_t qpn = fw.handle();
  Qp* qp = fw.qps.find(function.number, qpn);
  if (qp == nullptr) {
    return failed(Status::bad_resource, Syndrome::handle);
  }
  const Transition* step = nullptr;
  for (const Transition& one : transitions) {
    step = one.opcode == fw.opcode() ? &one : step;
  }
  rnic::QpContext q;
  if (const ContextStatus status = fw.read_context(ContextKind::qp, qpn, &q, sizeof q); status != ContextStatus::ok) {
    return from_hardware(status);
  }
  if (step == nullptr || (step->from != any_state && step->from != static_cast<std::uint32_t>(q.state))) {
    return failed(Status::bad_qp_state, Syndrome::state);
  }
  const View c = fw.input().at(context_at);
  Result result;
  if ((step->sets & sets_init) != 0) {
    result = set_init(fw, function, *qp, c, q);
  }
  if ((step->sets & sets_rtr) != 0) {
    result = set_rtr(fw, c, q);
  }
  if (result.status != Status::ok) {
    return result;
  }
  if ((step->sets & sets_rts) != 0) {
    set_rts(c, q);
  }
  if ((step->sets & sets_options) != 0) {
    set_options(fw, c, fw.input().get(qpc::opt_mask), q);
  }
  if (q.counter_set != 0 && fw.counter_sets.find(function.number, q.counter_set) == nullptr) {
    return failed(Status::bad_resource, Syndrome::counter_set);
  }
  q.state = step->to;
  const ContextStatus status = fw.write_context(ContextKind::qp, qpn, &q, sizeof q);
  return status == ContextStatus::wrong_state ? failed(Status::bad_qp_state, Syndrome::state) : from_hardware(status);
}

namespace {

std::uint32_t log2_of(std::uint32_t value) {
  return value <= 1 ? 0 : 31U - static_cast<std::uint32_t>(__builtin_clz(value));
}

}  // namespace

// The hardware's context as the driver would have written it.
Result query_qp(Firmware& fw, Function& function) {
  const std::uint32_t qpn = fw.handle();
  const Qp* qp = fw.qps.find(function.number, qpn);
  if (qp == nullptr) {
    return failed(Status::bad_resource, Syndrome::handle);
  }
  rnic::QpContext q;
  if (const ContextStatus status = fw.read_context(ContextKind::qp, qpn, &q, sizeof q); status != ContextStatus::ok) {
    return from_hardware(status);
  }
  const View c = fw.output().at(context_at);
  c.set(qpc::state, static_cast<std::uint32_t>(q.state));
  c.set(qpc::type, qp->service_type);
  c.set(qpc::path_migration, 3);  // migrated: there is no alternate path
  c.set(qpc::pd, q.pd);
  c.set(qpc::mtu, q.mtu < 256 ? 0 : log2_of(q.mtu / 128));
  c.set(qpc::log_message, q.log_max_message);
  c.set(qpc::log_rq_size, (q.flags & rnic::qp_has_receive_queue) != 0 ? q.log_receive_entries : 0);
  c.set(qpc::log_rq_stride, (q.flags & rnic::qp_has_receive_queue) != 0 ? q.log_receive_stride - 4 : 0);
  c.set(qpc::no_sq, (q.flags & rnic::qp_has_send_queue) != 0 ? 0 : 1);
  c.set(qpc::log_sq_size, q.log_send_blocks);
  c.set(qpc::reserved_key, (q.flags & rnic::qp_reserved_key) != 0 ? 1 : 0);
  c.set(qpc::uar_page, q.uar);
  c.set(qpc::counter_set, q.counter_set);
  c.set(qpc::user_index, q.user_index);
  c.set(qpc::log_page_size, q.buffer.page_shift - 12);
  c.set(qpc::remote_qpn, q.remote_qp);
  c.set(qpc::retry_count, q.retry_count);
  c.set(qpc::rnr_retry, q.rnr_retry);
  c.set(qpc::log_sra_max, log2_of(q.max_read_out));
  c.set(qpc::log_rra_max, log2_of(q.max_read_in));
  c.set(qpc::next_send_psn, q.send_psn);
  c.set(qpc::next_receive_psn, q.receive_psn);
  c.set(qpc::cqn_send, qp->send_cq);
  c.set(qpc::cqn_receive, qp->receive_cq);
  c.set(qpc::remote_read, (q.flags & rnic::qp_remote_read) != 0 ? 1 : 0);
  c.set(qpc::remote_write, (q.flags & rnic::qp_remote_write) != 0 ? 1 : 0);
  c.set(qpc::remote_atomic, (q.flags & rnic::qp_remote_atomic) != 0 ? 1 : 0);
  c.set(qpc::min_rnr_nak, q.min_rnr_timer);
  c.set(qpc::xrcd, qp->xrcd);
  c.set(qpc::doorbell, q.doorbell_record);
  c.set(qpc::qkey, q.qkey);
  c.set(qpc::rq_type, qp->rq_type);
  c.set(qpc::srqn, qp->srq);
  const View p = c.at(qpc::path);
  p.set(ads::pkey_index, q.pkey_index);
  p.set(ads::port, 1);
  p.set(ads::ack_timeout, q.ack_timeout);
  p.set(ads::rlid, q.path.remote_lid);
  p.set(ads::grh, q.path.has_grh);
  p.set(ads::source_index, q.path.address_index);
  p.set(ads::hop_limit, q.path.hop_limit);
  p.set(ads::traffic_class, q.path.traffic_class);
  p.set(ads::flow_label, q.path.flow_label);
  p.set(fw.ethernet() ? ads::priority : ads::service_level, q.path.service_level);
  p.set(ads::udp_source_port, q.path.udp_source_port);
  p.set(ads::mac_high, static_cast<std::uint32_t>(q.path.remote_mac >> 32));
  p.set(ads::mac_low, static_cast<std::uint32_t>(q.path.remote_mac));
  for (std::uint32_t at = 0; at < 16; at += 4) {
    const auto byte = [&](std::uint32_t i) { return static_cast<std::uint32_t>(q.path.remote_gid[at + i]); };
    p.set_word(ads::remote_gid + at, byte(0) << 24 | byte(1) << 16 | byte(2) << 8 | byte(3));
  }
  return {};
}

// ---- Multicast groups ----------------------------------------------------------------------------------------------

namespace {

constexpr std::uint32_t group_gid = 0x10;

std::uint32_t find_group(Firmware& fw, const Function& function, std::uint32_t qpn) {
  for (std::uint32_t number = fw.groups.lowest(); number < fw.groups.end(); ++number) {
    const Group* group = fw.groups.find(function.number, number);
    if (group == nullptr || group->qp != qpn) {
      continue;
    }
    bool same = true;
    for (std::uint32_t i = 0; i < 4; ++i) {
      same = same && group->gid[i] == fw.input().word(group_gid + 4 * i);
    }
    if (same) {
      return number;
    }
  }
  return 0;
}

}  // namespace

Result attach_to_group(Firmware& fw, Function& function) {
  const std::uint32_t qpn = fw.handle();
  if (fw.qps.find(function.number, qpn) == nullptr) {
    return failed(Status::bad_resource, Syndrome::handle);
  }
  if (find_group(fw, function, qpn) != 0) {
    return {};
  }
  const std::uint32_t number = fw.groups.allocate(function.number);
  if (number == 0) {
    return failed(Status::no_resources, Syndrome::exhausted);
  }
  Group& group = fw.groups[number];
  rnic::GroupContext context;
  context.qp = qpn;
  context.valid = 1;
  for (std::uint32_t i = 0; i < 4; ++i) {
    group.gid[i] = fw.input().word(group_gid + 4 * i);
    for (std::uint32_t b = 0; b < 4; ++b) {
      context.gid[4 * i + b] = static_cast<std::uint8_t>(group.gid[i] >> (8 * (3 - b)));
    }
  }
  const ContextStatus status = fw.write_context(ContextKind::group, number, &context, sizeof context);
  if (status != ContextStatus::ok) {
    fw.groups.release(number);
    return from_hardware(status);
  }
  group.qp = qpn;
  Firmware::refer(fw.qps, qpn, 1);
  return {};
}

Result detach_from_group(Firmware& fw, Function& function) {
  const std::uint32_t qpn = fw.handle();
  const std::uint32_t number = find_group(fw, function, qpn);
  if (number == 0) {
    return failed(Status::bad_resource, Syndrome::handle);
  }
  fw.context_op(ContextKind::group, number, ContextOp::destroy);
  fw.groups.release(number);
  Firmware::refer(fw.qps, qpn, -1);
  return {};
}

}  // namespace orrery::firmware
