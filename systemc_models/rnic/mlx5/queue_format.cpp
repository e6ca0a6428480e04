#include "systemc_models/rnic/mlx5/queue_format.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace orrery::rnic::mlx5 {
namespace {

// A field of a big-endian structure: byte offset of its 32-bit word, lowest bit, width.
struct Field {
  std::uint16_t offset;
  std::uint8_t shift = 0;
  std::uint8_t width = 32;
};

constexpr std::uint32_t swap32(std::uint32_t v) {
  return __builtin_bswap32(v);
}
constexpr std::uint64_t swap64(std::uint64_t v) {
  return __builtin_bswap64(v);
}

std::uint32_t word(std::span<const std::byte> at, std::size_t offset) {
  std::uint32_t value = 0;
  std::memcpy(&value, at.data() + offset, 4);
  return swap32(value);
}
std::uint64_t word64(std::span<const std::byte> at, std::size_t offset) {
  std::uint64_t value = 0;
  std::memcpy(&value, at.data() + offset, 8);
  return swap64(value);
}
constexpr std::uint32_t extract(std::uint32_t value, Field f) {
  return (value >> f.shift) & (f.width == 32 ? ~0U : (1U << f.width) - 1U);
}
std::uint32_t get(std::span<const std::byte> at, Field f) {
  return extract(word(at, f.offset), f);
}
void put_word(std::span<std::byte> at, std::size_t offset, std::uint32_t value) {
  value = swap32(value);
  std::memcpy(at.data() + offset, &value, 4);
}
// The field's bits must still be 0.
void put(std::span<std::byte> at, Field f, std::uint32_t value) {
  const std::uint32_t mask = f.width == 32 ? ~0U : (1U << f.width) - 1U;
  put_word(at, f.offset, word(at, f.offset) | ((value & mask) << f.shift));
}

constexpr std::size_t segment = 16;

namespace control {
constexpr Field wqe_index{0x00, 8, 16};
constexpr Field opcode{0x00, 0, 8};
constexpr Field segments{0x04, 0, 6};
constexpr Field fence{0x08, 5, 3};
constexpr Field completion{0x08, 3, 1};
constexpr Field solicited{0x08, 1, 1};
constexpr Field immediate{0x0c};
}  // namespace control

namespace vector {  // address vector of datagrams
constexpr std::size_t bytes = 48;
constexpr Field qkey{0x00};
constexpr Field qp{0x08, 0, 24};
constexpr Field service_level{0x0c, 24, 4};
constexpr Field lid_or_port{0x0c, 0, 16};
constexpr Field mac_high{0x14};
constexpr Field mac_low{0x18, 16, 16};
constexpr Field traffic_class{0x18, 8, 8};
constexpr Field hop_limit{0x18, 0, 8};
constexpr Field has_grh{0x1c, 30, 1};
constexpr Field source_index{0x1c, 20, 8};
constexpr Field flow_label{0x1c, 0, 20};
constexpr std::size_t gid = 0x20;
}  // namespace vector

namespace ethernet {  // segment of frames, after the control segment
constexpr std::size_t bytes = 16;
constexpr Field l3_checksum{0x04, 30, 1};
constexpr Field l4_checksum{0x04, 31, 1};
constexpr Field segment_bytes{0x04, 0, 16};
constexpr Field insert_vlan{0x0c, 31, 1};
constexpr Field vlan_tci{0x0c, 0, 16};
constexpr Field header_bytes{0x0c, 16, 10};
constexpr std::size_t header = 0x0e;  // goes on behind the segment, padded to 16 bytes
}  // namespace ethernet

namespace data_segment {
constexpr std::uint32_t inline_flag = 1U << 31;
constexpr std::uint32_t inline_length = 0x3ff;
constexpr std::uint32_t length_of_zero = 1U << 31;  // byte count 0 means 2 GiB
constexpr std::uint32_t end_of_list = 0x100;        // the key that ends a receive list
}  // namespace data_segment

namespace cqe {
constexpr Field checksum{0x14, 16, 16};
constexpr Field source_lid{0x14, 0, 16};
constexpr Field l4_ok{0x1c, 26, 1};
constexpr Field l3_ok{0x1c, 25, 1};
constexpr Field l4_type{0x1c, 20, 3};
constexpr Field l3_type{0x1c, 18, 2};
constexpr Field source_qp{0x18, 0, 24};
constexpr Field level_or_type{0x18, 24, 4};
constexpr Field has_grh{0x18, 28, 2};
constexpr Field user_index{0x20, 0, 24};
constexpr Field immediate{0x24};
constexpr Field byte_count{0x2c};
constexpr Field time_high{0x30};
constexpr Field time_low{0x34};
constexpr Field vendor_syndrome{0x34, 8, 8};
constexpr Field syndrome{0x34, 0, 8};
constexpr Field qp{0x38, 0, 24};
constexpr Field send_opcode{0x38, 24, 8};
constexpr Field counter{0x3c, 16, 16};
constexpr Field owner{0x3c, 0, 1};
constexpr Field solicited{0x3c, 1, 1};
constexpr Field opcode{0x3c, 4, 4};
constexpr std::uint32_t request_error = 0xd;
constexpr std::uint32_t receive_error = 0xe;
}  // namespace cqe

namespace eqe {
constexpr Field type{0x00, 16, 8};
constexpr Field subtype{0x00, 0, 8};
constexpr std::size_t data = 0x20;
constexpr std::size_t completion_cqn = 24;  // in data
constexpr Field owner{0x3c, 0, 1};
}  // namespace eqe

SendOpcode neutral_opcode(std::uint32_t raw) {
  switch (raw) {
    case 0x00:
      return SendOpcode::nop;
    case 0x01:
      return SendOpcode::send_invalidate;
    case 0x08:
      return SendOpcode::write;
    case 0x09:
      return SendOpcode::write_immediate;
    case 0x0a:
      return SendOpcode::send;
    case 0x0b:
      return SendOpcode::send_immediate;
    case 0x0e:
      return SendOpcode::ethernet_lso;
    case 0x10:
      return SendOpcode::read;
    case 0x11:
      return SendOpcode::compare_swap;
    case 0x12:
      return SendOpcode::fetch_add;
    case 0x14:
      return SendOpcode::masked_compare_swap;
    case 0x15:
      return SendOpcode::masked_fetch_add;
    case 0x18:  // memory window bind
    case 0x25:  // UMR
      return SendOpcode::firmware;
    default:
      return SendOpcode::invalid;
  }
}

// Appends the data segments of [at, end); false if malformed.
bool decode_data(std::span<const std::byte> wqe, std::size_t at, std::size_t end, SendWorkRequest& into) {
  while (at + segment <= end) {
    if (into.entry_count == max_entries) {
      return false;
    }
    const std::uint32_t count = word(wqe, at);
    DataEntry& entry = into.entries[into.entry_count];
    if ((count & data_segment::inline_flag) != 0) {
      const std::uint32_t length = count & data_segment::inline_length;
      if (length > end - at - 4) {
        return false;
      }
      into.is_inline = true;
      entry = {at + 4, length, 0, true};
      at += (4 + length + segment - 1) / segment * segment;
    } else {
      const std::uint32_t key = word(wqe, at + 4);
      entry = {word64(wqe, at + 8), count, key};
      at += segment;
      if (count == 0) {
        if (key == data_segment::end_of_list) {
          continue;
        }
        entry.length = data_segment::length_of_zero;
      }
    }
    into.length += entry.length;
    ++into.entry_count;
  }
  return true;
}

bool decode_list(std::span<const std::byte> wqe, std::size_t at, ReceiveWorkRequest& into) {
  into.length = 0;
  into.entry_count = 0;
  for (; at + segment <= wqe.size() && into.entry_count < max_entries; at += segment) {
    const std::uint32_t count = word(wqe, at) & ~data_segment::inline_flag;
    const std::uint32_t key = word(wqe, at + 4);
    if (key == data_segment::end_of_list) {
      break;
    }
    const DataEntry entry{word64(wqe, at + 8), count == 0 ? data_segment::length_of_zero : count, key};
    into.entries[into.entry_count++] = entry;
    into.length += entry.length;
  }
  return true;
}

void decode_vector(std::span<const std::byte> at, DatagramAddress& into) {
  into.qkey = get(at, vector::qkey);
  into.qp = get(at, vector::qp);
  PathContext& path = into.path;
  const std::uint32_t lid_or_port = get(at, vector::lid_or_port);
  path.service_level = static_cast<std::uint8_t>(get(at, vector::service_level));
  path.remote_lid = lid_or_port;
  path.udp_source_port = lid_or_port;
  path.remote_mac = (std::uint64_t{get(at, vector::mac_high)} << 16) | get(at, vector::mac_low);
  path.traffic_class = static_cast<std::uint8_t>(get(at, vector::traffic_class));
  path.hop_limit = static_cast<std::uint8_t>(get(at, vector::hop_limit));
  path.has_grh = static_cast<std::uint8_t>(get(at, vector::has_grh));
  path.address_index = get(at, vector::source_index);
  path.flow_label = get(at, vector::flow_label);
  std::memcpy(path.remote_gid, at.data() + vector::gid, sizeof(path.remote_gid));
}

// The control segment, into a request without data that is `invalid` as yet. Returns the WQE's end; 0: malformed.
std::size_t decode_control(std::span<const std::byte> wqe, SendWorkRequest& into) {
  const std::uint32_t segments = get(wqe, control::segments);
  const std::uint32_t first = word(wqe, 0x00);
  const std::uint32_t flags = word(wqe, 0x08);
  into.raw_opcode = static_cast<std::uint8_t>(extract(first, control::opcode));
  into.index = static_cast<std::uint16_t>(extract(first, control::wqe_index));
  into.blocks = static_cast<std::uint16_t>((std::max(1U, segments) + 3) / 4);
  into.signalled = extract(flags, control::completion) != 0;
  into.solicited = extract(flags, control::solicited) != 0;
  into.fence = extract(flags, control::fence) != 0;
  into.immediate = get(wqe, control::immediate);
  into.is_inline = false;
  into.length = 0;
  into.entry_count = 0;
  into.opcode = SendOpcode::invalid;
  return segments * segment <= wqe.size() ? segments * segment : 0;
}

std::uint32_t syndrome_of(CompletionCode code) {
  switch (code) {
    case CompletionCode::success:
      return 0;
    case CompletionCode::local_length:
      return 0x01;
    case CompletionCode::local_qp_operation:
      return 0x02;
    case CompletionCode::local_protection:
      return 0x04;
    case CompletionCode::flushed:
      return 0x05;
    case CompletionCode::memory_window_bind:
      return 0x06;
    case CompletionCode::bad_response:
      return 0x10;
    case CompletionCode::local_access:
      return 0x11;
    case CompletionCode::remote_invalid_request:
      return 0x12;
    case CompletionCode::remote_access:
      return 0x13;
    case CompletionCode::remote_operation:
      return 0x14;
    case CompletionCode::transport_retry_exceeded:
      return 0x15;
    case CompletionCode::rnr_retry_exceeded:
      return 0x16;
    case CompletionCode::aborted:
      return 0x22;
  }
  return 0x02;
}

std::uint32_t cqe_opcode(const Completion& c) {
  if (c.code != CompletionCode::success) {
    return c.kind == CompletionKind::request ? cqe::request_error : cqe::receive_error;
  }
  switch (c.kind) {
    case CompletionKind::request:
      return 0;
    case CompletionKind::receive_write_immediate:
      return 1;
    case CompletionKind::receive:
      return 2;
    case CompletionKind::receive_immediate:
      return 3;
    case CompletionKind::receive_invalidate:
      return 4;
  }
  return 0;
}

std::uint32_t l3_type(FrameSummary::Network network) {
  return network == FrameSummary::Network::ipv6 ? 1 : network == FrameSummary::Network::ipv4 ? 2 : 0;
}

std::uint32_t l4_type(FrameSummary::Transport transport) {
  return transport == FrameSummary::Transport::tcp ? 1 : transport == FrameSummary::Transport::udp ? 2 : 0;
}

std::uint32_t packet_type(NetworkHeader header) {
  switch (header) {
    case NetworkHeader::ipv6:
      return 1;
    case NetworkHeader::ipv4:
      return 2;
    default:
      return 0;
  }
}

}  // namespace

