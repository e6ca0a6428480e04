// The commands, by file. Freestanding. Each validates everything before it changes anything.
#pragma once

#include "firmware/firmware.h"

namespace orrery::firmware {

// commands_device.cpp
Result enable_hca(Firmware& fw, Function& function);
Result disable_hca(Firmware& fw, Function& function);
Result init_hca(Firmware& fw, Function& function);
Result teardown_hca(Firmware& fw, Function& function);
Result query_issi(Firmware& fw, Function& function);
Result set_issi(Firmware& fw, Function& function);
Result query_pages(Firmware& fw, Function& function);
Result manage_pages(Firmware& fw, Function& function);
Result query_adapter(Firmware& fw, Function& function);
Result query_special_contexts(Firmware& fw, Function& function);
Result access_register(Firmware& fw, Function& function);
Result alloc_pd(Firmware& fw, Function& function);
Result dealloc_pd(Firmware& fw, Function& function);
Result alloc_uar(Firmware& fw, Function& function);
Result dealloc_uar(Firmware& fw, Function& function);
Result alloc_xrcd(Firmware& fw, Function& function);
Result dealloc_xrcd(Firmware& fw, Function& function);
Result alloc_transport_domain(Firmware& fw, Function& function);
Result dealloc_transport_domain(Firmware& fw, Function& function);
Result alloc_q_counter(Firmware& fw, Function& function);
Result dealloc_q_counter(Firmware& fw, Function& function);
Result query_q_counter(Firmware& fw, Function& function);

// commands_queue.cpp
Result create_eq(Firmware& fw, Function& function);
Result destroy_eq(Firmware& fw, Function& function);
Result finish_destroy_eq(Firmware& fw, Function& function);
Result query_eq(Firmware& fw, Function& function);
Result create_cq(Firmware& fw, Function& function);
Result destroy_cq(Firmware& fw, Function& function);
Result finish_destroy_cq(Firmware& fw, Function& function);
Result query_cq(Firmware& fw, Function& function);
Result modify_cq(Firmware& fw, Function& function);
Result create_rmp(Firmware& fw, Function& function);
Result modify_rmp(Firmware& fw, Function& function);
Result query_rmp(Firmware& fw, Function& function);
Result create_xrc_srq(Firmware& fw, Function& function);
Result query_xrc_srq(Firmware& fw, Function& function);
Result arm_srq(Firmware& fw, Function& function);
Result destroy_srq(Firmware& fw, Function& function);
Result finish_destroy_srq(Firmware& fw, Function& function);

// commands_qp.cpp
Result create_qp(Firmware& fw, Function& function);
Result destroy_qp(Firmware& fw, Function& function);
Result finish_destroy_qp(Firmware& fw, Function& function);
Result query_qp(Firmware& fw, Function& function);
Result modify_qp(Firmware& fw, Function& function);  // every transition
Result attach_to_group(Firmware& fw, Function& function);
Result detach_from_group(Firmware& fw, Function& function);

// commands_key.cpp
Result create_mkey(Firmware& fw, Function& function);
Result destroy_mkey(Firmware& fw, Function& function);
Result finish_destroy_mkey(Firmware& fw, Function& function);
Result query_mkey(Firmware& fw, Function& function);
Result page_fault_resume(Firmware& fw, Function& function);
// The hardware's mode of a driver's access mode; false: not offered.
bool key_mode(std::uint32_t access_mode, rnic::KeyMode& mode);
std::uint32_t key_access(const View& mkc);

// commands_vport.cpp
Result query_hca_vport_context(Firmware& fw, Function& function);
Result query_hca_vport_gid(Firmware& fw, Function& function);
Result query_hca_vport_pkey(Firmware& fw, Function& function);
Result mad_ifc(Firmware& fw, Function& function);
Result query_nic_vport_context(Firmware& fw, Function& function);
Result modify_nic_vport_context(Firmware& fw, Function& function);
Result query_vport_state(Firmware& fw, Function& function);
Result query_vport_counter(Firmware& fw, Function& function);
Result set_roce_address(Firmware& fw, Function& function);
Result query_roce_address(Firmware& fw, Function& function);

// commands_ethernet.cpp
Result create_tis(Firmware& fw, Function& function);
Result destroy_tis(Firmware& fw, Function& function);
Result create_tir(Firmware& fw, Function& function);
Result modify_tir(Firmware& fw, Function& function);
Result destroy_tir(Firmware& fw, Function& function);
Result create_rqt(Firmware& fw, Function& function);
Result modify_rqt(Firmware& fw, Function& function);
Result destroy_rqt(Firmware& fw, Function& function);
Result create_rq(Firmware& fw, Function& function);
Result modify_rq(Firmware& fw, Function& function);
Result query_rq(Firmware& fw, Function& function);
Result destroy_rq(Firmware& fw, Function& function);
Result finish_destroy_rq(Firmware& fw, Function& function);
Result create_sq(Firmware& fw, Function& function);
Result modify_sq(Firmware& fw, Function& function);
Result query_sq(Firmware& fw, Function& function);
Result destroy_sq(Firmware& fw, Function& function);
Result finish_destroy_sq(Firmware& fw, Function& function);
Result create_flow_table(Firmware& fw, Function& function);
Result destroy_flow_table(Firmware& fw, Function& function);
Result set_flow_table_root(Firmware& fw, Function& function);
Result create_flow_group(Firmware& fw, Function& function);
Result destroy_flow_group(Firmware& fw, Function& function);
Result set_flow_table_entry(Firmware& fw, Function& function);
Result delete_flow_table_entry(Firmware& fw, Function& function);

// The hardware's answer as a command's.
Result from_hardware(rnic::reg::ContextStatus status);

// Destroys a context: done, or to be finished when it has drained.
template <class Table>
Result begin_destroy(Firmware& fw, Table& table, std::uint32_t number, rnic::ContextKind kind) {
  table[number].state = ObjectState::draining;
  fw.remember(number);
  const auto status = fw.context_op(kind, number, rnic::reg::ContextOp::destroy);
  Result result;
  result.pending = status == rnic::reg::ContextStatus::draining;
  return result;
}

}  // namespace orrery::firmware
