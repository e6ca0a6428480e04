#include "qemu_bridge/codec.h"

#include <bit>

#include "common/address.h"

namespace orrery::bridge {
namespace {

// A payload that is exactly one fixed structure.
template <class T>
Decoded<T> decode_fixed(std::span<const std::byte> payload) {
  if (payload.size() != sizeof(T)) {
    return Decoded<T>::failed(EINVAL);
  }
  return {load<T>(payload), 0};
}

// A query: a fixed structure whose argsz has room for the same structure in the reply.
template <class T>
Decoded<T> decode_query(std::span<const std::byte> payload) {
  Decoded<T> decoded = decode_fixed<T>(payload);
  if (decoded && decoded.value.argsz < sizeof(T)) {
    return Decoded<T>::failed(EINVAL);
  }
  return decoded;
}

bool page_aligned(std::uint64_t value) {
  return value % wire::default_page_sizes == 0;
}

}  // namespace

Decoded<wire::DmaMap> decode_dma_map(std::span<const std::byte> payload) {
  const Decoded<wire::DmaMap> decoded = decode_fixed<wire::DmaMap>(payload);
  const wire::DmaMap& map = decoded.value;
  constexpr std::uint32_t known = wire::dma_map_readable | wire::dma_map_writeable;
  if (!decoded || map.argsz < sizeof(wire::DmaMap) || (map.flags & ~known) != 0 || (map.flags & known) == 0 ||
      !range_is_valid(map.address, map.size) || !page_aligned(map.address) || !page_aligned(map.size) ||
      !page_aligned(map.offset) || !range_is_valid(map.offset, map.size)) {
    return Decoded<wire::DmaMap>::failed(EINVAL);
  }
  return decoded;
}

Decoded<wire::DmaUnmap> decode_dma_unmap(std::span<const std::byte> payload) {
  const Decoded<wire::DmaUnmap> decoded = decode_query<wire::DmaUnmap>(payload);
  const wire::DmaUnmap& unmap = decoded.value;
  if (!decoded || (unmap.flags & ~wire::dma_unmap_all) != 0) {
    return Decoded<wire::DmaUnmap>::failed(EINVAL);
  }
  if ((unmap.flags & wire::dma_unmap_all) != 0) {
    return unmap.address == 0 && unmap.size == 0 ? decoded : Decoded<wire::DmaUnmap>::failed(EINVAL);
  }
  if (!range_is_valid(unmap.address, unmap.size) || !page_aligned(unmap.address) || !page_aligned(unmap.size)) {
    return Decoded<wire::DmaUnmap>::failed(EINVAL);
  }
  return decoded;
}

Decoded<wire::DeviceInfo> decode_device_info(std::span<const std::byte> payload) {
  return decode_query<wire::DeviceInfo>(payload);
}

Decoded<wire::RegionInfo> decode_region_info(std::span<const std::byte> payload) {
  const Decoded<wire::RegionInfo> decoded = decode_query<wire::RegionInfo>(payload);
  if (!decoded || decoded.value.index >= wire::region_count) {
    return Decoded<wire::RegionInfo>::failed(EINVAL);
  }
  return decoded;
}

Decoded<wire::RegionIoFds> decode_region_io_fds(std::span<const std::byte> payload) {
  const Decoded<wire::RegionIoFds> decoded = decode_query<wire::RegionIoFds>(payload);
  if (!decoded || decoded.value.index >= wire::region_count || decoded.value.flags != 0 || decoded.value.count != 0) {
    return Decoded<wire::RegionIoFds>::failed(EINVAL);
  }
  return decoded;
}

Decoded<wire::IrqInfo> decode_irq_info(std::span<const std::byte> payload) {
  const Decoded<wire::IrqInfo> decoded = decode_query<wire::IrqInfo>(payload);
  if (!decoded || decoded.value.index >= wire::irq_index_count) {
    return Decoded<wire::IrqInfo>::failed(EINVAL);
  }
  return decoded;
}

Decoded<IrqRequest> decode_irq_set(std::span<const std::byte> payload) {
  const auto invalid = Decoded<IrqRequest>::failed(EINVAL);
  if (payload.size() < sizeof(wire::IrqSet)) {
    return invalid;
  }
  IrqRequest request{load<wire::IrqSet>(payload), payload.subspan(sizeof(wire::IrqSet))};
  const wire::IrqSet& set = request.set;
  const std::uint32_t data = set.flags & wire::irq_set_data_mask;
  const std::uint32_t action = set.flags & wire::irq_set_actions_mask;
  if ((set.flags & ~(wire::irq_set_data_mask | wire::irq_set_actions_mask)) != 0 || !std::has_single_bit(data) ||
      !std::has_single_bit(action) || set.index >= wire::irq_index_count) {
    return invalid;
  }
  // argsz is the size of the request here, data included.
  if (set.argsz < sizeof(wire::IrqSet) || set.argsz > payload.size()) {
    return invalid;
  }
  const std::uint64_t data_bytes = data == wire::irq_set_data_bool ? set.count : 0;
  if (request.booleans.size() != data_bytes) {
    return invalid;
  }
  // "A count (and start) of 0" is the special case that disables an index: TRIGGER with no data.
  if (set.count == 0 && (set.start != 0 || data != wire::irq_set_data_none || action != wire::irq_set_action_trigger)) {
    return invalid;
  }
  return {request, 0};
}

Decoded<wire::RegionAccess> decode_region_read(std::span<const std::byte> payload) {
  const Decoded<wire::RegionAccess> decoded = decode_fixed<wire::RegionAccess>(payload);
  if (!decoded || decoded.value.region >= wire::region_count || decoded.value.count > max_transfer) {
    return Decoded<wire::RegionAccess>::failed(EINVAL);
  }
  return decoded;
}

Decoded<RegionWrite> decode_region_write(std::span<const std::byte> payload) {
  if (payload.size() < sizeof(wire::RegionAccess)) {
    return Decoded<RegionWrite>::failed(EINVAL);
  }
  const RegionWrite write{load<wire::RegionAccess>(payload), payload.subspan(sizeof(wire::RegionAccess))};
  if (write.access.region >= wire::region_count || write.access.count > max_transfer ||
      write.data.size() != write.access.count) {
    return Decoded<RegionWrite>::failed(EINVAL);
  }
  return {write, 0};
}

Decoded<WriteMulti> decode_write_multi(std::span<const std::byte> payload) {
  if (payload.size() < sizeof(std::uint64_t)) {
    return Decoded<WriteMulti>::failed(EINVAL);
  }
  const WriteMulti multi{load<std::uint64_t>(payload), payload.subspan(sizeof(std::uint64_t))};
  constexpr std::size_t entry_bytes = sizeof(wire::WriteMultiEntry);
  // Divided, not multiplied: the count is 64 bits of the peer's choice.
  if (multi.entries.size() % entry_bytes != 0 || multi.count != multi.entries.size() / entry_bytes) {
    return Decoded<WriteMulti>::failed(EINVAL);
  }
  return {multi, 0};
}

Decoded<wire::DeviceFeature> decode_device_feature(std::span<const std::byte> payload) {
  if (payload.size() < sizeof(wire::DeviceFeature)) {
    return Decoded<wire::DeviceFeature>::failed(EINVAL);
  }
  const wire::DeviceFeature feature = load<wire::DeviceFeature>(payload);
  const bool get = (feature.flags & wire::feature_get) != 0;
  const bool set = (feature.flags & wire::feature_set) != 0;
  const bool probe = (feature.flags & wire::feature_probe) != 0;
  constexpr std::uint32_t known =
      wire::feature_index_mask | wire::feature_get | wire::feature_set | wire::feature_probe;
  if (feature.argsz < sizeof(feature) || (feature.flags & ~known) != 0 || (!get && !set && !probe) ||
      (get && set && !probe)) {
    return Decoded<wire::DeviceFeature>::failed(EINVAL);
  }
  return {feature, 0};
}

Decoded<wire::MigData> decode_mig_data_read(std::span<const std::byte> payload) {
  return decode_query<wire::MigData>(payload);
}

Decoded<wire::MigData> decode_mig_data_write(std::span<const std::byte> payload) {
  if (payload.size() < sizeof(wire::MigData)) {
    return Decoded<wire::MigData>::failed(EINVAL);
  }
  const wire::MigData data = load<wire::MigData>(payload);
  if (data.size != payload.size() - sizeof(wire::MigData)) {
    return Decoded<wire::MigData>::failed(EINVAL);
  }
  return {data, 0};
}

wire::Header reply_header(const wire::Header& command, std::size_t payload) {
  return {command.message_id, command.command, static_cast<std::uint32_t>(sizeof(wire::Header) + payload),
          wire::type_reply, 0};
}

wire::Header error_header(const wire::Header& command, int error) {
  return {command.message_id, command.command, sizeof(wire::Header), wire::type_reply | wire::flag_error,
          static_cast<std::uint32_t>(error)};
}

wire::Header command_header(std::uint16_t message_id, wire::Command command, std::size_t payload) {
  return {message_id, static_cast<std::uint16_t>(command), static_cast<std::uint32_t>(sizeof(wire::Header) + payload),
          wire::type_command, 0};
}

std::span<std::byte> MessageBuffer::space() {
  if (broken_) {
    return {};
  }
  if (begin_ > 0) {
    // What is left is less than one message.
    std::memmove(bytes_.data(), bytes_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ == bytes_.size()) {
    bytes_.resize(bytes_.empty() ? initial_bytes : max_message);
  }
  return std::span(bytes_).subspan(end_);
}

void MessageBuffer::commit(std::size_t count) {
  end_ += count;
  received_ += count;
}

MessageBuffer::Next MessageBuffer::next() {
  const std::size_t available = end_ - begin_;
  if (broken_) {
    return Next::broken;
  }
  if (available < sizeof(wire::Header)) {
    return Next::incomplete;
  }
  header_ = load<wire::Header>(std::span(bytes_).subspan(begin_));
  message_begin_ = received_ - available;
  if (header_.message_size < sizeof(wire::Header) || header_.message_size > max_message) {
    broken_ = true;
    message_end_ = received_;
    return Next::broken;
  }
  if (header_.message_size > available) {
    return Next::incomplete;
  }
  payload_ = std::span(bytes_).subspan(begin_ + sizeof(wire::Header), header_.message_size - sizeof(wire::Header));
  message_end_ = message_begin_ + header_.message_size;
  begin_ += header_.message_size;
  return Next::message;
}

}  // namespace orrery::bridge
