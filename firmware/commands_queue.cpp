// Event queues, completion queues, shared receive queues.
#include "firmware/commands.h"

namespace orrery::firmware {

namespace reg = rnic::reg;
using namespace layout;
using reg::ContextOp;
using reg::ContextStatus;
using rnic::ContextKind;

namespace {

constexpr std::uint32_t queue_context = 0x10;  // offset in CREATE_EQ, CREATE_CQ, CREATE_XRC_SRQ
constexpr std::uint32_t event_command = 0x0a;
constexpr std::uint32_t event_page_fault = 0x0c;
constexpr std::uint32_t max_log_eq = 18;
constexpr std::uint32_t max_log_cq = 20;
constexpr std::uint32_t max_log_srq = 15;
constexpr std::uint32_t eqe_bytes = 64;

std::uint32_t context_index(const Function& function, std::uint32_t eqn) {
  return function.number * rnic::max_eqs + eqn;
}

}  // namespace

// ---- EQ ----------------------------------------------------------------------------------------------------------

Result create_eq(Firmware& fw, Function& function) {
  const View c = fw.input().at(queue_context);
  std::uint32_t eqn = 1;
  while (eqn < eq_count && function.eqs[eqn].state != ObjectState::free) {
    ++eqn;
  }
  if (eqn == eq_count) {
    return failed(Status::no_resources, Syndrome::exhausted);
  }
  rnic::EqContext context;
  context.valid = 1;
  context.function = function.number;
  context.uar = c.get(eqc::uar_page);
  context.log_entries = c.get(eqc::log_size);
  context.vector = c.get(eqc::vector);
  if (fw.uars.find(function.number, context.uar) == nullptr) {
    return failed(Status::bad_resource, Syndrome::uar);
  }
  if (context.log_entries > max_log_eq) {
    return failed(Status::bad_parameter, Syndrome::size);
  }
  if (context.vector >= fw.strap(reg::strap_vectors)) {
    return failed(Status::bad_parameter, Syndrome::value);
  }
  Run run;
  const Result loaded =
      fw.load_queue(page_list, c.get(eqc::log_page_size), 0,
                    static_cast<std::uint64_t>(eqe_bytes) << context.log_entries, run, context.buffer);
  if (loaded.status != Status::ok) {
    return loaded;
  }
  const ContextStatus status =
      fw.write_context(ContextKind::eq, context_index(function, eqn), &context, sizeof context);
  if (status != ContextStatus::ok) {
    fw.release_run(run);
    return from_hardware(status);
  }
  Eq& eq = function.eqs[eqn];
  eq = Eq{};
  eq.mask = fw.input().wide(eqc::event_mask);
  eq.uar = context.uar;
  eq.run = run;
  eq.state = ObjectState::used;
  eq.vector = static_cast<std::uint8_t>(context.vector);
  eq.log_entries = static_cast<std::uint8_t>(context.log_entries);
  Firmware::refer(fw.uars, eq.uar, 1);
  if ((eq.mask >> event_command & 1U) != 0 && function.command_eqn == 0) {
    function.command_eqn = eqn;
  }
  if ((eq.mask >> event_page_fault & 1U) != 0) {
    fw.write_function(function);
  }
  fw.output().set({"eq_number", 0x08, 7, 0}, eqn);
  return {};
}

Result destroy_eq(Firmware& fw, Function& function) {
  const std::uint32_t eqn = fw.input().word(0x08) & 0xffU;
  if (eqn == 0 || eqn >= eq_count || function.eqs[eqn].state != ObjectState::used) {
    return failed(Status::bad_resource, Syndrome::handle);
  }
  Eq& eq = function.eqs[eqn];
  if (eq.references != 0) {
    return failed(Status::bad_resource_state, Syndrome::in_use);
  }
  eq.state = ObjectState::draining;
  if (function.command_eqn == eqn) {
    function.command_eqn = 0;  // the driver polls from here on
  }
  if ((eq.mask >> event_page_fault & 1U) != 0) {
    fw.write_function(function);
  }
  fw.remember(eqn);
  fw.context_op(ContextKind::eq, context_index(function, eqn), ContextOp::destroy);
  return finish_destroy_eq(fw, function);
}

Result finish_destroy_eq(Firmware& fw, Function& function) {
  const std::uint32_t eqn = fw.remembered();
  Result result;
  if (fw.context_op(ContextKind::eq, context_index(function, eqn), ContextOp::query) == ContextStatus::draining) {
    result.pending = true;
    return result;
  }
  Eq& eq = function.eqs[eqn];
  fw.release_run(eq.run);
  Firmware::refer(fw.uars, eq.uar, -1);
  eq = Eq{};
  return result;
}

Result query_eq(Firmware& fw, Function& function) {
  const std::uint32_t eqn = fw.input().word(0x08) & 0xffU;
  if (eqn == 0 || eqn >= eq_count || function.eqs[eqn].state != ObjectState::used) {
    return failed(Status::bad_resource, Syndrome::handle);
  }
  const Eq& eq = function.eqs[eqn];
  const View c = fw.output().at(queue_context);
  c.set(eqc::log_size, eq.log_entries);
  c.set(eqc::uar_page, eq.uar);
  c.set(eqc::vector, eq.vector);
  return {};
}

// ---- CQ ----------------------------------------------------------------------------------------------------------

Result create_cq(Firmware& fw, Function& function) {
  const View c = fw.input().at(queue_context);
  const std::uint32_t eqn = c.get(cqc::eqn);
  if (eqn == 0 || eqn >= eq_count || function.eqs[eqn].state != ObjectState::used) {
    return failed(Status::bad_resource, Syndrome::eq);
  }
  rnic::CqContext context;
  context.valid = 1;
  context.function = function.number;
  context.uar = c.get(cqc::uar_page);
  context.eq = eqn;
  context.log_entries = c.get(cqc::log_size);
  context.entry_size = c.get(cqc::entry_size) == 0 ? 64 : 128;
  context.moderation_count = c.get(cqc::max_count);
  context.moderation_period_us = c.get(cqc::period);
  context.doorbell_record = c.get(cqc::doorbell);
  context.flags = (c.get(cqc::ignore_overrun) != 0 ? rnic::cq_ignore_overrun : 0U) |
                  (c.get(cqc::collapsed) != 0 ? rnic::cq_collapsed : 0U);
  if (fw.uars.find(function.number, context.uar) == nullptr) {
    return failed(Status::bad_resource, Syndrome::uar);
  }
  if (context.log_entries > max_log_cq) {
    return failed(Status::bad_parameter, Syndrome::size);
  }
  if (c.get(cqc::entry_size) > 2) {
    return failed(Status::bad_parameter, Syndrome::value);
  }
  const std::uint32_t cqn = fw.cqs.allocate(function.number);
  if (cqn == 0) {
    return failed(Status::no_resources, Syndrome::exhausted);
  }
  Cq& cq = fw.cqs[cqn];
  Result result =
      fw.load_queue(page_list, c.get(cqc::log_page_size), c.get(cqc::page_offset),
                    static_cast<std::uint64_t>(context.entry_size) << context.log_entries, cq.run, context.buffer);
  if (result.status == Status::ok) {
    result = from_hardware(fw.write_context(ContextKind::cq, cqn, &context, sizeof context));
  }
  if (result.status != Status::ok) {
    fw.release_run(cq.run);
    fw.cqs.release(cqn);
    return result;
  }
  cq.eqn = eqn;
  cq.uar = context.uar;
  ++function.eqs[eqn].references;
  Firmware::refer(fw.uars, cq.uar, 1);
  fw.give_handle(cqn);
  return {};
}

Result destroy_cq(Firmware& fw, Function& function) {
  const std::uint32_t cqn = fw.handle();
  Cq* cq = fw.cqs.find(function.number, cqn);
  if (cq == nullptr) {
    return failed(Status::bad_resource, Syndrome::handle);
  }
  if (cq->references != 0) {
    return failed(Status::bad_resource_state, Syndrome::in_use);
  }
  const Result begun = begin_destroy(fw, fw.cqs, cqn, ContextKind::cq);
  return begun.pending ? begun : finish_destroy_cq(fw, function);
}

Result finish_destroy_cq(Firmware& fw, Function& function) {
  const std::uint32_t cqn = fw.remembered();
  Result result;
  if (fw.context_op(ContextKind::cq, cqn, ContextOp::query) == ContextStatus::draining) {
    result.pending = true;
    return result;
  }
  Cq& cq = fw.cqs[cqn];
  fw.release_run(cq.run);
  --function.eqs[cq.eqn].references;
  Firmware::refer(fw.uars, cq.uar, -1);
  fw.cqs.release(cqn);
  return result;
}

Result query_cq(Firmware& fw, Function& function) {
  const std::uint32_t cqn = fw.handle();
  if (fw.cqs.find(function.number, cqn) == nullptr) {
    return failed(Status::bad_resource, Syndrome::handle);
  }
  rnic::CqContext context;
  const ContextStatus status = fw.read_context(ContextKind::cq, cqn, &context, sizeof context);
  const View c = fw.output().at(queue_context);
  c.set(cqc::log_size, context.log_entries);
  c.set(cqc::uar_page, context.uar);
  c.set(cqc::eqn, context.eq);
  c.set(cqc::period, context.moderation_period_us);
  c.set(cqc::max_count, context.moderation_count);
  c.set(cqc::doorbell, context.doorbell_record);
  return from_hardware(status);
}

// Moderation; a resize is not offered.
Result modify_cq(Firmware& fw, Function& function) {
  constexpr std::uint32_t select_period = 1U << 0, select_count = 1U << 1, select_overrun = 1U << 2;
  const std::uint32_t cqn = fw.handle();
  if (fw.cqs.find(function.number, cqn) == nullptr) {
    return failed(Status::bad_resource, Syndrome::handle);
  }
  const std::uint32_t select = fw.input().word(0x0c);
  if (fw.op_mod() != 0 || (select & ~(select_period | select_count | select_overrun)) != 0) {
    return failed(Status::bad_parameter, Syndrome::unsupported);
  }
  rnic::CqContext context;
  if (const ContextStatus status = fw.read_context(ContextKind::cq, cqn, &context, sizeof context);
      status != ContextStatus::ok) {
    return from_hardware(status);
  }
  const View c = fw.input().at(queue_context);
  if ((select & select_period) != 0) {
    context.moderation_period_us = c.get(cqc::period);
  }
  if ((select & select_count) != 0) {
    context.moderation_count = c.get(cqc::max_count);
  }
  if ((select & select_overrun) != 0) {
    context.flags =
        (context.flags & ~rnic::cq_ignore_overrun) | (c.get(cqc::ignore_overrun) != 0 ? rnic::cq_ignore_overrun : 0U);
  }
  return from_hardware(fw.write_context(ContextKind::cq, cqn, &context, sizeof context));
}

// ---- SRQ ---------------------------------------------------------------------------------------------------------

namespace {

struct SrqShape {
  SrqKind kind;
  std::uint32_t list;
  std::uint32_t log_page_size;
  std::uint32_t page_offset;
};

Result create(Firmware& fw, Function& function, rnic::SrqContext& context, const SrqShape& shape) {
  context.valid = 1;
  context.function = function.number;
  if (context.log_entries > max_log_srq || context.log_stride < 4 || context.log_stride > 13) {
    return failed(Status::bad_parameter, Syndrome::size);
  }
  if (fw.pds.find(function.number, context.pd) == nullptr) {
    return failed(Status::bad_resource, Syndrome::pd);
  }
  const std::uint32_t number = fw.srqs.allocate(function.number);
  if (number == 0) {
    return failed(Status::no_resources, Syndrome::exhausted);
  }
  Srq& srq = fw.srqs[number];
  Result result = fw.load_queue(shape.list, shape.log_page_size, shape.page_offset,
                                1ULL << (context.log_entries + context.log_stride), srq.run, context.buffer);
  if (result.status == Status::ok) {
    result = from_hardware(fw.write_context(ContextKind::srq, number, &context, sizeof context));
  }
  if (result.status != Status::ok) {
    fw.release_run(srq.run);
    fw.srqs.release(number);
    return result;
  }
  srq.kind = static_cast<std::uint8_t>(shape.kind);
  srq.pd = context.pd;
  srq.xrcd = context.xrc_domain == rnic::none ? 0 : context.xrc_domain;
  srq.cqn = context.cq == rnic::none ? 0 : context.cq;
  Firmware::refer(fw.pds, srq.pd, 1);
  Firmware::refer(fw.xrc_domains, srq.xrcd, 1);
  Firmware::refer(fw.cqs, srq.cqn, 1);
  fw.give_handle(number);
  return {};
}

}  // namespace

Result create_rmp(Firmware& fw, Function& function) {
  constexpr std::uint32_t at = 0x20 + rmpc::work_queue;
  const View q = fw.input().at(at);
  rnic::SrqContext context;
  context.pd = q.get(wq::pd);
  context.log_entries = q.get(wq::log_size);
  context.log_stride = q.get(wq::log_stride);
  context.limit = q.get(wq::limit);
  context.doorbell_record = q.get(wq::doorbell);
  return create(fw, function, context,
                {SrqKind::rmp, at + wq::page_list, q.get(wq::log_page_size), q.get(wq::page_offset)});
}

Result create_xrc_srq(Firmware& fw, Function& function) {
  const View c = fw.input().at(queue_context);
  rnic::SrqContext context;
  context.pd = c.get(xsrqc::pd);
  context.log_entries = c.get(xsrqc::log_size);
  context.log_stride = 4 + c.get(xsrqc::log_stride);
  context.limit = c.get(xsrqc::limit);
  context.xrc_domain = c.get(xsrqc::xrcd);
  context.cq = c.get(xsrqc::cqn);
  context.user_index = c.get(xsrqc::user_index);
  context.doorbell_record = c.get(xsrqc::doorbell) & ~std::uint64_t{3};
  if (fw.xrc_domains.find(function.number, context.xrc_domain) == nullptr) {
    return failed(Status::bad_resource, Syndrome::xrcd);
  }
  if (fw.cqs.find(function.number, context.cq) == nullptr) {
    return failed(Status::bad_resource, Syndrome::cq);
  }
  return create(fw, function, context,
                {SrqKind::xrc, page_list, c.get(xsrqc::log_page_size), c.get(xsrqc::page_offset)});
}

namespace {

Srq* find_srq(Firmware& fw, const Function& function, bool rmp) {
  Srq* srq = fw.srqs.find(function.number, fw.handle());
  const auto kind = static_cast<std::uint8_t>(rmp ? SrqKind::rmp : SrqKind::xrc);
  return srq != nullptr && srq->kind == kind ? srq : nullptr;
}

Result arm(Firmware& fw, std::uint32_t limit) {
  return from_hardware(fw.context_op(ContextKind::srq, fw.handle(), ContextOp::arm_srq, limit));
}

}  // namespace

// The driver changes nothing of an RMP but its watermark.
Result modify_rmp(Firmware& fw, Function& function) {
  constexpr std::uint32_t select_limit = 1U << 0;
  if (find_srq(fw, function, true) == nullptr) {
    return failed(Status::bad_resource, Syndrome::handle);
  }
  if ((fw.input().word(0x14) & select_limit) == 0) {
    return {};
  }
  return arm(fw, fw.input().at(0x20 + rmpc::work_queue).get(wq::limit));
}

Result arm_srq(Firmware& fw, Function& function) {
  if (fw.srqs.find(function.number, fw.handle()) == nullptr) {
    return failed(Status::bad_resource, Syndrome::handle);
  }
  return arm(fw, fw.input().word(0x0c) & 0xffffU);
}

Result query_rmp(Firmware& fw, Function& function) {
  if (find_srq(fw, function, true) == nullptr) {
    return failed(Status::bad_resource, Syndrome::handle);
  }
  rnic::SrqContext context;
  const ContextStatus status = fw.read_context(ContextKind::srq, fw.handle(), &context, sizeof context);
  const View c = fw.output().at(0x20);
  c.set(rmpc::state, 1);
  const View q = c.at(rmpc::work_queue);
  q.set(wq::pd, context.pd);
  q.set(wq::log_size, context.log_entries);
  q.set(wq::log_stride, context.log_stride);
  q.set(wq::limit, context.limit);
  q.set(wq::doorbell, context.doorbell_record);
  return from_hardware(status);
}

Result query_xrc_srq(Firmware& fw, Function& function) {
  if (find_srq(fw, function, false) == nullptr) {
    return failed(Status::bad_resource, Syndrome::handle);
  }
  rnic::SrqContext context;
  const ContextStatus status = fw.read_context(ContextKind::srq, fw.handle(), &context, sizeof context);
  const View c = fw.output().at(queue_context);
  c.set(xsrqc::log_size, context.log_entries);
  c.set(xsrqc::log_stride, context.log_stride - 4);
  c.set(xsrqc::xrcd, context.xrc_domain);
  c.set(xsrqc::cqn, context.cq);
  c.set(xsrqc::user_index, context.user_index);
  c.set(xsrqc::limit, context.limit);
  c.set(xsrqc::pd, context.pd);
  c.set(xsrqc::doorbell, context.doorbell_record);
  return from_hardware(status);
}

Result destroy_srq(Firmware& fw, Function& function) {
  const bool rmp = fw.opcode() == 0x90e;
  const Srq* srq = find_srq(fw, function, rmp);
  if (srq == nullptr) {
    return failed(Status::bad_resource, Syndrome::handle);
  }
  if (srq->references != 0) {
    return failed(Status::bad_resource_state, Syndrome::in_use);
  }
  const Result begun = begin_destroy(fw, fw.srqs, fw.handle(), ContextKind::srq);
  return begun.pending ? begun : finish_destroy_srq(fw, function);
}

Result finish_destroy_srq(Firmware& fw, Function& /*function*/) {
  const std::uint32_t number = fw.remembered();
  Result result;
  if (fw.context_op(ContextKind::srq, number, ContextOp::query) == ContextStatus::draining) {
    result.pending = true;
    return result;
  }
  Srq& srq = fw.srqs[number];
  fw.release_run(srq.run);
  Firmware::refer(fw.pds, srq.pd, -1);
  Firmware::refer(fw.xrc_domains, srq.xrcd, -1);
  Firmware::refer(fw.cqs, srq.cqn, -1);
  fw.srqs.release(number);
  return result;
}

}  // namespace orrery::firmware
