#include "pcie/tlp.h"

#include <cassert>
#include <cstring>

#include <fmt/format.h>

namespace orrery::pcie {

std::string Bdf::text() const {
  return fmt::format("{:02x}:{:02x}.{:x}", bus(), device(), function());
}

const char* name(TlpType type) {
  switch (type) {
    case TlpType::MRd:
      return "MRd";
    case TlpType::MWr:
      return "MWr";
    case TlpType::CfgRd0:
      return "CfgRd0";
    case TlpType::CfgWr0:
      return "CfgWr0";
    case TlpType::CfgRd1:
      return "CfgRd1";
    case TlpType::CfgWr1:
      return "CfgWr1";
    case TlpType::Cpl:
      return "Cpl";
    case TlpType::CplD:
      return "CplD";
    case TlpType::Msg:
      return "Msg";
    case TlpType::MsgD:
      return "MsgD";
  }
  return "?";
}

const char* name(CompletionStatus status) {
  switch (status) {
    case CompletionStatus::success:
      return "SC";
    case CompletionStatus::unsupported_request:
      return "UR";
    case CompletionStatus::retry:
      return "RRS";
    case CompletionStatus::completer_abort:
      return "CA";
  }
  return "?";
}

Picoseconds LatencyBreakdown::total() const {
  std::uint64_t sum = 0;
  for (const HopCost& hop : hops()) {
    sum += std::uint64_t{hop.queue} + hop.credit + hop.serialise + hop.propagate + hop.process;
  }
  return {sum};
}

void LatencyBreakdown::copy_from(const LatencyBreakdown& other) {
  count_ = other.count_;
  std::memcpy(hops_.data(), other.hops_.data(), count_ * sizeof(HopCost));
}

void Tlp::store(std::span<const std::byte> bytes) {
  const std::span<std::byte> room = reserve(static_cast<std::uint32_t>(bytes.size()));
  if (!bytes.empty()) {
    std::memcpy(room.data(), bytes.data(), bytes.size());
  }
}

std::span<std::byte> Tlp::reserve(std::uint32_t bytes) {
  if (bytes <= inline_bytes) {
    data = inline_.data();
  } else {
    if (large_capacity_ < bytes) {
      large_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
      large_capacity_ = bytes;
    }
    data = large_.get();
  }
  owns_ = true;
  length = bytes;
  return {data, bytes};
}

void Tlp::borrow(std::span<const std::byte> bytes) {
  // Nobody writes through a payload pointer after it was set; the cast only drops the span's const.
  data = const_cast<std::byte*>(bytes.data());
  owns_ = false;
  length = static_cast<std::uint32_t>(bytes.size());
}

std::uint32_t tlps_needed(std::uint64_t address, std::uint64_t length, std::uint32_t unit) {
  if (length == 0) {
    return 1;
  }
  const std::uint64_t mask = unit - 1;
  return static_cast<std::uint32_t>(((address & mask) + length + mask) / unit);
}

ByteEnables byte_enables(std::uint64_t address, std::uint32_t length) {
  const unsigned start = address & 3U;
  const std::uint64_t end = start + std::uint64_t{length};  // relative to the first DW
  const std::uint64_t dwords = (end + 3) / 4;
  const unsigned first = (0xfU << start) & 0xfU;
  const unsigned last = 0xfU >> ((4 - (end & 3U)) & 3U);
  if (dwords == 1) {
    return {static_cast<std::uint8_t>(first & last), 0};
  }
  return {static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(last)};
}

TlpPool::~TlpPool() {
  while (free_ != nullptr) {
    Tlp* next = free_->next_free_;
    delete free_;
    free_ = next;
  }
}

Tlp* TlpPool::allocate() {
  Tlp* tlp = new Tlp;
  tlp->pool_ = this;
  ++outstanding_;
  return tlp;
}

}  // namespace orrery::pcie
