// Life of the function, and the objects that are numbers only.
#include "firmware/capabilities.h"
#include "firmware/commands.h"

namespace orrery::firmware {

namespace reg = rnic::reg;
using namespace layout;

Result from_hardware(reg::ContextStatus status) {
  Result result;
  if (status != reg::ContextStatus::ok) {
    result.status = status == reg::ContextStatus::wrong_state ? Status::bad_resource_state : Status::bad_parameter;
    result.syndrome = static_cast<std::uint32_t>(Syndrome::hardware) + static_cast<std::uint32_t>(status);
  }
  return result;
}

namespace {

void stop(Firmware& fw, Function& function) {
  if (!function.initialised) {
    return;
  }
  function.initialised = false;
  fw.drop_objects(function, true);
  function.vport.promiscuous = 0;
  function.vport.roce = 0;
  function.vport.down = false;
  function.vport.addresses = 0;  // the hardware has forgotten them
  fw.write_function(function);
}

}  // namespace

Result enable_hca(Firmware& /*fw*/, Function& function) {
  if (function.enabled) {
    return failed(Status::bad_system_state, Syndrome::already);
  }
  function.enabled = true;
  return {};
}

Result disable_hca(Firmware& fw, Function& function) {
  stop(fw, function);
  fw.drop_pages(function);
  function.enabled = false;
  function.issi = 0;
  reset_capabilities(fw, function);
  return {};
}

Result init_hca(Firmware& fw, Function& function) {
  if (function.initialised) {
    return failed(Status::bad_system_state, Syndrome::already);
  }
  function.initialised = true;
  fw.write_function(function);
  return {};
}

// Graceful: whatever the driver left behind goes, but for its pages, which it takes back afterwards. By force: the
// pages go as well, since the driver, at the machine's end, talks to this function no more. Prepared for the fast one:
// nothing goes yet; the driver then sets the interface's state to disabled (command_queue.cpp).
Result teardown_hca(Firmware& fw, Function& function) {
  constexpr std::uint32_t graceful = 0, force = 1, prepare_fast = 2;
  switch (fw.input().word(0x08) & 0xffffU) {
    case graceful:
      stop(fw, function);
      return {};
    case force:
      return disable_hca(fw, function);
    case prepare_fast:
      return {};
    default:
      return failed(Status::bad_parameter, Syndrome::value);
  }
}

Result query_issi(Firmware& fw, Function& function) {
  fw.output().set({"current_issi", 0x08, 15, 0}, function.issi);
  fw.output().set_word(0x6c, 0x3);  // issi 0 and 1
  return {};
}

Result set_issi(Firmware& fw, Function& function) {
  const std::uint32_t issi = fw.input().word(0x08) & 0xffffU;
  if (issi > 1) {
    return failed(Status::bad_parameter, Syndrome::value);
  }
  function.issi = static_cast<std::uint16_t>(issi);
  return {};
}

// The RNIC has memory of its own.
Result query_pages(Firmware& fw, Function& function) {
  if (fw.op_mod() < 1 || fw.op_mod() > 3) {
    return failed(Status::bad_parameter, Syndrome::value);
  }
  const bool reclaim = fw.op_mod() == 3;  // what it could give back: as a negative number
  fw.output().set_word(0x0c, reclaim ? 0U - function.pages : 0U);
  return {};
}

Result manage_pages(Firmware& fw, Function& function) {
  constexpr std::uint32_t can_not_give = 0, give = 1, take_back = 2;
  constexpr std::uint32_t list = 0x10;
  const std::uint32_t count = fw.input().word(0x0c);
  switch (fw.op_mod()) {
    case can_not_give:
      return {};
    case give:
      if (count > donated_pages - fw.page_count) {
        return failed(Status::no_resources, Syndrome::exhausted);
      }
      if (list + count * 8 > fw.input_length()) {
        return failed(Status::bad_input_length, Syndrome::list_length);
      }
      for (std::uint32_t i = 0; i < count; ++i) {
        fw.page_addresses[fw.page_count] = fw.input().wide(list + i * 8);
        fw.page_functions[fw.page_count++] = static_cast<std::uint16_t>(function.number);
      }
      function.pages += count;
      return {};
    case take_back: {
      std::uint32_t given = 0;
      for (std::uint32_t i = fw.page_count; i-- > 0 && given < count && list + (given + 1) * 8 <= fw.output_length();) {
        if (fw.page_functions[i] != function.number) {
          continue;
        }
        fw.output().set_wide(list + given++ * 8, fw.page_addresses[i]);
        --fw.page_count;
        fw.page_addresses[i] = fw.page_addresses[fw.page_count];
        fw.page_functions[i] = fw.page_functions[fw.page_count];
      }
      function.pages -= given;
      fw.output().set_word(0x08, given);
      return {};
    }
    default:
      return failed(Status::bad_parameter, Syndrome::value);
  }
}

Result query_adapter(Firmware& fw, Function& /*function*/) {
  constexpr std::uint32_t ieee_vendor = 0x0002c9;
  constexpr char board[17] = "ORRERY_RNIC_0001";
  fw.output().set({"ieee_vendor_id", 0x28, 23, 0}, ieee_vendor);
  for (std::uint32_t i = 0; i < 16; i += 4) {
    const auto byte = [&](std::uint32_t at) {
      return static_cast<std::uint32_t>(static_cast<unsigned char>(board[at]));
    };
    fw.output().set_word(0x100 + i, byte(i) << 24 | byte(i + 1) << 16 | byte(i + 2) << 8 | byte(i + 3));
  }
  return {};
}

Result query_special_contexts(Firmware& fw, Function& /*function*/) {
  fw.output().set_word(0x08, rnic::dump_fill_key);
  fw.output().set_word(0x0c, rnic::reserved_key);
  fw.output().set_word(0x10, rnic::null_key);
  return {};
}

// ---- Numbers ---------------------------------------------------------------------------------------------------

namespace {

template <class Table>
Result allocate(Firmware& fw, Function& function, Table& table) {
  const std::uint32_t number = table.allocate(function.number);
  if (number == 0) {
    return failed(Status::no_resources, Syndrome::exhausted);
  }
  fw.give_handle(number);
  return {};
}

template <class Table>
Result deallocate(Function& function, Table& table, std::uint32_t number) {
  const auto* object = table.find(function.number, number);
  if (object == nullptr) {
    return failed(Status::bad_resource, Syndrome::handle);
  }
  if (object->references != 0) {
    return failed(Status::bad_resource_state, Syndrome::in_use);
  }
  table.release(number);
  return {};
}

}  // namespace

Result alloc_pd(Firmware& fw, Function& function) {
  return allocate(fw, function, fw.pds);
}
Result dealloc_pd(Firmware& fw, Function& function) {
  return deallocate(function, fw.pds, fw.handle());
}
Result alloc_uar(Firmware& fw, Function& function) {
  const std::uint32_t number = fw.uars.allocate(function.number);
  if (number == 0) {
    return failed(Status::no_resources, Syndrome::exhausted);
  }
  if (number >= fw.strap(reg::strap_uar_pages)) {
    fw.uars.release(number);
    return failed(Status::no_resources, Syndrome::exhausted);
  }
  fw.give_handle(number);
  return {};
}
Result dealloc_uar(Firmware& fw, Function& function) {
  return deallocate(function, fw.uars, fw.handle());
}
Result alloc_xrcd(Firmware& fw, Function& function) {
  return allocate(fw, function, fw.xrc_domains);
}
Result dealloc_xrcd(Firmware& fw, Function& function) {
  return deallocate(function, fw.xrc_domains, fw.handle());
}
Result alloc_transport_domain(Firmware& fw, Function& function) {
  return allocate(fw, function, fw.transport_domains);
}
Result dealloc_transport_domain(Firmware& fw, Function& function) {
  return deallocate(function, fw.transport_domains, fw.handle());
}
Result alloc_q_counter(Firmware& fw, Function& function) {
  return allocate(fw, function, fw.counter_sets);
}
Result dealloc_q_counter(Firmware& fw, Function& function) {
  const std::uint32_t number = fw.handle() & 0xffU;
  const Result result = deallocate(function, fw.counter_sets, number);
  if (result.status == Status::ok) {
    fw.context_op(rnic::ContextKind::queue_counters, number, reg::ContextOp::destroy);
  }
  return result;
}
Result query_q_counter(Firmware& fw, Function& function) {
  const std::uint32_t number = fw.input().get(q_counter::set);
  if (fw.counter_sets.find(function.number, number) == nullptr) {
    return failed(Status::bad_resource, Syndrome::handle);
  }
  rnic::QueueCounters c;
  if (const reg::ContextStatus status = fw.read_context(rnic::ContextKind::queue_counters, number, &c, sizeof c);
      status != reg::ContextStatus::ok) {
    return from_hardware(status);
  }
  const struct {
    std::uint32_t at;
    std::uint32_t value;
  } fields[] = {{q_counter::write_requests, c.write_requests},
                {q_counter::read_requests, c.read_requests},
                {q_counter::atomic_requests, c.atomic_requests},
                {q_counter::out_of_buffer, c.out_of_buffer},
                {q_counter::out_of_sequence, c.out_of_sequence},
                {q_counter::duplicate_request, c.duplicate_requests},
                {q_counter::rnr_nak_retry, c.received_rnr_naks},
                {q_counter::packet_sequence, c.received_sequence_naks},
                {q_counter::local_ack_timeout, c.acknowledge_timeouts},
                {q_counter::req_rnr_exceeded, c.requester_rnr_exceeded},
                {q_counter::resp_local_length, c.responder_length},
                {q_counter::req_local_length, c.requester_length},
                {q_counter::local_operation, c.requester_operation},
                {q_counter::resp_local_protection, c.responder_protection},
                {q_counter::req_local_protection, c.requester_protection},
                {q_counter::resp_cqe_error, c.responder_errors},
                {q_counter::req_cqe_error, c.requester_errors},
                {q_counter::req_bind, c.requester_bind},
                {q_counter::req_bad_response, c.requester_bad_response},
                {q_counter::req_invalid_request, c.requester_invalid_request},
                {q_counter::resp_invalid_request, c.responder_invalid_request},
                {q_counter::req_remote_access, c.requester_remote_access},
                {q_counter::resp_remote_access, c.responder_remote_access},
                {q_counter::req_remote_operation, c.requester_remote_operation},
                {q_counter::req_retries_exceeded, c.requester_retries_exceeded},
                {q_counter::resp_cqe_flushed, c.responder_flushed},
                {q_counter::req_cqe_flushed, c.requester_flushed}};
  for (const auto& field : fields) {
    fw.output().set_word(field.at, field.value);
  }
  if (fw.input().get(q_counter::clear) != 0) {
    fw.context_op(rnic::ContextKind::queue_counters, number, reg::ContextOp::destroy);
  }
  return {};
}

}  // namespace orrery::firmware
