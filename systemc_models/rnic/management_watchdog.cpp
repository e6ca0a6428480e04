// Watchdog, crash record, restart.
#include "systemc_models/rnic/management_block.h"

#include "common/log.h"
#include "systemc_models/rnic/management_words.h"

namespace orrery::rnic {

namespace {

const char* what_happened(reg::ResetCause cause) {
  switch (cause) {
    case reg::ResetCause::watchdog:
      return "doesn't answer";
    case reg::ResetCause::lost:
      return "has lost its processor";
    case reg::ResetCause::power_on:
    case reg::ResetCause::host:
      break;
  }
  return "has failed";
}

}  // namespace

void ManagementBlock::arm_watchdog() {
  if (watchdog_armed_ || watchdog_held_ || watchdog_period_ == 0) {
    return;
  }
  watchdog_armed_ = true;
  watchdog_warned_ = false;
  schedule(Wake::watchdog, now() + Picoseconds{watchdog_period_ * ps_per_us / 2}, ++watchdog_generation_);
}

void ManagementBlock::disarm_watchdog() {
  ++watchdog_generation_;
  watchdog_armed_ = false;
}

void ManagementBlock::hold_watchdog(bool held) {
  watchdog_held_ = held;
  disarm_watchdog();
  if (interrupt()) {
    arm_watchdog();
  }
}

void ManagementBlock::processor_lost() {
  crash(reg::ResetCause::lost, fatal_syndrome_);
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
  if (restart_scheduled_) {
    return;  // what a dying firmware still does is part of the same crash
  }
  ++counters_.crashes;
  crash_record_[0] += 1;
  crash_record_[1] = static_cast<std::uint32_t>(cause);
  crash_record_[2] = syndrome;
  crash_record_[3] = pending();
  crash_record_[4] = low_half(now().count / ps_per_us);
  crash_record_[5] = high_half(now().count / ps_per_us);
  crash_record_[6] = trace_[0];
  crash_record_[7] = event_enable_;
  log_at(now(), LogLevel::error,
         "RNIC {}: firmware {} (syndrome {:#x}, pending events {:#x}, last command {:#x}); it is restarted",
         settings_.board, what_happened(cause), syndrome, crash_record_[3], trace_[0] >> 16);
  for (FunctionState& function : functions_) {
    function.fatal = syndrome;
    function.interface = static_cast<std::uint32_t>(reg::NicInterface::disabled);
  }
  reset_cause_ = cause;
  ready_ = false;
  event_enable_ = 0;
  waiting_ = false;
  // Not from here: it may be the firmware that asks for it.
  restart_scheduled_ = true;
  schedule(Wake::restart, now(), 0);
}

void ManagementBlock::restart() {
  restart_scheduled_ = false;
  latched_ = 0;
  ++timer_generation_;
  disarm_watchdog();
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
  if (processor_ != nullptr) {
    processor_->restart();
    wake();
  }
}

}  // namespace orrery::rnic
