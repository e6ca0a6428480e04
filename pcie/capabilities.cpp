#include "pcie/capabilities.h"

#include <algorithm>
#include <bit>
#include <string>

#include <fmt/format.h>

#include "common/error.h"
#include "pcie/capabilities_layout.h"

namespace orrery::pcie {

namespace {

namespace reg = config_register;
using namespace capability_layout;

[[noreturn]] void refuse(const char* what, const std::string& problem, const char* remedy) {
  throw Error(fmt::format("{} capability: {}", what, problem), remedy);
}

void require(bool holds, const char* what, const char* field, std::uint64_t value, const char* remedy) {
  if (!holds) {
    refuse(what, fmt::format("{} is {}", field, value), remedy);
  }
}

constexpr unsigned when(bool condition, unsigned bits) {
  return condition ? bits : 0U;
}

// Encodings of MPS and MRRS: 128 << n bytes.
unsigned payload_encoding(unsigned bytes) {
  return static_cast<unsigned>(std::countr_zero(bytes)) - 7U;
}

}  // namespace

std::uint16_t CapabilityBuilder::standard(std::uint8_t id, const char* what, unsigned bytes) {
  if (space_.capability(id) != 0) {
    refuse(what, "the function has one already", "add it once");
  }
  if (next_ + bytes > reg::first_extended_capability) {
    refuse(what, fmt::format("{} bytes don't fit below offset 0x100", bytes), "leave other capabilities out");
  }
  const std::uint16_t at = next_;
  space_.define(at, 1, id);
  space_.define(at + 1U, 1, 0);
  space_.define(previous_ == 0 ? std::uint32_t{reg::capabilities_pointer} : previous_ + 1U, 1, at);
  space_.set_hardware(reg::status, status_bit::capabilities_list, status_bit::capabilities_list);
  previous_ = at;
  next_ = static_cast<std::uint16_t>((at + bytes + 3U) & ~3U);
  return at;
}

std::uint16_t CapabilityBuilder::extended(std::uint16_t id, const char* what, unsigned version, unsigned bytes) {
  if (space_.extended_capability(id) != 0) {
    refuse(what, "the function has one already", "add it once");
  }
  if (extended_next_ + bytes > ConfigSpace::size) {
    refuse(what, fmt::format("{} bytes don't fit below offset 0x1000", bytes), "leave other capabilities out");
  }
  const std::uint16_t at = extended_next_;
  space_.define(at, 4, id | version << 16U);
  if (extended_previous_ != 0) {
    space_.set_hardware(extended_previous_, 0xfff0'0000U, static_cast<std::uint32_t>(at) << 20U);
  }
  extended_previous_ = at;
  extended_next_ = static_cast<std::uint16_t>((at + bytes + 3U) & ~3U);
  return at;
}

std::uint16_t CapabilityBuilder::add(const PowerManagementCapability& c) {
  const std::uint16_t at = standard(capability_id::power_management, "power management", 8);
  // PMC: version 3, no PME. PMCSR: No_Soft_Reset, PowerState.
  space_.define(at + 2U, 2, 3U | when(c.d1, 1U << 9) | when(c.d2, 1U << 10));
  space_.define(at + 4U, 2, 1U << 3, {.writable = 0x0003});
  space_.define(at + 6U, 2, 0);
  space_.set_power_management(at, c.d1, c.d2);
  space_.watch(at + 4U, ConfigWatch::power);
  return at;
}

std::uint16_t CapabilityBuilder::add(const MsixCapability& c) {
  static constexpr const char* what = "MSI-X";
  require(c.vectors >= 1 && c.vectors <= 2048, what, "vectors", c.vectors, "give 1 to 2048");
  require(c.table_bar < bar_count, what, "table_bar", c.table_bar, "give 0 to 5");
  require(c.pba_bar < bar_count, what, "pba_bar", c.pba_bar, "give 0 to 5");
  require(c.table_offset % 8 == 0, what, "table_offset", c.table_offset, "give a multiple of 8");
  require(c.pba_offset % 8 == 0, what, "pba_offset", c.pba_offset, "give a multiple of 8");
  const std::uint64_t table_end = c.table_offset + std::uint64_t{c.vectors} * 16;
  const std::uint64_t pba_end = c.pba_offset + std::uint64_t{(c.vectors + 63) / 64} * 8;
  if (c.table_bar == c.pba_bar && c.table_offset < pba_end && c.pba_offset < table_end) {
    refuse(what,
           fmt::format("the table ({:#x} to {:#x}) and the PBA ({:#x} to {:#x}) overlap in BAR{}", c.table_offset,
                       table_end, c.pba_offset, pba_end, c.table_bar),
           "move pba_offset behind the table");
  }
  const std::uint16_t at = standard(capability_id::msix, what, 12);
  space_.define(at + 2U, 2, c.vectors - 1, {.writable = msix_enable | msix_function_mask});
  space_.define(at + 4U, 4, c.table_offset | c.table_bar);
  space_.define(at + 8U, 4, c.pba_offset | c.pba_bar);
  space_.watch(at, ConfigWatch::msix_control);
  return at;
}

std::uint16_t CapabilityBuilder::add(const PciExpressCapability& c) {
  static constexpr const char* what = "PCI Express";
  const bool endpoint = c.type == PortType::endpoint;
  const bool downstream = c.type == PortType::root_port || c.type == PortType::switch_downstream;
  require(std::has_single_bit(c.max_payload) && c.max_payload >= 128 && c.max_payload <= 4096, what, "max_payload",
          c.max_payload, "give 128, 256, 512, 1024, 2048 or 4096");
  require(c.generation >= 1 && c.generation <= 6, what, "generation", c.generation, "give 1 to 6");
  require(std::has_single_bit(c.width) && c.width <= 16, what, "width", c.width, "give 1, 2, 4, 8 or 16");
  require(c.slot_number < 0x2000, what, "slot_number", c.slot_number, "give 0 to 8191");
  require(c.completion_timeout_ranges < 16, what, "completion_timeout_ranges", c.completion_timeout_ranges,
          "give a set of the four ranges, 0 to 15");
  if (c.slot && !downstream) {
    refuse(what, "only root ports and switch downstream ports have a slot", "leave slot out");
  }

  const std::uint16_t at = standard(capability_id::pci_express, what, 0x3c);
  const bool flr = endpoint && c.function_level_reset;
  space_.define(at + 2U, 2, 2U | static_cast<unsigned>(c.type) << 4U | when(c.slot, 1U << 8));
  space_.define(at + device_capabilities, 4,
                payload_encoding(c.max_payload) | when(c.extended_tags, 1U << 5) | 1U << 15 /* role-based errors */ |
                    when(flr, 1U << 28));
  space_.define(at + device_control_offset, 2,
                when(c.relaxed_ordering, devctl_relaxed_ordering) | when(c.extended_tags, devctl_extended_tags) |
                    devctl_no_snoop | 2U << 12 /* MRRS 512 */,
                {.writable = devctl_error_reporting | devctl_relaxed_ordering | devctl_mps |
                             when(c.extended_tags, devctl_extended_tags) | devctl_no_snoop | devctl_mrrs,
                 .flr_exempt = devctl_mps});
  space_.define(at + device_status, 2, 0, {.clear_by_one = 0x000f});
  space_.watch(at + device_control_offset, ConfigWatch::device_control);

  // ASPM optionality compliance, no ASPM; downstream ports report Data Link Layer Link Active.
  space_.define(at + link_capabilities, 4,
                c.generation | c.width << 4U | when(downstream, linkcap_active_reporting) | 1U << 22 |
                    static_cast<std::uint32_t>(c.port_number) << 24U);
  constexpr std::uint32_t link_controls = 0x00c3;  // ASPM, common clock, extended synch
  const std::uint32_t link_writable = link_controls | when(endpoint, 1U << 3 /* RCB */);
  space_.define(at + link_control, 2, 0, {.writable = link_writable, .flr_exempt = link_writable});
  space_.define(at + link_status, 2, 1U << 12 /* slot clock */);

  if (c.slot) {
    space_.define(at + slot_capabilities, 4, static_cast<std::uint32_t>(c.slot_number) << 19U | 1U << 18 /* no command
                  completed */);
    space_.define(at + slot_status, 2, 0);
  }
  if (c.type == PortType::root_port) {
    space_.define(at + root_control, 2, 0, {.writable = 0x000f});
  }

  const bool requester = endpoint || c.type == PortType::root_port;
  space_.define(at + device_capabilities2, 4,
                c.completion_timeout_ranges | when(requester, 1U << 4) | when(downstream && c.ari_forwarding, 1U << 5) |
                    when(c.ten_bit_tag_completer, 1U << 16) | when(c.ten_bit_tag_requester, 1U << 17) |
                    1U << 20 /* extended Fmt field */);
  space_.define(at + device_control2, 2, 0,
                {.writable = when(c.completion_timeout_ranges != 0, 0xfU) | when(requester, 1U << 4) |
                             when(downstream && c.ari_forwarding, devctl2_ari_forwarding) |
                             when(requester, devctl2_ido_request | devctl2_ido_completion) |
                             when(c.ten_bit_tag_requester, devctl2_ten_bit_tags)});
  space_.watch(at + device_control2, ConfigWatch::device_control2);
  space_.define(at + link_capabilities2, 4, ((1U << c.generation) - 1U) << 1U);
  space_.define(at + link_control2, 2, c.generation, {.writable = 0x000f, .sticky = 0x000f});
  space_.define(at + link_status2, 2, 0);
  set_link_status(space_, c.negotiated_generation == 0 ? c.generation : c.negotiated_generation,
                  c.negotiated_width == 0 ? c.width : c.negotiated_width, true);
  return at;
}

std::uint16_t CapabilityBuilder::add_serial_number(std::uint64_t serial_number) {
  const std::uint16_t at = extended(extended_capability_id::serial_number, "serial number", 1, 12);
  space_.define(at + 4U, 4, static_cast<std::uint32_t>(serial_number));
  space_.define(at + 8U, 4, static_cast<std::uint32_t>(serial_number >> 32U));
  return at;
}

std::uint16_t CapabilityBuilder::add(const AcsCapability& c) {
  static constexpr const char* what = "ACS";
  require(c.egress_vector_bits <= 255, what, "egress_vector_bits", c.egress_vector_bits, "give 1 to 255");
  require(c.egress_control == (c.egress_vector_bits != 0), what, "egress_vector_bits", c.egress_vector_bits,
          "give 1 to 255 with egress_control, and 0 without");
  const unsigned dwords = (c.egress_vector_bits + 31) / 32;
  const std::uint16_t at = extended(extended_capability_id::acs, what, 1, 8 + 4 * dwords);
  const unsigned controls = when(c.source_validation, 1U << 0) | when(c.translation_blocking, 1U << 1) |
                            when(c.request_redirect, 1U << 2) | when(c.completion_redirect, 1U << 3) |
                            when(c.upstream_forwarding, 1U << 4) | when(c.egress_control, 1U << 5) |
                            when(c.direct_translated, 1U << 6);
  space_.define(at + 4U, 2, controls | when(c.enhanced, 1U << 7) | c.egress_vector_bits << 8U);
  space_.define(at + acs_control, 2, 0, {.writable = controls | when(c.enhanced, 0x1f80)});
  space_.watch(at + 4U, ConfigWatch::acs);
  for (unsigned i = 0; i < dwords; ++i) {
    const unsigned bits = std::min(32U, c.egress_vector_bits - 32 * i);
    const std::uint32_t at_vector = at + acs_egress_vector + 4 * i;
    space_.define(at_vector, 4, 0, {.writable = bits == 32 ? 0xffff'ffffU : (1U << bits) - 1U});
    space_.watch(at_vector, ConfigWatch::acs);
  }
  return at;
}

std::uint16_t CapabilityBuilder::add(const AriCapability& c) {
  const std::uint16_t at = extended(extended_capability_id::ari, "ARI", 1, 8);
  space_.define(at + 4U, 2, static_cast<unsigned>(c.next_function) << 8U);
  space_.define(at + 6U, 2, 0);
  return at;
}

std::uint16_t CapabilityBuilder::add(const AtsCapability& c) {
  static constexpr const char* what = "ATS";
  require(c.invalidate_queue_depth >= 1 && c.invalidate_queue_depth <= 32, what, "invalidate_queue_depth",
          c.invalidate_queue_depth, "give 1 to 32");
  const std::uint16_t at = extended(extended_capability_id::ats, what, 1, 8);
  // A depth of 32 is encoded as 0.
  space_.define(at + 4U, 2,
                c.invalidate_queue_depth % 32 | when(c.page_aligned_request, 1U << 5) |
                    when(c.global_invalidate, 1U << 6) | when(c.relaxed_ordering, 1U << 7));
  space_.define(at + 6U, 2, 0, {.writable = ats_enable | ats_stu});
  space_.watch(at + 4U, ConfigWatch::ats);
  return at;
}

std::uint16_t CapabilityBuilder::add(const SriovCapability& c) {
  static constexpr const char* what = "SR-IOV";
  require(c.total_vfs >= 1, what, "total_vfs", c.total_vfs, "give 1 to 65535");
  require(c.first_vf_offset >= 1, what, "first_vf_offset", c.first_vf_offset, "give 1 or more");
  require(c.total_vfs == 1 || c.vf_stride >= 1, what, "vf_stride", c.vf_stride, "give 1 or more");
  require(c.first_vf_offset + std::uint64_t{c.vf_stride} * (c.total_vfs - 1U) <= 0xffff, what, "total_vfs", c.total_vfs,
          "keep the last VF's routing ID (first_vf_offset + vf_stride * (total_vfs - 1)) within 16 bits");
  const std::uint16_t at = extended(extended_capability_id::sriov, what, 1, 0x40);
  space_.define(at + 4U, 4, when(c.ari_capable_hierarchy, 1U << 1));
  space_.define(at + sriov_control, 2, 0,
                {.writable = sriov_vf_enable | sriov_vf_memory | when(c.ari_capable_hierarchy, sriov_ari)});
  space_.define(at + sriov_control + 2U, 2, 0);
  space_.define(at + sriov_initial_vfs, 2, c.total_vfs);
  space_.define(at + sriov_total_vfs, 2, c.total_vfs);
  space_.define(at + sriov_num_vfs, 2, 0, {.writable = 0xffff});
  space_.define(at + sriov_first_offset, 2, c.first_vf_offset);
  space_.define(at + sriov_stride, 2, c.vf_stride);
  space_.define(at + sriov_device_id, 2, c.vf_device_id);
  space_.define(at + sriov_supported_pages, 4, 1);
  space_.define(at + sriov_system_page, 4, 1);
  define_bars_at(space_, at + sriov_bar0, c.vf_bars, 4096, ConfigWatch::sriov, "SR-IOV capability: VF BAR");
  space_.watch(at + sriov_control, ConfigWatch::sriov);
  space_.watch(at + sriov_num_vfs, ConfigWatch::sriov);
  return at;
}

// --- Decoded controls ---------------------------------------------------------------------------

DeviceControl device_control(const ConfigSpace& space) {
  DeviceControl result;
  const std::uint8_t at = space.capability(capability_id::pci_express);
  if (at == 0) {
    return result;
  }
  const unsigned control = space.read16(at + device_control_offset);
  const unsigned control2 = space.read16(at + device_control2);
  const unsigned supported = space.read32(at + device_capabilities) & 7U;
  result.max_payload = 128U << std::min((control >> 5U) & 7U, supported);
  result.max_read_request = 128U << std::min((control >> 12U) & 7U, 5U);
  result.relaxed_ordering = (control & devctl_relaxed_ordering) != 0;
  result.no_snoop = (control & devctl_no_snoop) != 0;
  result.extended_tags = (control & devctl_extended_tags) != 0;
  result.ten_bit_tags = (control2 & devctl2_ten_bit_tags) != 0;
  result.id_based_ordering_requests = (control2 & devctl2_ido_request) != 0;
  result.id_based_ordering_completions = (control2 & devctl2_ido_completion) != 0;
  result.ari_forwarding = (control2 & devctl2_ari_forwarding) != 0;
  return result;
}

void set_link_status(ConfigSpace& space, unsigned generation, unsigned width, bool active) {
  const std::uint8_t at = space.capability(capability_id::pci_express);
  if (at == 0) {
    return;
  }
  const std::uint32_t capabilities = space.read32(at + link_capabilities);
  const unsigned speed = std::clamp(generation, 1U, capabilities & 0xfU);
  const unsigned lanes = std::clamp(std::bit_floor(width), 1U, (capabilities >> 4U) & 0x3fU);
  const bool downstream = (capabilities & linkcap_active_reporting) != 0;
  // Slot Clock and the rest keep their values.
  space.set_hardware(at + link_status, 0x03ffU | linkstatus_active,
                     active ? speed | lanes << 4U | when(downstream, linkstatus_active) : 0U);
  // Equalisation at 8 GT/s has run, all phases, on a link that is that fast (§7.5.3.20).
  space.set_hardware(at + link_status2, 0x001eU, when(active && speed >= 3, 0x001eU));
  if ((space.read16(at + 2U) & (1U << 8)) != 0) {
    space.set_hardware(at + slot_status, slot_presence, when(active, slot_presence));
  }
}

MsixControl msix_control(const ConfigSpace& space) {
  const std::uint8_t at = space.capability(capability_id::msix);
  if (at == 0) {
    return {};
  }
  const std::uint16_t control = space.read16(at + 2U);
  return {.enabled = (control & msix_enable) != 0, .function_masked = (control & msix_function_mask) != 0};
}

AtsControl ats_control(const ConfigSpace& space) {
  const std::uint16_t at = space.extended_capability(extended_capability_id::ats);
  if (at == 0) {
    return {};
  }
  const std::uint16_t control = space.read16(at + 6U);
  return {.enabled = (control & ats_enable) != 0,
          .smallest_translation_unit = static_cast<std::uint8_t>(control & ats_stu)};
}

std::uint16_t acs_control_register(const ConfigSpace& space) {
  const std::uint16_t at = space.extended_capability(extended_capability_id::acs);
  return at == 0 ? std::uint16_t{0} : space.read16(at + acs_control);
}

bool acs_egress_blocked(const ConfigSpace& space, unsigned port) {
  const std::uint16_t at = space.extended_capability(extended_capability_id::acs);
  if (at == 0 || port >= space.read8(at + 5U)) {
    return false;
  }
  return ((space.read8(at + acs_egress_vector + port / 8) >> (port % 8)) & 1U) != 0;
}

SriovState sriov_state(const ConfigSpace& space) {
  SriovState result;
  const std::uint16_t at = space.extended_capability(extended_capability_id::sriov);
  if (at == 0) {
    return result;
  }
  const std::uint16_t control = space.read16(at + sriov_control);
  result.vf_enabled = (control & sriov_vf_enable) != 0;
  result.vf_memory_enabled = (control & sriov_vf_memory) != 0;
  result.ari_capable_hierarchy = (control & sriov_ari) != 0;
  if (result.vf_enabled) {
    result.vfs = std::min(space.read16(at + sriov_num_vfs), space.read16(at + sriov_total_vfs));
  }
  result.first_vf_offset = space.read16(at + sriov_first_offset);
  result.vf_stride = space.read16(at + sriov_stride);
  for (unsigned i = 0; i < bar_count; ++i) {
    const BarRegister bar = bar_register(space, at + sriov_bar0 + 4 * i);
    result.vf_bar_size[i] = bar.size;
    result.vf_bar_base[i] = bar.assigned ? bar.base : 0;
    i += bar.is_64bit ? 1 : 0;
  }
  return result;
}

}  // namespace orrery::pcie
