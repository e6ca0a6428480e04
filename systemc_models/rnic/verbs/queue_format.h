// The guest's queue formats, as the data path sees them: neutral work requests, completions and events.
//
// A personality implements QueueFormat for its own WQE, CQE, EQE and doorbell record layouts; nothing else of the
// data path knows them. Decoders get bytes that a guest wrote and may change while we look: they read each byte at
// most once, check sizes before use and never fail otherwise than by `SendOpcode::invalid` or `false`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "firmware/interface/contexts.h"

namespace orrery::rnic {

inline constexpr std::uint32_t block_bytes = 64;         // a basic block of a send queue
inline constexpr std::uint32_t max_work_request = 1024;  // bytes of the longest WQE, send or receive
inline constexpr std::uint32_t max_entries = 64;         // scatter/gather entries of one WQE

enum class SendOpcode : std::uint8_t {
  invalid,  // no opcode of the format, or a malformed WQE: completes with local_qp_operation
  nop,
  send,
  send_immediate,
  send_invalidate,
  write,
  write_immediate,
  read,
  compare_swap,
  fetch_add,
  masked_compare_swap,
  masked_fetch_add,
  local_invalidate,
  firmware,  // fast registration, UMR, memory windows: left to the firmware (EventCode::work_request)
  ethernet,  // raw frames, for the netdev engine: completes with local_qp_operation on a QP
  ethernet_lso,
};

constexpr bool is_send(SendOpcode op) {
  return op == SendOpcode::send || op == SendOpcode::send_immediate || op == SendOpcode::send_invalidate;
}
constexpr bool is_write(SendOpcode op) {
  return op == SendOpcode::write || op == SendOpcode::write_immediate;
}
constexpr bool is_atomic(SendOpcode op) {
  return op >= SendOpcode::compare_swap && op <= SendOpcode::masked_fetch_add;
}

// A piece of guest memory, or of the WQE itself.
struct DataEntry {
  std::uint64_t address = 0;  // guest's; of an inline entry: offset in the WQE
  std::uint32_t length = 0;   // bytes
  std::uint32_t key = 0;      // lkey
  bool is_inline = false;     // the data is in the WQE
};

// Where a UD message goes.
struct DatagramAddress {
  std::uint32_t qp = 0;  // 24 bits
  std::uint32_t qkey = 0;
  PathContext path;
};

struct SendWorkRequest {
  SendOpcode opcode = SendOpcode::invalid;
  std::uint8_t raw_opcode = 0;  // the format's own, for the CQE
  bool signalled = false;
  bool solicited = false;
  bool fence = false;           // not before every earlier READ and atomic of the QP has completed
  bool is_inline = false;       // some of its entries are; others may point to memory
  std::uint16_t index = 0;      // of its first block, for the CQE
  std::uint16_t blocks = 1;     // basic blocks it occupies, >= 1
  std::uint32_t immediate = 0;  // immediate data, or the key to invalidate
  std::uint32_t remote_key = 0;
  std::uint64_t remote_address = 0;
  std::uint64_t swap_add = 0;
  std::uint64_t compare = 0;
  std::uint64_t swap_mask = 0;     // masked atomics
  std::uint64_t compare_mask = 0;  // fetch_add: field boundaries
  std::uint32_t srq = none;        // XRC
  DatagramAddress datagram;        // UD, SMI, GSI
  std::uint64_t length = 0;        // bytes, sum of the entries
  std::uint32_t entry_count = 0;
  std::array<DataEntry, max_entries> entries;  // only the first entry_count are set
};

// A work request of an Ethernet send queue: nop, ethernet or ethernet_lso, else `invalid`. The frame is
// [header_offset, header_offset + header_bytes) of the WQE, then the entries.
struct FrameWorkRequest : SendWorkRequest {
  std::uint32_t header_offset = 0;
  std::uint32_t header_bytes = 0;
  std::uint32_t segment_bytes = 0;  // LSO: payload bytes of a frame (MSS)
  bool ip_checksum = false;         // of IPv4's header, to be written
  bool l4_checksum = false;         // of TCP or UDP
  bool insert_vlan = false;
  std::uint16_t vlan_tci = 0;
};

struct ReceiveWorkRequest {
  std::uint64_t length = 0;
  std::uint32_t entry_count = 0;
  std::uint16_t next = 0;  // SRQ: index of the entry that follows
  std::array<DataEntry, max_entries> entries;
};

// IBTA §11.6.2, completion return status.
enum class CompletionCode : std::uint8_t {
  success,
  local_length,
  local_qp_operation,
  local_protection,
  flushed,
  memory_window_bind,
  bad_response,
  local_access,
  remote_invalid_request,
  remote_access,
  remote_operation,
  transport_retry_exceeded,
  rnr_retry_exceeded,
  aborted,
};

enum class CompletionKind : std::uint8_t {
  request,  // a send queue's
  receive,  // SEND
  receive_immediate,
  receive_invalidate,
  receive_write_immediate,
};

// What the received packet had in front of its payload.
enum class NetworkHeader : std::uint8_t { absent, grh, ipv4, ipv6 };

// What was found in a received Ethernet frame.
struct FrameSummary {
  enum class Network : std::uint8_t { other, ipv6, ipv4 };
  enum class Transport : std::uint8_t { other, tcp, udp };
  Network network = Network::other;
  Transport transport = Transport::other;
  bool ip_ok = false;          // IPv4: the header's checksum; IPv6: it is whole
  bool l4_ok = false;          // TCP or UDP, not a fragment, checksum right
  std::uint16_t checksum = 0;  // one's complement sum of the IP packet, header included, not inverted
};

struct Completion {
  CompletionCode code = CompletionCode::success;
  CompletionKind kind = CompletionKind::request;
  std::uint8_t raw_opcode = 0;  // of the send WQE
  std::uint8_t service_level = 0;
  bool solicited = false;
  bool has_grh = false;
  NetworkHeader network = NetworkHeader::absent;
  std::uint8_t vendor_code = 0;  // of an error: our own detail, never 0 then
  std::uint16_t wqe_index = 0;
  std::uint16_t source_lid = 0;
  std::uint16_t pkey = 0;  // GSI
  std::uint32_t qp = 0;
  std::uint32_t user_index = 0;  // of the QP, or of the XRC SRQ
  std::uint32_t source_qp = 0;   // datagrams
  std::uint32_t immediate = 0;   // immediate data, or the key that was invalidated
  std::uint32_t byte_count = 0;
  FrameSummary frame;           // Ethernet receive queues
  std::uint64_t timestamp = 0;  // nanoseconds of simulated time
};

// An event queue entry: a completion event, or one that firmware or hardware reports to the driver.
struct Event {
  std::uint8_t type = 0;
  std::uint8_t subtype = 0;
  std::array<std::byte, 28> data{};  // in the format's layout and byte order
};

class QueueFormat {
 public:
  virtual ~QueueFormat() = default;

