// What two servers' processes say to each other over an instance link: docs/fabric.md, "Instance link".
//
// A byte stream of messages, little-endian. Plain structures and their bytes; what is said when, session.h knows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/bytes.h"
#include "common/time.h"
#include "fabric/packet.h"
#include "fabric/packet_pool.h"

namespace orrery::instance_link {

// Versions that this program speaks. Both sides use the newest that both speak.
inline constexpr std::uint16_t oldest_version = 1;
inline constexpr std::uint16_t newest_version = 1;

inline constexpr std::size_t header_bytes = 16;
inline constexpr std::size_t frame_prefix_bytes = 12;
inline constexpr std::size_t max_message_bytes = header_bytes + frame_prefix_bytes + fabric::max_frame_bytes;
inline constexpr std::size_t max_handshake_bytes = 2048;  // of a message before the peer has proved itself
inline constexpr std::size_t min_frame_bytes = 14;        // an Ethernet header
inline constexpr std::size_t max_name_bytes = 64;
inline constexpr std::size_t max_ranges = 64;
inline constexpr unsigned max_planes = 8;

using Nonce = std::array<std::byte, 32>;
using Proof = std::array<std::byte, 32>;

enum class Role : std::uint8_t { listener = 0, connector = 1 };

enum class MessageType : std::uint16_t { hello = 1, proof = 2, frame = 3, goodbye = 4 };

// Before every message. size: of the whole message. sequence: 0, 1, 2 … in each direction.
struct Header {
  std::uint32_t size = 0;
  MessageType type = MessageType::hello;
  std::uint16_t reserved = 0;
  std::uint64_t sequence = 0;
};

// Why a link ends; travels in a goodbye message. Numbers are part of the protocol.
enum class Refusal : std::uint16_t {
  none = 0,
  stopped = 1,             // the server ends, in order
  not_a_link = 2,          // the other side speaks something else
  version = 3,             // no common version
  role = 4,                // both listen, or both connect: the own words came back
  time_mode = 5,           // one runs in functional, one in timed mode
  planes = 6,              // no common plane
  token = 7,               // the proof is wrong: another token, or somebody without one
  name = 8,                // not the server that the configuration names
  duplicate_address = 9,   // addresses of the two servers (or of a third) are the same
  protocol = 10,           // malformed, out of order, too large
  connection_lost = 11,    // the stream ended without a word; never sent
  handshake_timeout = 12,  // no proof in time
};
// What a user reads: "the shared token differs". Numbers that are no Refusal are "an unknown reason".
const char* describe(Refusal reason);
// What would be right; may be empty.
const char* remedy(Refusal reason);

// MAC addresses first … last, both included, of functions of one server.
struct AddressRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;

  [[nodiscard]] bool contains(fabric::MacAddress address) const {
    return address.value >= first && address.value <= last;
  }
  [[nodiscard]] bool overlaps(const AddressRange& other) const { return first <= other.last && other.first <= last; }
  bool operator==(const AddressRange&) const = default;
};

struct Hello {
  std::uint16_t oldest = oldest_version;
  std::uint16_t newest = newest_version;
  Role role = Role::listener;
  bool timed = false;
  std::uint8_t planes = 0;  // bit p: plane p is on this link
  Nonce nonce{};
  std::string name;  // server.name, at most max_name_bytes of printable ASCII
  std::vector<AddressRange> addresses;

  bool operator==(const Hello&) const = default;
};

// Bits of a frame's flags.
namespace frame_flag {
inline constexpr std::uint8_t roce = 1;      // a RoCE packet of an RNIC's QP: decodes, and its ICRC is right
inline constexpr std::uint8_t bad_icrc = 2;  // damaged on its way, whatever the ICRC in it
inline constexpr std::uint8_t all = 3;
}  // namespace frame_flag

struct Frame {
  Picoseconds time;  // simulated, of the sender; never decreases on a link
  std::uint8_t plane = 0;
  std::uint8_t flags = 0;
  std::span<const std::byte> bytes;  // from the destination MAC on, without FCS
};

// Reads a header; `bytes` holds at least header_bytes.
Header decode_header(std::span<const std::byte> bytes);
void encode_header(const Header& header, std::span<std::byte> out);

// Bodies, without header. Decoders take any bytes.
std::vector<std::byte> encode_hello(const Hello& hello);
// Refusal::none, or what is wrong: not_a_link, version (no common one; the versions in `hello` are set then),
// protocol.
Refusal decode_hello(std::span<const std::byte> body, Hello& hello);
// The prefix of a frame's body.
void encode_frame_prefix(const Frame& frame, std::span<std::byte> out);
// None: too short or too long, a plane or a flag that isn't there. `bytes` of the result lie within `body`.
std::optional<Frame> decode_frame_body(std::span<const std::byte> body);

}  // namespace orrery::instance_link
