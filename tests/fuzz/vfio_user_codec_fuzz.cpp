// Fuzz target: every decoder of vfio-user payloads, and the cutting of a stream into messages.
//
// Input: one byte that chooses what to run, then its bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/address.h"
#include "qemu_bridge/capabilities.h"
#include "qemu_bridge/codec.h"
#include "tests/fuzz/require.h"

namespace orrery::bridge {
namespace {

using fuzz::require;

void check_payload(unsigned kind, std::span<const std::byte> payload) {
  switch (kind) {
    case 0:
      if (const auto map = decode_dma_map(payload)) {
        require(range_is_valid(map.value.address, map.value.size), "a decoded map does not wrap");
        require(map.value.address % 4096 == 0 && map.value.size % 4096 == 0, "a decoded map has whole pages");
      }
      break;
    case 1:
      if (const auto unmap = decode_dma_unmap(payload)) {
        require((unmap.value.flags & wire::dma_unmap_all) != 0 || range_is_valid(unmap.value.address, unmap.value.size),
                "a decoded unmap does not wrap");
      }
      break;
    case 2:
      if (const auto request = decode_irq_set(payload)) {
        const bool booleans = (request.value.set.flags & wire::irq_set_data_bool) != 0;
        require(request.value.booleans.size() == (booleans ? request.value.set.count : 0), "a boolean for each vector");
      }
      break;
    case 3:
      if (const auto write = decode_region_write(payload)) {
        require(write.value.data.size() == write.value.access.count, "a write has the bytes it counts");
        require(write.value.data.size() <= max_transfer, "a write keeps to the limit");
      }
      break;
    case 4:
      if (const auto multi = decode_write_multi(payload)) {
        for (std::uint64_t i = 0; i < multi.value.count; ++i) {
          static_cast<void>(multi.value.entry(i));
        }
      }
      break;
    case 5:
      if (const auto proposal = decode_version(payload)) {
        require(proposal.value.max_data_xfer_size > 0, "a client takes at least a byte");
        const std::string json = reply_capabilities(proposal.value, {}, proposal.value.twin_socket ? 0 : -1);
        require(json.size() < max_version_data, "the reply stays small");
      }
      break;
    case 6:
      static_cast<void>(decode_device_feature(payload));
      static_cast<void>(decode_mig_data_read(payload));
      static_cast<void>(decode_mig_data_write(payload));
      break;
    case 7:
      static_cast<void>(decode_device_info(payload));
      if (const auto info = decode_region_info(payload)) {
        require(info.value.index < wire::region_count, "a region that exists");
      }
      if (const auto info = decode_irq_info(payload)) {
        require(info.value.index < wire::irq_index_count, "an interrupt index that exists");
      }
      if (const auto read = decode_region_read(payload)) {
        require(read.value.count <= max_transfer, "a read keeps to the limit");
      }
      static_cast<void>(decode_region_io_fds(payload));
      break;
    default:
      break;
  }
}

// The messages of a stream that arrives in pieces of `piece` bytes: where each begins, and its size.
std::vector<std::uint64_t> messages_of(std::span<const std::byte> stream, std::size_t piece) {
  std::vector<std::uint64_t> found;
  MessageBuffer buffer;
  while (!stream.empty()) {
    const std::span<std::byte> space = buffer.space();
    const std::size_t count = std::min({piece, space.size(), stream.size()});
    require(count > 0, "there is always room for more");
    std::copy_n(stream.begin(), count, space.begin());
    buffer.commit(count);
    stream = stream.subspan(count);
    MessageBuffer::Next next = buffer.next();
    for (; next == MessageBuffer::Next::message; next = buffer.next()) {
      require(buffer.payload().size() + sizeof(wire::Header) == buffer.header().message_size, "a whole message");
      require(buffer.message_end() - buffer.message_begin() == buffer.header().message_size, "positions agree");
      found.push_back(buffer.message_begin());
      found.push_back(buffer.header().message_size);
    }
    if (next == MessageBuffer::Next::broken) {
      found.push_back(~std::uint64_t{0});
      break;
    }
  }
  return found;
}

}  // namespace
}  // namespace orrery::bridge

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace orrery::bridge;
  if (size == 0) {
    return 0;
  }
  const std::span<const std::byte> payload = std::as_bytes(std::span(data, size)).subspan(1);
  const unsigned kind = data[0] % 9U;
  if (kind < 8) {
    check_payload(kind, payload);
  } else {
    orrery::fuzz::require(messages_of(payload, 1 + data[0] / 9U) == messages_of(payload, max_message),
                          "the cut of a stream makes no difference");
  }
  return 0;
}
