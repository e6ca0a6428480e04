#include "systemc_models/rnic/management_block.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/error.h"
#include "common/log.h"

namespace orrery::rnic {

namespace {

constexpr std::size_t fifo_capacity = 1024;
constexpr std::uint32_t bulk_chunk = 4096;  // translation entries written at once
constexpr std::uint64_t ps_per_us = 1'000'000;

constexpr std::uint32_t low(std::uint64_t value) {
  return static_cast<std::uint32_t>(value);
}
constexpr std::uint32_t high(std::uint64_t value) {
  return static_cast<std::uint32_t>(value >> 32);
}

std::uint32_t load32(const std::byte* from) {
  std::uint32_t value = 0;
  std::memcpy(&value, from, sizeof value);
  return value;
}
std::uint64_t load_big64(const std::byte* from) {
  std::uint64_t value = 0;
  std::memcpy(&value, from, sizeof value);
  return __builtin_bswap64(value);
}

std::size_t context_bytes(ContextKind kind) {
  switch (kind) {
    case ContextKind::function:
      return sizeof(FunctionContext);
    case ContextKind::qp:
      return sizeof(QpContext);
    case ContextKind::cq:
      return sizeof(CqContext);
    case ContextKind::eq:
      return sizeof(EqContext);
    case ContextKind::srq:
      return sizeof(SrqContext);
    case ContextKind::mkey:
      return sizeof(MkeyContext);
    case ContextKind::address:
      return sizeof(AddressContext);
    case ContextKind::group:
      return sizeof(GroupContext);
    case ContextKind::fault:
      return sizeof(FaultRecord);
    case ContextKind::send_queue:
    case ContextKind::receive_queue:
      return sizeof(FrameQueueContext);
    case ContextKind::frame_counters:
      return sizeof(FrameCounters);
    case ContextKind::queue_counters:
      return sizeof(QueueCounters);
  }
  return 0;
}

reg::ContextStatus status_of(ControlResult result) {
  switch (result) {
    case ControlResult::ok:
      return reg::ContextStatus::ok;
    case ControlResult::bad_index:
      return reg::ContextStatus::bad_index;
    case ControlResult::bad_value:
      return reg::ContextStatus::bad_value;
    case ControlResult::wrong_state:
      return reg::ContextStatus::wrong_state;
    case ControlResult::busy:
      return reg::ContextStatus::draining;
  }
  return reg::ContextStatus::bad_value;
}

// Whether `offset` is a register of a block of `count` at `base`.
constexpr bool within(std::uint32_t offset, std::uint32_t base, std::uint32_t count) {
  return offset >= base && offset < base + 4 * count;
}

}  // namespace

ManagementBlock::ManagementBlock(const ManagementSettings& settings) : settings_(settings) {
  if (settings.functions == 0 || settings.functions > max_functions) {
    throw Error(fmt::format("an RNIC can't have {} functions", settings.functions),
                fmt::format("give 1 to {}", max_functions));
  }
  functions_.resize(settings.functions);
  for (FunctionState& function : functions_) {
    function.init_segment.resize(reg::init_segment_bytes);
  }
  sram_.resize(reg::sram_bytes);
  entries_.reserve(bulk_chunk);
  fault_ = {settings.fault_opcode, settings.fault_status, 0xfff, settings.fault_opcode != 0 ? settings.fault_count : 0};
  for (Channel& channel : channels_) {
    channel.transfer.listener = this;
  }
}

void ManagementBlock::attach(std::uint32_t function, pcie::DevicePort& port) {
  functions_[function].port = &port;
  simulation_ = &port.simulation();
}

void ManagementBlock::power_on() {
  if (processor_ != nullptr) {
    processor_->restart();
    wake();
  }
}

Picoseconds ManagementBlock::now() const {
  return simulation_ != nullptr ? simulation_->now() : Picoseconds{};
}

// ---- Events ------------------------------------------------------------------------------------------------------

std::uint64_t ManagementBlock::functions_where(bool (*holds)(const FunctionState&)) const {
  std::uint64_t bits = 0;
  for (std::size_t f = 0; f < functions_.size(); ++f) {
    bits |= static_cast<std::uint64_t>(holds(functions_[f]) ? 1 : 0) << f;
  }
  return bits;
}

std::uint32_t ManagementBlock::pending() const {
  std::uint32_t bits = latched_;
  if (std::any_of(functions_.begin(), functions_.end(), [](const FunctionState& f) { return f.doorbell != 0; })) {
    bits |= reg::event_command;
  }
  bits |= init_written_ != 0 ? reg::event_init_written : 0;
  if (std::any_of(channels_.begin(), channels_.end(), [](const Channel& c) {
        return c.status == reg::DmaStatus::done || c.status == reg::DmaStatus::error;
      })) {
    bits |= reg::event_dma_done;
  }
  bits |= fifo_.empty() ? 0 : reg::event_hardware;
  bits |= reset_functions_ != 0 ? reg::event_function_reset : 0;
  return bits;
}

void ManagementBlock::schedule(Wake what, Picoseconds at, std::uint64_t generation) {
  simulation_->events.schedule(at, *this, static_cast<std::uint64_t>(what) | generation << 8);
}

// Lets the processor look, a little later: an access of a guest never runs firmware.
void ManagementBlock::wake() {
  if (step_scheduled_ || processor_ == nullptr || simulation_ == nullptr || !interrupt()) {
    return;
  }
  step_scheduled_ = true;
  constexpr Picoseconds functional_step{1'000};
  schedule(Wake::step, now() + (simulation_->timed ? settings_.step_time : functional_step), 0);
}

void ManagementBlock::on_event(std::uint64_t argument) {
  const std::uint64_t generation = argument >> 8;
  switch (static_cast<Wake>(argument & 0xffU)) {
    case Wake::step:
      step_scheduled_ = false;
      step();
      return;
    case Wake::timer:
      if (generation == timer_generation_) {
        latched_ |= reg::event_timer;
        wake();
      }
      return;
    case Wake::watchdog:
      if (generation == watchdog_generation_) {
        on_watchdog();
      }
      return;
    case Wake::restart:
      restart();
      return;
  }
}

void ManagementBlock::step() {
  if (!interrupt()) {
    return;
  }
  ++counters_.steps;
  processor_->run();
  // Whoever keeps up needs no watching; the clock runs only once something has been left undone.
  if (interrupt()) {
    arm_watchdog();
  }
  wake();
}

void ManagementBlock::arm_watchdog() {
  if (watchdog_armed_ || watchdog_period_ == 0) {
    return;
  }
  watchdog_armed_ = true;
  watchdog_warned_ = false;
  schedule(Wake::watchdog, now() + Picoseconds{watchdog_period_ * ps_per_us / 2}, ++watchdog_generation_);
}

void ManagementBlock::on_watchdog() {
  watchdog_armed_ = false;
  if (!interrupt()) {
    return;
  }
  if (!watchdog_warned_) {
    watchdog_warned_ = true;
    watchdog_armed_ = true;
    latched_ |= reg::event_watchdog_warning;
    schedule(Wake::watchdog, now() + Picoseconds{watchdog_period_ * ps_per_us / 2}, ++watchdog_generation_);
    wake();
    return;
  }
  crash(reg::ResetCause::watchdog, fatal_syndrome_);
}

// The guests see a fatal error at once; a restarted firmware serves them again when they have reset their functions.
void ManagementBlock::crash(reg::ResetCause cause, std::uint32_t syndrome) {
  ++counters_.crashes;
  crash_record_[0] += 1;
  crash_record_[1] = static_cast<std::uint32_t>(cause);
  crash_record_[2] = syndrome;
  crash_record_[3] = pending();
  crash_record_[4] = low(now().count / ps_per_us);
  crash_record_[5] = high(now().count / ps_per_us);
  crash_record_[6] = trace_[0];
  crash_record_[7] = event_enable_;
  log_at(now(), LogLevel::error,
         "RNIC {}: firmware {} (syndrome {:#x}, pending events {:#x}, last command {:#x}); it is restarted",
         settings_.board, cause == reg::ResetCause::watchdog ? "doesn't answer" : "has failed", syndrome,
         crash_record_[3], trace_[0] >> 16);
  for (FunctionState& function : functions_) {
    function.fatal = syndrome;
    function.interface = static_cast<std::uint32_t>(reg::NicInterface::disabled);
  }
  reset_cause_ = cause;
  ready_ = false;
  event_enable_ = 0;
  // Not from here: it may be the firmware that asks for it.
  schedule(Wake::restart, now(), 0);
}

void ManagementBlock::restart() {
  latched_ = 0;
  ++timer_generation_;
  ++watchdog_generation_;
  watchdog_armed_ = false;
  watchdog_period_ = 0;
  init_written_ = 0;
  reset_functions_ = 0;
  fifo_.clear();
  for (std::uint32_t f = 0; f < functions_.size(); ++f) {
    functions_[f].doorbell = 0;
    functions_[f].has_queue = false;
    if (functions_[f].port != nullptr) {
      functions_[f].port->cancel_all();
    }
    control_->reset(f);
  }
  for (Channel& channel : channels_) {
    channel.status = reg::DmaStatus::idle;
  }
  processor_->restart();
  wake();
}

// ---- Guests ------------------------------------------------------------------------------------------------------

void ManagementBlock::guest_queue_high(std::uint32_t function, std::uint32_t high_half) {
  FunctionState& f = functions_[function];
  f.queue = (f.queue & 0xffff'ffffU) | static_cast<std::uint64_t>(high_half) << 32;
}

void ManagementBlock::guest_queue_low(std::uint32_t function, std::uint32_t low_half, std::uint32_t interface) {
  FunctionState& f = functions_[function];
  f.interface = interface;
  if (interface == static_cast<std::uint32_t>(reg::NicInterface::full)) {
    f.queue = (f.queue & ~std::uint64_t{0xffff'ffffU}) | low_half;
    f.has_queue = true;
    f.fatal = 0;
  }
  init_written_ |= std::uint64_t{1} << function;
  wake();
}

void ManagementBlock::guest_doorbell(std::uint32_t function, std::uint32_t slots) {
  FunctionState& f = functions_[function];
  if (!ready_ || !f.has_queue) {
    ++counters_.doorbells_ignored;
    return;
  }
  f.doorbell |= slots;
  wake();
}

void ManagementBlock::drop_dma(std::uint32_t function) {
  for (Channel& channel : channels_) {
    if (channel.status == reg::DmaStatus::busy && channel.function == function) {
      channel.status = reg::DmaStatus::error;
    }
  }
}

void ManagementBlock::guest_reset(std::uint32_t function) {
  FunctionState& f = functions_[function];
  control_->reset(function);
  drop_dma(function);
  f.doorbell = 0;
  f.interface =
      static_cast<std::uint32_t>(f.has_queue || f.fatal != 0 ? reg::NicInterface::disabled : reg::NicInterface::full);
  f.fatal = 0;
  f.has_queue = false;
  f.queue = 0;
  f.window_base = 0;
  f.window_limit = 0;
  init_written_ &= ~(std::uint64_t{1} << function);
  reset_functions_ |= std::uint64_t{1} << function;
  std::erase_if(fifo_, [&](const HardwareEvent& event) { return event.function == function; });
  wake();
}

// ---- Data path ---------------------------------------------------------------------------------------------------

void ManagementBlock::on_hardware_event(const HardwareEvent& event) {
  if (fifo_.size() == fifo_capacity) {
    ++fifo_lost_;
    return;
  }
  fifo_.push_back(event);
  wake();
}

void ManagementBlock::on_context_idle(ContextKind /*kind*/, std::uint32_t /*index*/) {
  latched_ |= reg::event_context_idle;
  wake();
}

void ManagementBlock::on_dma_done(pcie::DmaTransfer& transfer) {
  for (Channel& channel : channels_) {
    if (&channel.transfer == &transfer && channel.status == reg::DmaStatus::busy) {
      channel.status =
          transfer.status == pcie::CompletionStatus::success ? reg::DmaStatus::done : reg::DmaStatus::error;
    }
  }
  wake();
}

// ---- Reads -------------------------------------------------------------------------------------------------------

std::uint32_t ManagementBlock::bad_access() {
  ++bad_accesses_;
  return 0;
}

// Registers that are plain memory for the firmware.
std::uint32_t* ManagementBlock::window(std::uint32_t offset) {
  if (within(offset, reg::context_data, reg::context_words)) {
    return &context_data_[(offset - reg::context_data) / 4];
  }
  if (within(offset, reg::crash_record, reg::crash_words)) {
    return &crash_record_[(offset - reg::crash_record) / 4];
  }
  if (within(offset, reg::bulk_local, 4)) {
    return &bulk_[(offset - reg::bulk_local) / 4];
  }
  if (within(offset, reg::eqe_function, 10)) {
    return &eqe_[(offset - reg::eqe_function) / 4];
  }
  if (within(offset, reg::fault_opcode, 4)) {
    return &fault_[(offset - reg::fault_opcode) / 4];
  }
  if (within(offset, reg::trace_command, 3)) {
    return &trace_[(offset - reg::trace_command) / 4];
  }
  switch (offset) {
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
  if (offset >= reg::sram && offset - reg::sram < sram_.size()) {
    return load32(sram_.data() + (offset - reg::sram));
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
      time_high_ = high(now().count / ps_per_us);
      return low(now().count / ps_per_us);
    case reg::time_high:
      return time_high_;
    case reg::timer_low:
      return low(timer_);
    case reg::timer_high:
      return high(timer_);
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
      return low(settings_.guid);
    case reg::strap_guid_high:
      return high(settings_.guid);
    case reg::strap_mac_low:
      return low(settings_.mac);
    case reg::strap_mac_high:
      return high(settings_.mac);
    case reg::strap_lid:
      return settings_.lid;
    case reg::strap_link_gbps:
      return settings_.link_gbps;
    case reg::strap_board:
      return settings_.board;
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
      return offset == reg::command_functions_low ? low(bits) : high(bits);
    }
    case reg::init_written_low:
      return low(init_written_);
    case reg::init_written_high:
      return high(init_written_);
    case reg::function_reset_low:
      return low(reset_functions_);
    case reg::function_reset_high:
      return high(reset_functions_);
    default:
      break;
  }
  if (within(offset, reg::command_doorbell, settings_.functions)) {
    return functions_[(offset - reg::command_doorbell) / 4].doorbell;
  }
  if (within(offset, reg::command_queue_low, 2 * settings_.functions)) {
    const std::uint64_t queue = functions_[(offset - reg::command_queue_low) / 8].queue;
    return (offset & 4U) == 0 ? low(queue) : high(queue);
  }
  if (within(offset, reg::nic_interface, settings_.functions)) {
    return functions_[(offset - reg::nic_interface) / 4].interface;
  }
  return bad_access();
}

std::uint32_t ManagementBlock::read_dma(std::uint32_t offset) const {
  const std::uint32_t channel = (offset - reg::dma_function) / reg::dma_stride;
  const std::uint32_t at = reg::dma_function + (offset - reg::dma_function) % reg::dma_stride;
  if (channel >= reg::dma_channels) {
    return 0;
  }
  if (within(at, reg::dma_function, 5)) {
    return channels_[channel].setup[(at - reg::dma_function) / 4];
  }
  return at == reg::dma_status ? static_cast<std::uint32_t>(channels_[channel].status) : 0;
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
        return low(entry);
      }
      ++translation_index_;
      return high(entry);
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
  if (within(offset, reg::work_data, reg::work_words)) {
    return work_data_[(offset - reg::work_data) / 4];
  }
  if (within(offset, reg::init_segment, reg::init_segment_bytes / 4)) {
    return load32(functions_[init_select_].init_segment.data() + (offset - reg::init_segment));
  }
  return bad_access();
}

// ---- Writes ------------------------------------------------------------------------------------------------------

void ManagementBlock::write32(std::uint32_t offset, std::uint32_t value) {
  ++counters_.register_writes;
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
      ++watchdog_generation_;
      watchdog_armed_ = false;
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
  if (within(offset, reg::command_doorbell, settings_.functions)) {
    functions_[(offset - reg::command_doorbell) / 4].doorbell &= ~value;
  } else if (within(offset, reg::nic_interface, settings_.functions)) {
    functions_[(offset - reg::nic_interface) / 4].interface = value & 7U;
  } else {
    bad_access();
  }
}

void ManagementBlock::write_dma(std::uint32_t offset, std::uint32_t value) {
  const std::uint32_t number = (offset - reg::dma_function) / reg::dma_stride;
  const std::uint32_t at = reg::dma_function + (offset - reg::dma_function) % reg::dma_stride;
  if (number >= reg::dma_channels || channels_[number].status == reg::DmaStatus::busy) {
    bad_access();
    return;
  }
  Channel& channel = channels_[number];
  if (within(at, reg::dma_function, 5)) {
    channel.setup[(at - reg::dma_function) / 4] = value;
  } else if (at == reg::dma_control) {
    start_dma(channel, value);
  } else if (at == reg::dma_status) {
    channel.status = reg::DmaStatus::idle;
  } else {
    bad_access();
  }
}

void ManagementBlock::start_dma(Channel& channel, std::uint32_t value) {
  const auto [function, address_low, address_high, local, length] = channel.setup;
  std::uint64_t address = address_low | static_cast<std::uint64_t>(address_high) << 32;
  const auto command = static_cast<reg::DmaCommand>(value);
  channel.status = reg::DmaStatus::error;
  if ((command != reg::DmaCommand::read && command != reg::DmaCommand::write) || function >= functions_.size() ||
      functions_[function].port == nullptr || length == 0 || local > sram_.size() || length > sram_.size() - local) {
    bad_access();
    return;
  }
  const FunctionState& f = functions_[function];
  // What a guest gives as an address may be anything: no access wraps, none leaves the function's window.
  if (address + length < address ||
      (f.window_limit != 0 && (address >= f.window_limit || length > f.window_limit - address))) {
    return;
  }
  address += f.window_base;
  if (address + length < address) {
    return;
  }
  channel.function = function;
  channel.status = reg::DmaStatus::busy;
  pcie::DmaTransfer& transfer = channel.transfer;
  transfer.kind = command == reg::DmaCommand::read ? pcie::DmaTransfer::Kind::read : pcie::DmaTransfer::Kind::write;
  transfer.address = address;
  transfer.length = length;
  transfer.buffer = sram_.data() + local;
  counters_.dma_bytes += length;
  f.port->start(transfer);
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
  if (within(offset, reg::init_segment, reg::init_segment_bytes / 4)) {
    std::memcpy(functions_[init_select_].init_segment.data() + (offset - reg::init_segment), &value, sizeof value);
    return;
  }
  bad_access();
}

void ManagementBlock::context_operation(std::uint32_t value) {
  const auto kind = static_cast<ContextKind>(context_kind_);
  const std::size_t bytes = context_bytes(kind);
  const std::span data = std::as_writable_bytes(std::span(context_data_)).first(bytes);
  ControlResult result = ControlResult::bad_value;
  switch (static_cast<reg::ContextOp>(value)) {
    case reg::ContextOp::write:
      if (bytes == 0) {
        break;
      }
      result = control_->write_context(kind, context_index_, data);
      if (kind == ContextKind::function && result == ControlResult::ok && context_index_ < functions_.size()) {
        FunctionContext context;
        std::memcpy(static_cast<void*>(&context), context_data_.data(), sizeof context);
        functions_[context_index_].window_base = context.iova_base;
        functions_[context_index_].window_limit = context.iova_limit;
      }
      break;
    case reg::ContextOp::read:
      result = bytes == 0 ? ControlResult::bad_value : control_->read_context(kind, context_index_, data);
      break;
    case reg::ContextOp::destroy:
      result = control_->destroy_context(kind, context_index_);
      break;
    case reg::ContextOp::query:
      result = control_->idle(kind, context_index_) ? ControlResult::ok : ControlResult::busy;
      break;
    case reg::ContextOp::reset_function:
      if (context_index_ >= functions_.size()) {
        result = ControlResult::bad_index;
        break;
      }
      if (functions_[context_index_].port != nullptr) {
        functions_[context_index_].port->cancel_all();
      }
      drop_dma(context_index_);
      control_->reset(context_index_);
      result = ControlResult::ok;
      break;
    case reg::ContextOp::arm_srq:
      result = control_->arm_srq(context_index_, context_value_);
      break;
    case reg::ContextOp::resume_fault:
      result = control_->resume_fault(context_index_, context_value_ != 0);
      break;
  }
  context_status_ = status_of(result);
}

// From the driver's list to translation entries, a chunk at a time.
void ManagementBlock::bulk(std::uint32_t value) {
  const auto format = static_cast<reg::BulkFormat>(value);
  const auto [local, index, count, flags] = bulk_;
  const bool keys = format == reg::BulkFormat::keys || format == reg::BulkFormat::fixed_keys;
  const std::uint64_t element = keys ? 16 : 8;
  const bool list = format != reg::BulkFormat::fill;
  bulk_status_ = reg::ContextStatus::bad_value;
  if (value < 1 || value > static_cast<std::uint32_t>(reg::BulkFormat::fill) ||
      (list && (local % 8 != 0 || local > sram_.size() || count * element > sram_.size() - local))) {
    bad_access();
    return;
  }
  constexpr std::uint64_t flag_mask = translation::readable | translation::writable;
  std::uint64_t at = index;
  ControlResult result = ControlResult::ok;
  const auto flush = [&] {
    if (result == ControlResult::ok && !entries_.empty()) {
      result = at + entries_.size() > none ? ControlResult::bad_index
                                           : control_->write_translation(static_cast<std::uint32_t>(at), entries_);
      at += entries_.size();
    }
    entries_.clear();
  };
  for (std::uint32_t i = 0; i < count && result == ControlResult::ok; ++i) {
    const std::byte* from = sram_.data() + (list ? local + i * element : 0);
    switch (format) {
      case reg::BulkFormat::pages:
        entries_.push_back((load_big64(from) & translation::address_mask) | flags);
        break;
      case reg::BulkFormat::page_flags:
        entries_.push_back(load_big64(from) & (translation::address_mask | flag_mask));
        break;
      case reg::BulkFormat::keys:
      case reg::BulkFormat::fixed_keys: {
        const std::uint64_t head = load_big64(from);  // byte count, key
        const std::uint64_t bytes = format == reg::BulkFormat::keys ? head >> 32 : 0;
        entries_.push_back(head << 32 | bytes);
        entries_.push_back(load_big64(from + 8));
        break;
      }
      case reg::BulkFormat::fill:
        entries_.push_back(flags);
        break;
    }
    if (entries_.size() >= bulk_chunk) {
      flush();
    }
  }
  flush();
  bulk_status_ = status_of(result);
}

void ManagementBlock::push_event() {
  Event event;
  event.type = static_cast<std::uint8_t>(eqe_[2] >> 8);
  event.subtype = static_cast<std::uint8_t>(eqe_[2]);
  std::memcpy(event.data.data(), &eqe_[3], event.data.size());
  eqe_status_ = status_of(control_->post_event(eqe_[0], eqe_[1], event));
}

void ManagementBlock::load_work_request(std::uint32_t qpn) {
  work_qp_ = qpn;
  const std::span<const std::byte> bytes = control_->work_request(qpn);
  work_length_ = static_cast<std::uint32_t>(std::min<std::size_t>(bytes.size(), sizeof work_data_));
  std::memcpy(work_data_.data(), bytes.data(), work_length_);
}

void ManagementBlock::complete_work_request(std::uint32_t value) {
  CompletionCode code = CompletionCode::local_qp_operation;
  switch (static_cast<reg::WorkResult>(value)) {
    case reg::WorkResult::success:
      code = CompletionCode::success;
      break;
    case reg::WorkResult::local_qp_operation:
      break;
    case reg::WorkResult::local_protection:
      code = CompletionCode::local_protection;
      break;
    case reg::WorkResult::memory_window_bind:
      code = CompletionCode::memory_window_bind;
      break;
  }
  if (code != CompletionCode::success && log_enabled(LogLevel::debug)) {
    std::string words;
    for (std::uint32_t i = 0; i < std::min<std::uint32_t>(work_length_ / 4, 48); ++i) {
      words += fmt::format(" {:08x}", __builtin_bswap32(work_data_[i]));
    }
    log_at(now(), LogLevel::debug, "rnic{}: work request of QP {:#x} failed with result {}:{}", settings_.board,
           work_qp_, value, words);
  }
  if (control_->complete_work_request(work_qp_, code) != ControlResult::ok) {
    bad_access();
  }
}

void ManagementBlock::commit_trace(std::uint32_t function) {
  CommandRecord record;
  record.time = now();
  record.function = function;
  record.opcode = static_cast<std::uint16_t>(trace_[0] >> 16);
  record.op_mod = static_cast<std::uint16_t>(trace_[0]);
  record.delivery = static_cast<std::uint8_t>(trace_[1] >> 8);
  record.status = static_cast<std::uint8_t>(trace_[1]);
  record.syndrome = trace_[2];
  const bool failed = record.status != 0 || record.delivery != 0;
  ++counters_.commands;
  counters_.commands_failed += failed ? 1 : 0;
  log_at(record.time, LogLevel::debug,
         "rnic{} function {}: command {:#x}, op_mod {:#x}: delivery {:#x}, status {:#x}, syndrome {:#x}",
         settings_.board, record.function, record.opcode, record.op_mod, record.delivery, record.status,
         record.syndrome);
  if (observer_ != nullptr) {
    observer_->on_command(record);
  }
}

}  // namespace orrery::rnic
