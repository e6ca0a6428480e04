#include "systemc_models/rnic/register_names.h"

#include <fmt/format.h>

#include <charconv>

#include "firmware/interface/contexts.h"
#include "firmware/interface/registers.h"

namespace orrery::rnic {

namespace {

struct Named {
  std::string_view name;
  std::uint32_t offset;
  std::uint32_t count = 1;
  std::uint32_t stride = 4;
};

#define ORRERY_REGISTER(name) \
  { #name, reg::name }
#define ORRERY_DMA_REGISTER(name) \
  { #name, reg::name, reg::dma_channels, reg::dma_stride }
constexpr Named names[] = {
    ORRERY_REGISTER(id),
    ORRERY_REGISTER(version),
    ORRERY_REGISTER(reset_cause),
    ORRERY_REGISTER(ready),
    ORRERY_REGISTER(event_pending),
    ORRERY_REGISTER(event_enable),
    ORRERY_REGISTER(event_set),
    ORRERY_REGISTER(bad_accesses),
    ORRERY_REGISTER(time_low),
    ORRERY_REGISTER(time_high),
    ORRERY_REGISTER(timer_low),
    ORRERY_REGISTER(timer_high),
    ORRERY_REGISTER(watchdog_period),
    ORRERY_REGISTER(watchdog_kick),
    ORRERY_REGISTER(fatal_syndrome),
    ORRERY_REGISTER(panic),
    ORRERY_REGISTER(strap_functions),
    ORRERY_REGISTER(strap_port_type),
    ORRERY_REGISTER(strap_vectors),
    ORRERY_REGISTER(strap_uar_pages),
    ORRERY_REGISTER(strap_translation_entries),
    ORRERY_REGISTER(strap_guid_low),
    ORRERY_REGISTER(strap_guid_high),
    ORRERY_REGISTER(strap_mac_low),
    ORRERY_REGISTER(strap_mac_high),
    ORRERY_REGISTER(strap_lid),
    ORRERY_REGISTER(strap_link_gbps),
    ORRERY_REGISTER(strap_board),
    ORRERY_REGISTER(strap_sram_bytes),
    ORRERY_REGISTER(fault_opcode),
    ORRERY_REGISTER(fault_status),
    ORRERY_REGISTER(fault_syndrome),
    ORRERY_REGISTER(fault_count),
    ORRERY_REGISTER(trace_command),
    ORRERY_REGISTER(trace_status),
    ORRERY_REGISTER(trace_syndrome),
    ORRERY_REGISTER(trace_commit),
    ORRERY_REGISTER(wait),
    ORRERY_REGISTER(command_functions_low),
    ORRERY_REGISTER(command_functions_high),
    ORRERY_REGISTER(init_written_low),
    ORRERY_REGISTER(init_written_high),
    ORRERY_REGISTER(function_reset_low),
    ORRERY_REGISTER(function_reset_high),
    {"command_doorbell", reg::command_doorbell, max_functions, 4},
    {"command_queue_low", reg::command_queue_low, max_functions, 8},
    {"command_queue_high", reg::command_queue_high, max_functions, 8},
    {"nic_interface", reg::nic_interface, max_functions, 4},
    ORRERY_DMA_REGISTER(dma_function),
    ORRERY_DMA_REGISTER(dma_address_low),
    ORRERY_DMA_REGISTER(dma_address_high),
    ORRERY_DMA_REGISTER(dma_local),
    ORRERY_DMA_REGISTER(dma_length),
    ORRERY_DMA_REGISTER(dma_control),
    ORRERY_DMA_REGISTER(dma_status),
    ORRERY_REGISTER(context_kind),
    ORRERY_REGISTER(context_index),
    ORRERY_REGISTER(context_op),
    ORRERY_REGISTER(context_status),
    ORRERY_REGISTER(context_value),
    {"context_data", reg::context_data, reg::context_words},
    ORRERY_REGISTER(translation_index),
    ORRERY_REGISTER(translation_low),
    ORRERY_REGISTER(translation_high),
    ORRERY_REGISTER(bulk_local),
    ORRERY_REGISTER(bulk_index),
    ORRERY_REGISTER(bulk_count),
    ORRERY_REGISTER(bulk_flags),
    ORRERY_REGISTER(bulk_start),
    ORRERY_REGISTER(bulk_status),
    ORRERY_REGISTER(eqe_function),
    ORRERY_REGISTER(eqe_eqn),
    ORRERY_REGISTER(eqe_type),
    {"eqe_data", reg::eqe_data, 7},
    ORRERY_REGISTER(eqe_push),
    ORRERY_REGISTER(eqe_status),
    ORRERY_REGISTER(fifo_code),
    ORRERY_REGISTER(fifo_function),
    ORRERY_REGISTER(fifo_object),
    ORRERY_REGISTER(fifo_detail),
    ORRERY_REGISTER(fifo_pop),
    ORRERY_REGISTER(fifo_lost),
    ORRERY_REGISTER(work_qp),
    ORRERY_REGISTER(work_length),
    ORRERY_REGISTER(work_complete),
    {"work_data", reg::work_data, reg::work_words},
    ORRERY_REGISTER(init_select),
    {"init_segment", reg::init_segment, reg::init_segment_bytes / 4},
    {"crash_record", reg::crash_record, reg::crash_words},
    {"sram", reg::sram, reg::sram_bytes / 4},
};
#undef ORRERY_REGISTER
#undef ORRERY_DMA_REGISTER

}  // namespace

std::optional<std::uint32_t> register_offset(std::string_view name) {
  const auto dot = name.find('.');
  std::uint32_t number = 0;
  if (dot != std::string_view::npos) {
    const std::string_view digits = name.substr(dot + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc{} || end != digits.data() + digits.size()) {
      return std::nullopt;
    }
  }
  for (const Named& one : names) {
    if (one.name == name.substr(0, dot) && number < one.count) {
      return one.offset + number * one.stride;
    }
  }
  return std::nullopt;
}

std::string register_name(std::uint32_t offset) {
  for (const Named& one : names) {
    const std::uint32_t number = (offset - one.offset) / one.stride;
    if (offset >= one.offset && number < one.count && (offset - one.offset) % one.stride == 0) {
      return one.count == 1 ? std::string(one.name) : fmt::format("{}.{}", one.name, number);
    }
  }
  return fmt::format("{:#x}", offset);
}

}  // namespace orrery::rnic
