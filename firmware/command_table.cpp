// Every command by opcode: least lengths, what must have gone before, and who carries it out.
#include "firmware/capabilities.h"
#include "firmware/commands.h"

namespace orrery::firmware {

namespace {

// Ordered by opcode.
constexpr CommandInfo table[] = {
    {0x100, "QUERY_HCA_CAP", 16, 16, needs_enabled, query_hca_cap, nullptr},
    {0x101, "QUERY_ADAPTER", 16, 272, needs_enabled, query_adapter, nullptr},
    {0x102, "INIT_HCA", 16, 16, needs_enabled, init_hca, nullptr},
    {0x103, "TEARDOWN_HCA", 16, 16, needs_enabled, teardown_hca, nullptr},
    {0x104, "ENABLE_HCA", 12, 8, needs_nothing, enable_hca, nullptr},
    {0x105, "DISABLE_HCA", 12, 8, needs_enabled, disable_hca, nullptr},
    {0x107, "QUERY_PAGES", 12, 16, needs_enabled, query_pages, nullptr},
    {0x108, "MANAGE_PAGES", 16, 16, needs_enabled, manage_pages, nullptr},
    {0x109, "SET_HCA_CAP", 16, 8, needs_enabled, set_hca_cap, nullptr},
    {0x10a, "QUERY_ISSI", 8, 112, needs_enabled, query_issi, nullptr},
    {0x10b, "SET_ISSI", 12, 8, needs_enabled, set_issi, nullptr},
    {0x200, "CREATE_MKEY", 272, 12, needs_initialised, create_mkey, nullptr},
    {0x201, "QUERY_MKEY", 12, 80, needs_initialised, query_mkey, nullptr},
    {0x202, "DESTROY_MKEY", 12, 8, needs_initialised, destroy_mkey, finish_destroy_mkey},
    {0x203, "QUERY_SPECIAL_CONTEXTS", 8, 20, needs_initialised, query_special_contexts, nullptr},
    {0x204, "PAGE_FAULT_RESUME", 16, 8, needs_initialised, page_fault_resume, nullptr},
    {0x301, "CREATE_EQ", 280, 12, needs_initialised, create_eq, nullptr},
    {0x302, "DESTROY_EQ", 12, 8, needs_initialised, destroy_eq, finish_destroy_eq},
    {0x303, "QUERY_EQ", 12, 80, needs_initialised, query_eq, nullptr},
    {0x400, "CREATE_CQ", 280, 12, needs_initialised, create_cq, nullptr},
    {0x401, "DESTROY_CQ", 12, 8, needs_initialised, destroy_cq, finish_destroy_cq},
    {0x402, "QUERY_CQ", 12, 80, needs_initialised, query_cq, nullptr},
    {0x403, "MODIFY_CQ", 80, 8, needs_initialised, modify_cq, nullptr},
    {0x500, "CREATE_QP", 272, 12, needs_initialised, create_qp, nullptr},
    {0x501, "DESTROY_QP", 12, 8, needs_initialised, destroy_qp, finish_destroy_qp},
    {0x502, "RST2INIT_QP", 256, 8, needs_initialised, modify_qp, nullptr},
    {0x503, "INIT2RTR_QP", 256, 8, needs_initialised, modify_qp, nullptr},
    {0x504, "RTR2RTS_QP", 256, 8, needs_initialised, modify_qp, nullptr},
    {0x505, "RTS2RTS_QP", 256, 8, needs_initialised, modify_qp, nullptr},
    {0x506, "SQERR2RTS_QP", 256, 8, needs_initialised, modify_qp, nullptr},
    {0x507, "2ERR_QP", 12, 8, needs_initialised, modify_qp, nullptr},
    {0x50a, "2RST_QP", 12, 8, needs_initialised, modify_qp, nullptr},
    {0x50b, "QUERY_QP", 12, 272, needs_initialised, query_qp, nullptr},
    {0x50c, "SQD_RTS_QP", 256, 8, needs_initialised, modify_qp, nullptr},
    {0x50d, "MAD_IFC", 272, 272, needs_initialised, mad_ifc, nullptr},
    {0x50e, "INIT2INIT_QP", 256, 8, needs_initialised, modify_qp, nullptr},
    {0x703, "ARM_RQ", 16, 8, needs_initialised, arm_srq, nullptr},
    {0x705, "CREATE_XRC_SRQ", 280, 12, needs_initialised, create_xrc_srq, nullptr},
    {0x706, "DESTROY_XRC_SRQ", 12, 8, needs_initialised, destroy_srq, finish_destroy_srq},
    {0x707, "QUERY_XRC_SRQ", 12, 80, needs_initialised, query_xrc_srq, nullptr},
    {0x708, "ARM_XRC_SRQ", 16, 8, needs_initialised, arm_srq, nullptr},
    {0x750, "QUERY_VPORT_STATE", 12, 16, needs_initialised, query_vport_state, nullptr},
    {0x754, "QUERY_NIC_VPORT_CONTEXT", 16, 16, needs_enabled, query_nic_vport_context, nullptr},
    {0x755, "MODIFY_NIC_VPORT_CONTEXT", 16, 8, needs_enabled, modify_nic_vport_context, nullptr},
    {0x760, "QUERY_ROCE_ADDRESS", 12, 48, needs_initialised, query_roce_address, nullptr},
    {0x761, "SET_ROCE_ADDRESS", 48, 8, needs_initialised, set_roce_address, nullptr},
    {0x762, "QUERY_HCA_VPORT_CONTEXT", 12, 528, needs_initialised, query_hca_vport_context, nullptr},
    {0x764, "QUERY_HCA_VPORT_GID", 16, 32, needs_initialised, query_hca_vport_gid, nullptr},
    {0x765, "QUERY_HCA_VPORT_PKEY", 16, 20, needs_initialised, query_hca_vport_pkey, nullptr},
    {0x770, "QUERY_VPORT_COUNTER", 12, 16, needs_initialised, query_vport_counter, nullptr},
    {0x771, "ALLOC_Q_COUNTER", 8, 12, needs_initialised, alloc_q_counter, nullptr},
    {0x772, "DEALLOC_Q_COUNTER", 12, 8, needs_initialised, dealloc_q_counter, nullptr},
    {0x773, "QUERY_Q_COUNTER", 32, 256, needs_initialised, query_q_counter, nullptr},
    {0x800, "ALLOC_PD", 8, 12, needs_initialised, alloc_pd, nullptr},
    {0x801, "DEALLOC_PD", 12, 8, needs_initialised, dealloc_pd, nullptr},
    {0x802, "ALLOC_UAR", 8, 12, needs_initialised, alloc_uar, nullptr},
    {0x803, "DEALLOC_UAR", 12, 8, needs_initialised, dealloc_uar, nullptr},
    {0x805, "ACCESS_REG", 16, 16, needs_enabled, access_register, nullptr},
    {0x806, "ATTACH_TO_MCG", 32, 8, needs_initialised, attach_to_group, nullptr},
    {0x807, "DETACH_FROM_MCG", 32, 8, needs_initialised, detach_from_group, nullptr},
    {0x80e, "ALLOC_XRCD", 8, 12, needs_initialised, alloc_xrcd, nullptr},
    {0x80f, "DEALLOC_XRCD", 12, 8, needs_initialised, dealloc_xrcd, nullptr},
    {0x816, "ALLOC_TRANSPORT_DOMAIN", 8, 12, needs_initialised, alloc_transport_domain, nullptr},
    {0x817, "DEALLOC_TRANSPORT_DOMAIN", 12, 8, needs_initialised, dealloc_transport_domain, nullptr},
    {0x900, "CREATE_TIR", 272, 12, needs_initialised, create_tir, nullptr},
    {0x901, "MODIFY_TIR", 32, 8, needs_initialised, modify_tir, nullptr},
    {0x902, "DESTROY_TIR", 12, 8, needs_initialised, destroy_tir, nullptr},
    {0x904, "CREATE_SQ", 280, 12, needs_initialised, create_sq, nullptr},
    {0x905, "MODIFY_SQ", 80, 8, needs_initialised, modify_sq, nullptr},
    {0x906, "DESTROY_SQ", 12, 8, needs_initialised, destroy_sq, finish_destroy_sq},
    {0x907, "QUERY_SQ", 12, 272, needs_initialised, query_sq, nullptr},
    {0x908, "CREATE_RQ", 280, 12, needs_initialised, create_rq, nullptr},
    {0x909, "MODIFY_RQ", 80, 8, needs_initialised, modify_rq, nullptr},
    {0x90a, "DESTROY_RQ", 12, 8, needs_initialised, destroy_rq, finish_destroy_rq},
    {0x90b, "QUERY_RQ", 12, 272, needs_initialised, query_rq, nullptr},
    {0x90c, "CREATE_RMP", 280, 12, needs_initialised, create_rmp, nullptr},
    {0x90d, "MODIFY_RMP", 112, 8, needs_initialised, modify_rmp, nullptr},
    {0x90e, "DESTROY_RMP", 12, 8, needs_initialised, destroy_srq, finish_destroy_srq},
    {0x90f, "QUERY_RMP", 12, 128, needs_initialised, query_rmp, nullptr},
    {0x912, "CREATE_TIS", 80, 12, needs_initialised, create_tis, nullptr},
    {0x914, "DESTROY_TIS", 12, 8, needs_initialised, destroy_tis, nullptr},
    {0x916, "CREATE_RQT", 272, 12, needs_initialised, create_rqt, nullptr},
    {0x917, "MODIFY_RQT", 272, 8, needs_initialised, modify_rqt, nullptr},
    {0x918, "DESTROY_RQT", 12, 8, needs_initialised, destroy_rqt, nullptr},
    {0x92f, "SET_FLOW_TABLE_ROOT", 24, 8, needs_initialised, set_flow_table_root, nullptr},
    {0x930, "CREATE_FLOW_TABLE", 40, 12, needs_initialised, create_flow_table, nullptr},
    {0x931, "DESTROY_FLOW_TABLE", 24, 8, needs_initialised, destroy_flow_table, nullptr},
    {0x933, "CREATE_FLOW_GROUP", 64, 12, needs_initialised, create_flow_group, nullptr},
    {0x934, "DESTROY_FLOW_GROUP", 28, 8, needs_initialised, destroy_flow_group, nullptr},
    {0x936, "SET_FLOW_TABLE_ENTRY", 832, 8, needs_initialised, set_flow_table_entry, nullptr},
    {0x938, "DELETE_FLOW_TABLE_ENTRY", 36, 8, needs_initialised, delete_flow_table_entry, nullptr},
};
constexpr std::uint32_t count_of_table = sizeof table / sizeof table[0];

constexpr bool ordered() {
  for (std::uint32_t i = 1; i < count_of_table; ++i) {
    if (table[i - 1].opcode >= table[i].opcode) {
      return false;
    }
  }
  return true;
}
static_assert(ordered());

}  // namespace

const CommandInfo* commands(std::uint32_t& count) {
  count = count_of_table;
  return table;
}

const CommandInfo* find_command(std::uint32_t opcode) {
  std::uint32_t low = 0;
  std::uint32_t high = count_of_table;
  while (low < high) {
    const std::uint32_t middle = (low + high) / 2;
    if (table[middle].opcode < opcode) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < count_of_table && table[low].opcode == opcode ? &table[low] : nullptr;
}

}  // namespace orrery::firmware
