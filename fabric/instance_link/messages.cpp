#include "fabric/instance_link/messages.h"

#include <algorithm>
#include <cstring>

namespace orrery::instance_link {

namespace {

constexpr std::array<char, 8> magic = {'O', 'R', 'R', 'Y', 'L', 'I', 'N', 'K'};
constexpr std::uint64_t largest_address = 0xffff'ffff'ffffU;
constexpr std::uint64_t group_bit = std::uint64_t{1} << 40;

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 127; });
}

}  // namespace

const char* describe(Refusal reason) {
  switch (reason) {
    case Refusal::none:
      return "no reason";
    case Refusal::stopped:
      return "the server has stopped";
    case Refusal::not_a_link:
      return "what is there isn't an Orrery instance link";
    case Refusal::version:
      return "no version of the link's protocol is common to both";
    case Refusal::role:
      return "both ends have the same role";
    case Refusal::time_mode:
      return "one server is in functional mode, the other in timed mode";
    case Refusal::planes:
      return "the two ends have no plane in common";
    case Refusal::token:
      return "the shared token differs";
    case Refusal::name:
      return "it isn't the server that the configuration names";
    case Refusal::duplicate_address:
      return "RNICs of two servers have the same addresses";
    case Refusal::protocol:
      return "a message broke the protocol";
    case Refusal::connection_lost:
      return "the connection was lost";
    case Refusal::handshake_timeout:
      return "the handshake took too long";
  }
  return "an unknown reason";
}

const char* remedy(Refusal reason) {
  switch (reason) {
    case Refusal::not_a_link:
      return "check network.link.N.address";
    case Refusal::version:
      return "run the same version of Orrery on both sides";
    case Refusal::role:
      return "give one side network.link.N.listen = true, the other false";
    case Refusal::time_mode:
      return "linked servers run in functional mode";
    case Refusal::planes:
      return "give both sides the same network.link.N.planes";
    case Refusal::token:
      return "give both sides the same contents in network.link.N.token_file";
    case Refusal::name:
      return "make network.link.N.peer the other side's server.name, or leave it out";
    case Refusal::duplicate_address:
      return "give each server a server.index of its own";
    default:
      return "";
  }
}

Header decode_header(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  Header header;
  header.size = in.get<std::uint32_t>();
  header.type = static_cast<MessageType>(in.get<std::uint16_t>());
  header.reserved = in.get<std::uint16_t>();
  header.sequence = in.get<std::uint64_t>();
  return header;
}

void encode_header(const Header& header, std::span<std::byte> out) {
  const auto type = static_cast<std::uint16_t>(header.type);
  std::memcpy(out.data(), &header.size, 4);
  std::memcpy(out.data() + 4, &type, 2);
  std::memcpy(out.data() + 6, &header.reserved, 2);
  std::memcpy(out.data() + 8, &header.sequence, 8);
}

std::vector<std::byte> encode_hello(const Hello& hello) {
  ByteWriter out;
  out.put(std::as_bytes(std::span(magic)));
  out.put(hello.oldest);
  out.put(hello.newest);
  out.put(static_cast<std::uint8_t>(hello.role));
  out.put(static_cast<std::uint8_t>(hello.timed ? 1 : 0));
  out.put(hello.planes);
  out.put(static_cast<std::uint8_t>(hello.addresses.size()));
  out.put(std::span<const std::byte>(hello.nonce));
  out.put_text(hello.name);
  for (const AddressRange& range : hello.addresses) {
    out.put(range.first);
    out.put(range.last);
  }
  return {out.bytes().begin(), out.bytes().end()};
}

Refusal decode_hello(std::span<const std::byte> body, Hello& hello) {
  ByteReader in(body);
  const std::span<const std::byte> its_magic = in.take(magic.size());
  if (its_magic.empty() || std::memcmp(its_magic.data(), magic.data(), magic.size()) != 0) {
    return Refusal::not_a_link;
  }
  hello.oldest = in.get<std::uint16_t>();
  hello.newest = in.get<std::uint16_t>();
  if (!in.good() || hello.oldest > hello.newest) {
    return Refusal::protocol;
  }
  if (hello.oldest > newest_version || hello.newest < oldest_version) {
    return Refusal::version;  // what follows may have any form
  }
  const auto role = in.get<std::uint8_t>();
  const auto timed = in.get<std::uint8_t>();
  hello.planes = in.get<std::uint8_t>();
  const auto ranges = in.get<std::uint8_t>();
  const std::span<const std::byte> nonce = in.take(hello.nonce.size());
  const auto name_bytes = in.get<std::uint32_t>();
  if (!in.good() || role > 1 || timed > 1 || ranges > max_ranges || name_bytes == 0 || name_bytes > max_name_bytes) {
    return Refusal::protocol;
  }
  const std::span<const std::byte> name = in.take(name_bytes);
  hello.role = static_cast<Role>(role);
  hello.timed = timed != 0;
  std::copy(nonce.begin(), nonce.end(), hello.nonce.begin());
  hello.name.assign(reinterpret_cast<const char*>(name.data()), name.size());
  hello.addresses.clear();
  for (unsigned i = 0; i < ranges; ++i) {
    AddressRange range;
    range.first = in.get<std::uint64_t>();
    range.last = in.get<std::uint64_t>();
    if (range.first == 0 || range.first > range.last || range.last > largest_address ||
        ((range.first | range.last) & group_bit) != 0) {
      return Refusal::protocol;
    }
    hello.addresses.push_back(range);
  }
  if (!in.good() || in.left() != 0 || !is_printable(hello.name)) {
    return Refusal::protocol;
  }
  return Refusal::none;
}

void encode_frame_prefix(const Frame& frame, std::span<std::byte> out) {
  std::memcpy(out.data(), &frame.time.count, 8);
  out[8] = static_cast<std::byte>(frame.plane);
  out[9] = static_cast<std::byte>(frame.flags);
  out[10] = out[11] = std::byte{0};
}

std::optional<Frame> decode_frame_body(std::span<const std::byte> body) {
  if (body.size() < frame_prefix_bytes + min_frame_bytes ||
      body.size() > frame_prefix_bytes + fabric::max_frame_bytes) {
    return std::nullopt;
  }
  ByteReader in(body);
  Frame frame;
  frame.time = {in.get<std::uint64_t>()};
  frame.plane = in.get<std::uint8_t>();
  frame.flags = in.get<std::uint8_t>();
  const auto reserved = in.get<std::uint16_t>();
  if (frame.plane >= max_planes || (frame.flags & ~frame_flag::all) != 0 || reserved != 0) {
    return std::nullopt;
  }
  frame.bytes = body.subspan(frame_prefix_bytes);
  return frame;
}

}  // namespace orrery::instance_link