  // ---- Doorbell records: 8 bytes at the context's doorbell_record ---------------------------------------------
  // Counters are taken modulo 2^16 (queues) or 2^24 (CQs).
  [[nodiscard]] virtual std::uint16_t receive_producer(std::span<const std::byte, 8> record) const = 0;
  [[nodiscard]] virtual std::uint16_t send_producer(std::span<const std::byte, 8> record) const = 0;
  [[nodiscard]] virtual std::uint32_t cq_consumer(std::span<const std::byte, 8> record) const = 0;

  // ---- Work requests ------------------------------------------------------------------------------------------
  // Blocks of the WQE that begins with these 16 bytes or more, 1 … max_work_request / block_bytes.
  [[nodiscard]] virtual std::uint32_t send_blocks(std::span<const std::byte> head) const = 0;
  // `wqe` holds at least send_blocks() blocks. A malformed WQE gives `invalid`, with raw_opcode, index, blocks and
  // signalled as far as they could be read.
  virtual void decode_send(std::span<const std::byte> wqe, QpType type, SendWorkRequest& into) const = 0;
  // The same for an Ethernet send queue.
  virtual void decode_frame(std::span<const std::byte> wqe, FrameWorkRequest& into) const = 0;
  // `wqe`: one stride of a receive queue. False: malformed.
  [[nodiscard]] virtual bool decode_receive(std::span<const std::byte> wqe, ReceiveWorkRequest& into) const = 0;
  // The same for one of an SRQ, which begins with a link to the next.
  [[nodiscard]] virtual bool decode_srq(std::span<const std::byte> wqe, ReceiveWorkRequest& into) const = 0;

  // ---- Completions and events -----------------------------------------------------------------------------------
  // `into`: the CQ's entry size. `pass`: how often the ring has wrapped; its lowest bit is the ownership the
  // consumer waits for.
  virtual void encode_completion(const Completion& completion, std::uint32_t pass, std::span<std::byte> into) const = 0;
  [[nodiscard]] virtual std::uint32_t event_size() const = 0;  // <= 64
  virtual void encode_event(const Event& event, std::uint32_t pass, std::span<std::byte> into) const = 0;
  // The event that says "CQ `cqn` has completions".
  [[nodiscard]] virtual Event completion_event(std::uint32_t cqn) const = 0;

  // Value of an atomic operand fetched from memory, as the initiator's memory gets it.
  [[nodiscard]] virtual std::uint64_t atomic_result(std::uint64_t host_order) const = 0;
};

}  // namespace orrery::rnic
