// The firmware's accesses: which register is behind an offset.
#include "systemc_models/rnic/management_block.h"

#include <algorithm>
#include <bit>

#include "systemc_models/rnic/management_words.h"

namespace orrery::rnic {

std::uint32_t ManagementBlock::bad_access() {
  ++bad_accesses_;
  return 0;
}

// Registers that are plain memory for the firmware.
std::uint32_t* ManagementBlock::window(std::uint32_t offset) {
  if (within_block(offset, reg::context_data, reg::context_words)) {
    return &context_data_[(offset - reg::context_data) / 4];
  }
  if (within_block(offset, reg::crash_record, reg::crash_words)) {
    return &crash_record_[(offset - reg::crash_record) / 4];
  }
  if (within_block(offset, reg::bulk_local, 4)) {
    return &bulk_[(offset - reg::bulk_local) / 4];
  }
  if (within_block(offset, reg::eqe_function, 10)) {
    return &eqe_[(offset - reg::eqe_function) / 4];
  }
  if (within_block(offset, reg::fault_opcode, 4)) {
    return &fault_[(offset - reg::fault_opcode) / 4];
  }
  if (within_block(offset, reg::trace_command, 3)) {
    return &trace_[(offset - reg::trace_command) / 4];
  }
  switch (offset) {
    case reg::bulk_function:
      return &bulk_function_;
    case reg::context_kind:
      return &context_kind_;
    case reg::context_index:
      return &context_index_;
    case reg::context_value:
      return &context_value_;
    case reg::translation_index:
      return &translation_index_;
    case reg::fatal_syndrome:
      return &fatal_syndrome_;
    case reg::watchdog_period:
      return &watchdog_period_;
    default:
      return nullptr;
  }
}

std::uint32_t ManagementBlock::read32(std::uint32_t offset) {
  ++counters_.register_reads;
  const std::uint32_t value = read_register(offset);
  return faults_.any() ? faults_.apply(offset, false, value) : value;
}

std::uint32_t ManagementBlock::read_register(std::uint32_t offset) {
  if (offset >= reg::sram && offset - reg::sram < sram_.size()) {
    return load_word(sram_.data() + (offset - reg::sram));
  }
  if (const std::uint32_t* word = window(offset); word != nullptr) {
    return *word;
  }
  if (offset < reg::command_functions_low) {
    return read_fixed(offset);
  }
  if (offset < reg::dma_function) {
    return read_function(offset);
  }
  if (offset < reg::context_kind) {
    return read_dma(offset);
  }
  return read_windows(offset);
}

std::uint32_t ManagementBlock::read_fixed(std::uint32_t offset) {
  switch (offset) {
    case reg::id:
      return reg::id_value;
    case reg::version:
      return reg::version_value;
    case reg::reset_cause:
      return static_cast<std::uint32_t>(reset_cause_);
    case reg::ready:
      return ready_ ? 1 : 0;
    case reg::event_pending:
      return pending();
    case reg::event_enable:
      return event_enable_;
    case reg::bad_accesses:
      return bad_accesses_;
    case reg::time_low:
      time_high_ = high_half(now().count / ps_per_us);
      return low_half(now().count / ps_per_us);
    case reg::time_high:
      return time_high_;
    case reg::timer_low:
      return low_half(timer_);
    case reg::timer_high:
      return high_half(timer_);
    case reg::strap_functions:
      return settings_.functions;
    case reg::strap_port_type:
      return static_cast<std::uint32_t>(settings_.port_type);
    case reg::strap_vectors:
      return settings_.vectors;
    case reg::strap_uar_pages:
      return settings_.uar_pages;
    case reg::strap_translation_entries:
      return settings_.translation_entries;
    case reg::strap_guid_low:
      return low_half(settings_.guid);
    case reg::strap_guid_high:
      return high_half(settings_.guid);
    case reg::strap_mac_low:
      return low_half(settings_.mac);
    case reg::strap_mac_high:
      return high_half(settings_.mac);
    case reg::strap_lid:
      return settings_.lid;
    case reg::strap_link_gbps:
      return settings_.link_gbps;
    case reg::strap_board:
      return settings_.board;
    case reg::wait:
      return waiting_ ? 1 : 0;
    case reg::strap_sram_bytes:
      return reg::sram_bytes;
    default:
      return bad_access();
  }
}

std::uint32_t ManagementBlock::read_function(std::uint32_t offset) {
  switch (offset) {
    case reg::command_functions_low:
    case reg::command_functions_high: {
      const std::uint64_t bits = functions_where([](const FunctionState& f) { return f.doorbell != 0; });
      return offset == reg::command_functions_low ? low_half(bits) : high_half(bits);
    }
    case reg::init_written_low:
      return low_half(init_written_);
    case reg::init_written_high:
      return high_half(init_written_);
    case reg::function_reset_low:
      return low_half(reset_functions_);
    case reg::function_reset_high:
      return high_half(reset_functions_);
    default:
      break;
  }
  if (within_block(offset, reg::command_doorbell, settings_.functions)) {
    return functions_[(offset - reg::command_doorbell) / 4].doorbell;
  }
  if (within_block(offset, reg::command_queue_low, 2 * settings_.functions)) {
    const std::uint64_t queue = functions_[(offset - reg::command_queue_low) / 8].queue;
    return (offset & 4U) == 0 ? low_half(queue) : high_half(queue);
  }
  if (within_block(offset, reg::nic_interface, settings_.functions)) {
    return functions_[(offset - reg::nic_interface) / 4].interface;
  }
  return bad_access();
}

std::uint32_t ManagementBlock::read_windows(std::uint32_t offset) {
  switch (offset) {
    case reg::context_status:
      return static_cast<std::uint32_t>(context_status_);
    case reg::translation_low:
    case reg::translation_high: {
      std::uint64_t entry = 0;
      if (control_->read_translation(translation_index_, {&entry, 1}) != ControlResult::ok) {
        return bad_access();
      }
      if (offset == reg::translation_low) {
        return low_half(entry);
      }
      ++translation_index_;
      return high_half(entry);
    }
    case reg::bulk_status:
      return static_cast<std::uint32_t>(bulk_status_);
    case reg::eqe_status:
      return static_cast<std::uint32_t>(eqe_status_);
    case reg::fifo_code:
      return fifo_.empty() ? 0 : static_cast<std::uint32_t>(fifo_.front().code);
    case reg::fifo_function:
      return fifo_.empty() ? 0 : fifo_.front().function;
    case reg::fifo_object:
      return fifo_.empty() ? 0 : fifo_.front().object;
    case reg::fifo_detail:
      return fifo_.empty() ? 0 : fifo_.front().detail;
    case reg::fifo_lost:
      return fifo_lost_;
    case reg::work_length:
      return work_length_;
    case reg::init_select:
      return init_select_;
    default:
      break;
  }
  if (within_block(offset, reg::work_data, reg::work_words)) {
    return work_data_[(offset - reg::work_data) / 4];
  }
  if (within_block(offset, reg::init_segment, reg::init_segment_bytes / 4)) {
    return load_word(functions_[init_select_].init_segment.data() + (offset - reg::init_segment));
  }
  return bad_access();
}

void ManagementBlock::write32(std::uint32_t offset, std::uint32_t value) {
  ++counters_.register_writes;
  write_register(offset, faults_.any() ? faults_.apply(offset, true, value) : value);
}

void ManagementBlock::write_register(std::uint32_t offset, std::uint32_t value) {
  if (offset >= reg::sram && offset - reg::sram < sram_.size()) {
    std::memcpy(sram_.data() + (offset - reg::sram), &value, sizeof value);
  } else if (std::uint32_t* word = window(offset); word != nullptr) {
    *word = value;
  } else if (offset < reg::command_functions_low) {
    write_fixed(offset, value);
  } else if (offset < reg::dma_function) {
    write_function(offset, value);
  } else if (offset < reg::context_kind) {
    write_dma(offset, value);
  } else {
    write_windows(offset, value);
  }
}

void ManagementBlock::write_fixed(std::uint32_t offset, std::uint32_t value) {
  switch (offset) {
    case reg::ready:
      ready_ = ready_ || (value & 1U) != 0;
      return;
    case reg::event_pending:
      latched_ &= ~value;
      return;
    case reg::event_enable:
      event_enable_ = value;
      wake();
      return;
    case reg::event_set:
      latched_ |= value & reg::event_software;
      wake();
      return;
    case reg::timer_low:
      timer_ = (timer_ & ~std::uint64_t{0xffff'ffffU}) | value;
      return;
    case reg::timer_high: {
      timer_ = (timer_ & 0xffff'ffffU) | static_cast<std::uint64_t>(value) << 32;
      const Picoseconds at{timer_ * ps_per_us};
      schedule(Wake::timer, max(at, now()), ++timer_generation_);
      return;
    }
    case reg::watchdog_kick:
      disarm_watchdog();
      if (!processor_runs_by_calls() && interrupt()) {
        arm_watchdog();
      }
      return;
    case reg::wait:
      waiting_ = true;
      if (!interrupt()) {
        disarm_watchdog();
      }
      wake();
      return;
    case reg::panic:
      crash(reg::ResetCause::host, value);
      return;
    case reg::trace_commit:
      commit_trace(value);
      return;
    default:
      bad_access();
  }
}

// The firmware acknowledges a slot's doorbell when it begins with its command, one at a time.
void ManagementBlock::take_slots(FunctionState& function, std::uint32_t slots) {
  const std::uint32_t taken = function.doorbell & slots;
  if (taken != 0) {
    function.taken_rung = function.rung[static_cast<std::size_t>(std::countr_zero(taken))];
    function.taken = now();
  }
  function.doorbell &= ~slots;
}

void ManagementBlock::write_function(std::uint32_t offset, std::uint32_t value) {
  switch (offset) {
    case reg::init_written_low:
      init_written_ &= ~std::uint64_t{value};
      return;
    case reg::init_written_high:
      init_written_ &= ~(std::uint64_t{value} << 32);
      return;
    case reg::function_reset_low:
      reset_functions_ &= ~std::uint64_t{value};
      return;
    case reg::function_reset_high:
      reset_functions_ &= ~(std::uint64_t{value} << 32);
      return;
    default:
      break;
  }
  if (within_block(offset, reg::command_doorbell, settings_.functions)) {
    take_slots(functions_[(offset - reg::command_doorbell) / 4], value);
  } else if (within_block(offset, reg::nic_interface, settings_.functions)) {
    functions_[(offset - reg::nic_interface) / 4].interface = value & 7U;
  } else {
    bad_access();
  }
}

void ManagementBlock::write_windows(std::uint32_t offset, std::uint32_t value) {
  switch (offset) {
    case reg::context_op:
      context_operation(value);
      return;
    case reg::translation_low:
      translation_low_ = value;
      return;
    case reg::translation_high: {
      const std::uint64_t entry = translation_low_ | static_cast<std::uint64_t>(value) << 32;
      if (control_->write_translation(translation_index_++, {&entry, 1}) != ControlResult::ok) {
        bad_access();
      }
      return;
    }
    case reg::bulk_start:
      bulk(value);
      return;
    case reg::eqe_push:
      push_event();
      return;
    case reg::fifo_pop:
      if (!fifo_.empty()) {
        fifo_.pop_front();
      }
      return;
    case reg::work_qp:
      load_work_request(value);
      return;
    case reg::work_complete:
      complete_work_request(value);
      return;
    case reg::init_select:
      init_select_ = std::min<std::uint32_t>(value, settings_.functions - 1);
      return;
    default:
      break;
  }
  if (within_block(offset, reg::init_segment, reg::init_segment_bytes / 4)) {
    std::memcpy(functions_[init_select_].init_segment.data() + (offset - reg::init_segment), &value, sizeof value);
    return;
  }
  bad_access();
}

}  // namespace orrery::rnic
