// Parses and writes vfio-user messages: pure functions on byte spans, no socket, no state.
//
// Everything here takes hostile bytes: a decoder checks the size of what it is given before it reads,
// and the relations inside one message (counts against sizes, reserved bits, wrapping ranges). What
// depends on the device or on earlier messages is the session's to check.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "qemu_bridge/protocol.h"

namespace orrery::bridge {

// Most bytes that a region access or a DMA message carries: the protocol's default of max_data_xfer_size.
inline constexpr std::size_t max_transfer = wire::default_max_data_xfer_size;
// Most bytes of one message: a DMA_READ reply or a REGION_WRITE of max_transfer bytes.
inline constexpr std::size_t max_message = sizeof(wire::Header) + sizeof(wire::RegionAccess) + max_transfer;
// Most bytes of JSON in a VFIO_USER_VERSION message, NUL included. (QEMU sends about 250.)
inline constexpr std::size_t max_version_data = 4096;

// What a decoder found: the value, or the errno of the error reply.
template <class T>
struct Decoded {
  T value{};
  int error = 0;  // 0: value is valid

  [[nodiscard]] explicit operator bool() const { return error == 0; }
  static Decoded failed(int error) { return {{}, error}; }
};

// Copies a wire structure out of (or into) bytes of any alignment. The span must be long enough.
template <class T>
[[nodiscard]] T load(std::span<const std::byte> bytes) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}
template <class T>
void store(std::span<std::byte> bytes, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::memcpy(bytes.data(), &value, sizeof(T));
}

// Decoders of command payloads (the bytes after the header). EINVAL on any malformed payload.
// Sizes are exact where the text gives a fixed structure; argsz must cover the fixed reply payload.
Decoded<wire::DmaMap> decode_dma_map(std::span<const std::byte> payload);
Decoded<wire::DmaUnmap> decode_dma_unmap(std::span<const std::byte> payload);
Decoded<wire::DeviceInfo> decode_device_info(std::span<const std::byte> payload);
Decoded<wire::RegionInfo> decode_region_info(std::span<const std::byte> payload);
Decoded<wire::RegionIoFds> decode_region_io_fds(std::span<const std::byte> payload);
Decoded<wire::IrqInfo> decode_irq_info(std::span<const std::byte> payload);

struct IrqRequest {
  wire::IrqSet set{};
  std::span<const std::byte> booleans;  // `set.count` of them with irq_set_data_bool, else empty
};
Decoded<IrqRequest> decode_irq_set(std::span<const std::byte> payload);

Decoded<wire::RegionAccess> decode_region_read(std::span<const std::byte> payload);

struct RegionWrite {
  wire::RegionAccess access{};
  std::span<const std::byte> data;  // access.count bytes
};
Decoded<RegionWrite> decode_region_write(std::span<const std::byte> payload);

// The writes of a REGION_WRITE_MULTI: sizeof(wire::WriteMultiEntry) bytes each.
struct WriteMulti {
  std::uint64_t count = 0;
  std::span<const std::byte> entries;

  [[nodiscard]] wire::WriteMultiEntry entry(std::uint64_t i) const {
    return load<wire::WriteMultiEntry>(entries.subspan(i * sizeof(wire::WriteMultiEntry)));
  }
};
Decoded<WriteMulti> decode_write_multi(std::span<const std::byte> payload);

Decoded<wire::DeviceFeature> decode_device_feature(std::span<const std::byte> payload);
Decoded<wire::MigData> decode_mig_data_read(std::span<const std::byte> payload);
Decoded<wire::MigData> decode_mig_data_write(std::span<const std::byte> payload);

// Headers of replies and of the server's own commands. `payload` counts the bytes after the header.
wire::Header reply_header(const wire::Header& command, std::size_t payload);
wire::Header error_header(const wire::Header& command, int error);
wire::Header command_header(std::uint16_t message_id, wire::Command command, std::size_t payload);

// Turns a byte stream into whole messages. Holds 64 KiB from the first use on, so that one read takes many posted
// writes; grows once, to max_message, when a long message comes.
class MessageBuffer {
 public:
  enum class Next : std::uint8_t {
    message,     // header() and payload() are valid until the next call of space()
    incomplete,  // more bytes are needed
    broken,      // the size field can't be right: below 16 or above max_message. header() is valid
  };

  // Where the next bytes go; never empty, except after a `broken`.
  [[nodiscard]] std::span<std::byte> space();
  // The first `count` bytes of the last space() have been filled.
  void commit(std::size_t count);
  Next next();

  [[nodiscard]] const wire::Header& header() const { return header_; }
  [[nodiscard]] std::span<const std::byte> payload() const { return payload_; }
  // Positions in the stream, counted from 0: the message's first byte, and one past its last.
  [[nodiscard]] std::uint64_t message_begin() const { return message_begin_; }
  [[nodiscard]] std::uint64_t message_end() const { return message_end_; }
  // Bytes received so far.
  [[nodiscard]] std::uint64_t received() const { return received_; }

 private:
  static constexpr std::size_t initial_bytes = std::size_t{64} * 1024;

  std::vector<std::byte> bytes_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::uint64_t received_ = 0;
  std::uint64_t message_begin_ = 0;
  std::uint64_t message_end_ = 0;
  wire::Header header_{};
  std::span<const std::byte> payload_;
  bool broken_ = false;
};

}  // namespace orrery::bridge
