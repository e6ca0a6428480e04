// The RNIC's hardware contexts: what the management firmware writes and the hardware blocks obey.
//
// One side is the firmware (native or bare-metal RISC-V), the other the RNIC's blocks; both include this file
// and nothing else of each other's. Terms are those of the InfiniBand Architecture Specification (IBTA),
// Volume 1; no guest interface (personality) shows here: the firmware translates a driver's commands into these.
//
// Layout: little-endian, naturally aligned, no implicit padding (asserted below); fields named `reserved*` are 0.
// Freestanding C++20: <cstdint> only.
//
// Guest addresses in contexts are what the function puts on the bus (IOVAs of its own domain). The hardware
// adds the function's window (FunctionContext) and never lets a function leave it.
#pragma once

#include <cstdint>

namespace orrery::rnic {

// Number spaces. A key (lkey, rkey) is mkey index << 8 | variant.
inline constexpr std::uint32_t max_functions = 64;
inline constexpr std::uint32_t max_qps = 1U << 17;
inline constexpr std::uint32_t max_cqs = 1U << 16;
inline constexpr std::uint32_t max_srqs = 1U << 16;
inline constexpr std::uint32_t max_eqs = 64;  // of one function
inline constexpr std::uint32_t max_mkeys = 1U << 20;
// Ethernet queues. A send queue's number on doorbells and in CQEs is max_qps + its index, so that it is no QP's.
inline constexpr std::uint32_t max_send_queues = 1U << 12;
inline constexpr std::uint32_t max_receive_queues = (1U << 12) + 1;
inline constexpr std::uint32_t max_addresses = 256;     // source address (GID) table entries of one function
inline constexpr std::uint32_t max_macs = 128;          // more unicast MAC addresses of one function
inline constexpr std::uint32_t max_counter_sets = 256;  // 0: none, its counters are nobody's
// InfiniBand ports travel over the same RoCE v2 fabric: the MAC address that stands for a LID, which every RNIC derives
// alike.
constexpr std::uint64_t lid_mac(std::uint32_t lid) {
  return 0x024f'4942'0000ULL | (lid & 0xffffU);
}
// And the GID.
constexpr void lid_gid(std::uint32_t lid, std::uint8_t (&gid)[16]) {
  constexpr std::uint8_t prefix[14] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x02, 0x4f, 0x49, 0x42, 0, 0};
  for (std::uint32_t i = 0; i < sizeof prefix; ++i) {
    gid[i] = prefix[i];
  }
  gid[14] = static_cast<std::uint8_t>(lid >> 8);
  gid[15] = static_cast<std::uint8_t>(lid);
}
inline constexpr std::uint32_t none = 0xffff'ffffU;  // "no such object" in a number field
// The reserved lkey of QPs that may use it (qp_reserved_key): bus addresses of the QP's function, for local reads and
// writes, in any protection domain. No context stands behind it: the firmware never creates these three keys.
inline constexpr std::uint32_t reserved_key = 0x0001'ff00U;
inline constexpr std::uint32_t null_key = 0x0001'fe00U;       // reads as zeroes, writes are dropped
inline constexpr std::uint32_t dump_fill_key = 0x0001'fd00U;  // as null_key

enum class ContextKind : std::uint32_t {
  function = 1,
  qp = 2,
  cq = 3,
  eq = 4,
  srq = 5,
  mkey = 6,
  address = 7,
  group = 8,
  fault = 9,            // read only: FaultRecord, by token
  send_queue = 10,      // FrameQueueContext, by max_qps + index
  receive_queue = 11,   // FrameQueueContext
  frame_counters = 12,  // read only: FrameCounters, by function
  queue_counters = 13,  // QueueCounters, by counter set; read, or set to 0 by destroying it
  mac = 14              // MacContext, by function * max_macs + i
};

