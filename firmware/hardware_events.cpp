// What the hardware reports: work requests for us, and errors and changes that drivers are told of.
#include "firmware/firmware.h"

namespace orrery::firmware {

namespace reg = rnic::reg;
using rnic::EventCode;

namespace {

// Event types of the driver's EQEs.
constexpr std::uint32_t path_migrated = 0x01;
constexpr std::uint32_t communication_established = 0x02;
constexpr std::uint32_t send_queue_drained = 0x03;
constexpr std::uint32_t cq_error = 0x04;
constexpr std::uint32_t qp_catastrophic = 0x05;
constexpr std::uint32_t page_fault = 0x0c;
constexpr std::uint32_t qp_invalid_request = 0x10;
constexpr std::uint32_t qp_access_error = 0x11;
constexpr std::uint32_t srq_catastrophic = 0x12;
constexpr std::uint32_t last_receive = 0x13;
constexpr std::uint32_t srq_limit = 0x14;
constexpr std::uint32_t overrun_syndrome = 1;

}  // namespace

void Firmware::handle_hardware_events() {
  while (queue_count_ < work_items) {
    const auto code = static_cast<EventCode>(read32(hal_, reg::fifo_code));
    if (code == EventCode::no_event) {
      return;
    }
    const std::uint32_t function = read32(hal_, reg::fifo_function);
    const std::uint32_t object = read32(hal_, reg::fifo_object);
    const std::uint32_t detail = read32(hal_, reg::fifo_detail);
    write32(hal_, reg::fifo_pop, 1);
    if (function >= strap(reg::strap_functions)) {
      continue;
    }
    if (code == EventCode::work_request) {
      queue_[(queue_head_ + queue_count_) % work_items] = {function, object};
      ++queue_count_;
    } else {
      report(code, functions[function], object, detail);
    }
  }
}

// The driver finds the page and answers with PAGE_FAULT_RESUME. Without an EQ for it the access ends as a protection
// error.
void Firmware::report_page_fault(const Function& function, std::uint32_t token) const {
  rnic::FaultRecord fault;
  if (read_context(rnic::ContextKind::fault, token, &fault, sizeof fault) != reg::ContextStatus::ok) {
    return;  // resolved by itself: its QP has gone
  }
  bool heard = false;
  for (const Eq& eq : function.eqs) {
    heard = heard || (eq.state == ObjectState::used && (eq.mask >> page_fault & 1U) != 0);
  }
  constexpr std::uint32_t token_bits = 0xff'ffff;
  if (!heard || token > token_bits) {
    context_op(rnic::ContextKind::fault, token, reg::ContextOp::resume_fault, 1);
    return;
  }
  constexpr std::uint32_t by_requester = 1U << 24, write = 1U << 25, rdma = 1U << 26;
  constexpr std::uint32_t half = 0xffff;
  const bool is_rdma = (fault.flags & rnic::fault_rdma) != 0;
  const std::uint32_t type = ((fault.flags & rnic::fault_responder) != 0 ? 0U : by_requester) |
                             ((fault.flags & rnic::fault_write) != 0 ? write : 0U) | (is_rdma ? rdma : 0U);
  const std::uint32_t packet = fault.packet_length & half;
  if (is_rdma) {
    raise_event(function, page_fault, 1,
                {fault.committed, fault.key, packet, fault.length, static_cast<std::uint32_t>(fault.address >> 32),
                 static_cast<std::uint32_t>(fault.address), type | token});
  } else {
    raise_event(function, page_fault, 0,
                {fault.committed, fault.wqe_index & half, packet, token, 0, 0, type | fault.qp});
  }
}

void Firmware::report(EventCode code, const Function& function, std::uint32_t object, std::uint32_t detail) const {
  // Objects of other functions and those that are gone concern nobody.
  std::uint32_t type = 0;
  switch (code) {
    case EventCode::qp_error:
      switch (static_cast<rnic::QpErrorCause>(detail)) {
        case rnic::QpErrorCause::local:
          return;  // the CQE says it
        case rnic::QpErrorCause::bad_request:
          type = qp_invalid_request;
          break;
        case rnic::QpErrorCause::access_violation:
          type = qp_access_error;
          break;
        default:
          type = qp_catastrophic;
          break;
      }
      break;
    case EventCode::cq_overrun: {
      raise_event(function, cq_error, 0, {object, 0, overrun_syndrome});
      return;
    }
    case EventCode::srq_limit:
      type = srq_limit;
      break;
    case EventCode::srq_error:
      type = srq_catastrophic;
      break;
    case EventCode::last_receive:
      type = last_receive;
      break;
    case EventCode::communication:
      type = communication_established;
      break;
    case EventCode::send_queue_drained:
      type = send_queue_drained;
      break;
    case EventCode::path_migrated:
      type = path_migrated;
      break;
    case EventCode::page_fault:
      report_page_fault(function, detail);
      return;
    default:
      return;
  }
  raise_event(function, type, 0, {0, 0, 0, 0, 0, 0, object});
}

}  // namespace orrery::firmware
