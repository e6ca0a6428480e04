#include "fabric/pcapng.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "fabric/wire_codec.h"

namespace orrery::fabric {

namespace {

static_assert(std::endian::native == std::endian::little);

// Block types and options of draft-ietf-opsawg-pcapng §4.
constexpr std::uint32_t section_header_block = 0x0a0d'0d0a;
constexpr std::uint32_t byte_order_magic = 0x1a2b'3c4d;
constexpr std::uint32_t interface_description_block = 1;
constexpr std::uint32_t enhanced_packet_block = 6;
constexpr std::uint16_t linktype_ethernet = 1;
constexpr std::uint16_t option_end = 0;
constexpr std::uint16_t option_userappl = 4;
constexpr std::uint16_t option_if_name = 2;
constexpr std::uint16_t option_if_description = 3;
constexpr std::uint16_t option_if_speed = 8;
constexpr std::uint16_t option_if_tsresol = 9;
constexpr std::uint16_t option_if_fcslen = 13;
constexpr std::uint16_t option_epb_flags = 2;

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}
std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), std::min<std::size_t>(text.size(), 0xffff)));
}

}  // namespace

void PcapngWriter::put16(std::uint16_t value) {
  const auto bytes = bytes_of(value);
  block_.insert(block_.end(), bytes.begin(), bytes.end());
}

void PcapngWriter::put32(std::uint32_t value) {
  const auto bytes = bytes_of(value);
  block_.insert(block_.end(), bytes.begin(), bytes.end());
}

void PcapngWriter::put_padded(std::span<const std::byte> bytes) {
  block_.insert(block_.end(), bytes.begin(), bytes.end());
  block_.resize((block_.size() + 3) & ~std::size_t{3});
}

void PcapngWriter::put_option(std::uint16_t code, std::span<const std::byte> value) {
  put16(code);
  put16(static_cast<std::uint16_t>(value.size()));
  put_padded(value);
}

void PcapngWriter::begin_block(std::uint32_t type) {
  block_.clear();
  put32(type);
  put32(0);  // the length, at the end
}

void PcapngWriter::end_block() {
  const auto length = static_cast<std::uint32_t>(block_.size() + 4);
  put32(length);
  std::memcpy(block_.data() + 4, &length, 4);
  sink_.write(block_);
}

PcapngWriter::PcapngWriter(CaptureSink& sink, std::string_view application) : sink_(sink) {
  begin_block(section_header_block);
  put32(byte_order_magic);
  put16(1);  // version 1.0
  put16(0);
  put32(0xffff'ffff);  // section length: not known
  put32(0xffff'ffff);
  put_option(option_userappl, bytes_of(application));
  put_option(option_end, {});
  end_block();
}

std::uint32_t PcapngWriter::add_interface(std::string_view name, std::string_view description,
                                          std::uint64_t bits_per_second) {
  begin_block(interface_description_block);
  put16(linktype_ethernet);
  put16(0);
  put32(0);  // no snap length
  put_option(option_if_name, bytes_of(name));
  if (!description.empty()) {
    put_option(option_if_description, bytes_of(description));
  }
  if (bits_per_second != 0) {
    put_option(option_if_speed, bytes_of(bits_per_second));
  }
  put_option(option_if_tsresol, bytes_of(std::uint8_t{9}));
  put_option(option_if_fcslen, bytes_of(std::uint8_t{0}));
  put_option(option_end, {});
  end_block();
  return interfaces_++;
}

void PcapngWriter::write_packet(std::uint32_t interface, Picoseconds when, CaptureDirection direction,
                                std::span<const std::byte> frame, std::uint32_t original_bytes) {
  begin_block(enhanced_packet_block);
  put32(interface);
  const std::uint64_t nanoseconds = when.count / 1000;
  put32(static_cast<std::uint32_t>(nanoseconds >> 32));
  put32(static_cast<std::uint32_t>(nanoseconds));
  put32(static_cast<std::uint32_t>(frame.size()));
  put32(original_bytes);
  put_padded(frame);
  put_option(option_epb_flags, bytes_of(static_cast<std::uint32_t>(direction)));
  put_option(option_end, {});
  end_block();
  ++packets_;
}

CaptureTap::CaptureTap(EventQueue& events, const PacketPool& pool, Port& inner, PcapngWriter& writer,
                       std::uint32_t interface, std::uint32_t snap_bytes)
    : events_(events),
      pool_(pool),
      inner_(inner),
      writer_(writer),
      interface_(interface),
      snap_bytes_(snap_bytes),
      frame_(max_frame_bytes) {
  inner_.attach(*this);
}

Picoseconds CaptureTap::send_after(const Packet& packet, Picoseconds delay) {
  record(packet, CaptureDirection::outbound, events_.now() + delay);
  return inner_.send_after(packet, delay);
}

void CaptureTap::on_packet(const Packet& packet) {
  record(packet, CaptureDirection::inbound, events_.now());
  if (listener_ != nullptr) {
    listener_->on_packet(packet);
  }
}

void CaptureTap::on_transmit_ready() {
  if (listener_ != nullptr) {
    listener_->on_transmit_ready();
  }
}

void CaptureTap::record(const Packet& packet, CaptureDirection direction, Picoseconds when) {
  const std::size_t size = encode_packet(pool_, packet, frame_);
  if (size == 0) {
    ++without_content_;
    return;
  }
  const std::size_t kept = std::min<std::size_t>(size, snap_bytes_);
  writer_.write_packet(interface_, when, direction, std::span(frame_).first(kept), static_cast<std::uint32_t>(size));
}

}  // namespace orrery::fabric