// ---- Translation memory -------------------------------------------------------------------------------------
// The RNIC's own memory of 64-bit entries ("eMTT" where they carry a memory type), allocated by the firmware.
// Page entry: bits 63…12 page address; the rest are flags.
namespace translation {
inline constexpr std::uint64_t readable = 1U << 0;
inline constexpr std::uint64_t writable = 1U << 1;
// The page is device (GPU) memory at a host physical address: requests carry AT = 10b and go peer to peer.
// Without it: host memory at an IOVA, AT = 00b (Stellar, SIGCOMM 2025, §6). Only the host's side sets it.
inline constexpr std::uint64_t device_memory = 1U << 2;
// Device memory: which of the host's windows the page was in (FunctionWindows).
inline constexpr std::uint64_t window_mask = 0xff8;
inline constexpr unsigned window_shift = 3;
inline constexpr std::uint64_t address_mask = ~0xfffULL;
// Neither readable nor writable: not present; an access is a page fault (on-demand paging, revoked dma-buf).
}  // namespace translation

// A ring or buffer in guest memory: byte b of it is at page entry `translation + ((offset + b) >> page_shift)`,
// byte (offset + b) mod page size of that page.
struct QueueBuffer {
  std::uint32_t translation = none;  // index of the first page entry
  std::uint32_t page_count = 0;
  std::uint32_t page_shift = 12;  // 12 … 31
  std::uint32_t offset = 0;       // bytes into the first page
};

// ---- Function -----------------------------------------------------------------------------------------------
struct FunctionContext {
  std::uint64_t iova_base = 0;   // added to every address of the function
  std::uint64_t iova_limit = 0;  // addresses a with a >= limit are refused; 0: no limit
  std::uint64_t mac = 0;         // low 48 bits, first byte on the wire most significant
  std::uint32_t enabled = 0;     // 0: every doorbell is ignored and counted
  std::uint32_t mtu = 0;         // bytes of the largest Ethernet frame without FCS
  std::uint32_t promiscuous = 0;
  std::uint32_t roce = 0;         // RoCE packets are accepted
  std::uint32_t lid = 0;          // InfiniBand port type: local identifier; 0 on Ethernet
  std::uint32_t fault_eq = none;  // EQ for page faults
  std::uint32_t port_down = 0;    // by its driver's will: the function sends nothing and gets nothing
  std::uint32_t reserved = 0;
};

// ---- Source address table -----------------------------------------------------------------------------------
struct AddressContext {
  std::uint8_t gid[16] = {};  // network order; IPv4 as ::ffff:a.b.c.d
  std::uint64_t mac = 0;
  std::uint32_t vlan = none;       // VLAN id, or none
  std::uint32_t roce_version = 0;  // 1: RoCE v1, 2: RoCE v2; 0: entry unused
};

// A unicast address, besides FunctionContext::mac, whose frames the function gets.
struct MacContext {
  std::uint64_t mac = 0;  // low 48 bits, first byte on the wire most significant; 0: none
};

// ---- QP -----------------------------------------------------------------------------------------------------
enum class QpState : std::uint32_t { reset = 0, init = 1, rtr = 2, rts = 3, sqe = 4, sqd = 5, error = 6 };
// smi/gsi: QP0/QP1. control: work requests that are not sends; each is handed to the firmware (Event::work_request).
enum class QpType : std::uint32_t { rc = 0, uc = 1, ud = 2, xrc = 3, smi = 4, gsi = 5, control = 6 };

enum QpFlags : std::uint32_t {
  qp_has_send_queue = 1U << 0,
  qp_has_receive_queue = 1U << 1,  // own RQ; else `srq`, or none
  qp_reserved_key = 1U << 2,       // may use the reserved lkey (kernel QPs)
  qp_remote_read = 1U << 3,
  qp_remote_write = 1U << 4,
  qp_remote_atomic = 1U << 5,
  qp_signal_all = 1U << 6,
};

// Where a QP's packets go (IBTA §11.2.2.1 address vector; Annex A17 for RoCE v2).
struct PathContext {
  std::uint8_t remote_gid[16] = {};   // network order
  std::uint64_t remote_mac = 0;       // RoCE
  std::uint32_t remote_lid = 0;       // InfiniBand port type
  std::uint32_t address_index = 0;    // own entry of the source address table
  std::uint32_t udp_source_port = 0;  // 0: derived from the QP numbers
  std::uint32_t flow_label = 0;       // 20 bits
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;
  std::uint8_t service_level = 0;
  std::uint8_t has_grh = 0;
};

