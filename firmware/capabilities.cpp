#include "firmware/capabilities.h"

namespace orrery::firmware {

namespace reg = rnic::reg;

namespace {

// One capability: its value by port type, and whether SET_HCA_CAP may lower it. What isn't listed is 0: off.
struct Capability {
  Field field;
  std::uint32_t infiniband;
  std::uint32_t ethernet;
  bool settable = false;
};

// The general block. Numbers of objects are those of the tables in firmware.h.
constexpr Capability general[] = {
    {{"log_max_srq_sz", 0x10, 31, 24}, 15, 15},
    {{"log_max_qp_sz", 0x10, 23, 16}, 15, 15},
    {{"log_max_qp", 0x10, 4, 0}, 16, 16, true},
    {{"log_max_srq", 0x14, 20, 16}, 15, 15},
    {{"log_max_cq_sz", 0x18, 23, 16}, 20, 20},
    {{"log_max_cq", 0x18, 4, 0}, 15, 15},
    {{"log_max_eq_sz", 0x1c, 31, 24}, 18, 18},
    {{"log_max_mkey", 0x1c, 21, 16}, 19, 19},
    {{"fast_teardown", 0x1c, 4, 4}, 1, 1},
    {{"log_max_eq", 0x1c, 3, 0}, 6, 6},
    {{"max_indirection", 0x20, 31, 24}, 4, 4},
    {{"fixed_buffer_size", 0x20, 23, 23}, 1, 1},
    {{"log_max_mrw_sz", 0x20, 22, 16}, 48, 48},
    {{"force_teardown", 0x20, 15, 15}, 1, 1},
    {{"umr_extended_translation_offset", 0x20, 7, 7}, 1, 1},
    {{"null_mkey", 0x20, 6, 6}, 1, 1},
    {{"log_max_klm_list_size", 0x20, 5, 0}, 16, 16},
    {{"log_max_ra_req_qp", 0x28, 21, 16}, 4, 4},
    {{"log_max_ra_res_qp", 0x28, 5, 0}, 4, 4},
    {{"rts2rts_qp_counters_set_id", 0x2c, 22, 22}, 1, 1},
    {{"gid_table_size", 0x2c, 15, 0}, 0, 4},  // 8; 128
    {{"out_of_seq_cnt", 0x30, 31, 31}, 1, 1},
    {{"vport_counters", 0x30, 30, 30}, 1, 1},
    {{"retransmission_q_counters", 0x30, 29, 29}, 1, 1},
    {{"max_qp_cnt", 0x30, 25, 16}, rnic::max_counter_sets - 1, rnic::max_counter_sets - 1},
    {{"pkey_table_size", 0x30, 15, 0}, 0, 0},  // 128
    {{"ib_virt", 0x34, 29, 29}, 1, 0},
    {{"nic_flow_table", 0x34, 25, 25}, 0, 1},
    {{"local_ca_ack_delay", 0x34, 20, 16}, 4, 4},
    {{"enhanced_error_q_counters", 0x34, 14, 14}, 1, 1},
    {{"port_type", 0x34, 9, 8}, 0, 1},
    {{"num_ports", 0x34, 7, 0}, 1, 1},
    {{"log_max_msg", 0x38, 28, 24}, 30, 30},
    {{"stat_rate_support", 0x3c, 31, 16}, 0x80, 0x80},
    {{"cqe_version", 0x3c, 3, 0}, 1, 1},
    {{"eth_net_offloads", 0x40, 3, 3}, 0, 1},
    {{"roce", 0x40, 2, 2}, 0, 1},
    {{"atomic", 0x40, 1, 1}, 1, 1},
    {{"cq_oi", 0x44, 31, 31}, 1, 1},
    {{"cq_moderation", 0x44, 29, 29}, 1, 1},
    {{"pg", 0x44, 24, 24}, 1, 1},
    {{"umr_ptr_rlky", 0x44, 15, 15}, 1, 1},
    {{"qkv", 0x44, 9, 9}, 1, 1},
    {{"pkv", 0x44, 8, 8}, 1, 1},
    {{"xrc", 0x44, 3, 3}, 1, 1},
    {{"ud", 0x44, 2, 2}, 1, 1},
    {{"uc", 0x44, 1, 1}, 1, 1},
    {{"rc", 0x44, 0, 0}, 1, 1},
    {{"uar_sz", 0x48, 21, 16}, 6, 6},
    {{"log_pg_sz", 0x48, 7, 0}, 12, 12},
    {{"log_bf_reg_size", 0x4c, 20, 16}, 9, 9},
    {{"max_wqe_sz_sq", 0x50, 15, 0}, 512, 1024},
    {{"max_wqe_sz_rq", 0x54, 15, 0}, 512, 512},
    {{"max_wqe_sz_sq_dc", 0x58, 15, 0}, 512, 512},
    {{"max_qp_mcg", 0x5c, 24, 0}, 240, 240},
    {{"log_max_mcg", 0x60, 7, 0}, 10, 10},
    {{"log_max_transport_domain", 0x64, 28, 24}, 0, 9},
    {{"log_max_pd", 0x64, 20, 16}, 15, 15},
    {{"log_max_xrcd", 0x64, 4, 0}, 11, 11},
    {{"log_max_rq", 0x6c, 28, 24}, 0, 11},
    {{"log_max_sq", 0x6c, 20, 16}, 0, 11},
    {{"log_max_tir", 0x6c, 12, 8}, 0, 11},
    {{"log_max_tis", 0x6c, 4, 0}, 0, 11},
    {{"basic_cyclic_rcv_wqe", 0x70, 31, 31}, 0, 1},
    {{"log_max_rqt", 0x70, 20, 16}, 0, 9},
    {{"log_max_rqt_size", 0x70, 12, 8}, 0, 8},
    {{"log_max_tis_per_sq", 0x70, 4, 0}, 0, 0},
    {{"log_max_stride_sz_rq", 0x74, 28, 24}, 0, 13},
    {{"log_min_stride_sz_rq", 0x74, 20, 16}, 0, 4},
    {{"log_max_stride_sz_sq", 0x74, 12, 8}, 0, 6},
    {{"log_min_stride_sz_sq", 0x74, 4, 0}, 0, 6},
    {{"log_max_wq_sz", 0x78, 4, 0}, 0, 15},
    {{"log_max_current_mc_list", 0x7c, 12, 8}, 0, 7},
    {{"log_max_current_uc_list", 0x7c, 4, 0}, 0, 7},
    {{"max_num_eqs", 0x8c, 15, 0}, 63, 63},
    {{"device_frequency_mhz", 0x98, 31, 0}, 1000, 1000},
    {{"device_frequency_khz", 0x9c, 31, 0}, 1'000'000, 1'000'000},
    {{"num_of_uars_per_page", 0xa4, 31, 0}, 1, 1},
};
constexpr Field vhca_id{"vhca_id", 0x04, 15, 0};

// Type 3. The requested mode is the only thing that a driver sets.
constexpr Field atomic_mode{"atomic_req_8B_endianness_mode", 0x08, 31, 30};
constexpr Capability atomic[] = {
    {{"supported_atomic_req_8B_endianness_mode_1", 0x08, 25, 25}, 1, 1},
    {{"atomic_operations", 0x10, 15, 0}, 3, 3},  // compare and swap, fetch and add
    {{"atomic_size_qp", 0x14, 15, 0}, 8, 8},
};

// Type 4.
constexpr Capability roce[] = {
    {{"l3_type", 0x10, 19, 16}, 0, 6},  // IPv4, IPv6
    {{"roce_version", 0x10, 7, 0}, 0, 5},
    {{"r_roce_dest_udp_port", 0x14, 15, 0}, 0, 4791},
    {{"r_roce_max_src_udp_port", 0x18, 31, 16}, 0, 0xffff},
    {{"r_roce_min_src_udp_port", 0x18, 15, 0}, 0, 0xc000},
    {{"roce_address_table_size", 0x1c, 15, 0}, 0, 128},
};

// Type 1: what mlx5e insists on. Offsets within the block.
constexpr Capability ethernet[] = {
    {{"csum_cap", 0x00, 31, 31}, 0, 1},       {{"vlan_cap", 0x00, 30, 30}, 0, 1},
    {{"max_lso_cap", 0x00, 20, 16}, 0, 16},   {{"wqe_inline_mode", 0x00, 13, 12}, 0, 2},
    {{"rss_ind_tbl_cap", 0x00, 11, 8}, 0, 8}, {{"self_lb_en_modifiable", 0x00, 23, 23}, 0, 1},
};

// Type 7: the properties of receive tables begin at 0x40; what packets may be matched by at 0x60.
constexpr Capability flow_table[] = {
    {{"ft_support", 0x40, 31, 31}, 0, 1},        {{"flow_modify_en", 0x40, 28, 28}, 0, 1},
    {{"modify_root", 0x40, 27, 27}, 0, 1},       {{"identified_miss_table_mode", 0x40, 26, 26}, 0, 1},
    {{"flow_table_modify", 0x40, 25, 25}, 0, 1}, {{"log_max_ft_size", 0x44, 29, 24}, 0, 20},
    {{"max_ft_level", 0x44, 7, 0}, 0, 0x44},     {{"log_max_ft_num", 0x4c, 7, 0}, 0, 9},
    {{"log_max_destination", 0x50, 7, 0}, 0, 4}, {{"log_max_flow", 0x54, 7, 0}, 0, 13},
    {{"outer_dmac", 0x60, 31, 31}, 0, 1},        {{"outer_ether_type", 0x60, 29, 29}, 0, 1},
    {{"outer_ip_version", 0x60, 28, 28}, 0, 1},  {{"outer_first_vid", 0x60, 25, 25}, 0, 1},
    {{"outer_ip_protocol", 0x60, 16, 16}, 0, 1},
};

constexpr std::uint32_t block_at = 0x10;

template <std::size_t n>
void put(const View& block, const Capability (&capabilities)[n], bool is_ethernet) {
  for (const Capability& capability : capabilities) {
    block.set(capability.field, is_ethernet ? capability.ethernet : capability.infiniband);
  }
}

}  // namespace

void reset_capabilities(const Firmware& firmware, Function& function) {
  for (std::uint32_t& word : function.general) {
    word = 0;
  }
  for (const Capability& capability : general) {
    std::uint32_t& word = function.general[capability.field.offset / 4];
    word = capability.field.put(word, firmware.ethernet() ? capability.ethernet : capability.infiniband);
  }
  std::uint32_t& word = function.general[vhca_id.offset / 4];
  word = vhca_id.put(word, firmware.strap(reg::strap_board) * rnic::max_functions + function.number + 1);
  function.atomic_mode = 0;
}

Result query_hca_cap(Firmware& firmware, Function& function) {
  const bool current = (firmware.op_mod() & 1U) != 0;
  const View block = firmware.output().at(block_at);
  // Any block may be asked for with an output of its own size; ours are within the first 256 bytes.
  if (firmware.output_length() < block_at + 4 * general_words) {
    return failed(Status::bad_output_length, Syndrome::length);
  }
  switch (static_cast<CapabilityType>(firmware.op_mod() >> 1)) {
    case CapabilityType::general:
      for (std::uint32_t i = 0; i < general_words; ++i) {
        block.set_word(4 * i, function.general[i]);
      }
      if (!current) {
        put(block, general, firmware.ethernet());
      }
      return {};
    case CapabilityType::atomic:
      put(block, atomic, firmware.ethernet());
      block.set(atomic_mode, current ? function.atomic_mode : 1);
      return {};
    case CapabilityType::odp:
      return {};  // no transport lets applications register on-demand memory
    case CapabilityType::ethernet:
      put(block, ethernet, firmware.ethernet());
      return {};
    case CapabilityType::roce:
      put(block, roce, firmware.ethernet());
      return {};
    case CapabilityType::flow_table:
      put(block, flow_table, firmware.ethernet());
      return {};
  }
  return failed(Status::bad_parameter, Syndrome::unsupported);
}

Result set_hca_cap(Firmware& firmware, Function& function) {
  if (function.initialised) {
    return failed(Status::bad_system_state, Syndrome::already);
  }
  const View block = firmware.input().at(block_at);
  switch (static_cast<CapabilityType>(firmware.op_mod() >> 1)) {
    case CapabilityType::general:
      if (firmware.input_length() < block_at + 4 * general_words) {
        return failed(Status::bad_input_length, Syndrome::length);
      }
      for (const Capability& capability : general) {
        const std::uint32_t most = firmware.ethernet() ? capability.ethernet : capability.infiniband;
        const std::uint32_t wanted = block.get(capability.field);
        if (!capability.settable) {
          continue;
        }
        if (wanted > most) {
          return failed(Status::bad_parameter, Syndrome::value);
        }
        std::uint32_t& word = function.general[capability.field.offset / 4];
        word = capability.field.put(word, wanted);
      }
      return {};
    case CapabilityType::atomic:
      if (firmware.input_length() < block_at + 0x20) {
        return failed(Status::bad_input_length, Syndrome::length);
      }
      function.atomic_mode = block.get(atomic_mode) & 1U;
      return {};
    default:
      return {};  // nothing in the other blocks can be set
  }
}

}  // namespace orrery::firmware
