#include "qemu_bridge/relay/client_record.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "qemu_bridge/interrupts.h"

namespace orrery::bridge {
namespace {

template <class T>
void append(std::vector<std::byte>& reply, const T& value) {
  const auto raw = std::as_bytes(std::span(&value, 1));
  reply.insert(reply.end(), raw.begin(), raw.end());
}

// Calls visit(offset, data) for each write of a WRITE_MULTI to configuration space.
template <class Visit>
void for_each_config_write(const WriteMulti& multi, Visit visit) {
  for (std::uint64_t i = 0; i < multi.count; ++i) {
    const wire::WriteMultiEntry entry = multi.entry(i);
    if (entry.region == wire::region_config && entry.count <= sizeof(entry.data)) {
      visit(entry.offset, std::as_bytes(std::span(entry.data)).first(entry.count));
    }
  }
}

}  // namespace

void ClientRecord::open(const DeviceDescription& device) {
  device_ = device;
  dma_ = DmaRecord();
  irqs_.open(device);
  config_.open(device);
}

std::vector<SharedDescriptor> ClientRecord::share(wire::Command command, std::span<FileDescriptor> descriptors) {
  std::vector<SharedDescriptor> shared;
  shared.reserve(descriptors.size());
  for (FileDescriptor& descriptor : descriptors) {
    shared.push_back(command == wire::Command::dma_map ? dma_.share(std::move(descriptor))
                                                       : std::make_shared<const FileDescriptor>(std::move(descriptor)));
  }
  return shared;
}

int ClientRecord::admit(wire::Command command, std::span<const SharedDescriptor> descriptors) const {
  if (!descriptors.empty() && command != wire::Command::dma_map && command != wire::Command::device_set_irqs) {
    return EINVAL;
  }
  if (command == wire::Command::dma_map) {
    return descriptors.size() > 1                                               ? EINVAL
           : dma_.has_room(descriptors.empty() ? nullptr : descriptors.front()) ? 0
                                                                                : ENOSPC;
  }
  return 0;
}

void ClientRecord::carried_out(wire::Command command, std::span<const std::byte> payload,
                               std::span<const SharedDescriptor> descriptors) {
  switch (command) {
    case wire::Command::dma_map:
      if (const auto map = decode_dma_map(payload)) {
        dma_.add(map.value, descriptors.empty() ? nullptr : descriptors.front());
      }
      break;
    case wire::Command::dma_unmap:
      if (const auto unmap = decode_dma_unmap(payload)) {
        dma_.remove(unmap.value);
      }
      break;
    case wire::Command::device_set_irqs:
      if (const auto request = decode_irq_set(payload);
          request && irqs_.check(request.value, descriptors.size()) == 0) {
        irqs_.set(request.value, descriptors);
      }
      break;
    case wire::Command::region_write:
      if (const auto write = decode_region_write(payload); write && write.value.access.region == wire::region_config) {
        config_.write(write.value.access.offset, write.value.data);
      }
      break;
    case wire::Command::region_write_multi:
      if (const auto multi = decode_write_multi(payload)) {
        for_each_config_write(
            multi.value, [&](std::uint64_t offset, std::span<const std::byte> data) { config_.write(offset, data); });
      }
      break;
    case wire::Command::device_reset:
      // Configuration space keeps what was written: a reset that a VMM asks for is not the guest's.
      irqs_.reset();
      break;
    default:
      break;
  }
}

bool ClientRecord::answers_always(wire::Command command) {
  switch (command) {
    case wire::Command::device_get_info:
    case wire::Command::device_get_region_info:
    case wire::Command::device_get_region_io_fds:
    case wire::Command::device_get_irq_info:
      return true;
    default:
      return false;
  }
}

bool ClientRecord::concerns_replay(wire::Command command, std::span<const std::byte> payload) {
  switch (command) {
    case wire::Command::dma_map:
    case wire::Command::dma_unmap:
    case wire::Command::device_set_irqs:
      return true;
    case wire::Command::region_write: {
      const auto write = decode_region_write(payload);
      return write && write.value.access.region == wire::region_config &&
             ConfigRecord::touches_bars(write.value.access.offset, write.value.data.size());
    }
    case wire::Command::region_write_multi: {
      bool some = false;
      if (const auto multi = decode_write_multi(payload)) {
        for_each_config_write(multi.value, [&](std::uint64_t offset, std::span<const std::byte> data) {
          some = some || ConfigRecord::touches_bars(offset, data.size());
        });
      }
      return some;
    }
    default:
      return false;
  }
}

int ClientRecord::answer(wire::Command command, std::span<const std::byte> payload,
                         std::span<const SharedDescriptor> descriptors, std::vector<std::byte>& reply) {
  if (const int error = admit(command, descriptors); error != 0) {
    return error;
  }
  switch (command) {
    case wire::Command::dma_map:
      return answer_map(payload, descriptors);
    case wire::Command::dma_unmap:
      return answer_unmap(payload, reply);
    case wire::Command::device_get_info:
    case wire::Command::device_get_region_info:
    case wire::Command::device_get_region_io_fds:
    case wire::Command::device_get_irq_info:
      return answer_question(command, payload, reply);
    case wire::Command::device_set_irqs:
      return answer_irqs(payload, descriptors);
    case wire::Command::region_read:
      return answer_read(payload, reply);
    case wire::Command::region_write:
      return answer_write(payload, reply);
    case wire::Command::region_write_multi:
      return answer_multi(payload, reply);
    case wire::Command::device_reset:
      irqs_.reset();
      return payload.empty() ? 0 : EINVAL;
    case wire::Command::device_feature:
      return ENOTTY;  // as for a feature that a device lacks
    case wire::Command::mig_data_read:
    case wire::Command::mig_data_write:
    case wire::Command::dirty_pages:
      return EOPNOTSUPP;
    case wire::Command::version:
    case wire::Command::dma_read:
    case wire::Command::dma_write:
      return EINVAL;
  }
  return ENOSYS;
}

int ClientRecord::answer_map(std::span<const std::byte> payload, std::span<const SharedDescriptor> descriptors) {
  const auto map = decode_dma_map(payload);
  if (!map) {
    return map.error;
  }
  const SharedDescriptor file = descriptors.empty() ? nullptr : descriptors.front();
  if (!file && map.value.offset != 0) {
    return EINVAL;
  }
  const int error = dma_.check(map.value, file);
  if (error == 0) {
    dma_.add(map.value, file);
  }
  return error;
}

int ClientRecord::answer_unmap(std::span<const std::byte> payload, std::vector<std::byte>& reply) {
  const auto unmap = decode_dma_unmap(payload);
  if (!unmap) {
    return unmap.error;
  }
  if (const int error = dma_.check(unmap.value); error != 0) {
    return error;
  }
  dma_.remove(unmap.value);
  wire::DmaUnmap entry = unmap.value;
  entry.argsz = sizeof(entry);
  append(reply, entry);
  return 0;
}

int ClientRecord::answer_question(wire::Command command, std::span<const std::byte> payload,
                                  std::vector<std::byte>& reply) const {
  if (command == wire::Command::device_get_info) {
    const auto query = decode_device_info(payload);
    append(reply, device_.info);
    return query.error;
  }
  if (command == wire::Command::device_get_region_info) {
    const auto query = decode_region_info(payload);
    append(reply, device_.regions[query ? query.value.index : 0]);
    return query.error;
  }
  if (command == wire::Command::device_get_irq_info) {
    const auto query = decode_irq_info(payload);
    append(reply, device_.irqs[query ? query.value.index : 0]);
    return query.error;
  }
  // Descriptors to write a region's doorbells through would be the dead server's.
  const auto query = decode_region_io_fds(payload);
  append(reply, wire::RegionIoFds{sizeof(wire::RegionIoFds), 0, query.value.index, 0});
  return query.error;
}

int ClientRecord::answer_irqs(std::span<const std::byte> payload, std::span<const SharedDescriptor> descriptors) {
  const auto request = decode_irq_set(payload);
  if (!request) {
    return request.error;
  }
  // What a server refuses later would end the device.
  const bool eventfds = std::all_of(descriptors.begin(), descriptors.end(),
                                    [](const SharedDescriptor& descriptor) { return is_eventfd(descriptor->get()); });
  const int error = eventfds ? irqs_.check(request.value, descriptors.size()) : EINVAL;
  if (error == 0) {
    irqs_.set(request.value, descriptors);
  }
  return error;
}

int ClientRecord::answer_read(std::span<const std::byte> payload, std::vector<std::byte>& reply) const {
  const auto access = decode_region_read(payload);
  if (!access || !device_.in_region(access.value.region, access.value.offset, access.value.count)) {
    return EINVAL;
  }
  append(reply, access.value);
  reply.resize(reply.size() + access.value.count, std::byte{0xff});
  return 0;
}

int ClientRecord::answer_write(std::span<const std::byte> payload, std::vector<std::byte>& reply) {
  const auto write = decode_region_write(payload);
  if (!write || !device_.in_region(write.value.access.region, write.value.access.offset, write.value.access.count)) {
    return EINVAL;
  }
  if (write.value.access.region == wire::region_config) {
    config_.write_absent(write.value.access.offset, write.value.data);
  }
  append(reply, write.value.access);
  return 0;
}

int ClientRecord::answer_multi(std::span<const std::byte> payload, std::vector<std::byte>& reply) {
  const auto multi = decode_write_multi(payload);
  if (!multi) {
    return multi.error;
  }
  for (std::uint64_t i = 0; i < multi.value.count; ++i) {
    const wire::WriteMultiEntry entry = multi.value.entry(i);
    if (entry.count == 0 || entry.count > sizeof(entry.data) ||
        !device_.in_region(entry.region, entry.offset, entry.count)) {
      return EINVAL;
    }
  }
  for_each_config_write(
      multi.value, [&](std::uint64_t offset, std::span<const std::byte> data) { config_.write_absent(offset, data); });
  append(reply, multi.value.count);
  return 0;
}

std::vector<RelayRequest> ClientRecord::replay() const {
  std::vector<RelayRequest> requests;
  dma_.replay(requests);
  irqs_.replay(requests);
  config_.replay(requests);
  return requests;
}

}  // namespace orrery::bridge
