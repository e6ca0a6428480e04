// What guests and the data path report, and what guests are shown of it.
#include "systemc_models/rnic/management_block.h"

#include <algorithm>

#include "systemc_models/rnic/management_words.h"

namespace orrery::rnic {

namespace {

constexpr std::size_t fifo_capacity = 1024;

}  // namespace

void ManagementBlock::guest_queue_high(std::uint32_t function, std::uint32_t high) {
  FunctionState& f = functions_[function];
  f.queue = (f.queue & 0xffff'ffffU) | static_cast<std::uint64_t>(high) << 32;
}

void ManagementBlock::guest_queue_low(std::uint32_t function, std::uint32_t low, std::uint32_t interface) {
  FunctionState& f = functions_[function];
  f.interface = interface;
  if (interface == static_cast<std::uint32_t>(reg::NicInterface::full)) {
    f.queue = (f.queue & ~std::uint64_t{0xffff'ffffU}) | low;
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
  for (std::uint32_t slot = 0; slot < f.rung.size(); ++slot) {
    if ((slots & ~f.doorbell & 1U << slot) != 0) {
      f.rung[slot] = now();
    }
  }
  f.doorbell |= slots;
  wake();
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

}  // namespace orrery::rnic
