// Frames for tests, and a checksum routine that shares nothing with the tested one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

namespace orrery::test {

using Bytes = std::vector<std::byte>;

inline Bytes make_bytes(std::initializer_list<unsigned> values) {
  Bytes bytes;
  for (const unsigned v : values) {
    bytes.push_back(static_cast<std::byte>(v));
  }
  return bytes;
}
inline void put16(std::span<std::byte> at, std::size_t offset, unsigned value) {
  at[offset] = static_cast<std::byte>(value >> 8);
  at[offset + 1] = static_cast<std::byte>(value);
}
inline std::uint32_t get32(std::span<const std::byte> at, std::size_t offset) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    value = value << 8 | std::to_integer<std::uint32_t>(at[offset + i]);
  }
  return value;
}
// A bit at a time: an adder of 16 bits with end-around carry.
inline unsigned slow_add(unsigned a, unsigned b) {
  while (b != 0) {
    const unsigned carry = a & b;
    a ^= b;
    b = (carry << 1 | carry >> 15) & 0xffffU;
  }
  return a;
}
inline unsigned slow_sum(std::span<const std::byte> bytes, std::size_t from, std::size_t to, unsigned sum = 0) {
  for (std::size_t i = from; i < to; ++i) {
    sum = slow_add(sum, std::to_integer<unsigned>(bytes[i]) << ((i - from) % 2 == 0 ? 8 : 0));
  }
  return sum;
}
// Whether the TCP or UDP checksum of a frame of make_frame() is right.
inline bool l4_right(std::span<const std::byte> frame, bool v6) {
  const std::size_t l4 = v6 ? 54 : 34;
  const unsigned protocol = std::to_integer<unsigned>(frame[v6 ? 20 : 23]);
  unsigned sum = v6 ? slow_sum(frame, 22, 54) : slow_sum(frame, 26, 34);
  sum = slow_add(slow_add(sum, protocol), static_cast<unsigned>(frame.size() - l4));
  return slow_sum(frame, l4, frame.size(), sum) == 0xffff;
}
// Ethernet, IPv4 or IPv6, TCP (6) or UDP (17) without checksums, payload. TCP: sequence 0xffffff00, CWR ACK PSH FIN.
inline Bytes make_frame(bool v6, unsigned protocol, unsigned payload, std::uint64_t destination = 0x0200'0000'0101) {
  const std::size_t ip = 14;
  const std::size_t l4 = v6 ? 54 : 34;
  const std::size_t data = l4 + (protocol == 6 ? 20 : 8);
  Bytes frame(data + payload);
  for (std::size_t i = 0; i < 6; ++i) {
    frame[i] = static_cast<std::byte>(destination >> (40 - 8 * i));
    frame[6 + i] = static_cast<std::byte>(i == 0 ? 2 : 0x33);
  }
  put16(frame, 12, v6 ? 0x86dd : 0x0800);
  if (v6) {
    frame[ip] = std::byte{0x60};
    put16(frame, ip + 4, static_cast<unsigned>(std::min<std::size_t>(frame.size() - l4, 0xffff)));
    frame[ip + 6] = static_cast<std::byte>(protocol);
    frame[ip + 7] = std::byte{64};
    frame[ip + 8] = frame[ip + 24] = std::byte{0xfd};
    frame[ip + 23] = std::byte{1};
    frame[ip + 39] = std::byte{2};
  } else {
    frame[ip] = std::byte{0x45};
    put16(frame, ip + 2, static_cast<unsigned>(frame.size() - ip));
    put16(frame, ip + 4, 0xfffe);
    frame[ip + 8] = std::byte{64};
    frame[ip + 9] = static_cast<std::byte>(protocol);
    frame[ip + 12] = frame[ip + 16] = std::byte{10};
    frame[ip + 15] = std::byte{1};
    frame[ip + 19] = std::byte{2};
  }
  put16(frame, l4, 1234);
  put16(frame, l4 + 2, 80);
  if (protocol == 6) {
    put16(frame, l4 + 4, 0xffff);
    put16(frame, l4 + 6, 0xff00);
    frame[l4 + 12] = std::byte{0x50};
    frame[l4 + 13] = std::byte{0x99};
    put16(frame, l4 + 16, 0x1234);  // wrong
  } else {
    put16(frame, l4 + 4, static_cast<unsigned>(frame.size() - l4));
    put16(frame, l4 + 6, 0x1234);
  }
  for (std::size_t i = data; i < frame.size(); ++i) {
    frame[i] = static_cast<std::byte>(i * 7 + i / 256);
  }
  return frame;
}

}  // namespace orrery::test
