// Objects of the Ethernet netdev: TIS, TIR, RQT, SQ, RQ, flow steering. The control side: numbers, references and
// states. The hardware knows send and receive queues only (docs/firmware.md).
#include "firmware/commands.h"

namespace orrery::firmware {

using namespace layout;
using rnic::ContextKind;
using rnic::reg::ContextOp;
using rnic::reg::ContextStatus;

namespace {

constexpr std::uint32_t context_at = 0x20;
constexpr std::uint32_t work_queue_at = context_at + 0x30;
constexpr std::uint32_t max_log_wq = 15;

namespace tisc {
constexpr Field priority{"prio", 0x00, 19, 16};
constexpr Field transport_domain{"transport_domain", 0x24, 23, 0};
}  // namespace tisc
namespace tirc {
constexpr Field disp_type{"disp_type", 0x04, 31, 28};
constexpr Field inline_rqn{"inline_rqn", 0x1c, 23, 0};
constexpr Field indirect_table{"indirect_table", 0x20, 23, 0};
constexpr Field transport_domain{"transport_domain", 0x24, 23, 0};
constexpr std::uint32_t direct = 0, indirect = 1;
}  // namespace tirc
namespace rqtc {
constexpr Field max_size{"rqt_max_size", 0x14, 15, 0};
constexpr Field actual_size{"rqt_actual_size", 0x18, 15, 0};
constexpr std::uint32_t list = 0xf0;
}  // namespace rqtc
namespace queuec {  // of SQ and RQ
constexpr Field state{"state", 0x00, 23, 20};
constexpr Field reserved_key{"rlky", 0x00, 31, 31};
constexpr Field user_index{"user_index", 0x04, 23, 0};
constexpr Field cqn{"cqn", 0x08, 23, 0};
constexpr Field counter_set{"counter_set_id", 0x0c, 31, 24};  // RQ
constexpr Field tis_count{"tis_lst_sz", 0x20, 31, 16};        // SQ
constexpr Field tis{"tis_num_0", 0x2c, 23, 0};                // SQ
constexpr std::uint32_t reset = 0, ready = 1, error = 3;
}  // namespace queuec
namespace flow {
constexpr Field table_type{"table_type", 0x10, 31, 24};
constexpr Field table{"table_id", 0x14, 23, 0};
constexpr Field table_miss_id{"table_miss_id", 0x1c, 23, 0};
constexpr Field level{"level", 0x18, 23, 16};
constexpr Field log_size{"log_size", 0x18, 7, 0};
constexpr std::uint32_t group_first = 0x1c, group_last = 0x24, group_id = 0x18;
constexpr std::uint32_t entry_index = 0x20, entry_group = 0x44, entry_action = 0x4c, entry_destinations = 0x50,
                        entry_list = 0x340;
constexpr std::uint32_t action_forward = 0x4;
constexpr std::uint32_t to_table = 1, to_tir = 2;
}  // namespace flow

template <class Table>
Result destroy(Firmware& fw, const Function& function, Table& table) {
  const auto* object = table.find(function.number, fw.handle());
  if (object == nullptr) {
    return failed(Status::bad_resource, Syndrome::handle);
  }
  return object->references != 0 ? failed(Status::bad_resource_state, Syndrome::in_use) : Result{};
}

}  // namespace

// ---- TIS, RQT, TIR -----------------------------------------------------------------------------------------------

Result create_tis(Firmware& fw, Function& function) {
  const View c = fw.input().at(context_at);
  const std::uint32_t domain = c.get(tisc::transport_domain);
  if (fw.transport_domains.find(function.number, domain) == nullptr) {
    return failed(Status::bad_resource, Syndrome::transport_domain);
  }
  const std::uint32_t number = fw.tises.allocate(function.number);
  if (number == 0) {
    return failed(Status::no_resources, Syndrome::exhausted);
  }
  Tis& tis = fw.tises[number];
  tis.transport_domain = domain;
  tis.priority = c.get(tisc::priority);
  Firmware::refer(fw.transport_domains, domain, 1);
  fw.give_handle(number);
  return {};
}

Result destroy_tis(Firmware& fw, Function& function) {
  const Result result = destroy(fw, function, fw.tises);
  if (result.status == Status::ok) {
    Firmware::refer(fw.transport_domains, fw.tises[fw.handle()].transport_domain, -1);
    fw.tises.release(fw.handle());
  }
  return result;
}

namespace {

// The list of RQs of a command, checked and then referred to.
Result take_rq_list(Firmware& fw, const Function& function, Rqt& rqt) {
  const View c = fw.input().at(context_at);
  const std::uint32_t count = c.get(rqtc::actual_size);
  if (count > rqt.max_size) {
    return failed(Status::bad_parameter, Syndrome::size);
  }
  if (context_at + rqtc::list + count * 4 > fw.input_length()) {
    return failed(Status::bad_input_length, Syndrome::list_length);
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    if (fw.rqs.find(function.number, c.word(rqtc::list + 4 * i) & 0xff'ffffU) == nullptr) {
      return failed(Status::bad_resource, Syndrome::queue);
    }
  }
  for (std::uint32_t i = 0; i < rqt.size; ++i) {
    Firmware::refer(fw.rqs, rqt.rq[i], -1);
  }
  rqt.size = count;
  for (std::uint32_t i = 0; i < count; ++i) {
    rqt.rq[i] = c.word(rqtc::list + 4 * i) & 0xff'ffffU;
    Firmware::refer(fw.rqs, rqt.rq[i], 1);
  }
  return {};
}

}  // namespace

Result create_rqt(Firmware& fw, Function& function) {
  const std::uint32_t most = fw.input().at(context_at).get(rqtc::max_size);
  if (most == 0 || most > Rqt::capacity) {
    return failed(Status::bad_parameter, Syndrome::size);
  }
  const std::uint32_t number = fw.rqts.allocate(function.number);
  if (number == 0) {
    return failed(Status::no_resources, Syndrome::exhausted);
  }
  Rqt& rqt = fw.rqts[number];
  rqt.max_size = most;
  const Result result = take_rq_list(fw, function, rqt);
  if (result.status != Status::ok) {
    fw.rqts.release(number);
    return result;
  }
  fw.give_handle(number);
  return {};
}

Result modify_rqt(Firmware& fw, Function& function) {
  constexpr std::uint32_t select_list = 1;
  Rqt* rqt = fw.rqts.find(function.number, fw.handle());
  if (rqt == nullptr) {
    return failed(Status::bad_resource, Syndrome::handle);
  }
  return (fw.input().word(0x14) & select_list) != 0 ? take_rq_list(fw, function, *rqt) : Result{};
}

Result destroy_rqt(Firmware& fw, Function& function) {
  const Result result = destroy(fw, function, fw.rqts);
  if (result.status == Status::ok) {
    const Rqt& rqt = fw.rqts[fw.handle()];
    for (std::uint32_t i = 0; i < rqt.size; ++i) {
      Firmware::refer(fw.rqs, rqt.rq[i], -1);
    }
    fw.rqts.release(fw.handle());
  }
  return result;
}

Result create_tir(Firmware& fw, Function& function) {
  const View c = fw.input().at(context_at);
  const std::uint32_t domain = c.get(tirc::transport_domain);
  if (fw.transport_domains.find(function.number, domain) == nullptr) {
    return failed(Status::bad_resource, Syndrome::transport_domain);
  }
  std::uint32_t rqt = 0;
  std::uint32_t rq = 0;
  switch (c.get(tirc::disp_type)) {
    case tirc::direct:
      rq = c.get(tirc::inline_rqn);
      if (fw.rqs.find(function.number, rq) == nullptr) {
        return failed(Status::bad_resource, Syndrome::queue);
      }
      break;
    case tirc::indirect:
      rqt = c.get(tirc::indirect_table);
      if (fw.rqts.find(function.number, rqt) == nullptr) {
        return failed(Status::bad_resource, Syndrome::table);
      }
      break;
    default:
      return failed(Status::bad_parameter, Syndrome::value);
  }
  const std::uint32_t number = fw.tirs.allocate(function.number);
  if (number == 0) {
    return failed(Status::no_resources, Syndrome::exhausted);
  }
  Tir& tir = fw.tirs[number];
  tir.transport_domain = domain;
  tir.rqt = rqt;
  tir.rq = rq;
  Firmware::refer(fw.transport_domains, domain, 1);
  Firmware::refer(fw.rqts, rqt, 1);
  Firmware::refer(fw.rqs, rq, 1);
  fw.give_handle(number);
  return {};
}

// Hashing and loopback blocking may be changed; neither is modelled.
Result modify_tir(Firmware& fw, Function& function) {
  return fw.tirs.find(function.number, fw.handle()) == nullptr ? failed(Status::bad_resource, Syndrome::handle)
                                                               : Result{};
}

Result destroy_tir(Firmware& fw, Function& function) {
  const Result result = destroy(fw, function, fw.tirs);
  if (result.status == Status::ok) {
    const Tir& tir = fw.tirs[fw.handle()];
    Firmware::refer(fw.transport_domains, tir.transport_domain, -1);
    Firmware::refer(fw.rqts, tir.rqt, -1);
    Firmware::refer(fw.rqs, tir.rq, -1);
    fw.tirs.release(fw.handle());
  }
  return result;
}

// ---- SQ, RQ ------------------------------------------------------------------------------------------------------

namespace {

template <class Table>
Result create_queue(Firmware& fw, Function& function, Table& table, bool send) {
  const View c = fw.input().at(context_at);
  const View q = fw.input().at(work_queue_at);
  const std::uint32_t cqn = c.get(queuec::cqn);
  if (fw.cqs.find(function.number, cqn) == nullptr) {
    return failed(Status::bad_resource, Syndrome::cq);
  }
  const std::uint32_t log_entries = q.get(wq::log_size);
  const std::uint32_t log_stride = q.get(wq::log_stride);
  if (log_entries > max_log_wq || log_stride < 4 || log_stride > 13) {
    return failed(Status::bad_parameter, Syndrome::size);
  }
  std::uint32_t tis = 0;
  std::uint32_t uar = 0;
  if (send) {
    uar = q.get(wq::uar_page);
    if (fw.uars.find(function.number, uar) == nullptr) {
      return failed(Status::bad_resource, Syndrome::uar);
    }
    tis = c.get(queuec::tis_count) != 0 ? c.get(queuec::tis) : 0;
    if (tis != 0 && fw.tises.find(function.number, tis) == nullptr) {
      return failed(Status::bad_resource, Syndrome::queue);
    }
  }
  const std::uint32_t pd = q.get(wq::pd);
  if (pd != 0 && fw.pds.find(function.number, pd) == nullptr) {
    return failed(Status::bad_resource, Syndrome::pd);  // the drop RQ has none
  }
  const std::uint32_t number = table.allocate(function.number);
  if (number == 0) {
    return failed(Status::no_resources, Syndrome::exhausted);
  }
  EthernetQueue& queue = table[number];
  const std::uint32_t counter_set = send ? 0 : c.get(queuec::counter_set);
  if (counter_set != 0 && fw.counter_sets.find(function.number, counter_set) == nullptr) {
    return failed(Status::bad_resource, Syndrome::counter_set);
  }
  rnic::FrameQueueContext context;
  context.function = function.number;
  context.counter_set = counter_set;
  context.flags = c.get(queuec::reserved_key) != 0 ? rnic::frame_queue_reserved_key : 0U;
  context.pd = pd;
  context.uar = uar;
  context.cq = cqn;
  context.user_index = c.get(queuec::user_index);
  context.log_entries = log_entries;
  context.log_stride = log_stride;
  context.doorbell_record = q.get(wq::doorbell);
  Result result = fw.load_queue(work_queue_at + wq::page_list, q.get(wq::log_page_size), q.get(wq::page_offset),
                                1ULL << (log_entries + log_stride), queue.run, context.buffer);
  if (result.status == Status::ok) {
    result = from_hardware(fw.write_context(send ? ContextKind::send_queue : ContextKind::receive_queue, number,
                                            &context, sizeof context));
  }
  if (result.status != Status::ok) {
    fw.release_run(queue.run);
    table.release(number);
    return result;
  }
  queue.cqn = cqn;
  queue.pd = pd;
  queue.uar = uar;
  queue.tis = tis;
  queue.counter_set = counter_set;
  Firmware::refer(fw.cqs, cqn, 1);
  Firmware::refer(fw.pds, pd, 1);
  Firmware::refer(fw.tises, tis, 1);
  Firmware::refer(fw.uars, uar, 1);
  fw.give_handle(number);
  return {};
}

template <class Table>
Result modify_queue(Firmware& fw, Function& function, Table& table, ContextKind kind) {
  EthernetQueue* queue = table.find(function.number, fw.handle());
  if (queue == nullptr) {
    return failed(Status::bad_resource, Syndrome::handle);
  }
  const std::uint32_t before = fw.input().word(0x08) >> 28;
  const std::uint32_t after = fw.input().at(context_at).get(queuec::state);
  if (before != queue->queue_state) {
    return failed(Status::bad_resource_state, Syndrome::state);
  }
  if (after != queuec::reset && after != queuec::ready && after != queuec::error) {
    return failed(Status::bad_parameter, Syndrome::value);
  }
  rnic::FrameQueueContext context;
  if (const ContextStatus status = fw.read_context(kind, fw.handle(), &context, sizeof context);
      status != ContextStatus::ok) {
    return from_hardware(status);
  }
  context.state = static_cast<rnic::FrameQueueState>(after);
  const Result result = from_hardware(fw.write_context(kind, fw.handle(), &context, sizeof context));
  queue->queue_state = result.status == Status::ok ? after : before;
  return result;
}

// As the driver would have written it, and the state that the hardware has put it in.
template <class Table>
Result query_queue(Firmware& fw, const Function& function, Table& table, ContextKind kind) {
  const EthernetQueue* queue = table.find(function.number, fw.handle());
  if (queue == nullptr) {
    return failed(Status::bad_resource, Syndrome::handle);
  }
  rnic::FrameQueueContext context;
  if (const ContextStatus status = fw.read_context(kind, fw.handle(), &context, sizeof context);
      status != ContextStatus::ok) {
    return from_hardware(status);
  }
  const View c = fw.output().at(context_at);
  c.set(queuec::reserved_key, (context.flags & rnic::frame_queue_reserved_key) != 0 ? 1 : 0);
  c.set(queuec::state, static_cast<std::uint32_t>(context.state));
  c.set(queuec::user_index, context.user_index);
  c.set(queuec::cqn, queue->cqn);
  if (kind == ContextKind::send_queue) {
    c.set(queuec::tis_count, queue->tis != 0 ? 1 : 0);
    c.set(queuec::tis, queue->tis);
  } else {
    c.set(queuec::counter_set, queue->counter_set);
  }
  const View q = fw.output().at(work_queue_at);
  q.set(wq::type, wq::type_cyclic);
  q.set(wq::pd, queue->pd);
  q.set(wq::uar_page, queue->uar);
  q.set(wq::doorbell, context.doorbell_record);
  q.set(wq::log_stride, context.log_stride);
  q.set(wq::log_page_size, context.buffer.page_shift - 12);
  q.set(wq::log_size, context.log_entries);
  return {};
}

template <class Table>
Result finish_destroy_queue(Firmware& fw, Table& table, ContextKind kind) {
  const std::uint32_t number = fw.remembered();
  Result result;
  if (fw.context_op(kind, number, ContextOp::query) == ContextStatus::draining) {
    result.pending = true;
    return result;
  }
  EthernetQueue& queue = table[number];
  Firmware::refer(fw.cqs, queue.cqn, -1);
  Firmware::refer(fw.pds, queue.pd, -1);
  Firmware::refer(fw.tises, queue.tis, -1);
  Firmware::refer(fw.uars, queue.uar, -1);
  fw.release_run(queue.run);
  table.release(number);
  return result;
}

template <class Table>
Result destroy_queue(Firmware& fw, Function& function, Table& table, ContextKind kind) {
  if (const Result result = destroy(fw, function, table); result.status != Status::ok) {
    return result;
  }
  const Result begun = begin_destroy(fw, table, fw.handle(), kind);
  return begun.pending ? begun : finish_destroy_queue(fw, table, kind);
}

}  // namespace

Result create_rq(Firmware& fw, Function& function) {
  return create_queue(fw, function, fw.rqs, false);
}
Result modify_rq(Firmware& fw, Function& function) {
  return modify_queue(fw, function, fw.rqs, ContextKind::receive_queue);
}
Result query_rq(Firmware& fw, Function& function) {
  return query_queue(fw, function, fw.rqs, ContextKind::receive_queue);
}
Result query_sq(Firmware& fw, Function& function) {
  return query_queue(fw, function, fw.sqs, ContextKind::send_queue);
}
Result destroy_rq(Firmware& fw, Function& function) {
  return destroy_queue(fw, function, fw.rqs, ContextKind::receive_queue);
}
Result finish_destroy_rq(Firmware& fw, Function& /*function*/) {
  return finish_destroy_queue(fw, fw.rqs, ContextKind::receive_queue);
}
Result create_sq(Firmware& fw, Function& function) {
  return create_queue(fw, function, fw.sqs, true);
}
Result modify_sq(Firmware& fw, Function& function) {
  return modify_queue(fw, function, fw.sqs, ContextKind::send_queue);
}
Result destroy_sq(Firmware& fw, Function& function) {
  return destroy_queue(fw, function, fw.sqs, ContextKind::send_queue);
}
Result finish_destroy_sq(Firmware& fw, Function& /*function*/) {
  return finish_destroy_queue(fw, fw.sqs, ContextKind::send_queue);
}

// ---- Flow steering -------------------------------------------------------------------------------------------------

Result create_flow_table(Firmware& fw, Function& function) {
  constexpr std::uint32_t max_log_size = 20;
  const View in = fw.input();
  const std::uint32_t log_size = in.get(flow::log_size);
  if (log_size > max_log_size) {
    return failed(Status::bad_parameter, Syndrome::size);
  }
  const std::uint32_t number = fw.flow_tables.allocate(function.number);
  if (number == 0) {
    return failed(Status::no_resources, Syndrome::exhausted);
  }
  FlowTable& table = fw.flow_tables[number];
  table.type = in.get(flow::table_type);
  table.level = in.get(flow::level);
  table.log_size = log_size;
  table.miss_table = in.get(flow::table_miss_id);
  fw.give_handle(number);
  return {};
}

Result destroy_flow_table(Firmware& fw, Function& function) {
  const std::uint32_t number = fw.input().get(flow::table);
  const FlowTable* table = fw.flow_tables.find(function.number, number);
  if (table == nullptr) {
    return failed(Status::bad_resource, Syndrome::table);
  }
  if (table->references != 0) {
    return failed(Status::bad_resource_state, Syndrome::in_use);
  }
  fw.flow_tables.release(number);
  return {};
}

Result set_flow_table_root(Firmware& fw, Function& function) {
  FlowTable* table = fw.flow_tables.find(function.number, fw.input().get(flow::table));
  if (table == nullptr) {
    return failed(Status::bad_resource, Syndrome::table);
  }
  for (std::uint32_t number = fw.flow_tables.lowest(); number < fw.flow_tables.end(); ++number) {
    FlowTable* other = fw.flow_tables.find(function.number, number);
    if (other != nullptr && other->type == table->type) {
      other->root = 0;
    }
  }
  table->root = fw.op_mod() == 0 ? 1 : 0;
  return {};
}

Result create_flow_group(Firmware& fw, Function& function) {
  const std::uint32_t table_number = fw.input().get(flow::table);
  FlowTable* table = fw.flow_tables.find(function.number, table_number);
  if (table == nullptr) {
    return failed(Status::bad_resource, Syndrome::table);
  }
  const std::uint32_t first = fw.input().word(flow::group_first);
  const std::uint32_t last = fw.input().word(flow::group_last);
  if (first > last || last >= 1U << table->log_size) {
    return failed(Status::bad_parameter, Syndrome::value);
  }
  const std::uint32_t number = fw.flow_groups.allocate(function.number);
  if (number == 0) {
    return failed(Status::no_resources, Syndrome::exhausted);
  }
  FlowGroup& group = fw.flow_groups[number];
  group.table = table_number;
  group.first = first;
  group.last = last;
  ++table->references;
  fw.give_handle(number);
  return {};
}

Result destroy_flow_group(Firmware& fw, Function& function) {
  const std::uint32_t number = fw.input().word(flow::group_id);
  const FlowGroup* group = fw.flow_groups.find(function.number, number);
  if (group == nullptr) {
    return failed(Status::bad_resource, Syndrome::handle);
  }
  if (group->references != 0) {
    return failed(Status::bad_resource_state, Syndrome::in_use);
  }
  Firmware::refer(fw.flow_tables, group->table, -1);
  fw.flow_groups.release(number);
  return {};
}

namespace {

std::uint32_t find_entry(Firmware& fw, const Function& function, std::uint32_t table, std::uint32_t index) {
  for (std::uint32_t number = fw.flow_entries.lowest(); number < fw.flow_entries.end(); ++number) {
    const FlowEntry* entry = fw.flow_entries.find(function.number, number);
    if (entry != nullptr && entry->table == table && entry->index == index) {
      return number;
    }
  }
  return 0;
}

void refer_destination(Firmware& fw, std::uint32_t destination, int by) {
  if (destination >> 24 == flow::to_tir) {
    Firmware::refer(fw.tirs, destination & 0xff'ffffU, by);
  }
}

}  // namespace

Result set_flow_table_entry(Firmware& fw, Function& function) {
  const View in = fw.input();
  const std::uint32_t table = in.get(flow::table);
  const std::uint32_t index = in.word(flow::entry_index);
  const std::uint32_t group_number = in.word(flow::entry_group);
  FlowGroup* group = fw.flow_groups.find(function.number, group_number);
  if (fw.flow_tables.find(function.number, table) == nullptr || group == nullptr || group->table != table) {
    return failed(Status::bad_resource, Syndrome::table);
  }
  if (index < group->first || index > group->last) {
    return failed(Status::bad_index, Syndrome::value);
  }
  std::uint32_t destination = 0;
  if ((in.word(flow::entry_action) & flow::action_forward) != 0 &&
      (in.word(flow::entry_destinations) & 0xff'ffffU) != 0) {
    if (fw.input_length() < flow::entry_list + 8) {
      return failed(Status::bad_input_length, Syndrome::list_length);
    }
    destination = in.word(flow::entry_list);
    const std::uint32_t number = destination & 0xff'ffffU;
    const bool known = destination >> 24 == flow::to_tir     ? fw.tirs.find(function.number, number) != nullptr
                       : destination >> 24 == flow::to_table ? fw.flow_tables.find(function.number, number) != nullptr
                                                             : false;
    if (!known) {
      return failed(Status::bad_resource, Syndrome::handle);
    }
  }
  std::uint32_t number = find_entry(fw, function, table, index);
  if (number == 0) {
    number = fw.flow_entries.allocate(function.number);
    if (number == 0) {
      return failed(Status::no_resources, Syndrome::exhausted);
    }
    ++group->references;
  } else {
    refer_destination(fw, fw.flow_entries[number].destination, -1);
  }
  FlowEntry& entry = fw.flow_entries[number];
  entry.table = table;
  entry.group = group_number;
  entry.index = index;
  entry.destination = destination;
  refer_destination(fw, destination, 1);
  return {};
}

Result delete_flow_table_entry(Firmware& fw, Function& function) {
  const std::uint32_t number =
      find_entry(fw, function, fw.input().get(flow::table), fw.input().word(flow::entry_index));
  if (number == 0) {
    return failed(Status::bad_resource, Syndrome::handle);
  }
  const FlowEntry& entry = fw.flow_entries[number];
  refer_destination(fw, entry.destination, -1);
  Firmware::refer(fw.flow_groups, entry.group, -1);
  fw.flow_entries.release(number);
  return {};
}

}  // namespace orrery::firmware
