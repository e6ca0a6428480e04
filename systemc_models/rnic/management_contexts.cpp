// What the firmware has the data path do: contexts, translation memory, events, work requests left to it.
#include "systemc_models/rnic/management_block.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "common/log.h"
#include "systemc_models/rnic/management_words.h"

namespace orrery::rnic {

namespace {

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
    case ContextKind::mac:
      return sizeof(MacContext);
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

}  // namespace

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
  const bool pages = format == reg::BulkFormat::pages || format == reg::BulkFormat::page_flags;
  const auto flush = [&] {
    if (result == ControlResult::ok && !entries_.empty()) {
      const auto first = static_cast<std::uint32_t>(at);
      if (at + entries_.size() > none) {
        result = ControlResult::bad_index;
      } else if (pages) {
        result = control_->write_pages(bulk_function_, first, entries_);
      } else {
        result = control_->write_translation(first, entries_);
      }
      at += entries_.size();
    }
    entries_.clear();
  };
  for (std::uint32_t i = 0; i < count && result == ControlResult::ok; ++i) {
    const std::byte* from = sram_.data() + (list ? local + i * element : 0);
    switch (format) {
      case reg::BulkFormat::pages:
        entries_.push_back((load_big64(from) & translation::address_mask) | (flags & flag_mask));
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
        entries_.push_back(flags & ~(translation::device_memory | translation::window_mask));
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
  if (work_length_ != 0) {  // memcpy() mustn't get the null of an empty span
    std::memcpy(work_data_.data(), bytes.data(), work_length_);
  }
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

}  // namespace orrery::rnic
