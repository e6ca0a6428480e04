// The session's region accesses.
#include <cerrno>

#include "qemu_bridge/session.h"

namespace orrery::bridge {

bool Session::in_region(std::uint32_t region, std::uint64_t offset, std::uint64_t size) const {
  return region < wire::region_count && regions_[region].size != 0 && offset <= regions_[region].size &&
         size <= regions_[region].size - offset;
}

namespace {

// Calls access(offset, position, size) for the aligned accesses of 1, 2 and 4 bytes that make up a range of
// configuration space: there is no other kind of configuration request on PCIe. (QEMU reads all 4096
// bytes in one message.)
template <class Access>
void for_each_config_access(std::uint64_t offset, std::size_t size, Access access) {
  for (std::size_t position = 0; position < size;) {
    const std::uint64_t at = offset + position;
    std::size_t piece = 4;
    while (at % piece != 0 || piece > size - position) {
      piece /= 2;
    }
    access(static_cast<std::uint32_t>(at), position, piece);
    position += piece;
  }
}

}  // namespace

void Session::read_function(std::uint32_t region, std::uint64_t offset, std::span<std::byte> into) {
  observer_.on_region_read(region, offset, into.size());
  if (region == wire::region_config) {
    for_each_config_access(offset, into.size(), [&](std::uint32_t at, std::size_t position, std::size_t size) {
      function_.config_read(at, into.subspan(position, size));
    });
  } else {
    function_.bar_read(region, offset, into);
  }
  observer_.on_region_read_done(region, offset, into);
}

void Session::write_function(std::uint32_t region, std::uint64_t offset, std::span<const std::byte> from) {
  observer_.on_region_write(region, offset, from);
  if (region == wire::region_config) {
    for_each_config_access(offset, from.size(), [&](std::uint32_t at, std::size_t position, std::size_t size) {
      function_.config_write(at, from.subspan(position, size));
    });
  } else {
    function_.bar_write(region, offset, from);
  }
}

int Session::region_read(const Message& message) {
  const auto access = decode_region_read(message.payload);
  if (!access || !in_region(access.value.region, access.value.offset, access.value.count)) {
    return EINVAL;
  }
  const std::span<std::byte> payload = reply_payload(sizeof(wire::RegionAccess) + access.value.count);
  store(payload, access.value);
  if (access.value.count != 0) {
    read_function(access.value.region, access.value.offset, payload.subspan(sizeof(wire::RegionAccess)));
  }
  return 0;
}

int Session::region_write(const Message& message) {
  const auto write = decode_region_write(message.payload);
  if (!write || !in_region(write.value.access.region, write.value.access.offset, write.value.access.count)) {
    return EINVAL;
  }
  if (write.value.access.count != 0) {
    write_function(write.value.access.region, write.value.access.offset, write.value.data);
  }
  counters_.posted_writes += (message.header.flags & wire::flag_no_reply) != 0 ? 1U : 0U;
  store(reply_payload(sizeof(wire::RegionAccess)), write.value.access);
  return 0;
}

int Session::region_write_multi(const Message& message) {
  if (!client_.write_multiple) {
    return EOPNOTSUPP;
  }
  const auto multi = decode_write_multi(message.payload);
  if (!multi) {
    return multi.error;
  }
  // All or nothing: an error reply can't say how many were done.
  for (std::uint64_t i = 0; i < multi.value.count; ++i) {
    const wire::WriteMultiEntry entry = multi.value.entry(i);
    if (entry.count == 0 || entry.count > sizeof(entry.data) || !in_region(entry.region, entry.offset, entry.count)) {
      return EINVAL;
    }
  }
  for (std::uint64_t i = 0; i < multi.value.count; ++i) {
    const wire::WriteMultiEntry entry = multi.value.entry(i);
    write_function(entry.region, entry.offset, std::as_bytes(std::span(entry.data)).first(entry.count));
  }
  counters_.posted_writes += (message.header.flags & wire::flag_no_reply) != 0 ? multi.value.count : 0;
  store(reply_payload(sizeof(std::uint64_t)), multi.value.count);
  return 0;
}

}  // namespace orrery::bridge