struct QpContext {
  QpState state = QpState::reset;
  QpType type = QpType::rc;
  std::uint32_t flags = 0;  // QpFlags
  std::uint32_t function = 0;
  std::uint32_t pd = 0;
  std::uint32_t uar = 0;         // the only UAR page whose doorbells reach this QP
  std::uint32_t user_index = 0;  // copied into CQEs
  std::uint32_t send_cq = none;
  std::uint32_t receive_cq = none;
  std::uint32_t srq = none;
  std::uint32_t xrc_domain = none;
  std::uint32_t log_receive_entries = 0;
  std::uint32_t log_receive_stride = 4;  // bytes
  std::uint32_t log_send_blocks = 0;     // basic blocks of 64 bytes
  std::uint32_t send_offset = 0;  // bytes from the start of `buffer` to the send queue; the receive queue is at 0
  QueueBuffer buffer;
  std::uint64_t doorbell_record = 0;  // receive producer (entries) at +0, send producer (blocks) at +4; big-endian
                                      // or little-endian as the personality has it
  std::uint32_t mtu = 0;              // bytes: 256 … 4096
  std::uint32_t log_max_message = 30;
  std::uint32_t remote_qp = 0;
  std::uint32_t send_psn = 0;     // first; 24 bits
  std::uint32_t receive_psn = 0;  // first expected; 24 bits
  std::uint32_t qkey = 0;
  std::uint32_t pkey_index = 0;
  std::uint32_t ack_timeout = 0;    // 4.096 µs * 2^n (IBTA §9.7.6.1.3); 0: none
  std::uint32_t retry_count = 0;    // 0 … 7
  std::uint32_t rnr_retry = 0;      // 0 … 6; 7: for ever
  std::uint32_t min_rnr_timer = 0;  // code 0 … 31 (IBTA Table 46)
  std::uint32_t max_read_out = 0;   // outstanding RDMA READs and atomics as requester
  std::uint32_t max_read_in = 0;    // as responder
  std::uint32_t counter_set = 0;    // QueueCounters that count for it
  std::uint32_t reserved = 0;
  PathContext path;
};

// ---- CQ, EQ, SRQ --------------------------------------------------------------------------------------------
enum CqFlags : std::uint32_t { cq_ignore_overrun = 1U << 0, cq_collapsed = 1U << 1 };

struct CqContext {
  std::uint32_t valid = 0;
  std::uint32_t function = 0;
  std::uint32_t flags = 0;  // CqFlags
  std::uint32_t uar = 0;
  std::uint32_t eq = none;
  std::uint32_t log_entries = 0;
  std::uint32_t entry_size = 64;  // bytes; 64 or 128
  std::uint32_t moderation_count = 0;
  std::uint32_t moderation_period_us = 0;
  std::uint32_t reserved = 0;
  QueueBuffer buffer;
  std::uint64_t doorbell_record = 0;  // consumer index at +0, last arm at +4
};

struct EqContext {
  std::uint32_t valid = 0;
  std::uint32_t function = 0;
  std::uint32_t uar = 0;
  std::uint32_t log_entries = 0;
  std::uint32_t vector = 0;  // MSI-X vector of the function
  std::uint32_t reserved = 0;
  QueueBuffer buffer;
};

// Receive entries linked by the driver: each begins with a "next" segment, the device follows from entry 0.
struct SrqContext {
  std::uint32_t valid = 0;
  std::uint32_t function = 0;
  std::uint32_t pd = 0;
  std::uint32_t log_entries = 0;
  std::uint32_t log_stride = 4;
  std::uint32_t limit = 0;  // armed watermark in entries; 0: not armed
  std::uint32_t xrc_domain = none;
  std::uint32_t cq = none;  // XRC: where receive completions go
  std::uint32_t user_index = 0;
  std::uint32_t reserved = 0;
  QueueBuffer buffer;
  std::uint64_t doorbell_record = 0;  // posted entries at +0
};

