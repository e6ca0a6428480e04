#include "fabric/packet_pool.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "common/error.h"
#include "fabric/wire_codec.h"

namespace orrery::fabric {

void PacketPool::grow() {
  const auto first = static_cast<std::uint32_t>(chunks_.size()) * chunk_records;
  chunks_.push_back(std::make_unique<PacketContent[]>(chunk_records));
  for (std::uint32_t i = chunk_records; i-- > 0;) {
    chunks_.back()[i].next_free_ = free_;
    free_ = first + i;
  }
}

ContentHandle PacketPool::make() {
  if (free_ == none) [[unlikely]] {
    grow();
  }
  const ContentHandle handle{free_};
  PacketContent& content = at(handle);
  free_ = content.next_free_;
  content.is_roce = false;
  content.roce = RoceHeaders{};
  content.data_ = content.inline_;
  content.size_ = 0;
  content.references_ = 1;
  ++outstanding_;
  return handle;
}

std::span<std::byte> PacketPool::reserve(ContentHandle handle, std::uint32_t bytes) {
  if (bytes > max_frame_bytes) {
    throw Error(fmt::format("a packet of {} bytes is too large", bytes), fmt::format("at most {}", max_frame_bytes));
  }
  PacketContent& content = at(handle);
  if (bytes > PacketContent::inline_bytes && content.buffer_ == 0) {
    if (free_buffers_.empty()) {
      buffers_.push_back(std::make_unique<std::byte[]>(max_frame_bytes));
      free_buffers_.reserve(buffers_.size());
      free_buffers_.push_back(static_cast<std::uint32_t>(buffers_.size()));
    }
    content.buffer_ = free_buffers_.back();
    free_buffers_.pop_back();
    content.data_ = buffers_[content.buffer_ - 1].get();
  }
  content.size_ = bytes;
  return content.writable_bytes();
}

ContentHandle PacketPool::make_roce(const RoceHeaders& headers, std::span<const std::byte> payload) {
  const ContentHandle handle = make_frame(payload);
  PacketContent& content = at(handle);
  content.is_roce = true;
  content.roce = headers;
  return handle;
}

ContentHandle PacketPool::make_frame(std::span<const std::byte> frame) {
  const ContentHandle handle = make();
  try {
    const auto size = static_cast<std::uint32_t>(std::min<std::size_t>(frame.size(), max_frame_bytes + 1));
    const std::span<std::byte> room = reserve(handle, size);
    if (!frame.empty()) {
      std::memcpy(room.data(), frame.data(), frame.size());
    }
  } catch (...) {
    release(handle);
    throw;
  }
  return handle;
}

void PacketPool::recycle(ContentHandle handle) {
  PacketContent& content = at(handle);
  if (content.buffer_ != 0) {
    free_buffers_.push_back(content.buffer_);
    content.buffer_ = 0;
  }
  content.next_free_ = free_;
  free_ = handle.index;
  --outstanding_;
}

Packet packet_of(const PacketPool& pool, ContentHandle handle) {
  const PacketContent& content = pool.at(handle);
  Packet packet;
  packet.content = handle;
  if (!content.is_roce) {
    classify_frame(content.bytes(), packet);
    return packet;
  }
  const RoceHeaders& headers = content.roce;
  const OpcodeLayout& layout = layout_of(headers.bth.opcode);
  packet.kind = layout.answer ? PacketClass::roce_ack : PacketClass::roce_data;
  packet.flow = headers.bth.destination_qp;
  packet.psn = headers.bth.psn;
  packet.wire_bytes = std::max(frame_bytes(headers, static_cast<std::uint32_t>(content.bytes().size())) + fcs_bytes,
                               smallest_wire_bytes);
  packet.entropy = headers.network.encapsulation == RoceEncapsulation::v1
                       ? static_cast<std::uint16_t>(headers.network.flow_label)
                       : headers.network.udp_source_port;
  packet.ecn = headers.network.ecn;
  packet.destination_mac = headers.network.destination_mac;
  packet.source_mac = headers.network.source_mac;
  if (layout.ends_message) {
    packet.flags |= packet_flag::last;
  }
  return packet;
}

}  // namespace orrery::fabric
