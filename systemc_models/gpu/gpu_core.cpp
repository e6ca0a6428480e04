#include "systemc_models/gpu/gpu_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "common/address.h"
#include "common/error.h"
#include "systemc_models/device_identity.h"

namespace orrery::models {
namespace {

const GpuConfig& checked(const GpuConfig& config) {
  constexpr std::uint64_t largest_bar = std::uint64_t{1} << 37;
  if (!std::has_single_bit(config.bar2_size) || config.bar2_size < 4096 || config.bar2_size > largest_bar) {
    throw Error(fmt::format("{}: a memory BAR of {} bytes is not possible", config.name, config.bar2_size),
                "give a power of two from 4096 (4 KiB) to 137438953472 (128 GiB)");
  }
  if (config.memory_size < config.bar2_size) {
    throw Error(fmt::format("{}: memory of {} bytes is smaller than its BAR of {} bytes", config.name,
                            config.memory_size, config.bar2_size),
                "make the BAR at most as large as the memory");
  }
  if (config.index > 0xffff || config.server > 0xffff) {
    throw Error(fmt::format("{}: index {} or server number {} is too large", config.name, config.index, config.server),
                "give numbers from 0 to 65535");
  }
  return config;
}

}  // namespace

GpuCore::GpuCore(const GpuConfig& config)
    : config_(checked(config)), memory_(config.name, config.memory_size), engine_(memory_, config.timing, *this) {
  fetch_transfer_.listener = this;
  fetch_transfer_.buffer = reinterpret_cast<std::byte*>(batch_.data());
}

void GpuCore::attach(pcie::DevicePort& port) {
  port_ = &port;
  engine_.attach(port);
}

std::span<std::byte> GpuCore::bar_memory(unsigned bar, std::uint64_t offset, std::uint64_t size) {
  if (bar != ORRERY_GPU_BAR_MEMORY || offset > config_.bar2_size || size > config_.bar2_size - offset) {
    return {};
  }
  return memory_.bytes(offset, size);
}

int GpuCore::bar_memory_fd(unsigned bar) const {
  return bar == ORRERY_GPU_BAR_MEMORY && config_.bar2_mappable ? memory_.fd() : -1;
}

Picoseconds GpuCore::access_time(unsigned bar) const {
  return bar == ORRERY_GPU_BAR_MEMORY ? config_.timing.memory_access : config_.timing.register_access;
}

// --- Registers ---------------------------------------------------------------------------------------

void GpuCore::bar_read(unsigned bar, std::uint64_t offset, std::span<std::byte> into) {
  if (bar != ORRERY_GPU_BAR_REGISTERS) {
    // The MSI-X table and PBA of BAR4 live in the VMM; here is nothing but the room for them.
    std::fill(into.begin(), into.end(), std::byte{0});
    return;
  }
  read_registers(offset, into, [this](std::uint64_t at) { return read_word(at); });
}

void GpuCore::bar_write(unsigned bar, std::uint64_t offset, std::span<const std::byte> from) {
  if (bar != ORRERY_GPU_BAR_REGISTERS) {
    return;
  }
  if (!write_registers(offset, from, [this](std::uint64_t at, std::uint32_t word) { write_word(at, word); })) {
    ++counters_.writes_ignored;
  }
}

std::uint32_t GpuCore::status() const {
  if (error_.code != ORRERY_GPU_ERROR_NONE) {
    return ORRERY_GPU_STATUS_ERROR;
  }
  if (!enabled_) {
    return ORRERY_GPU_STATUS_DISABLED;
  }
  return head_ == tail_ ? ORRERY_GPU_STATUS_IDLE : ORRERY_GPU_STATUS_BUSY;
}

std::uint32_t GpuCore::read_identification(std::uint64_t offset) const {
  switch (offset) {
    case ORRERY_GPU_ID:
      return ORRERY_GPU_ID_VALUE;
    case ORRERY_GPU_VERSION:
      return ORRERY_GPU_VERSION_VALUE;
    case ORRERY_GPU_INDEX:
      return config_.index;
    case ORRERY_GPU_FEATURES:
      return ORRERY_GPU_FEATURE_F32 | ORRERY_GPU_FEATURE_BF16 |
             (port_->simulation().timed ? ORRERY_GPU_FEATURE_TIMED : 0U);
    case ORRERY_GPU_SERIAL:
    case ORRERY_GPU_SERIAL + 4:
      return half_of(orrery_serial(ORRERY_SERIAL_KIND_GPU, config_.server, config_.index), offset);
    case ORRERY_GPU_MEMORY_SIZE:
    case ORRERY_GPU_MEMORY_SIZE + 4:
      return half_of(config_.memory_size, offset);
    case ORRERY_GPU_BAR2_SIZE:
    case ORRERY_GPU_BAR2_SIZE + 4:
      return half_of(config_.bar2_size, offset);
    case ORRERY_GPU_VECTORS:
      return ORRERY_GPU_VECTOR_COUNT;
    case ORRERY_GPU_RING_LOG2_MAX:
      return ORRERY_GPU_RING_LOG2_LIMIT;
    case ORRERY_GPU_SCRATCH:
      return scratch_;
    default:
      return 0;
  }
}

std::uint32_t GpuCore::read_word(std::uint64_t offset) {
  switch (offset) {
    case ORRERY_GPU_TIME:
    case ORRERY_GPU_TIME + 4:
      return latch_.read(offset, port_->simulation().now().count);
    case ORRERY_GPU_ENGINE_CONTROL:
      return enabled_ ? ORRERY_GPU_CONTROL_ENABLE : 0U;
    case ORRERY_GPU_ENGINE_STATUS:
      return status();
    case ORRERY_GPU_ERROR_CODE:
      return error_.code;
    case ORRERY_GPU_ERROR_COMMAND:
      return error_command_;
    case ORRERY_GPU_ERROR_ADDRESS:
    case ORRERY_GPU_ERROR_ADDRESS + 4:
      return half_of(error_.address, offset);
    case ORRERY_GPU_ERROR_COMPLETION:
      return error_.completion;
    case ORRERY_GPU_ERROR_TAG:
      return error_tag_;
    case ORRERY_GPU_INTERRUPT_ENABLE:
      return interrupt_enable_;
    case ORRERY_GPU_INTERRUPT_STATUS:
      return interrupt_status_;
    case ORRERY_GPU_RING_BASE:
    case ORRERY_GPU_RING_BASE + 4:
      return half_of(ring_base_, offset);
    case ORRERY_GPU_RING_LOG2:
      return ring_log2_;
    case ORRERY_GPU_RING_HEAD:
      return head_;
    case ORRERY_GPU_RING_TAIL:
      return tail_;
    default:
      break;
  }
  if (offset < ORRERY_GPU_ENGINE_CONTROL) {
    return read_identification(offset);
  }
  if (offset >= ORRERY_GPU_WRITE_BYTES_SENT && offset < ORRERY_GPU_BUSY_TIME + 8) {
    return latch_.read(offset, counter(offset & ~std::uint64_t{7}));
  }
  return read_profile(offset);
}

std::uint64_t GpuCore::counter(std::uint64_t offset) const {
  switch (offset) {
    case ORRERY_GPU_COMMANDS_COMPLETED:
      return counters_.commands_completed;
    case ORRERY_GPU_COMMANDS_FAILED:
      return counters_.commands_failed;
    case ORRERY_GPU_DOORBELLS:
      return counters_.doorbells;
    case ORRERY_GPU_WRITES_IGNORED:
      return counters_.writes_ignored;
    case ORRERY_GPU_DATA_BYTES:
      return counters_.data_bytes;
    case ORRERY_GPU_BUSY_TIME:
      return counters_.busy_time;
    default:
      return port_counter(port_->counters(), (offset - ORRERY_GPU_WRITE_BYTES_SENT) / 8);
  }
}

std::uint32_t GpuCore::read_profile(std::uint64_t offset) {
  switch (offset) {
    case ORRERY_GPU_PROFILE_COUNT:
      return profile_.count;
    case ORRERY_GPU_PROFILE_TAG:
      return profile_.tag;
    case ORRERY_GPU_PROFILE_START:
    case ORRERY_GPU_PROFILE_START + 4:
      return latch_.read(offset, profile_.start);
    case ORRERY_GPU_PROFILE_END:
    case ORRERY_GPU_PROFILE_END + 4:
      return latch_.read(offset, profile_.end);
    case ORRERY_GPU_PROFILE_BYTES:
    case ORRERY_GPU_PROFILE_BYTES + 4:
      return latch_.read(offset, profile_.bytes);
    case ORRERY_GPU_PROFILE_READ_HOPS:
      return static_cast<std::uint32_t>(profile_.read.hops().size());
    case ORRERY_GPU_PROFILE_WRITE_HOPS:
      return static_cast<std::uint32_t>(profile_.write.hops().size());
    default:
      break;
  }
  const bool write = offset >= ORRERY_GPU_PROFILE_WRITE_WINDOW;
  const std::uint64_t window = write ? ORRERY_GPU_PROFILE_WRITE_WINDOW : ORRERY_GPU_PROFILE_READ_WINDOW;
  const auto hops = (write ? profile_.write : profile_.read).hops();
  if (offset < window || (offset - window) / sizeof(orrery_gpu_hop) >= hops.size()) {
    return 0;
  }
  const pcie::HopCost& hop = hops[(offset - window) / sizeof(orrery_gpu_hop)];
  const std::array<std::uint32_t, 6> words = {hop.component, hop.queue,     hop.credit,
                                              hop.serialise, hop.propagate, hop.process};
  return words[(offset - window) % sizeof(orrery_gpu_hop) / 4];
}

void GpuCore::write_word(std::uint64_t offset, std::uint32_t value) {
  switch (offset) {
    case ORRERY_GPU_SCRATCH:
      scratch_ = value;
      return;
    case ORRERY_GPU_ENGINE_CONTROL:
      control(value);
      return;
    case ORRERY_GPU_INTERRUPT_ENABLE:
      interrupt_enable_ = value;
      return;
    case ORRERY_GPU_INTERRUPT_STATUS:
      interrupt_status_ &= ~value;
      return;
    case ORRERY_GPU_DOORBELL:
      doorbell(value);
      return;
    case ORRERY_GPU_RING_BASE:
    case ORRERY_GPU_RING_BASE + 4:
      if (!enabled_) {
        ring_base_ = with_half(ring_base_, offset, value);
        return;
      }
      break;
    case ORRERY_GPU_RING_LOG2:
      if (!enabled_) {
        ring_log2_ = value;
        return;
      }
      break;
    default:
      break;
  }
  ++counters_.writes_ignored;
}

// --- Engine ------------------------------------------------------------------------------------------

void GpuCore::control(std::uint32_t value) {
  const bool enable = (value & ORRERY_GPU_CONTROL_ENABLE) != 0;
  if ((value & ORRERY_GPU_CONTROL_RESET) != 0 || (enabled_ && !enable)) {
    reset_engine();
  }
  if (!enable || enabled_ || error_.code != ORRERY_GPU_ERROR_NONE) {
    return;
  }
  if (ring_log2_ < 1 || ring_log2_ > ORRERY_GPU_RING_LOG2_LIMIT || ring_base_ % sizeof(orrery_gpu_command) != 0 ||
      !range_is_valid(ring_base_, sizeof(orrery_gpu_command) << ring_log2_)) {
    fail({ORRERY_GPU_ERROR_RING_CONFIG, ring_base_, 0}, 0);
    return;
  }
  enabled_ = true;
}

void GpuCore::doorbell(std::uint32_t tail) {
  ++counters_.doorbells;
  if (error_.code != ORRERY_GPU_ERROR_NONE) {
    return;
  }
  const std::uint32_t filled = tail - head_;  // free-running counts: the difference is right across their wrap
  if (!enabled_ || filled > (std::uint32_t{1} << ring_log2_) || filled < tail_ - head_) {
    fail({ORRERY_GPU_ERROR_DOORBELL, tail, 0}, 0);
    return;
  }
  tail_ = tail;
  schedule_step();
}

void GpuCore::schedule_step() {
  // One event, however many doorbells ring.
  if (step_pending_ || fetching_ || engine_.busy()) {
    return;
  }
  step_pending_ = true;
  pcie::Simulation& simulation = port_->simulation();
  const Picoseconds decode = simulation.timed ? config_.timing.command_decode : Picoseconds{0};
  simulation.events.schedule(simulation.now() + decode, *this, generation_);
}

void GpuCore::on_event(std::uint64_t argument) {
  if (argument != generation_) {
    return;
  }
  step_pending_ = false;
  step();
}

void GpuCore::step() {
  if (!enabled_ || error_.code != ORRERY_GPU_ERROR_NONE || head_ == tail_) {
    return;
  }
  if (batch_next_ == batch_count_) {
    fetch();
  } else {
    execute(batch_[batch_next_++]);
  }
}

void GpuCore::fetch() {
  const std::uint32_t size = std::uint32_t{1} << ring_log2_;
  const std::uint32_t slot = head_ & (size - 1);
  batch_count_ = std::min({batch_commands, tail_ - head_, size - slot});
  batch_next_ = 0;
  fetching_ = true;
  fetch_transfer_.kind = pcie::DmaTransfer::Kind::read;
  fetch_transfer_.address = ring_base_ + std::uint64_t{slot} * sizeof(orrery_gpu_command);
  fetch_transfer_.length = std::uint64_t{batch_count_} * sizeof(orrery_gpu_command);
  port_->start(fetch_transfer_);
}

void GpuCore::on_dma_done(pcie::DmaTransfer& transfer) {
  fetching_ = false;
  if (transfer.status != pcie::CompletionStatus::success) {
    batch_count_ = 0;
    fail({ORRERY_GPU_ERROR_RING_FETCH, transfer.failed_address, static_cast<std::uint32_t>(transfer.status)}, 0);
    return;
  }
  schedule_step();
}

void GpuCore::execute(const orrery_gpu_command& command) {
  current_ = command;
  const GpuError problem = check_command(current_, memory_.size());
  if (problem.code != ORRERY_GPU_ERROR_NONE) {
    fail(problem, current_.tag);
    return;
  }
  if (current_.opcode == ORRERY_GPU_OP_NOP) {
    const Picoseconds now = port_->simulation().now();
    retire({{}, now, now});
    return;
  }
  engine_.begin(current_);
}

void GpuCore::on_command_done(const GpuResult& result) {
  counters_.busy_time += (result.finished - result.started).count;
  if (error_.code != ORRERY_GPU_ERROR_NONE) {
    return;  // halted by a bad doorbell meanwhile; the first error stays on record
  }
  if (result.error.code != ORRERY_GPU_ERROR_NONE) {
    fail(result.error, current_.tag);
    return;
  }
  retire(result);
}

void GpuCore::retire(const GpuResult& result) {
  ++head_;
  ++counters_.commands_completed;
  if (moves_data(current_)) {
    counters_.data_bytes += current_.length;
  }
  if ((current_.flags & ORRERY_GPU_FLAG_PROFILE) != 0) {
    ++profile_.count;
    profile_.tag = current_.tag;
    profile_.start = result.started.count;
    profile_.end = result.finished.count;
    profile_.bytes = current_.length;
    if (current_.opcode == ORRERY_GPU_OP_NOP) {
      profile_.read.clear();
      profile_.write.clear();
    } else {
      profile_.read.copy_from(engine_.read_latency());
      profile_.write.copy_from(engine_.write_latency());
    }
  }
  if ((current_.flags & ORRERY_GPU_FLAG_INTERRUPT) != 0) {
    raise(current_.vector);
  }
  schedule_step();
}

void GpuCore::fail(const GpuError& error, std::uint32_t tag) {
  if (error.code != ORRERY_GPU_ERROR_RING_CONFIG && error.code != ORRERY_GPU_ERROR_DOORBELL) {
    ++counters_.commands_failed;
  }
  engine_.stop(error);
  error_ = error;
  error_command_ = head_;
  error_tag_ = tag;
  raise(ORRERY_GPU_VECTOR_ERROR);
}

void GpuCore::raise(unsigned vector) {
  const std::uint32_t bit = std::uint32_t{1} << vector;
  interrupt_status_ |= bit;
  if ((interrupt_enable_ & bit) != 0) {
    port_->msix(vector);
  }
}

void GpuCore::reset_engine() {
  port_->cancel_all();
  engine_.reset();
  ++generation_;
  step_pending_ = false;
  fetching_ = false;
  batch_count_ = 0;
  batch_next_ = 0;
  enabled_ = false;
  ring_base_ = 0;
  ring_log2_ = 0;
  head_ = 0;
  tail_ = 0;
  interrupt_enable_ = 0;
  interrupt_status_ = 0;
  error_ = {};
  error_command_ = 0;
  error_tag_ = 0;
}

void GpuCore::reset() {
  reset_engine();
  scratch_ = 0;
  counters_ = {};
  profile_.count = 0;
  profile_.tag = 0;
  profile_.start = 0;
  profile_.end = 0;
  profile_.bytes = 0;
  profile_.read.clear();
  profile_.write.clear();
  latch_ = {};
  memory_.erase();
}

}  // namespace orrery::models
