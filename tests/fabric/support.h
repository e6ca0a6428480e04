// What the fabric's tests share: a listener that collects, RoCE headers of every opcode, tshark.
#pragma once

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/event_queue.h"
#include "fabric/packet_pool.h"
#include "fabric/port.h"
#include "fabric/roce_headers.h"

namespace orrery::fabric::testing {

// Keeps what arrives, with its time, and gives the contents back.
class Collector final : public PortListener {
 public:
  Collector(EventQueue& events, PacketPool& pool) : events_(events), pool_(pool) {}
  void on_packet(const Packet& packet) override {
    packets.push_back(packet);
    times.push_back(events_.now());
    if (!keep_contents) {
      pool_.release(packet.content);
    }
  }
  void on_transmit_ready() override { ready.push_back(events_.now()); }

  std::vector<Packet> packets;
  std::vector<Picoseconds> times;
  std::vector<Picoseconds> ready;
  bool keep_contents = false;

 private:
  EventQueue& events_;
  PacketPool& pool_;
};

inline std::uint64_t run_all(EventQueue& events) {
  std::uint64_t count = 0;
  while (events.run_one()) {
    ++count;
  }
  return count;
}

inline std::vector<std::uint8_t> valid_opcodes() {
  std::vector<std::uint8_t> opcodes;
  for (unsigned i = 0; i < 256; ++i) {
    if (layout_of(static_cast<std::uint8_t>(i)).valid) {
      opcodes.push_back(static_cast<std::uint8_t>(i));
    }
  }
  return opcodes;
}

// Headers with every field that the opcode has drawn at random, within its width.
inline RoceHeaders random_headers(std::mt19937_64& random, std::uint8_t opcode, RoceEncapsulation encapsulation,
                                  bool extended) {
  const OpcodeLayout& layout = layout_of(opcode);
  const auto bits = [&random](unsigned count) { return random() & ((std::uint64_t{1} << count) - 1); };
  const auto bits32 = [&bits](unsigned count) { return static_cast<std::uint32_t>(bits(count)); };
  RoceHeaders headers;
  NetworkHeaders& network = headers.network;
  network.destination_mac = {bits(48) & ~(std::uint64_t{1} << 40)};
  network.source_mac = {bits(48) & ~(std::uint64_t{1} << 40)};
  network.has_vlan = bits(1) != 0;
  network.vlan_tci = network.has_vlan ? static_cast<std::uint16_t>(bits(16)) : 0;
  network.encapsulation = encapsulation;
  network.ecn = static_cast<Ecn>(bits(2));
  network.dscp = static_cast<std::uint8_t>(bits(6));
  network.hop_limit = static_cast<std::uint8_t>(1 + bits(7));
  if (encapsulation == RoceEncapsulation::v2_ipv4) {
    network.identification = static_cast<std::uint16_t>(bits(16));
    network.source = gid_of_ipv4(0x0a00'0000U | bits32(16));
    network.destination = gid_of_ipv4(0x0a00'0000U | bits32(16));
  } else {
    network.flow_label = bits32(20);
    for (unsigned i = 0; i < 16; ++i) {
      network.source[i] = static_cast<std::uint8_t>(bits(8));
      network.destination[i] = static_cast<std::uint8_t>(bits(8));
    }
    network.source[0] = network.destination[0] = 0xfd;
  }
  if (encapsulation != RoceEncapsulation::v1) {
    network.udp_source_port = static_cast<std::uint16_t>(0xc000U | bits(14));
  }
  Bth& bth = headers.bth;
  bth.opcode = opcode;
  bth.solicited = bits(1) != 0;
  bth.migrated = bits(1) != 0;
  bth.pkey = static_cast<std::uint16_t>(bits(16));
  bth.fecn = bits(1) != 0;
  bth.becn = bits(1) != 0;
  bth.destination_qp = bits32(24);
  bth.ack_request = bits(1) != 0;
  bth.extended = extended && layout.extension != RoceExtension::none;
  bth.psn = bits32(24);
  if (layout.deth) {
    headers.deth = {bits32(32), bits32(24)};
  }
  if (layout.xrceth) {
    headers.xrc_srq = bits32(24);
  }
  if (layout.reth) {
    headers.reth = {random(), bits32(32), bits32(32)};
  }
  if (layout.atomic) {
    headers.atomic = {random(), bits32(32), random(), random()};
  }
  if (layout.aeth) {
    headers.aeth = {static_cast<std::uint8_t>(bits(5)), bits32(24)};
  }
  if (layout.atomic_ack) {
    headers.atomic_original = random();
  }
  if (layout.immediate) {
    headers.immediate = bits32(32);
  }
  if (layout.ieth) {
    headers.invalidate_rkey = bits32(32);
  }
  if (bth.extended && layout.extension == RoceExtension::acknowledge) {
    headers.ack = {bits32(24),
                   bits32(24),
                   random(),
                   static_cast<std::uint16_t>(bits(16)),
                   bits(1) != 0,
                   static_cast<std::uint8_t>(bits(8)),
                   static_cast<std::uint16_t>(bits(16))};
  } else if (bth.extended) {
    headers.placement = {bits32(24), bits32(24), bits32(32), 0, 0};
    if (layout.extension == RoceExtension::place_address) {
      headers.placement.address = random();
      headers.placement.rkey = bits32(32);
    }
  }
  return headers;
}

inline std::vector<std::byte> random_bytes(std::mt19937_64& random, std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::byte& b : bytes) {
    b = static_cast<std::byte>(random());
  }
  return bytes;
}

// CRC-32 of IEEE 802.3 §3.2.9, bit by bit, and the ICRC by the text of A16.4.3 and A17.4.5: independent of the codec.
inline std::uint32_t bitwise_crc32(const std::vector<std::byte>& bytes) {
  std::uint32_t remainder = 0xffff'ffffU;
  for (const std::byte byte : bytes) {
    for (unsigned bit = 0; bit < 8; ++bit) {  // least significant bit first
      const bool in = ((static_cast<unsigned>(byte) >> bit) & 1U) != 0;
      const bool out = (remainder >> 31) != 0;
      remainder <<= 1;
      if (in != out) {
        remainder ^= 0x04c1'1db7U;
      }
    }
  }
  std::uint32_t reflected = 0;
  for (unsigned bit = 0; bit < 32; ++bit) {
    reflected |= ((~remainder >> (31 - bit)) & 1U) << bit;
  }
  return reflected;
}

// Runs tshark over a capture; empty if it isn't installed. One string for each line of output.
inline bool have_tshark() {
  return std::system("command -v tshark >/dev/null 2>&1") == 0;  // NOLINT: a test's own command
}
inline std::vector<std::string> tshark(const std::string& file, const std::string& arguments) {
  const std::string command = "tshark -n -r '" + file + "' " + arguments + " 2>/dev/null";
  std::vector<std::string> lines;
  FILE* pipe = popen(command.c_str(), "r");
  std::array<char, 4096> buffer;
  std::string line;
  while (pipe != nullptr && std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) {
    line += buffer.data();
    if (!line.empty() && line.back() == '\n') {
      line.pop_back();
      lines.push_back(line);
      line.clear();
    }
  }
  if (pipe != nullptr) {
    pclose(pipe);
  }
  return lines;
}

}  // namespace orrery::fabric::testing