std::uint16_t Mlx5QueueFormat::receive_producer(std::span<const std::byte, 8> record) const {
  return static_cast<std::uint16_t>(word(record, 0));
}

std::uint16_t Mlx5QueueFormat::send_producer(std::span<const std::byte, 8> record) const {
  return static_cast<std::uint16_t>(word(record, 4));
}

std::uint32_t Mlx5QueueFormat::cq_consumer(std::span<const std::byte, 8> record) const {
  return word(record, 0) & 0xff'ffffU;
}

std::uint32_t Mlx5QueueFormat::send_blocks(std::span<const std::byte> head) const {
  const std::uint32_t segments = std::max(1U, get(head, control::segments));
  return (segments + 3) / 4;
}

void Mlx5QueueFormat::decode_send(std::span<const std::byte> wqe, QpType type, SendWorkRequest& into) const {
  const std::size_t end = decode_control(wqe, into);
  if (end == 0) {
    return;
  }
  const SendOpcode opcode = neutral_opcode(into.raw_opcode);
  if (opcode == SendOpcode::invalid || opcode == SendOpcode::nop || opcode == SendOpcode::ethernet_lso) {
    into.opcode = opcode;
    return;
  }
  if (opcode == SendOpcode::firmware || type == QpType::control) {
    into.opcode = SendOpcode::firmware;
    return;
  }
  std::size_t at = segment;
  if (type == QpType::xrc) {
    if (at + segment > end) {
      return;
    }
    into.srq = word(wqe, at) & 0xff'ffffU;
    at += segment;
  }
  if (type == QpType::ud || type == QpType::smi || type == QpType::gsi) {
    if (at + vector::bytes > end) {
      return;
    }
    decode_vector(wqe.subspan(at, vector::bytes), into.datagram);
    at += vector::bytes;
  }
  if (is_write(opcode) || opcode == SendOpcode::read || is_atomic(opcode)) {
    if (at + segment > end) {
      return;
    }
    into.remote_address = word64(wqe, at);
    into.remote_key = word(wqe, at + 8);
    at += segment;
  }
  if (is_atomic(opcode)) {
    const bool masked = opcode == SendOpcode::masked_compare_swap || opcode == SendOpcode::masked_fetch_add;
    const std::size_t bytes = masked ? 2 * segment : segment;
    if (at + bytes > end) {
      return;
    }
    into.swap_add = word64(wqe, at);
    into.compare = word64(wqe, at + 8);
    into.swap_mask = masked ? word64(wqe, at + 16) : ~std::uint64_t{0};
    into.compare_mask = masked ? word64(wqe, at + 24) : ~std::uint64_t{0};
    at += bytes;
  }
  if (decode_data(wqe, at, end, into)) {
    into.opcode = opcode;
  }
}

