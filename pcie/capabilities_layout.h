// Offsets within capabilities and bits of their registers, shared by what builds and what decodes them.
// PCI Express Base 6.3; sections as in capabilities.h.
#pragma once

#include <cstdint>

namespace orrery::pcie::capability_layout {

// PCI Express capability (§7.5.3).
inline constexpr std::uint32_t device_capabilities = 0x04;
inline constexpr std::uint32_t device_control_offset = 0x08;
inline constexpr std::uint32_t device_status = 0x0a;
inline constexpr std::uint32_t link_capabilities = 0x0c;
inline constexpr std::uint32_t link_control = 0x10;
inline constexpr std::uint32_t link_status = 0x12;
inline constexpr std::uint32_t slot_capabilities = 0x14;
inline constexpr std::uint32_t slot_status = 0x1a;
inline constexpr std::uint32_t root_control = 0x1c;
inline constexpr std::uint32_t device_capabilities2 = 0x24;
inline constexpr std::uint32_t device_control2 = 0x28;
inline constexpr std::uint32_t link_capabilities2 = 0x2c;
inline constexpr std::uint32_t link_control2 = 0x30;
inline constexpr std::uint32_t link_status2 = 0x32;

// Device Control (§7.5.3.4).
inline constexpr std::uint16_t devctl_correctable_reporting = 1U << 0;
inline constexpr std::uint16_t devctl_non_fatal_reporting = 1U << 1;
inline constexpr std::uint16_t devctl_fatal_reporting = 1U << 2;
inline constexpr std::uint16_t devctl_unsupported_request_reporting = 1U << 3;
inline constexpr std::uint16_t devctl_error_reporting = 0x000f;
inline constexpr std::uint16_t devctl_relaxed_ordering = 1U << 4;
inline constexpr std::uint16_t devctl_mps = 7U << 5;
inline constexpr std::uint16_t devctl_extended_tags = 1U << 8;
inline constexpr std::uint16_t devctl_no_snoop = 1U << 11;
inline constexpr std::uint16_t devctl_mrrs = 7U << 12;

// Device Status (§7.5.3.5).
inline constexpr std::uint16_t devsta_correctable = 1U << 0;
inline constexpr std::uint16_t devsta_non_fatal = 1U << 1;
inline constexpr std::uint16_t devsta_fatal = 1U << 2;
inline constexpr std::uint16_t devsta_unsupported_request = 1U << 3;

// Device Control 2 (§7.5.3.16).
inline constexpr std::uint16_t devctl2_ari_forwarding = 1U << 5;
inline constexpr std::uint16_t devctl2_ido_request = 1U << 8;
inline constexpr std::uint16_t devctl2_ido_completion = 1U << 9;
inline constexpr std::uint16_t devctl2_ten_bit_tags = 1U << 12;

// Links and slots (§7.5.3.6 – §7.5.3.11).
inline constexpr std::uint32_t linkcap_active_reporting = 1U << 20;
inline constexpr std::uint16_t linkstatus_active = 1U << 13;
inline constexpr std::uint16_t slot_presence = 1U << 6;

// MSI-X Message Control (§7.7.2.2).
inline constexpr std::uint16_t msix_function_mask = 1U << 14;
inline constexpr std::uint16_t msix_enable = 1U << 15;

// ACS (§7.7.11).
inline constexpr std::uint32_t acs_control = 0x06;
inline constexpr std::uint32_t acs_egress_vector = 0x08;

// ATS Control (§10.5.1.3).
inline constexpr std::uint16_t ats_stu = 0x001f;
inline constexpr std::uint16_t ats_enable = 1U << 15;

// SR-IOV (§9.3.3).
inline constexpr std::uint32_t sriov_control = 0x08;
inline constexpr std::uint32_t sriov_initial_vfs = 0x0c;
inline constexpr std::uint32_t sriov_total_vfs = 0x0e;
inline constexpr std::uint32_t sriov_num_vfs = 0x10;
inline constexpr std::uint32_t sriov_first_offset = 0x14;
inline constexpr std::uint32_t sriov_stride = 0x16;
inline constexpr std::uint32_t sriov_device_id = 0x1a;
inline constexpr std::uint32_t sriov_supported_pages = 0x1c;
inline constexpr std::uint32_t sriov_system_page = 0x20;
inline constexpr std::uint32_t sriov_bar0 = 0x24;
inline constexpr std::uint16_t sriov_vf_enable = 1U << 0;
inline constexpr std::uint16_t sriov_vf_memory = 1U << 3;
inline constexpr std::uint16_t sriov_ari = 1U << 4;

// AER (§7.8.4).
inline constexpr std::uint32_t aer_uncorrectable_status = 0x04;
inline constexpr std::uint32_t aer_uncorrectable_mask = 0x08;
inline constexpr std::uint32_t aer_uncorrectable_severity = 0x0c;
inline constexpr std::uint32_t aer_correctable_status = 0x10;
inline constexpr std::uint32_t aer_correctable_mask = 0x14;
inline constexpr std::uint32_t aer_control = 0x18;
inline constexpr std::uint32_t aer_header_log = 0x1c;
inline constexpr std::uint32_t aer_root_command = 0x2c;
inline constexpr std::uint32_t aer_root_status = 0x30;
inline constexpr std::uint32_t aer_error_source = 0x34;

}  // namespace orrery::pcie::capability_layout