// ---- Memory key ---------------------------------------------------------------------------------------------
enum class KeyState : std::uint32_t { invalid = 0, free = 1, valid = 2 };
// physical: addresses go to the bus as they are. pages: through page entries. indirect: a list of other keys.
enum class KeyMode : std::uint32_t { physical = 0, pages = 1, indirect = 2 };
enum KeyAccess : std::uint32_t {
  key_local_read = 1U << 0,
  key_local_write = 1U << 1,
  key_remote_read = 1U << 2,
  key_remote_write = 1U << 3,
  key_remote_atomic = 1U << 4,
};

struct MkeyContext {
  KeyState state = KeyState::invalid;
  KeyMode mode = KeyMode::pages;
  std::uint32_t function = 0;
  std::uint32_t pd = 0;
  std::uint32_t access = 0;   // KeyAccess
  std::uint32_t variant = 0;  // low byte of the key; must match
  std::uint32_t qp = none;    // the only QP that may use it, or none
  std::uint32_t page_shift = 12;
  std::uint64_t start = 0;   // first address (Gva of the guest's program) of the region
  std::uint64_t length = 0;  // bytes; 0 with whole_space: 2^64
  std::uint32_t whole_space = 0;
  std::uint32_t translated = 0;      // page entries are to be translated by ATS before use
  std::uint32_t translation = none;  // pages: first page entry; that page contains `start`. indirect: first list entry
  std::uint32_t translation_count = 0;
};

// indirect: a list element is two consecutive translation memory words: key << 32 | byte count, then the address.
// A fixed element size (KSM) has byte count 0 and 1 << page_shift bytes.

// ---- Ethernet queues ------------------------------------------------------------------------------------------
enum class FrameQueueState : std::uint32_t { reset = 0, ready = 1, error = 3 };
enum FrameQueueFlags : std::uint32_t { frame_queue_reserved_key = 1U << 0 };  // may use the reserved lkey

// A send queue (WQEs of basic blocks of 64 bytes) or a cyclic receive queue. Only its state may be rewritten.
struct FrameQueueContext {
  FrameQueueState state = FrameQueueState::reset;
  std::uint32_t function = 0;
  std::uint32_t flags = 0;  // FrameQueueFlags
  std::uint32_t pd = 0;
  std::uint32_t uar = 0;  // send queue: the only UAR page whose doorbells reach it
  std::uint32_t cq = none;
  std::uint32_t user_index = 0;   // copied into CQEs
  std::uint32_t log_entries = 0;  // send queue: blocks. A receive queue with 0 drops everything
  std::uint32_t log_stride = 6;   // bytes; send queue: 6
  std::uint32_t counter_set = 0;  // receive queue: QueueCounters whose out_of_buffer counts for it
  QueueBuffer buffer;
  std::uint64_t doorbell_record = 0;  // receive producer (entries) at +0, send producer (blocks) at +4
};

// Frames of a function's vport; bytes from the destination MAC on, without FCS. RoCE packets, with ICRC, are counted
// by themselves: those that the function sends, repeated ones too, and those for an address of the function.
struct FrameCounter {
  std::uint64_t frames = 0;
  std::uint64_t bytes = 0;
};
struct FrameCounters {
  FrameCounter received_errors;  // too long, or a receive queue's error
  FrameCounter sent_errors;      // work requests in error
  FrameCounter received_unicast, sent_unicast;
  FrameCounter received_multicast, sent_multicast;
  FrameCounter received_broadcast, sent_broadcast;
  FrameCounter roce_received_unicast, roce_sent_unicast;
  FrameCounter roce_received_multicast, roce_sent_multicast;
  std::uint64_t no_buffer = 0;  // dropped for want of a receive WQE or a ready receive queue
};

