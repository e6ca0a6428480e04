#include "systemc_models/rnic/management_block.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/error.h"
#include "common/log.h"
#include "systemc_models/rnic/management_words.h"

namespace orrery::rnic {

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
  if (step_scheduled_ || processor_ == nullptr || simulation_ == nullptr || !interrupt() ||
      (!processor_runs_by_calls() && !waiting_)) {
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
  if (processor_ == nullptr || !interrupt() || (!processor_runs_by_calls() && !waiting_)) {
    return;
  }
  ++counters_.steps;
  waiting_ = false;
  processor_->run();
  // Whoever keeps up needs no watching; the clock runs only once something has been left undone.
  if (interrupt()) {
    arm_watchdog();
  }
  wake();
}

void ManagementBlock::commit_trace(std::uint32_t function) {
  CommandRecord record;
  record.time = now();
  record.function = function;
  if (function < functions_.size()) {
    record.waited = functions_[function].taken - functions_[function].taken_rung;
    record.handled = record.time - functions_[function].taken;
  }
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
