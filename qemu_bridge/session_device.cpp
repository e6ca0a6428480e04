// The session's commands about the device: negotiation, information, interrupts, reset, features.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "qemu_bridge/session.h"

namespace orrery::bridge {

int Session::version(const Message& message) {
  if (state_ != State::awaiting_version) {
    return EINVAL;
  }
  const Decoded<ClientProposal> proposal = decode_version(message.payload);
  if (!proposal) {
    return proposal.error;
  }
  client_ = proposal.value;
  const bool posted = (message.header.flags & wire::flag_no_reply) != 0;
  if (client_.twin_socket && options_.allow_twin_socket && client_.max_msg_fds > 0 && !posted) {
    reply_owned_ = output_.open_command_channel();
    reply_descriptor_ = reply_owned_.get();
    twin_socket_ = static_cast<bool>(reply_owned_);
  }
  const std::string json = reply_capabilities(client_, limits(), twin_socket_ ? 0 : -1);
  const std::span<std::byte> payload = reply_payload(sizeof(wire::Version) + json.size() + 1);
  store(payload, wire::Version{protocol_major, std::min(client_.minor, protocol_minor)});
  std::memcpy(payload.data() + sizeof(wire::Version), json.c_str(), json.size() + 1);
  state_ = State::ready;
  dma_.open(client_.max_data_xfer_size);
  observer_.on_connect();
  function_.set_interrupt_sink(&interrupts_);
  return 0;
}

int Session::device_get_info(const Message& message) {
  if (const auto query = decode_device_info(message.payload); !query) {
    return query.error;
  }
  store(reply_payload(sizeof(wire::DeviceInfo)),
        wire::DeviceInfo{sizeof(wire::DeviceInfo), wire::device_flag_reset | wire::device_flag_pci, wire::region_count,
                         wire::irq_index_count});
  return 0;
}

int Session::device_get_region_info(const Message& message) {
  const auto query = decode_region_info(message.payload);
  if (!query) {
    return query.error;
  }
  const Region& region = regions_[query.value.index];
  const bool mappable = region.memory_fd >= 0;
  wire::RegionInfo info{sizeof(wire::RegionInfo), region.flags, query.value.index, 0, region.size, 0};
  if (mappable) {
    info.argsz += sizeof(wire::SparseMmapCapability);
    reply_descriptor_ = region.memory_fd;
  }
  if (!mappable || query.value.argsz < info.argsz) {
    // Without room for the capability argsz says how much to bring; the CAPS flag would promise it here.
    store(reply_payload(sizeof(info)), info);
    return 0;
  }
  info.flags |= wire::region_flag_caps;
  info.cap_offset = sizeof(info);
  const std::span<std::byte> payload = reply_payload(sizeof(info) + sizeof(wire::SparseMmapCapability));
  store(payload, info);
  store(payload.subspan(sizeof(info)),
        wire::SparseMmapCapability{wire::capability_sparse_mmap, wire::capability_sparse_mmap_version, 0, 1, 0, 0,
                                   region.size});
  return 0;
}

int Session::device_get_region_io_fds(const Message& message) {
  const auto query = decode_region_io_fds(message.payload);
  if (!query) {
    return query.error;
  }
  // No sub-region is offered: a doorbell's value matters, and it must pass the modelled links.
  store(reply_payload(sizeof(wire::RegionIoFds)),
        wire::RegionIoFds{sizeof(wire::RegionIoFds), 0, query.value.index, 0});
  return 0;
}

int Session::device_get_irq_info(const Message& message) {
  const auto query = decode_irq_info(message.payload);
  if (!query) {
    return query.error;
  }
  const std::uint32_t index = query.value.index;
  store(reply_payload(sizeof(wire::IrqInfo)),
        wire::IrqInfo{sizeof(wire::IrqInfo), interrupts_.flags(index), index, interrupts_.count(index)});
  return 0;
}

int Session::device_set_irqs(const Message& message) {
  const auto request = decode_irq_set(message.payload);
  if (!request) {
    return request.error;
  }
  const std::size_t descriptors = message.descriptors.size();
  const int error = interrupts_.set(request.value, message.descriptors);
  if (error == 0) {
    observer_.on_set_irqs(request.value.set, request.value.booleans, descriptors);
  }
  return error;
}

int Session::device_reset(const Message& message) {
  if (!message.payload.empty()) {
    return EINVAL;
  }
  observer_.on_reset();
  interrupts_.reset();
  function_.reset();
  return 0;
}

int Session::device_feature(const Message& message) {
  const auto feature = decode_device_feature(message.payload);
  // All features of the text concern migration, which this server doesn't do; ENOTTY is what the kernel's
  // VFIO_DEVICE_FEATURE answers for a feature that a device lacks.
  return feature ? ENOTTY : feature.error;
}

int Session::migration_data(const Message& message) {
  const auto data = message.header.command == static_cast<std::uint16_t>(wire::Command::mig_data_read)
                        ? decode_mig_data_read(message.payload)
                        : decode_mig_data_write(message.payload);
  return data ? EOPNOTSUPP : data.error;
}

}  // namespace orrery::bridge