void Mlx5QueueFormat::decode_frame(std::span<const std::byte> wqe, FrameWorkRequest& into) const {
  constexpr std::uint32_t opcode_send = 0x0a, opcode_lso = 0x0e;
  into.header_offset = into.header_bytes = into.segment_bytes = 0;
  into.ip_checksum = into.l4_checksum = into.insert_vlan = false;
  const std::size_t end = decode_control(wqe, into);
  if (end == 0) {
    return;
  }
  if (into.raw_opcode == 0) {
    into.opcode = SendOpcode::nop;
    return;
  }
  const bool lso = into.raw_opcode == opcode_lso;
  if ((!lso && into.raw_opcode != opcode_send) || end < segment + ethernet::bytes) {
    return;
  }
  const std::span<const std::byte> frame = wqe.subspan(segment);
  const std::uint32_t flags = word(frame, 0x04);
  const std::uint32_t header = word(frame, 0x0c);
  into.ip_checksum = extract(flags, ethernet::l3_checksum) != 0;
  into.l4_checksum = extract(flags, ethernet::l4_checksum) != 0;
  into.segment_bytes = extract(flags, ethernet::segment_bytes);
  into.insert_vlan = extract(header, ethernet::insert_vlan) != 0;
  std::size_t at = segment + ethernet::bytes;
  if (into.insert_vlan) {
    into.vlan_tci = static_cast<std::uint16_t>(extract(header, ethernet::vlan_tci));
  } else if (const std::uint32_t bytes = extract(header, ethernet::header_bytes); bytes != 0) {
    into.header_offset = segment + ethernet::header;
    into.header_bytes = bytes;
    at = std::max(at, (into.header_offset + bytes + segment - 1) / segment * segment);
    if (at > end) {
      return;
    }
  }
  if (decode_data(wqe, at, end, into)) {
    into.opcode = lso ? SendOpcode::ethernet_lso : SendOpcode::ethernet;
  }
}

