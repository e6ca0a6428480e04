#include "systemc_models/gpu/gpu_engine.h"

#include <algorithm>
#include <cstring>

#include "common/error.h"
#include "systemc_models/gpu/reduce.h"

namespace orrery::models {
namespace {

constexpr unsigned slot_bits = 8;

// Fills with the four bytes of `pattern` over and over, starting with byte `phase`.
void fill(std::span<std::byte> into, std::uint32_t pattern, std::uint64_t phase) {
  std::array<std::byte, 4> bytes;
  std::memcpy(bytes.data(), &pattern, 4);
  const std::size_t head = std::min<std::size_t>(4, into.size());
  for (std::size_t i = 0; i < head; ++i) {
    into[i] = bytes[(phase + i) % 4];
  }
  for (std::size_t done = head; done < into.size();) {
    const std::size_t count = std::min(done, into.size() - done);  // doubles; stays a multiple of 4 until the end
    std::memcpy(into.data() + done, into.data(), count);
    done += count;
  }
}

}  // namespace

GpuEngine::GpuEngine(GpuMemory& memory, const GpuTiming& timing, Listener& listener)
    : memory_(memory), timing_(timing), listener_(listener) {
  if (timing.memory_bytes_per_us == 0 || timing.reduce_bytes_per_us == 0) {
    throw Error("a GPU's memory and reduce rates must not be 0", "give bytes per microsecond, e.g. 2000000 for 2 TB/s");
  }
  // Untouched pages of it cost nothing.
  staging_ = std::make_unique_for_overwrite<std::byte[]>(std::size_t{2} * slot_count * functional_chunk);
  std::byte* next = staging_.get();
  for (unsigned i = 0; i < slot_count; ++i) {
    Slot& slot = slots_[i];
    slot.source_staging = next;
    slot.destination_staging = next + functional_chunk;
    next += std::size_t{2} * functional_chunk;
    slot.source.context = i;
    slot.destination.context = i;
    slot.source.listener = this;
    slot.destination.listener = this;
  }
}

void GpuEngine::attach(pcie::DevicePort& port) {
  port_ = &port;
  simulation_ = &port.simulation();
}

void GpuEngine::begin(const orrery_gpu_command& command) {
  command_ = command;
  length_ = command.opcode == ORRERY_GPU_OP_FENCE ? 8 : command.length;
  launched_ = 0;
  error_ = {};
  busy_ = true;
  started_ = simulation_->now();
  last_read_ = {};
  last_write_ = {};
  read_latency_.clear();
  write_latency_.clear();
  // memmove() within own memory: one chunk at a time, from the end if the destination lies ahead of the source.
  const bool own_copy = command.opcode == ORRERY_GPU_OP_COPY && !source_on_bus(command) && !destination_on_bus(command);
  slot_limit_ = own_copy ? 1 : slot_count;
  descending_ = own_copy && command.destination > command.source;
  launch_chunks();
}

void GpuEngine::stop(const GpuError& reason) {
  if (busy_ && error_.code == ORRERY_GPU_ERROR_NONE) {
    error_ = reason;
  }
}

void GpuEngine::reset() {
  ++generation_;
  busy_ = false;
  active_ = 0;
  for (Slot& slot : slots_) {
    slot.step = Step::free;
    slot.waiting = 0;
  }
  memory_free_ = {};
  adder_free_ = {};
}

void GpuEngine::launch_chunks() {
  for (Slot& slot : slots_) {
    if (error_.code != ORRERY_GPU_ERROR_NONE || launched_ == length_ || active_ == slot_limit_) {
      return;
    }
    if (slot.step == Step::free) {
      next_chunk(slot);
      gather(slot);
    }
  }
}

// Chunks end at multiples of the chunk size on the bus, so that cutting a transfer up adds no TLP.
void GpuEngine::next_chunk(Slot& slot) {
  const std::uint64_t chunk = simulation_->timed ? timed_chunk : functional_chunk;
  const std::uint64_t left = length_ - launched_;
  if (descending_) {
    slot.bytes = static_cast<std::uint32_t>(std::min(chunk, left));
    slot.offset = left - slot.bytes;
  } else {
    const bool anchor_on_source = source_on_bus(command_) && !destination_on_bus(command_);
    const std::uint64_t anchor = (anchor_on_source ? command_.source : command_.destination) + launched_;
    slot.bytes = static_cast<std::uint32_t>(std::min(chunk - anchor % chunk, left));
    slot.offset = launched_;
  }
  launched_ += slot.bytes;
  ++active_;
}

std::byte* GpuEngine::source_bytes(Slot& slot) {
  return source_on_bus(command_) ? slot.source_staging : memory_.data() + command_.source + slot.offset;
}

std::byte* GpuEngine::destination_bytes(Slot& slot) {
  return destination_on_bus(command_) ? slot.destination_staging : memory_.data() + command_.destination + slot.offset;
}

Picoseconds GpuEngine::occupy(Picoseconds& free_at, std::uint64_t bytes, std::uint64_t bytes_per_us) {
  if (!simulation_->timed) {
    return simulation_->now();
  }
  constexpr std::uint64_t ps_per_us = 1'000'000;
  const Picoseconds duration{(bytes * ps_per_us + bytes_per_us - 1) / bytes_per_us};
  free_at = max(free_at, simulation_->now()) + duration;
  return free_at;
}

void GpuEngine::wait_until(Slot& slot, Picoseconds at) {
  ++slot.waiting;
  simulation_->events.schedule(at, *this, (generation_ << slot_bits) | slot.source.context);
}

void GpuEngine::dma(Slot& slot, pcie::DmaTransfer& transfer, pcie::DmaTransfer::Kind kind, std::uint64_t address,
                    std::byte* buffer) {
  ++slot.waiting;
  transfer.kind = kind;
  transfer.address = address;
  transfer.length = slot.bytes;
  transfer.buffer = buffer;
  transfer.confirm = kind == pcie::DmaTransfer::Kind::write;
  port_->start(transfer);
}

void GpuEngine::gather(Slot& slot) {
  slot.step = Step::gather;
  const bool reduce = is_reduce(command_);
  const bool has_source = reduce || command_.opcode == ORRERY_GPU_OP_COPY;
  std::uint64_t own_bytes = 0;
  if (has_source && source_on_bus(command_)) {
    // A copy into own memory needs no staging.
    const bool direct = !reduce && !destination_on_bus(command_);
    dma(slot, slot.source, pcie::DmaTransfer::Kind::read, command_.source + slot.offset,
        direct ? destination_bytes(slot) : slot.source_staging);
  } else if (has_source) {
    own_bytes += slot.bytes;
  }
  if (reduce && destination_on_bus(command_)) {
    dma(slot, slot.destination, pcie::DmaTransfer::Kind::read, command_.destination + slot.offset,
        slot.destination_staging);
  } else if (reduce) {
    own_bytes += slot.bytes;
  }
  // Without any DMA an event of its own is what bounds the work done per event.
  if (slot.waiting == 0 || (simulation_->timed && own_bytes != 0)) {
    wait_until(slot, occupy(memory_free_, own_bytes, timing_.memory_bytes_per_us));
  }
}

void GpuEngine::apply(Slot& slot) {
  const std::span<std::byte> into{destination_bytes(slot), slot.bytes};
  switch (command_.opcode) {
    case ORRERY_GPU_OP_COPY:
      if (!source_on_bus(command_) && !destination_on_bus(command_)) {
        std::memmove(into.data(), source_bytes(slot), slot.bytes);
      }
      break;
    case ORRERY_GPU_OP_FILL:
      fill(into, static_cast<std::uint32_t>(command_.value), slot.offset % 4);
      break;
    case ORRERY_GPU_OP_REDUCE_F32_SUM:
      add_f32(into, {source_bytes(slot), slot.bytes});
      break;
    case ORRERY_GPU_OP_REDUCE_BF16_SUM:
      add_bf16(into, {source_bytes(slot), slot.bytes});
      break;
    default:  // FENCE; a fence's 8 bytes never straddle chunks, being aligned
      std::memcpy(into.data(), &command_.value, slot.bytes);
      break;
  }
}

void GpuEngine::compute(Slot& slot) {
  slot.step = Step::compute;
  apply(slot);
  if (simulation_->timed) {
    Picoseconds ready = simulation_->now();
    if (is_reduce(command_)) {
      ready = max(ready, occupy(adder_free_, slot.bytes, timing_.reduce_bytes_per_us));
    }
    if (!destination_on_bus(command_)) {
      ready = max(ready, occupy(memory_free_, slot.bytes, timing_.memory_bytes_per_us));
    }
    if (ready > simulation_->now()) {
      wait_until(slot, ready);
      return;
    }
  }
  step_done(slot);
}

void GpuEngine::scatter(Slot& slot) {
  slot.step = Step::scatter;
  const bool copy = command_.opcode == ORRERY_GPU_OP_COPY;
  dma(slot, slot.source, pcie::DmaTransfer::Kind::write, command_.destination + slot.offset,
      copy ? source_bytes(slot) : slot.destination_staging);
}

void GpuEngine::step_done(Slot& slot) {
  const bool failed = error_.code != ORRERY_GPU_ERROR_NONE;
  if (!failed && slot.step == Step::gather) {
    compute(slot);
    return;
  }
  if (!failed && slot.step == Step::compute && destination_on_bus(command_)) {
    scatter(slot);
    return;
  }
  slot.step = Step::free;
  --active_;
  launch_chunks();
  finish_if_over();
}

void GpuEngine::finish_if_over() {
  if (!busy_ || active_ != 0) {
    return;
  }
  busy_ = false;
  listener_.on_command_done({error_, started_, simulation_->now()});
}

void GpuEngine::on_event(std::uint64_t argument) {
  if (argument >> slot_bits != (generation_ & (~std::uint64_t{0} >> slot_bits))) {
    return;
  }
  Slot& slot = slots_[argument & ((1U << slot_bits) - 1)];
  if (--slot.waiting == 0) {
    step_done(slot);
  }
}

void GpuEngine::on_dma_done(pcie::DmaTransfer& transfer) {
  const bool read = transfer.kind == pcie::DmaTransfer::Kind::read;
  if (transfer.status != pcie::CompletionStatus::success) {
    if (error_.code == ORRERY_GPU_ERROR_NONE) {
      error_ = {read ? ORRERY_GPU_ERROR_DMA_READ : ORRERY_GPU_ERROR_DMA_WRITE, transfer.failed_address,
                static_cast<std::uint32_t>(transfer.status)};
    }
  } else if ((command_.flags & ORRERY_GPU_FLAG_PROFILE) != 0) {
    Picoseconds& last = read ? last_read_ : last_write_;
    if (transfer.finished >= last) {
      last = transfer.finished;
      (read ? read_latency_ : write_latency_).copy_from(transfer.latency);
    }
  }
  Slot& slot = slots_[transfer.context];
  if (--slot.waiting == 0) {
    step_done(slot);
  }
}

}  // namespace orrery::models
