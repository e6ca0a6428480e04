#include "systemc_models/rnic/verbs/ring_writer.h"

#include <algorithm>
#include <utility>

namespace orrery::rnic {

void RingWriter::begin(Core& core, Owner& owner, const Shape& shape) {
  core_ = &core;
  owner_ = &owner;
  shape_ = shape;
  open_ = true;
  produced_ = landed_ = sent_ = filled_ = 0;
}

void RingWriter::forget() {
  open_ = false;
  filled_ = 0;
}

std::span<std::byte> RingWriter::append() {
  const std::size_t at = std::size_t{filled_} * shape_.entry_size;
  if (filling_.size() < at + shape_.entry_size) {
    filling_.resize(std::max(at + shape_.entry_size, filling_.size() * 2));
  }
  ++filled_;
  ++produced_;
  return std::span(filling_).subspan(at, shape_.entry_size);
}

bool RingWriter::write() {
  if (filled_ == 0 || busy() || !open_) {
    return true;
  }
  std::swap(filling_, sending_);
  const std::uint32_t count = std::exchange(filled_, 0);
  const std::byte* from = sending_.data();
  const std::uint64_t bytes = std::uint64_t{count} * shape_.entry_size;
  SegmentList& segments = core_->segments;
  segments.clear();
  if (shape_.collapsed) {
    from += bytes - shape_.entry_size;
    const WalkResult walk = walk_buffer(core_->translation, core_->functions, shape_.function, shape_.buffer, 0,
                                        shape_.entry_size, segments);
    if (walk.status != WalkStatus::ok) {
      return false;
    }
  } else {
    const std::uint64_t ring = std::uint64_t{size()} * shape_.entry_size;
    const std::uint64_t start = std::uint64_t{sent_ & (size() - 1)} * shape_.entry_size;
    const std::uint64_t head = std::min(bytes, ring - start);
    const auto walk = [&](std::uint64_t offset, std::uint64_t length) {
      return length == 0 || walk_pages(core_->translation, core_->functions, shape_.function, shape_.buffer.translation,
                                       shape_.buffer.page_count, shape_.buffer.page_shift,
                                       shape_.buffer.offset + offset, length, 0, segments)
                                    .status == WalkStatus::ok;
    };
    if (!walk(start, head) || !walk(0, bytes - head)) {
      return false;
    }
  }
  sent_ += count;
  core_->dma.write(shape_.function, segments.all(), from, false, *this, count);
  return true;
}

void RingWriter::on_dma(std::uint64_t cookie, bool ok) {
  if (!open_) {
    return;
  }
  const auto count = static_cast<std::uint32_t>(cookie);
  landed_ += count;
  owner_->on_landed(count, ok);
}

}  // namespace orrery::rnic