// What the queues of a counter set have seen. They wrap.
struct QueueCounters {
  // As responder: requests executed.
  std::uint32_t write_requests = 0, read_requests = 0, atomic_requests = 0;
  std::uint32_t out_of_buffer = 0;       // packets for which there was no receive WQE
  std::uint32_t out_of_sequence = 0;     // packets that came before an earlier one
  std::uint32_t duplicate_requests = 0;  // packets that had arrived before
  std::uint32_t received_rnr_naks = 0;   // as requester
  std::uint32_t received_sequence_naks = 0;
  std::uint32_t acknowledge_timeouts = 0;  // packets sent again because no acknowledge had come
  // CQEs with an error, by side and kind. `errors` has all of them.
  std::uint32_t responder_errors = 0, responder_length = 0, responder_protection = 0, responder_flushed = 0;
  std::uint32_t requester_errors = 0, requester_length = 0, requester_protection = 0, requester_flushed = 0;
  std::uint32_t requester_operation = 0, requester_bad_response = 0, requester_bind = 0;
  std::uint32_t requester_invalid_request = 0, requester_remote_access = 0, requester_remote_operation = 0;
  std::uint32_t requester_retries_exceeded = 0, requester_rnr_exceeded = 0;
  // Negative acknowledges sent.
  std::uint32_t responder_invalid_request = 0, responder_remote_access = 0;
  std::uint32_t reserved = 0;
};

// A multicast group member (UD).
struct GroupContext {
  std::uint8_t gid[16] = {};
  std::uint32_t qp = none;
  std::uint32_t valid = 0;
};

// ---- Events of the hardware to the firmware (EVENT_FIFO of registers.h) -----------------------------------------
enum class EventCode : std::uint32_t {
  no_event = 0,
  qp_error = 1,            // object: QP; detail: a QpErrorCause. The QP is in the error state
  cq_overrun = 2,          // object: CQ
  srq_limit = 3,           // object: SRQ; the limit has disarmed itself
  srq_error = 4,           // object: SRQ
  last_receive = 5,        // object: QP on an SRQ whose last receive entry has completed
  communication = 6,       // object: QP in RTR received a first packet
  send_queue_drained = 7,  // object: QP in SQD
  page_fault = 8,          // object: QP; detail: token of a FaultRecord read through the context window
  work_request = 9,        // object: QP of type control, or with an opcode that the hardware leaves to the firmware;
                           // detail: index of the WQE. WORK_REQUEST window of registers.h holds its bytes
  path_migrated = 10,
};

enum class QpErrorCause : std::uint32_t {
  local = 1,        // a local error completed in a CQE
  bad_request = 2,  // remote invalid request, length, opcode
  access_violation = 3,
  fatal = 4,  // no CQE could say so (queue unreadable, CQ overrun)
};

// A page that an access found absent. The access waits until the firmware resumes or fails it by token.
enum FaultFlags : std::uint32_t {
  fault_responder = 1U << 0,  // the peer's request; else the QP's own work request
  fault_write = 1U << 1,      // the access writes guest memory
  fault_rdma = 1U << 2,       // by an rkey and virtual address; else by a WQE
};
struct FaultRecord {
  std::uint32_t token = none;  // one per QP and side
  std::uint32_t qp = none;
  std::uint32_t function = 0;
  std::uint32_t flags = 0;          // FaultFlags
  std::uint32_t key = 0;            // lkey or rkey
  std::uint32_t wqe_index = 0;      // of a WQE's access
  std::uint64_t address = 0;        // first absent byte
  std::uint32_t length = 0;         // bytes of the whole operation (RDMA), else of this access
  std::uint32_t packet_length = 0;  // bytes of this packet
  std::uint32_t committed = 0;      // bytes of the operation done before
  std::uint32_t reserved = 0;
};

static_assert(sizeof(MacContext) == 8 && sizeof(QueueBuffer) == 16 && sizeof(FunctionContext) == 56 &&
              sizeof(AddressContext) == 32);
static_assert(sizeof(PathContext) == 48 && sizeof(QpContext) == 200 && sizeof(CqContext) == 64);
static_assert(sizeof(EqContext) == 40 && sizeof(SrqContext) == 64 && sizeof(MkeyContext) == 64);
static_assert(sizeof(FaultRecord) == 48 && sizeof(FrameQueueContext) == 64 && sizeof(FrameCounters) == 200);
static_assert(sizeof(QueueCounters) == 112);

}  // namespace orrery::rnic