bool Mlx5QueueFormat::decode_receive(std::span<const std::byte> wqe, ReceiveWorkRequest& into) const {
  return decode_list(wqe, 0, into);
}

bool Mlx5QueueFormat::decode_srq(std::span<const std::byte> wqe, ReceiveWorkRequest& into) const {
  if (wqe.size() < segment) {
    return false;
  }
  into.next = static_cast<std::uint16_t>(word(wqe, 0));
  return decode_list(wqe, segment, into);
}

void Mlx5QueueFormat::encode_completion(const Completion& c, std::uint32_t pass, std::span<std::byte> into) const {
  std::fill(into.begin(), into.end(), std::byte{0});
  const std::span<std::byte> at = into.last(64);  // of a 128-byte entry: the upper half
  const bool good = c.code == CompletionCode::success;
  if (good) {
    put(at, cqe::checksum, c.frame.checksum);
    put(at, cqe::source_lid, c.source_lid);
    put(at, cqe::l4_ok, c.frame.l4_ok ? 1 : 0);
    put(at, cqe::l3_ok, c.frame.ip_ok ? 1 : 0);
    put(at, cqe::l4_type, l4_type(c.frame.transport));
    put(at, cqe::l3_type, l3_type(c.frame.network));
    put(at, cqe::source_qp, c.source_qp);
    put(at, cqe::level_or_type, c.network == NetworkHeader::absent ? c.service_level : packet_type(c.network));
    put(at, cqe::has_grh, c.has_grh ? 1 : 0);
    put(at, cqe::immediate, c.pkey != 0 ? c.pkey : c.immediate);
    put(at, cqe::byte_count, c.byte_count);
    put(at, cqe::time_high, static_cast<std::uint32_t>(c.timestamp >> 32));
    put(at, cqe::time_low, static_cast<std::uint32_t>(c.timestamp));
  } else {
    put(at, cqe::vendor_syndrome, c.vendor_code);
    put(at, cqe::syndrome, syndrome_of(c.code));
  }
  put(at, cqe::user_index, c.user_index);
  put(at, cqe::qp, c.qp);
  put(at, cqe::send_opcode, c.raw_opcode);
  put(at, cqe::counter, c.wqe_index);
  put(at, cqe::opcode, cqe_opcode(c));
  put(at, cqe::solicited, c.solicited ? 1 : 0);
  put(at, cqe::owner, pass & 1U);
}

void Mlx5QueueFormat::encode_event(const Event& event, std::uint32_t pass, std::span<std::byte> into) const {
  std::fill(into.begin(), into.end(), std::byte{0});
  put(into, eqe::type, event.type);
  put(into, eqe::subtype, event.subtype);
  std::copy(event.data.begin(), event.data.end(), into.begin() + eqe::data);
  put(into, eqe::owner, pass & 1U);
}

Event Mlx5QueueFormat::completion_event(std::uint32_t cqn) const {
  Event event;
  event.type = static_cast<std::uint8_t>(EventType::completion);
  put_word(event.data, eqe::completion_cqn, cqn);
  return event;
}

std::uint64_t Mlx5QueueFormat::atomic_result(std::uint64_t host_order) const {
  return host_order;
}

}  // namespace orrery::rnic::mlx5
