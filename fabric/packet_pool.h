// Records of what packets contain: decoded RoCE headers and a payload, or a raw Ethernet frame.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fabric/packet.h"
#include "fabric/roce_headers.h"

namespace orrery::fabric {

// Largest frame without FCS that a record holds: a 9 KiB jumbo payload with every header before it.
inline constexpr std::uint32_t max_frame_bytes = 9216 + 256;

// One record. Its bytes are RoCE payload (pad excluded) if is_roce, otherwise the frame from the destination MAC on,
// without FCS. While more than one packet refers to it, nobody writes to it.
class PacketContent {
 public:
  bool is_roce = false;
  RoceHeaders roce;  // only read if is_roce

  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }
  [[nodiscard]] std::span<std::byte> writable_bytes() { return {data_, size_}; }

 private:
  friend class PacketPool;
  std::byte* data_ = nullptr;
  std::uint32_t size_ = 0;
  std::uint32_t references_ = 0;
  std::uint32_t next_free_ = 0;
  std::uint32_t buffer_ = 0;  // index of a large buffer + 1; 0: inline
  static constexpr std::uint32_t inline_bytes = 128;
  alignas(16) std::byte inline_[inline_bytes];
};

// Recycles records and their buffers: no allocation once a run has reached its working set. One thread. Outlives the
// packets that refer to it.
class PacketPool {
 public:
  PacketPool() = default;
  PacketPool(const PacketPool&) = delete;
  PacketPool& operator=(const PacketPool&) = delete;

  // A record with one reference, default headers and no bytes.
  [[nodiscard]] ContentHandle make();
  // A RoCE record with these headers and a copy of the payload; max_frame_bytes applies, Error if it is larger.
  [[nodiscard]] ContentHandle make_roce(const RoceHeaders& headers, std::span<const std::byte> payload);
  // A record of a raw frame (destination MAC first, no FCS), copied; Error over max_frame_bytes.
  [[nodiscard]] ContentHandle make_frame(std::span<const std::byte> frame);

  // The handle must not be empty, and its record must have a reference left.
  [[nodiscard]] PacketContent& at(ContentHandle handle) {
    return chunks_[handle.index / chunk_records][handle.index % chunk_records];
  }
  [[nodiscard]] const PacketContent& at(ContentHandle handle) const {
    return chunks_[handle.index / chunk_records][handle.index % chunk_records];
  }
  // Makes room for `bytes` (at most max_frame_bytes, else Error) in the record, contents unspecified.
  std::span<std::byte> reserve(ContentHandle handle, std::uint32_t bytes);

  // Empty handles are allowed in both.
  void add_reference(ContentHandle handle) {
    if (!handle.empty()) {
      ++at(handle).references_;
    }
  }
  void release(ContentHandle handle) {
    if (!handle.empty() && --at(handle).references_ == 0) {
      recycle(handle);
    }
  }
  [[nodiscard]] std::uint32_t references(ContentHandle handle) const { return at(handle).references_; }
  // Records handed out and not yet back: 0 when a fabric is at rest.
  [[nodiscard]] std::size_t outstanding() const { return outstanding_; }

 private:
  static constexpr std::uint32_t chunk_records = 256;
  static constexpr std::uint32_t none = 0xffff'ffffU;
  void grow();
  void recycle(ContentHandle handle);

  std::vector<std::unique_ptr<PacketContent[]>> chunks_;
  std::vector<std::unique_ptr<std::byte[]>> buffers_;  // of max_frame_bytes each
  std::vector<std::uint32_t> free_buffers_;
  std::uint32_t free_ = none;
  std::size_t outstanding_ = 0;
};

// Fills what a Packet says about its content: class, sizes, MAC addresses, PSN, entropy, ECN; for raw frames by
// looking into them (classify_frame in wire_codec.h). Takes over the handle's reference.
Packet packet_of(const PacketPool& pool, ContentHandle handle);

}  // namespace orrery::fabric
