// The structures of the mlx5 command interface, as tables of fields. Freestanding.
//
// Offsets and bits are interface facts of the stock Linux driver (kernels 6.1 to 7.3), verified with it.
#pragma once

#include "firmware/field.h"

namespace orrery::firmware::layout {

// The 64-byte command queue entry.
namespace entry {
inline constexpr Field type{"type", 0x00, 31, 24};
inline constexpr std::uint32_t type_pci = 7;
inline constexpr Field input_length{"input_length", 0x04, 31, 0};
inline constexpr WideField input_mailbox{"input_mailbox", 0x08};
inline constexpr std::uint32_t input_inline = 0x10;   // 16 bytes
inline constexpr std::uint32_t output_inline = 0x20;  // 16 bytes
inline constexpr WideField output_mailbox{"output_mailbox", 0x30};
inline constexpr Field output_length{"output_length", 0x38, 31, 0};
inline constexpr std::uint32_t last_word = 0x3c;
inline constexpr Field token{"token", 0x3c, 31, 24};
inline constexpr Field signature{"signature", 0x3c, 23, 16};
inline constexpr Field delivery{"delivery_status", 0x3c, 7, 1};
inline constexpr Field owner{"owner", 0x3c, 0, 0};
inline constexpr std::uint32_t bytes = 64;
inline constexpr std::uint32_t inline_bytes = 16;
}  // namespace entry

// A mailbox block: 512 bytes of data and this trailer at 0x200.
namespace mailbox {
inline constexpr std::uint32_t data_bytes = 512;
inline constexpr std::uint32_t bytes = 576;
inline constexpr std::uint32_t trailer_bytes = 64;
inline constexpr WideField next{"next", 0x30};
inline constexpr Field number{"block_number", 0x38, 31, 0};
inline constexpr Field token{"token", 0x3c, 23, 16};
}  // namespace mailbox

// Head of every command's input and output.
namespace head {
inline constexpr Field opcode{"opcode", 0x00, 31, 16};
inline constexpr Field op_mod{"op_mod", 0x04, 15, 0};
inline constexpr Field handle{"handle", 0x08, 23, 0};
inline constexpr Field status{"status", 0x00, 31, 24};
inline constexpr std::uint32_t syndrome = 0x04;
}  // namespace head

inline constexpr std::uint32_t page_list = 0x110;  // of CREATE_EQ, CREATE_CQ, CREATE_QP, CREATE_MKEY …

namespace eqc {  // CREATE_EQ, at 0x10
inline constexpr Field log_size{"log_eq_size", 0x0c, 28, 24};
inline constexpr Field uar_page{"uar_page", 0x0c, 23, 0};
inline constexpr Field vector{"intr", 0x14, 11, 0};
inline constexpr Field log_page_size{"log_page_size", 0x18, 28, 24};
inline constexpr std::uint32_t event_mask = 0x58;  // from the start of the input: 4 x 64 bits
}  // namespace eqc

namespace cqc {  // CREATE_CQ, at 0x10
inline constexpr Field entry_size{"cqe_sz", 0x00, 23, 21};
inline constexpr Field collapsed{"cc", 0x00, 20, 20};
inline constexpr Field ignore_overrun{"oi", 0x00, 17, 17};
inline constexpr Field status{"status", 0x00, 31, 28};
inline constexpr Field page_offset{"page_offset", 0x08, 11, 6};
inline constexpr Field log_size{"log_cq_size", 0x0c, 28, 24};
inline constexpr Field uar_page{"uar_page", 0x0c, 23, 0};
inline constexpr Field period{"cq_period", 0x10, 27, 16};
inline constexpr Field max_count{"cq_max_count", 0x10, 15, 0};
inline constexpr Field eqn{"c_eqn_or_apu_element", 0x14, 31, 0};
inline constexpr Field log_page_size{"log_page_size", 0x18, 28, 24};
inline constexpr WideField doorbell{"dbr_addr", 0x38};
}  // namespace cqc

namespace qpc {  // CREATE_QP and transitions, at 0x18
inline constexpr Field state{"state", 0x00, 31, 28};
inline constexpr Field type{"st", 0x00, 23, 16};
inline constexpr Field path_migration{"pm_state", 0x00, 12, 11};
inline constexpr Field pd{"pd", 0x04, 23, 0};
inline constexpr Field mtu{"mtu", 0x08, 31, 29};
inline constexpr Field log_message{"log_msg_max", 0x08, 28, 24};
inline constexpr Field log_rq_size{"log_rq_size", 0x08, 22, 19};
inline constexpr Field log_rq_stride{"log_rq_stride", 0x08, 18, 16};
inline constexpr Field no_sq{"no_sq", 0x08, 15, 15};
inline constexpr Field log_sq_size{"log_sq_size", 0x08, 14, 11};
inline constexpr Field reserved_key{"rlky", 0x08, 4, 4};
inline constexpr Field counter_set{"counter_set_id", 0x0c, 31, 24};
inline constexpr Field uar_page{"uar_page", 0x0c, 23, 0};
inline constexpr Field user_index{"user_index", 0x10, 23, 0};
inline constexpr Field log_page_size{"log_page_size", 0x14, 28, 24};
inline constexpr Field remote_qpn{"remote_qpn", 0x14, 23, 0};
inline constexpr std::uint32_t path = 0x18;  // the primary address path
inline constexpr Field log_ack_req_freq{"log_ack_req_freq", 0x70, 31, 28};
inline constexpr Field log_sra_max{"log_sra_max", 0x70, 23, 21};
inline constexpr Field retry_count{"retry_count", 0x70, 18, 16};
inline constexpr Field rnr_retry{"rnr_retry", 0x70, 15, 13};
inline constexpr Field next_send_psn{"next_send_psn", 0x78, 23, 0};
inline constexpr Field cqn_send{"cqn_snd", 0x7c, 23, 0};
inline constexpr Field log_rra_max{"log_rra_max", 0x90, 23, 21};
inline constexpr Field atomic_mode{"atomic_mode", 0x90, 19, 16};
inline constexpr Field remote_read{"rre", 0x90, 15, 15};
inline constexpr Field remote_write{"rwe", 0x90, 14, 14};
inline constexpr Field remote_atomic{"rae", 0x90, 13, 13};
inline constexpr Field page_offset{"page_offset", 0x90, 11, 6};
inline constexpr Field min_rnr_nak{"min_rnr_nak", 0x94, 28, 24};
inline constexpr Field next_receive_psn{"next_rcv_psn", 0x94, 23, 0};
inline constexpr Field xrcd{"xrcd", 0x98, 23, 0};
inline constexpr Field cqn_receive{"cqn_rcv", 0x9c, 23, 0};
inline constexpr WideField doorbell{"dbr_addr", 0xa0};
inline constexpr Field qkey{"q_key", 0xa8, 31, 0};
inline constexpr Field rq_type{"rq_type", 0xac, 26, 24};
inline constexpr Field srqn{"srqn_rmpn_xrqn", 0xac, 23, 0};
inline constexpr std::uint32_t bytes = 0xe8;

inline constexpr Field opt_mask{"opt_param_mask", 0x10, 31, 0};  // from the start of the input
inline constexpr std::uint32_t opt_remote_read = 1U << 1;
inline constexpr std::uint32_t opt_remote_atomic = 1U << 2;
inline constexpr std::uint32_t opt_remote_write = 1U << 3;
inline constexpr std::uint32_t opt_pkey = 1U << 4;
inline constexpr std::uint32_t opt_qkey = 1U << 5;
inline constexpr std::uint32_t opt_min_rnr = 1U << 6;
inline constexpr std::uint32_t opt_path = 1U << 7;
inline constexpr std::uint32_t opt_sra = 1U << 8;
inline constexpr std::uint32_t opt_rra = 1U << 9;
inline constexpr std::uint32_t opt_retry = 1U << 12;
inline constexpr std::uint32_t opt_rnr_retry = 1U << 13;
inline constexpr std::uint32_t opt_timeout = 1U << 14;
inline constexpr std::uint32_t opt_counter_set = 1U << 25;

inline constexpr std::uint32_t state_reset = 0, state_init = 1, state_rtr = 2, state_rts = 3, state_sqe = 4,
                               state_sqd = 5, state_error = 6;
inline constexpr std::uint32_t rq_own = 0, rq_srq = 1, rq_none = 3;
}  // namespace qpc

namespace ads {  // an address path
inline constexpr Field pkey_index{"pkey_index", 0x00, 15, 0};
inline constexpr Field grh{"grh", 0x04, 23, 23};
inline constexpr Field mlid{"mlid", 0x04, 22, 16};
inline constexpr Field rlid{"rlid", 0x04, 15, 0};
inline constexpr Field ack_timeout{"ack_timeout", 0x08, 31, 27};
inline constexpr Field source_index{"src_addr_index", 0x08, 23, 16};
inline constexpr Field hop_limit{"hop_limit", 0x08, 7, 0};
inline constexpr Field traffic_class{"tclass", 0x0c, 27, 20};
inline constexpr Field flow_label{"flow_label", 0x0c, 19, 0};
inline constexpr std::uint32_t remote_gid = 0x10;
inline constexpr Field dscp{"dscp", 0x20, 21, 16};
inline constexpr Field udp_source_port{"udp_sport", 0x20, 15, 0};
inline constexpr Field priority{"eth_prio", 0x24, 30, 28};
inline constexpr Field service_level{"sl", 0x24, 27, 24};
inline constexpr Field port{"vhca_port_num", 0x24, 23, 16};
inline constexpr Field mac_high{"rmac_47_32", 0x24, 15, 0};
inline constexpr Field mac_low{"rmac_31_0", 0x28, 31, 0};
}  // namespace ads

namespace wq {  // of RMP, RQ and SQ
inline constexpr Field type{"wq_type", 0x00, 31, 28};
inline constexpr std::uint32_t type_cyclic = 1;
inline constexpr Field page_offset{"page_offset", 0x04, 20, 16};
inline constexpr Field limit{"lwm", 0x04, 15, 0};
inline constexpr Field pd{"pd", 0x08, 23, 0};
inline constexpr Field uar_page{"uar_page", 0x0c, 23, 0};
inline constexpr WideField doorbell{"dbr_addr", 0x10};
inline constexpr Field log_stride{"log_wq_stride", 0x20, 19, 16};
inline constexpr Field log_page_size{"log_wq_pg_sz", 0x20, 12, 8};
inline constexpr Field log_size{"log_wq_sz", 0x20, 4, 0};
inline constexpr std::uint32_t page_list = 0xc0;  // from the start of the WQ
}  // namespace wq

namespace rmpc {  // CREATE_RMP, at 0x20
inline constexpr Field state{"state", 0x00, 23, 20};
inline constexpr std::uint32_t work_queue = 0x30;
}  // namespace rmpc

namespace xsrqc {  // CREATE_XRC_SRQ, at 0x10
inline constexpr Field log_size{"log_xrc_srq_size", 0x00, 27, 24};
inline constexpr Field log_stride{"log_rq_stride", 0x04, 26, 24};
inline constexpr Field xrcd{"xrcd", 0x04, 23, 0};
inline constexpr Field page_offset{"page_offset", 0x08, 31, 26};
inline constexpr Field cqn{"cqn", 0x08, 23, 0};
inline constexpr Field log_page_size{"log_page_size", 0x10, 29, 24};
inline constexpr Field user_index{"user_index", 0x10, 23, 0};
inline constexpr Field pd{"pd", 0x18, 23, 0};
inline constexpr Field limit{"lwm", 0x1c, 31, 16};
inline constexpr WideField doorbell{"db_record_addr", 0x28};
}  // namespace xsrqc

namespace mkc {  // CREATE_MKEY at 0x10; UMR
inline constexpr Field free{"free", 0x00, 30, 30};
inline constexpr Field mode_high{"access_mode_4_2", 0x00, 28, 26};
inline constexpr Field umr_enabled{"umr_en", 0x00, 15, 15};
inline constexpr Field remote_atomic{"a", 0x00, 14, 14};
inline constexpr Field remote_write{"rw", 0x00, 13, 13};
inline constexpr Field remote_read{"rr", 0x00, 12, 12};
inline constexpr Field local_write{"lw", 0x00, 11, 11};
inline constexpr Field local_read{"lr", 0x00, 10, 10};
inline constexpr Field mode_low{"access_mode_1_0", 0x00, 9, 8};
inline constexpr Field translated{"ma_translation_mode", 0x00, 5, 4};
inline constexpr Field qpn{"qpn", 0x04, 31, 8};
inline constexpr Field variant{"mkey_7_0", 0x04, 7, 0};
inline constexpr Field whole_space{"length64", 0x0c, 31, 31};
inline constexpr Field pd{"pd", 0x0c, 23, 0};
inline constexpr WideField start{"start_addr", 0x10};
inline constexpr WideField length{"len", 0x18};
inline constexpr Field octwords{"translations_octword_size", 0x34, 31, 0};
inline constexpr Field log_page_size{"log_page_size", 0x38, 5, 0};
inline constexpr std::uint32_t mode_physical = 0, mode_pages = 1, mode_keys = 2, mode_fixed_keys = 3;
// From the start of CREATE_MKEY's input.
inline constexpr Field page_access{"pg_access", 0x0c, 31, 31};
inline constexpr Field actual_octwords{"translations_octword_actual_size", 0x60, 31, 0};
inline constexpr Field index{"mkey_index", 0x08, 23, 0};
}  // namespace mkc

namespace umr {  // the UMR control segment of a WQE, after the 16-byte control segment
inline constexpr std::uint32_t at = 16;
inline constexpr std::uint32_t context_at = 64;
inline constexpr std::uint32_t data_at = 128;
inline constexpr Field inline_list{"inline", 0x00, 31, 31};
inline constexpr Field check_valid{"check_free_fails", 0x00, 30, 30};  // fail if the key is free
inline constexpr Field check_free{"check_not_free_fails", 0x00, 29, 29};
inline constexpr Field offset_valid{"translation_offset_en", 0x00, 28, 28};
inline constexpr Field octwords{"klm_octowords", 0x04, 31, 16};
inline constexpr Field offset_low{"translation_offset_15_0", 0x04, 15, 0};
inline constexpr WideField mask{"mkey_mask", 0x08};
inline constexpr Field offset_high{"translation_offset_47_16", 0x10, 31, 0};

inline constexpr std::uint64_t mask_length = 1ULL << 0;
inline constexpr std::uint64_t mask_page_size = 1ULL << 1;
inline constexpr std::uint64_t mask_start = 1ULL << 6;
inline constexpr std::uint64_t mask_pd = 1ULL << 7;
inline constexpr std::uint64_t mask_key = 1ULL << 13;
inline constexpr std::uint64_t mask_qpn = 1ULL << 14;
inline constexpr std::uint64_t mask_local_read = 1ULL << 17;
inline constexpr std::uint64_t mask_local_write = 1ULL << 18;
inline constexpr std::uint64_t mask_remote_read = 1ULL << 19;
inline constexpr std::uint64_t mask_remote_write = 1ULL << 20;
inline constexpr std::uint64_t mask_atomic = 1ULL << 21;
inline constexpr std::uint64_t mask_relaxed_write = 1ULL << 25;
inline constexpr std::uint64_t mask_free = 1ULL << 29;
inline constexpr std::uint64_t mask_page_size_5 = 1ULL << 42;
inline constexpr std::uint64_t mask_relaxed_read = 1ULL << 47;
}  // namespace umr

namespace hca_vport {  // QUERY_HCA_VPORT_CONTEXT, at 0x10
inline constexpr Field grh_required{"grh_required", 0x20, 28, 28};
inline constexpr Field physical_state{"port_physical_state", 0x20, 15, 12};
inline constexpr Field policy{"vport_state_policy", 0x20, 11, 8};
inline constexpr Field port_state{"port_state", 0x20, 7, 4};
inline constexpr Field vport_state{"vport_state", 0x20, 3, 0};
inline constexpr WideField system_guid{"system_image_guid", 0x28};
inline constexpr WideField port_guid{"port_guid", 0x30};
inline constexpr WideField node_guid{"node_guid", 0x38};
inline constexpr Field capabilities{"cap_mask1", 0x40, 31, 0};
inline constexpr Field lid{"lid", 0x60, 31, 16};
inline constexpr Field subnet_timeout{"subnet_timeout", 0x60, 4, 0};
inline constexpr Field sm_lid{"sm_lid", 0x64, 31, 16};
}  // namespace hca_vport

namespace nic_vport {  // QUERY_NIC_VPORT_CONTEXT at 0x10, MODIFY_… at 0x100
inline constexpr Field min_inline{"min_wqe_inline_mode", 0x00, 26, 24};
inline constexpr Field roce{"roce_en", 0x00, 0, 0};
inline constexpr Field mtu{"mtu", 0x24, 15, 0};
inline constexpr WideField system_guid{"system_image_guid", 0x28};
inline constexpr WideField port_guid{"port_guid", 0x30};
inline constexpr WideField node_guid{"node_guid", 0x38};
inline constexpr Field promisc{"promisc_uc_mc_all", 0xf0, 31, 29};
inline constexpr Field list_type{"allowed_list_type", 0xf0, 26, 24};
inline constexpr Field list_size{"allowed_list_size", 0xf0, 11, 0};
inline constexpr Field mac_high{"permanent_address_47_32", 0xf4, 15, 0};
inline constexpr Field mac_low{"permanent_address_31_0", 0xf8, 31, 0};
inline constexpr std::uint32_t list = 0x100;  // 8 bytes each
inline constexpr std::uint32_t list_unicast = 0;
// From the start of MODIFY's input.
inline constexpr Field select{"field_select", 0x0c, 31, 0};
inline constexpr std::uint32_t select_roce = 1U << 1, select_list = 1U << 2, select_mac = 1U << 3,
                               select_promisc = 1U << 4, select_mtu = 1U << 6;
}  // namespace nic_vport

namespace roce_address {                                           // SET_ROCE_ADDRESS, at 0x10
inline constexpr Field index{"roce_address_index", 0x08, 31, 16};  // from the start of the input
inline constexpr Field vlan_valid{"vlan_valid", 0x20, 28, 28};     // vlan_valid and vlan_id of the same word
inline constexpr Field vlan{"vlan_id", 0x20, 27, 16};
inline constexpr Field mac_high{"source_mac_47_32", 0x20, 15, 0};
inline constexpr Field mac_low{"source_mac_31_0", 0x24, 31, 0};
inline constexpr Field l3_type{"roce_l3_type", 0x28, 11, 8};
inline constexpr Field version{"roce_version", 0x28, 7, 0};
inline constexpr std::uint32_t at = 0x10;
}  // namespace roce_address

namespace q_counter {  // QUERY_Q_COUNTER: of the input, then of the output
inline constexpr Field clear{"clear", 0x18, 31, 31};
inline constexpr Field set{"counter_set_id", 0x1c, 7, 0};
inline constexpr std::uint32_t write_requests = 0x10, read_requests = 0x18, atomic_requests = 0x20,
                               out_of_buffer = 0x30, out_of_sequence = 0x38, duplicate_request = 0x40,
                               rnr_nak_retry = 0x48, packet_sequence = 0x50, local_ack_timeout = 0x60,
                               req_rnr_exceeded = 0x70, resp_local_length = 0x78, req_local_length = 0x7c,
                               local_operation = 0x84, resp_local_protection = 0x88, req_local_protection = 0x8c,
                               resp_cqe_error = 0x90, req_cqe_error = 0x94, req_bind = 0x98, req_bad_response = 0x9c,
                               req_invalid_request = 0xa0, resp_invalid_request = 0xa4, req_remote_access = 0xa8,
                               resp_remote_access = 0xac, req_remote_operation = 0xb0, req_retries_exceeded = 0xb4,
                               resp_cqe_flushed = 0xbc, req_cqe_flushed = 0xc0;
}  // namespace q_counter

namespace port_counters {  // PPCNT: selector, then 64-bit counters at 8
inline constexpr Field group{"grp", 0x00, 5, 0};
inline constexpr std::uint32_t ieee_802_3 = 0x00, rfc_2863 = 0x01;
inline constexpr std::uint32_t at = 0x08;
// IEEE 802.3.
inline constexpr std::uint32_t frames_sent = 0x00, frames_received = 0x08, check_errors = 0x10, octets_sent = 0x20,
                               octets_received = 0x28, multicast_sent = 0x30, broadcast_sent = 0x38,
                               multicast_received = 0x40, broadcast_received = 0x48;
// RFC 2863.
inline constexpr std::uint32_t in_octets = 0x00, in_unicast = 0x08, in_discards = 0x10, in_errors = 0x18,
                               out_octets = 0x28, out_unicast = 0x30, out_errors = 0x40, in_multicast = 0x48,
                               in_broadcast = 0x50, out_multicast = 0x58, out_broadcast = 0x60;
}  // namespace port_counters

namespace port_admin {  // PAOS
inline constexpr Field admin{"admin_status", 0x00, 11, 8};
inline constexpr Field operational{"oper_status", 0x00, 3, 0};
inline constexpr Field admin_written{"ase", 0x04, 31, 31};
inline constexpr std::uint32_t up = 1, down = 2;
}  // namespace port_admin

namespace registers {  // ACCESS_REG
inline constexpr Field id{"register_id", 0x08, 15, 0};
inline constexpr std::uint32_t data = 0x10;
inline constexpr std::uint32_t pmtu = 0x5003, ptys = 0x5004, paos = 0x5006, pfcc = 0x5007, ppcnt = 0x5008,
                               pvlc = 0x500f, node_description = 0x6001, host_endianness = 0x7004;
}  // namespace registers

}  // namespace orrery::firmware::layout
