#include "systemc_models/rnic/verbs/queue_fetcher.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace orrery::rnic {

void QueueFetcher::begin(Core& core, Owner& owner, const Shape& shape) {
  core_ = &core;
  owner_ = &owner;
  shape_ = shape;
  open_ = true;
  reading_record_ = reading_units_ = rung_again_ = false;
  producer_ = fetched_ = 0;
  head_ = tail_ = asked_ = 0;
  capacity_ = std::max(buffer_bytes / shape.unit_bytes, 2 * max_work_request / shape.unit_bytes);
  capacity_ = std::max(capacity_, 1U);
}

void QueueFetcher::fail() {
  open_ = false;
  owner_->on_fetch_failed();
}

void QueueFetcher::ring() {
  if (!open_) {
    return;
  }
  if (reading_record_) {
    rung_again_ = true;
    return;
  }
  const auto bus = core_->functions.bus(shape_.function, shape_.doorbell_record, record_.size());
  if (!bus) {
    fail();
    return;
  }
  reading_record_ = true;
  const BusSegment segment{*bus, static_cast<std::uint32_t>(record_.size()), pcie::AddressType::untranslated};
  core_->dma.read(shape_.function, {&segment, 1}, record_.data(), *this, record_cookie);
}

void QueueFetcher::fetch() {
  if (!open_ || reading_units_ || !behind()) {
    return;
  }
  if (buffer_ == nullptr) {
    buffer_ = std::make_unique_for_overwrite<std::byte[]>(std::size_t{capacity_} * shape_.unit_bytes);
  }
  if (head_ == tail_) {
    head_ = tail_ = 0;
  } else if (tail_ * 2 > capacity_ && head_ != 0) {
    std::memmove(buffer_.get(), buffer_.get() + std::size_t{head_} * shape_.unit_bytes,
                 std::size_t{tail_ - head_} * shape_.unit_bytes);
    tail_ -= head_;
    head_ = 0;
  }
  const std::uint32_t size = 1U << shape_.log_units;
  const std::uint32_t first = fetched_ & (size - 1);
  const std::uint32_t known = static_cast<std::uint16_t>(producer_ - fetched_);
  const std::uint32_t count = std::min({known, size - first, capacity_ - tail_});
  if (count == 0) {
    return;
  }
  const WalkResult walk = walk_buffer(core_->translation, core_->functions, shape_.function, shape_.buffer,
                                      std::uint64_t{shape_.offset} + std::uint64_t{first} * shape_.unit_bytes,
                                      std::uint64_t{count} * shape_.unit_bytes, core_->segments);
  if (walk.status != WalkStatus::ok) {
    fail();
    return;
  }
  reading_units_ = true;
  asked_ = count;
  core_->dma.read(shape_.function, core_->segments.all(), buffer_.get() + std::size_t{tail_} * shape_.unit_bytes, *this,
                  units_cookie);
}

void QueueFetcher::on_dma(std::uint64_t cookie, bool ok) {
  if (!open_) {
    return;
  }
  if (!ok) {
    fail();
    return;
  }
  if (cookie == record_cookie) {
    reading_record_ = false;
    const std::uint16_t producer =
        shape_.send ? core_->format.send_producer(record_) : core_->format.receive_producer(record_);
    if (static_cast<std::uint16_t>(producer - consumed()) > (1U << shape_.log_units)) {
      fail();
      return;
    }
    producer_ = producer;
    if (std::exchange(rung_again_, false)) {
      ring();
    }
    fetch();
    if (open_ && !reading_units_) {
      owner_->on_fetched();
    }
    return;
  }
  reading_units_ = false;
  tail_ += asked_;
  fetched_ = static_cast<std::uint16_t>(fetched_ + asked_);
  owner_->on_fetched();
  fetch();
}

void QueueFetcher::consume(std::uint32_t units) {
  head_ += units;
  if ((tail_ - head_) * 2 < capacity_) {
    fetch();
  }
}

}  // namespace orrery::rnic
