// Ethernet frames that carry IP, TCP and UDP: their checksums, and their segmentation.
//
// RFC 791, 768, 9293, 8200, 1071; IEEE 802.1Q (one tag). Any bytes are allowed everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "systemc_models/rnic/verbs/queue_format.h"

namespace orrery::rnic {

// One's complement sum of 16-bit big-endian words, an odd byte padded with zero; not inverted (RFC 1071).
std::uint16_t ones_sum(std::span<const std::byte> bytes);

// Where things are in a frame.
struct FrameLayout {
  FrameSummary::Network network = FrameSummary::Network::other;
  FrameSummary::Transport transport = FrameSummary::Transport::other;  // other: of a fragment, too
  std::uint8_t protocol = 0;                                           // of the transport
  std::size_t ip = 0;                                                  // offset of the IP header
  std::size_t l4 = 0;   // offset of the transport header, if there is one
  std::size_t end = 0;  // of the IP packet; padding may follow
};
FrameLayout layout_of_frame(std::span<const std::byte> frame);
// The same of the headers alone, whose length fields count for nothing.
FrameLayout layout_of_headers(std::span<const std::byte> headers);

// Writes the IPv4 header's checksum, and that of TCP or UDP; what isn't there is left alone.
void write_checksums(std::span<std::byte> frame, bool ip, bool l4);
FrameSummary summarize(std::span<const std::byte> frame);
// Of addresses, and ports if there are any: Toeplitz with the key of Microsoft's RSS specification. 0: not IP.
std::uint32_t receive_hash(std::span<const std::byte> frame);

// A large TCP or UDP packet that is cut into frames with the same headers.
class Segmenter {
 public:
  // False: the headers are not those of a TCP or UDP packet, exactly, or a frame would be too long or too many.
  bool begin(std::span<const std::byte> headers, std::uint32_t payload_bytes, std::uint32_t segment_bytes);
  [[nodiscard]] std::uint32_t frames() const { return frames_; }
  [[nodiscard]] std::uint32_t frame_bytes(std::uint32_t index) const { return header_bytes_ + chunk(index); }
  // Writes frame `index` into `out` (frame_bytes() long): headers, payload, lengths, identification, sequence number,
  // flags and checksums.
  void write(std::uint32_t index, std::span<const std::byte> headers, std::span<const std::byte> payload,
             std::span<std::byte> out) const;

 private:
  static constexpr std::uint32_t max_frames = 8192;
  [[nodiscard]] std::uint32_t chunk(std::uint32_t index) const {
    return index + 1 < frames_ ? segment_bytes_ : payload_bytes_ - index * segment_bytes_;
  }
  FrameLayout layout_;
  std::uint32_t header_bytes_ = 0;
  std::uint32_t payload_bytes_ = 0;
  std::uint32_t segment_bytes_ = 0;
  std::uint32_t frames_ = 0;
};

}  // namespace orrery::rnic
