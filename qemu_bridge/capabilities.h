// Negotiation of protocol version and capabilities (vfio-user.rst, section VFIO_USER_VERSION).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "qemu_bridge/codec.h"

namespace orrery::bridge {

inline constexpr std::uint16_t protocol_major = 0;
inline constexpr std::uint16_t protocol_minor = 0;

// What a client says of itself; a value it leaves out has the text's default.
struct ClientProposal {
  std::uint16_t minor = 0;
  std::uint64_t max_msg_fds = wire::default_max_msg_fds;
  std::uint64_t max_data_xfer_size = wire::default_max_data_xfer_size;
  std::uint64_t max_dma_maps = wire::default_max_dma_maps;
  std::uint64_t page_sizes = wire::default_page_sizes;
  bool write_multiple = false;
  bool twin_socket = false;
  // Which names the client gave: the reply may hold no others.
  bool names_max_msg_fds = false;
  bool names_max_data_xfer_size = false;
  bool names_max_dma_maps = false;
  bool names_page_sizes = false;
  bool names_write_multiple = false;
  bool names_twin_socket = false;
};

// Parses the payload of a VFIO_USER_VERSION command. EINVAL: another major version, JSON that is not
// NUL-terminated, not an object, or longer than max_version_data, a capability of the wrong type or of an
// impossible value (max_data_xfer_size 0; pgsizes without 4096, which this server requires). Capabilities
// that the text doesn't know are ignored.
Decoded<ClientProposal> decode_version(std::span<const std::byte> payload);

// What this server grants.
struct ServerLimits {
  std::uint64_t max_msg_fds = 16;  // QEMU refuses more
  std::uint64_t max_dma_maps = wire::default_max_dma_maps;
};

// The JSON of the reply, without NUL: a subset of the names proposed. `twin_socket_index` is the index of
// the client's socket among the reply's descriptors, or below 0 for none.
std::string reply_capabilities(const ClientProposal& proposal, const ServerLimits& limits, int twin_socket_index);

}  // namespace orrery::bridge
