// Contexts, translation memory, events and the end of a function's objects.
#include "firmware/capabilities.h"
#include "firmware/firmware.h"

namespace orrery::firmware {

namespace reg = rnic::reg;
using reg::ContextOp;
using reg::ContextStatus;
using rnic::ContextKind;

ContextStatus Firmware::context_op(ContextKind kind, std::uint32_t index, ContextOp op, std::uint32_t value) const {
  write32(hal_, reg::context_kind, static_cast<std::uint32_t>(kind));
  write32(hal_, reg::context_index, index);
  write32(hal_, reg::context_value, value);
  write32(hal_, reg::context_op, static_cast<std::uint32_t>(op));
  return static_cast<ContextStatus>(read32(hal_, reg::context_status));
}

ContextStatus Firmware::write_context(ContextKind kind, std::uint32_t index, const void* context,
                                      std::uint32_t bytes) const {
  const auto* words = static_cast<const unsigned char*>(context);
  for (std::uint32_t at = 0; at < bytes; at += 4) {
    std::uint32_t word = 0;
    __builtin_memcpy(&word, words + at, 4);
    write32(hal_, reg::context_data + at, word);
  }
  return context_op(kind, index, ContextOp::write);
}

ContextStatus Firmware::read_context(ContextKind kind, std::uint32_t index, void* context, std::uint32_t bytes) const {
  const ContextStatus status = context_op(kind, index, ContextOp::read);
  if (status == ContextStatus::ok) {
    auto* words = static_cast<unsigned char*>(context);
    for (std::uint32_t at = 0; at < bytes; at += 4) {
      const std::uint32_t word = read32(hal_, reg::context_data + at);
      __builtin_memcpy(words + at, &word, 4);
    }
  }
  return status;
}

void Firmware::write_function(const Function& function) const {
  const std::uint32_t lid = strap(reg::strap_lid) + function.number;
  rnic::FunctionContext context;
  context.enabled = function.initialised ? 1 : 0;
  context.mac = ethernet_ ? function.vport.mac : rnic::lid_mac(lid);
  context.mtu = function.vport.mtu;
  context.promiscuous = function.vport.promiscuous;
  context.roce = ethernet_ ? function.vport.roce : 1;
  context.lid = ethernet_ ? 0 : lid;
  context.port_down = function.vport.down ? 1 : 0;
  for (std::uint32_t eqn = 1; eqn < eq_count; ++eqn) {
    if (function.eqs[eqn].state == ObjectState::used && (function.eqs[eqn].mask >> 0x0c & 1U) != 0) {
      context.fault_eq = eqn;
    }
  }
  write_context(ContextKind::function, function.number, &context, sizeof context);
  if (!ethernet_ && function.initialised) {
    rnic::AddressContext address;
    rnic::lid_gid(lid, address.gid);
    address.mac = context.mac;
    address.roce_version = 2;
    write_context(ContextKind::address, function.number * rnic::max_addresses, &address, sizeof address);
  }
}

// ---- Translation memory ----------------------------------------------------------------------------------------

bool Firmware::allocate_run(std::uint32_t entries, Run& run) {
  run.start = translations.allocate(entries);
  run.entries = run.start == TranslationPool::none ? 0 : entries;
  return run.entries != 0;
}

void Firmware::release_run(Run& run) {
  if (run.entries != 0) {
    translations.release(run.start, run.entries);
  }
  run = Run{};
}

ContextStatus Firmware::load_list(std::uint32_t function, std::uint32_t local, std::uint32_t index, std::uint32_t count,
                                  reg::BulkFormat format, std::uint32_t flags) const {
  write32(hal_, reg::bulk_function, function);
  write32(hal_, reg::bulk_local, local);
  write32(hal_, reg::bulk_index, index);
  write32(hal_, reg::bulk_count, count);
  write32(hal_, reg::bulk_flags, flags);
  write32(hal_, reg::bulk_start, static_cast<std::uint32_t>(format));
  return static_cast<ContextStatus>(read32(hal_, reg::bulk_status));
}

Result Firmware::load_queue(std::uint32_t list, std::uint32_t log_page_size, std::uint32_t offset, std::uint64_t bytes,
                            Run& run, rnic::QueueBuffer& buffer) {
  const std::uint32_t page_shift = 12 + log_page_size;
  if (page_shift > 31 || bytes == 0) {
    return failed(Status::bad_parameter, Syndrome::value);
  }
  const std::uint64_t byte_offset = static_cast<std::uint64_t>(offset) << (page_shift - 6);
  const std::uint64_t pages = (byte_offset + bytes + (1ULL << page_shift) - 1) >> page_shift;
  if (pages > (max_input - list) / 8 || list + pages * 8 > command_.input_length) {
    return failed(Status::bad_input_length, Syndrome::list_length);
  }
  const auto count = static_cast<std::uint32_t>(pages);
  if (!allocate_run(count, run)) {
    return failed(Status::no_resources, Syndrome::no_translation);
  }
  const auto flags = static_cast<std::uint32_t>(rnic::translation::readable | rnic::translation::writable);
  if (load_list(command_.function, local::input + list, run.start, count, reg::BulkFormat::pages, flags) !=
      ContextStatus::ok) {
    release_run(run);
    return failed(Status::internal, Syndrome::hardware);
  }
  buffer.translation = run.start;
  buffer.page_count = count;
  buffer.page_shift = page_shift;
  buffer.offset = static_cast<std::uint32_t>(byte_offset);
  return {};
}

// ---- Events ------------------------------------------------------------------------------------------------------

void Firmware::push_event(const Function& function, std::uint32_t eqn, std::uint32_t type, std::uint32_t subtype,
                          const std::uint32_t (&data)[7]) const {
  write32(hal_, reg::eqe_function, function.number);
  write32(hal_, reg::eqe_eqn, eqn);
  write32(hal_, reg::eqe_type, type << 8 | subtype);
  for (std::uint32_t i = 0; i < 7; ++i) {
    write32(hal_, reg::eqe_data + 4 * i, swap32(data[i]));
  }
  write32(hal_, reg::eqe_push, 1);
}

void Firmware::raise_event(const Function& function, std::uint32_t type, std::uint32_t subtype,
                           const std::uint32_t (&data)[7]) const {
  for (std::uint32_t eqn = 1; eqn < eq_count; ++eqn) {
    const Eq& eq = function.eqs[eqn];
    if (eq.state == ObjectState::used && type < 64 && (eq.mask >> type & 1U) != 0) {
      push_event(function, eqn, type, subtype, data);
    }
  }
}

// ---- The end ------------------------------------------------------------------------------------------------------

namespace {

template <class Table, class Release>
void drop(Table& table, std::uint32_t function, Release&& release) {
  if (table.used() == 0) {
    return;
  }
  for (std::uint32_t number = Table::lowest(); number < table.end(); ++number) {
    auto& object = table[number];
    if (object.state != ObjectState::free && object.function == function) {
      release(object);
      table.release(number);
    }
  }
}

}  // namespace

// The hardware has forgotten (or forgets here) every context of the function at once, so that nothing needs to drain.
void Firmware::drop_objects(Function& function, bool hardware_too) {
  const std::uint32_t owner = function.number;
  if (hardware_too) {
    context_op(ContextKind::function, owner, ContextOp::reset_function);
  }
  const auto nothing = [](Object& /*object*/) {};
  const auto run = [this](auto& object) { release_run(object.run); };
  drop(flow_entries, owner, nothing);
  drop(flow_groups, owner, nothing);
  drop(flow_tables, owner, nothing);
  drop(tirs, owner, nothing);
  drop(rqts, owner, nothing);
  drop(tises, owner, nothing);
  drop(rqs, owner, run);
  drop(sqs, owner, run);
  drop(groups, owner, nothing);
  drop(qps, owner, run);
  drop(srqs, owner, run);
  drop(cqs, owner, run);
  drop(mkeys, owner, run);
  for (std::uint32_t set = counter_sets.lowest(); set < counter_sets.end(); ++set) {
    if (counter_sets.find(owner, set) != nullptr) {
      context_op(ContextKind::queue_counters, set, ContextOp::destroy);
    }
  }
  drop(counter_sets, owner, nothing);
  drop(transport_domains, owner, nothing);
  drop(xrc_domains, owner, nothing);
  drop(pds, owner, nothing);
  drop(uars, owner, nothing);
  for (Eq& eq : function.eqs) {
    release_run(eq.run);
    eq = Eq{};
  }
  function.command_eqn = 0;
}

void Firmware::drop_pages(Function& function) {
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < page_count; ++i) {
    if (page_functions[i] != function.number) {
      page_addresses[kept] = page_addresses[i];
      page_functions[kept++] = page_functions[i];
    }
  }
  page_count = kept;
  function.pages = 0;
}

}  // namespace orrery::firmware
