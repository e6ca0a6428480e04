#include "systemc_models/rnic/ethernet/frame.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "fabric/packet_pool.h"
#include "fabric/wire_bytes.h"

namespace orrery::rnic {

namespace wire = fabric::wire;
using Network = FrameSummary::Network;
using Transport = FrameSummary::Transport;
using wire::get16;
using wire::get32;
using wire::get8;

namespace {

constexpr std::size_t ipv4_bytes = 20, ipv6_bytes = 40, tcp_bytes = 20, udp_bytes = 8;
constexpr std::size_t tcp_checksum = 16, udp_checksum = 6, ipv4_checksum = 10;

std::uint16_t fold(std::uint64_t sum) {
  return static_cast<std::uint16_t>(~wire::fold_checksum(sum));
}

void set_transport(FrameLayout& layout, std::uint8_t protocol, std::size_t at, std::size_t end) {
  layout.protocol = protocol;
  layout.l4 = at;
  if (protocol == wire::protocol_tcp && at + tcp_bytes <= end) {
    layout.transport = Transport::tcp;
  } else if (protocol == wire::protocol_udp && at + udp_bytes <= end) {
    layout.transport = Transport::udp;
  }
}

// Over the extension headers (RFC 8200 §4) to TCP or UDP.
void walk_ipv6(std::span<const std::byte> frame, FrameLayout& layout) {
  constexpr std::uint8_t hop_by_hop = 0, routing = 43, options = 60;
  auto next = static_cast<std::uint8_t>(get8(frame, layout.ip + 6));
  std::size_t at = layout.ip + ipv6_bytes;
  while (next == hop_by_hop || next == routing || next == options) {
    if (at + 8 > layout.end) {
      return;
    }
    // With segments left the pseudo-header's destination is not the header's.
    if (next == routing && get8(frame, at + 3) != 0) {
      return;
    }
    next = static_cast<std::uint8_t>(get8(frame, at));
    at += (std::size_t{get8(frame, at + 1)} + 1) * 8;
  }
  set_transport(layout, next, at, layout.end);
}

FrameLayout layout_of(std::span<const std::byte> frame, bool headers_only) {
  FrameLayout layout;
  const wire::EthernetView view = wire::ethernet_view(frame);
  const std::size_t ip = layout.ip = view.network_offset;
  layout.end = frame.size();
  if (view.ethertype == wire::ethertype_ipv4 && frame.size() >= ip + ipv4_bytes) {
    const std::size_t header = std::size_t{get8(frame, ip) & 15U} * 4;
    const std::size_t total = headers_only ? frame.size() - ip : get16(frame, ip + 2);
    if (get8(frame, ip) >> 4 != 4 || header < ipv4_bytes || total < header || ip + total > frame.size()) {
      return layout;
    }
    layout.network = Network::ipv4;
    layout.end = ip + total;
    layout.l4 = ip + header;
    constexpr std::uint32_t more_or_offset = 0x3fff;
    if ((get16(frame, ip + 6) & more_or_offset) == 0) {
      set_transport(layout, static_cast<std::uint8_t>(get8(frame, ip + 9)), ip + header, layout.end);
    }
  } else if (view.ethertype == wire::ethertype_ipv6 && frame.size() >= ip + ipv6_bytes) {
    const std::size_t total = headers_only ? frame.size() - ip : ipv6_bytes + get16(frame, ip + 4);
    if (get8(frame, ip) >> 4 != 6 || ip + total > frame.size()) {
      return layout;
    }
    layout.network = Network::ipv6;
    layout.end = ip + total;
    layout.l4 = ip + ipv6_bytes;
    walk_ipv6(frame, layout);
  }
  return layout;
}

// Sum of the pseudo-header (RFC 9293 §3.1, RFC 8200 §8.1).
std::uint64_t pseudo_sum(std::span<const std::byte> frame, const FrameLayout& layout) {
  const std::uint64_t rest = layout.protocol + (layout.end - layout.l4);
  return layout.network == Network::ipv4 ? rest + ones_sum(frame.subspan(layout.ip + 12, 8))
                                         : rest + ones_sum(frame.subspan(layout.ip + 8, 32));
}

void write_l4_checksum(std::span<std::byte> frame, const FrameLayout& layout) {
  if (layout.transport == Transport::other) {
    return;
  }
  const std::size_t field = layout.l4 + (layout.transport == Transport::tcp ? tcp_checksum : udp_checksum);
  wire::set(frame, field, 2, 0);
  const std::uint64_t sum = pseudo_sum(frame, layout) + ones_sum(frame.subspan(layout.l4, layout.end - layout.l4));
  std::uint16_t checksum = wire::fold_checksum(sum);
  if (checksum == 0 && layout.transport == Transport::udp) {
    checksum = 0xffff;  // 0 means "none" (RFC 768)
  }
  wire::set(frame, field, 2, checksum);
}

void write_ip_checksum(std::span<std::byte> frame, const FrameLayout& layout) {
  if (layout.network == Network::ipv4) {
    const std::size_t header = std::size_t{get8(frame, layout.ip) & 15U} * 4;
    wire::set(frame, layout.ip + ipv4_checksum, 2, 0);
    wire::set(frame, layout.ip + ipv4_checksum, 2, wire::fold_checksum(ones_sum(frame.subspan(layout.ip, header))));
  }
}

}  // namespace

std::uint16_t ones_sum(std::span<const std::byte> bytes) {
  // In the host's byte order: the sum of swapped words is the swapped sum (RFC 1071 §2 (B)).
  std::uint64_t sum = 0;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 4; left -= 4, at += 4) {
    std::uint32_t word = 0;
    std::memcpy(&word, at, 4);
    sum += word;
  }
  if (left != 0) {
    std::uint32_t word = 0;
    std::memcpy(&word, at, left);
    sum += word;
  }
  return __builtin_bswap16(fold((sum & 0xffff'ffffU) + (sum >> 32)));
}

FrameLayout layout_of_frame(std::span<const std::byte> frame) {
  return layout_of(frame, false);
}

FrameLayout layout_of_headers(std::span<const std::byte> headers) {
  return layout_of(headers, true);
}

void write_checksums(std::span<std::byte> frame, bool ip, bool l4) {
  const FrameLayout layout = layout_of(frame, false);
  if (ip) {
    write_ip_checksum(frame, layout);
  }
  if (l4) {
    write_l4_checksum(frame, layout);
  }
}

FrameSummary summarize(std::span<const std::byte> frame) {
  const FrameLayout layout = layout_of(frame, false);
  FrameSummary summary;
  summary.network = layout.network;
  if (layout.network == Network::other) {
    return summary;
  }
  constexpr std::uint16_t right = 0xffff;
  const std::size_t first =
      layout.network == Network::ipv4 ? std::size_t{get8(frame, layout.ip) & 15U} * 4 : ipv6_bytes;
  const std::uint16_t header = ones_sum(frame.subspan(layout.ip, first));
  summary.ip_ok = layout.network == Network::ipv6 || header == right;
  if (layout.transport == Transport::other) {
    summary.checksum =
        fold(std::uint64_t{header} + ones_sum(frame.subspan(layout.ip + first, layout.end - layout.ip - first)));
    return summary;
  }
  // Headers are whole 16-bit words.
  const std::uint16_t extensions = ones_sum(frame.subspan(layout.ip + first, layout.l4 - layout.ip - first));
  const std::uint16_t rest = ones_sum(frame.subspan(layout.l4, layout.end - layout.l4));
  summary.transport = layout.transport;
  summary.checksum = fold(std::uint64_t{header} + extensions + rest);
  const bool unused = layout.transport == Transport::udp && layout.network == Network::ipv4 &&
                      get16(frame, layout.l4 + udp_checksum) == 0;
  summary.l4_ok = unused || fold(pseudo_sum(frame, layout) + rest) == right;
  return summary;
}

std::uint32_t receive_hash(std::span<const std::byte> frame) {
  static constexpr std::array<std::uint8_t, 40> key = {0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67,
                                                       0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
                                                       0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
                                                       0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};
  const FrameLayout layout = layout_of(frame, false);
  if (layout.network == Network::other) {
    return 0;
  }
  std::array<std::byte, 36> input{};
  const std::size_t addresses = layout.network == Network::ipv4 ? 8 : 32;
  std::size_t bytes = addresses;
  std::memcpy(input.data(), frame.data() + layout.ip + (layout.network == Network::ipv4 ? 12 : 8), addresses);
  if (layout.transport != Transport::other) {
    std::memcpy(input.data() + bytes, frame.data() + layout.l4, 4);
    bytes += 4;
  }
  // The key's bits from that of the input on, 32 of them, for each bit that is set.
  std::uint32_t hash = 0;
  std::uint64_t window =
      std::uint64_t{key[0]} << 24 | std::uint64_t{key[1]} << 16 | std::uint64_t{key[2]} << 8 | key[3];
  for (std::size_t i = 0; i < bytes; ++i) {
    window = window << 8 | key[i + 4];
    for (unsigned bit = 0; bit < 8; ++bit) {
      if ((std::to_integer<unsigned>(input[i]) >> (7 - bit) & 1U) != 0) {
        hash ^= static_cast<std::uint32_t>(window >> (8 - bit));
      }
    }
  }
  return hash;
}

bool Segmenter::begin(std::span<const std::byte> headers, std::uint32_t payload_bytes, std::uint32_t segment_bytes) {
  layout_ = layout_of_headers(headers);
  if (layout_.transport == Transport::other || payload_bytes == 0 || segment_bytes == 0) {
    return false;
  }
  const std::size_t l4_bytes =
      layout_.transport == Transport::udp ? udp_bytes : std::size_t{get8(headers, layout_.l4 + 12) >> 4} * 4;
  if (l4_bytes < (layout_.transport == Transport::udp ? udp_bytes : tcp_bytes) ||
      layout_.l4 + l4_bytes != headers.size() || headers.size() + segment_bytes > fabric::max_frame_bytes) {
    return false;
  }
  header_bytes_ = static_cast<std::uint32_t>(headers.size());
  payload_bytes_ = payload_bytes;
  segment_bytes_ = segment_bytes;
  frames_ = (payload_bytes - 1) / segment_bytes + 1;
  return frames_ <= max_frames;
}

void Segmenter::write(std::uint32_t index, std::span<const std::byte> headers, std::span<const std::byte> payload,
                      std::span<std::byte> out) const {
  constexpr std::uint32_t fin_psh = 0x09, cwr = 0x80;
  const bool is_last = index + 1 == frames_;
  std::memcpy(out.data(), headers.data(), header_bytes_);
  std::memcpy(out.data() + header_bytes_, payload.data() + std::size_t{index} * segment_bytes_, chunk(index));
  FrameLayout layout = layout_;
  layout.end = out.size();
  const std::size_t ip = layout.ip;
  if (layout.network == Network::ipv4) {
    wire::set(out, ip + 2, 2, out.size() - ip);
    wire::set(out, ip + 4, 2, get16(headers, ip + 4) + index);
  } else {
    wire::set(out, ip + 4, 2, out.size() - ip - ipv6_bytes);
  }
  if (layout.transport == Transport::tcp) {
    wire::set(out, layout.l4 + 4, 4, get32(headers, layout.l4 + 4) + index * segment_bytes_);
    const std::uint32_t cleared = (is_last ? 0U : fin_psh) | (index == 0 ? 0U : cwr);
    wire::set(out, layout.l4 + 13, 1, get8(headers, layout.l4 + 13) & ~cleared);
  } else {
    wire::set(out, layout.l4 + 4, 2, out.size() - layout.l4);
  }
  write_ip_checksum(out, layout);
  write_l4_checksum(out, layout);
}

}  // namespace orrery::rnic
