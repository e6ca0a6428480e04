// The register map of the RNIC's management block: all that the management firmware can do to the hardware.
//
// Little-endian 32-bit registers, accessed as whole aligned words. Freestanding C++20: <cstdint> only.
// Access: R read-only, W write-only (reads 0), RW, W1C write 1 to clear; a write to R, and any access to an offset
// that isn't named here, is ignored (reads 0) and counted in BAD_ACCESSES. Reset values are 0 unless said.
// A 64-bit value is two registers, low half first; reading the low half latches the high one.
//
// Functions are numbered 0 … max_functions - 1. "Local" addresses are byte offsets into the block's SRAM, which the
// firmware sees at `sram`; DMA and bulk transfers move data between it, guest memory and the translation memory.
//
// Boot protocol: out of reset every function shows its guest "initializing" (and all else of the init segment 0),
// and ignores its command doorbells. The firmware sets up the init segment windows and its events, then writes
// READY. It then sleeps until (EVENT_PENDING & EVENT_ENABLE) != 0.
//
// A processor of its own (target riscv64) sleeps by writing WAIT and waiting for the block's only interrupt, MSI-X
// vector 0. WAIT arms it for one interrupt, which comes at once if an enabled event is pending already: an event
// between the firmware's last look and its sleep is not lost, and none comes while it works.
#pragma once

#include <cstdint>

namespace orrery::rnic::reg {

// ---- Identification, reset, events ----------------------------------------------------------------------------
inline constexpr std::uint32_t id = 0x0000;             // R: id_value
inline constexpr std::uint32_t version = 0x0004;        // R: major << 16 | minor of this map
inline constexpr std::uint32_t reset_cause = 0x0008;    // R: ResetCause
inline constexpr std::uint32_t ready = 0x000c;          // RW: 1: guests may use their functions. Can't be cleared
inline constexpr std::uint32_t event_pending = 0x0010;  // R; latched bits W1C: event_*
inline constexpr std::uint32_t event_enable = 0x0014;   // RW: events that wake the firmware
inline constexpr std::uint32_t event_set = 0x0018;      // W: event_software only: wakes the firmware again
inline constexpr std::uint32_t bad_accesses = 0x001c;   // R: accesses of the firmware that were ignored

inline constexpr std::uint32_t id_value = 0x4d52'524f;  // "ORRM"
inline constexpr std::uint32_t version_value = 0x0001'0001;
// `host`: PANIC. `lost`: the firmware's processor went away or was reset under a running firmware.
enum class ResetCause : std::uint32_t { power_on = 0, watchdog = 1, host = 2, lost = 3 };

// "level": pending for as long as its source is; the others are latched.
inline constexpr std::uint32_t event_command = 1U << 0;           // level: a COMMAND_DOORBELL is not 0
inline constexpr std::uint32_t event_init_written = 1U << 1;      // level: INIT_WRITTEN is not 0
inline constexpr std::uint32_t event_dma_done = 1U << 2;          // level: a DMA channel is done
inline constexpr std::uint32_t event_hardware = 1U << 3;          // level: the event FIFO is not empty
inline constexpr std::uint32_t event_function_reset = 1U << 4;    // level: FUNCTION_RESET is not 0
inline constexpr std::uint32_t event_timer = 1U << 5;             // latched: TIMER has been reached
inline constexpr std::uint32_t event_watchdog_warning = 1U << 6;  // latched: half of WATCHDOG_PERIOD is over
inline constexpr std::uint32_t event_context_idle = 1U << 7;      // latched: a destroyed context has drained
inline constexpr std::uint32_t event_software = 1U << 8;          // latched
inline constexpr std::uint32_t event_latched =
    event_timer | event_watchdog_warning | event_context_idle | event_software;

// ---- Time, watchdog -------------------------------------------------------------------------------------------
inline constexpr std::uint32_t time_low = 0x0020;  // R: microseconds of simulated time
inline constexpr std::uint32_t time_high = 0x0024;
inline constexpr std::uint32_t timer_low = 0x0028;  // RW: event_timer at this time; writing the high half arms it
inline constexpr std::uint32_t timer_high = 0x002c;
// The watchdog counts while an enabled event is pending, so that a sleeping firmware needs no alarm clock. A write
// to WATCHDOG_KICK, or no enabled event left, starts it anew. When the period is over: the crash record is
// written, every function shows its guest a fatal error (FATAL_SYNDROME) and is disabled, and the firmware
// is restarted with reset cause `watchdog`.
inline constexpr std::uint32_t watchdog_period = 0x0030;  // RW: microseconds; 0: off
inline constexpr std::uint32_t watchdog_kick = 0x0034;    // W
inline constexpr std::uint32_t fatal_syndrome = 0x0038;   // RW: what guests are shown when the watchdog fires
inline constexpr std::uint32_t panic = 0x003c;  // W: as if the watchdog had fired, now; the value is its syndrome

// ---- Straps: how this RNIC is built (R) -----------------------------------------------------------------------
inline constexpr std::uint32_t strap_functions = 0x0040;
inline constexpr std::uint32_t strap_port_type = 0x0044;  // PortType
inline constexpr std::uint32_t strap_vectors = 0x0048;    // MSI-X vectors of a function
inline constexpr std::uint32_t strap_uar_pages = 0x004c;  // UAR pages of a function, the init segment's included
inline constexpr std::uint32_t strap_translation_entries = 0x0050;
inline constexpr std::uint32_t strap_guid_low = 0x0058;  // EUI-64 of function 0's port; function f has + f
inline constexpr std::uint32_t strap_guid_high = 0x005c;
inline constexpr std::uint32_t strap_mac_low = 0x0060;  // of function 0; function f has + f
inline constexpr std::uint32_t strap_mac_high = 0x0064;
inline constexpr std::uint32_t strap_lid = 0x0068;        // InfiniBand: local identifier of function 0, not 0
inline constexpr std::uint32_t strap_link_gbps = 0x006c;  // 100, 200, 400
inline constexpr std::uint32_t strap_board = 0x0070;      // number of this RNIC in its server
inline constexpr std::uint32_t strap_sram_bytes = 0x0074;
enum class PortType : std::uint32_t { infiniband = 0, ethernet = 1 };

// Fault injection, for tests of drivers: the firmware answers the next FAULT_COUNT commands with this opcode with
// this status and does nothing else about them.
inline constexpr std::uint32_t fault_opcode = 0x0080;    // RW
inline constexpr std::uint32_t fault_status = 0x0084;    // RW
inline constexpr std::uint32_t fault_syndrome = 0x0088;  // RW
inline constexpr std::uint32_t fault_count = 0x008c;     // RW; the firmware counts it down; all ones: every one

// Command trace: the firmware writes what it did; the write to TRACE_COMMIT hands it to whoever listens.
inline constexpr std::uint32_t trace_command = 0x0090;   // RW: opcode << 16 | op_mod
inline constexpr std::uint32_t trace_status = 0x0094;    // RW: delivery << 8 | status
inline constexpr std::uint32_t trace_syndrome = 0x0098;  // RW
inline constexpr std::uint32_t trace_commit = 0x009c;    // W: function

// The firmware has done all it can for now: one interrupt as soon as an enabled event is pending.
inline constexpr std::uint32_t wait = 0x00a0;  // W; R: 1 while armed

// ---- What guests did (by function; bit f of a pair of registers, or register f) --------------------------------
inline constexpr std::uint32_t command_functions_low = 0x0100;  // R: functions with a doorbell
inline constexpr std::uint32_t command_functions_high = 0x0104;
inline constexpr std::uint32_t init_written_low = 0x0108;  // W1C: NIC_INTERFACE was written by the guest
inline constexpr std::uint32_t init_written_high = 0x010c;
inline constexpr std::uint32_t function_reset_low = 0x0110;   // W1C: reset; the hardware has dropped its contexts,
inline constexpr std::uint32_t function_reset_high = 0x0114;  // doorbells and DMA, the firmware must forget the rest
inline constexpr std::uint32_t command_doorbell = 0x0200;     // + 4 f, W1C: slots whose entry is the device's
inline constexpr std::uint32_t command_queue_low = 0x0400;    // + 8 f, R: bus address of the command queue
inline constexpr std::uint32_t command_queue_high = 0x0404;
// + 4 f, RW: state shown to the guest; the guest's own writes set it too. A reset sets `disabled` if the function
// had a command queue.
inline constexpr std::uint32_t nic_interface = 0x0600;
enum class NicInterface : std::uint32_t { full = 0, disabled = 1, no_dram = 2, software_reset = 7 };

// ---- DMA: channels of 0x20 bytes ---------------------------------------------------------------------------------
inline constexpr std::uint32_t dma_channels = 4;
inline constexpr std::uint32_t dma_stride = 0x20;
inline constexpr std::uint32_t dma_function = 0x0800;  // + channel * dma_stride; RW
inline constexpr std::uint32_t dma_address_low = 0x0804;
inline constexpr std::uint32_t dma_address_high = 0x0808;
inline constexpr std::uint32_t dma_local = 0x080c;
inline constexpr std::uint32_t dma_length = 0x0810;   // bytes, >= 1
inline constexpr std::uint32_t dma_control = 0x0814;  // W: DmaCommand; starts. Not while busy
inline constexpr std::uint32_t dma_status = 0x0818;   // R: DmaStatus; W: any value acknowledges done or error
// read: from the guest into SRAM. write: posted; done when its last byte has left, a later write follows it.
enum class DmaCommand : std::uint32_t { read = 1, write = 2 };
enum class DmaStatus : std::uint32_t { idle = 0, busy = 1, done = 2, error = 3 };

// ---- Contexts (contexts.h) ----------------------------------------------------------------------------------------
// INDEX: an EQ's is function * max_eqs + eqn, a source address' function * max_addresses + i.
inline constexpr std::uint32_t context_kind = 0x0900;    // RW: ContextKind
inline constexpr std::uint32_t context_index = 0x0904;   // RW
inline constexpr std::uint32_t context_op = 0x0908;      // W: ContextOp; done when the write returns
inline constexpr std::uint32_t context_status = 0x090c;  // R: ContextStatus of the last one
inline constexpr std::uint32_t context_value = 0x0910;   // RW: operand of arm_srq, resume_fault
inline constexpr std::uint32_t context_data = 0x0a00;    // RW: 64 words; the structure of that kind
inline constexpr std::uint32_t context_words = 64;
enum class ContextOp : std::uint32_t {
  write = 1,           // creates or changes it: DATA
  read = 2,            // into DATA
  destroy = 3,         // `draining`: its number must not be used again until event_context_idle and query says ok
  query = 4,           // ok: no DMA on its behalf is left; else draining
  reset_function = 5,  // INDEX: function: every context of it is gone
  arm_srq = 6,         // VALUE: limit
  resume_fault = 7,    // INDEX: token; VALUE: 1: it failed
};
enum class ContextStatus : std::uint32_t { ok = 0, bad_index = 1, bad_value = 2, wrong_state = 3, draining = 4 };

// ---- Translation memory -------------------------------------------------------------------------------------------
inline constexpr std::uint32_t translation_index = 0x0b00;  // RW; goes on by one with each access to the high half
inline constexpr std::uint32_t translation_low = 0x0b04;    // RW
inline constexpr std::uint32_t translation_high = 0x0b08;   // RW: a write writes the entry
// Many entries at once, from a list in SRAM as drivers give them.
inline constexpr std::uint32_t bulk_local = 0x0b10;   // RW: multiple of 8
inline constexpr std::uint32_t bulk_index = 0x0b14;   // RW: first translation entry
inline constexpr std::uint32_t bulk_count = 0x0b18;   // RW: elements of the list
inline constexpr std::uint32_t bulk_flags = 0x0b1c;   // RW: `pages`: flags of the entries; `fill`: the low half
inline constexpr std::uint32_t bulk_start = 0x0b20;   // W: BulkFormat; done when the write returns
inline constexpr std::uint32_t bulk_status = 0x0b24;  // R: ContextStatus
// RW: whose pages `pages` and `page_flags` name. The host's side gives each its memory type: the firmware can't.
inline constexpr std::uint32_t bulk_function = 0x0b28;
enum class BulkFormat : std::uint32_t {
  pages = 1,       // big-endian 64-bit page addresses; low 12 bits replaced by FLAGS
  page_flags = 2,  // big-endian 64-bit page addresses with `readable` and `writable` in bits 0 and 1
  keys = 3,        // big-endian byte count, key, address: two entries each (indirect keys)
  fixed_keys = 4,  // big-endian reserved, key, address: two entries each, byte count 0
  fill = 5,        // no list: every entry is FLAGS
};

// ---- Event queue entries of the firmware's own ----------------------------------------------------------------------
inline constexpr std::uint32_t eqe_function = 0x0b40;  // RW
inline constexpr std::uint32_t eqe_eqn = 0x0b44;       // RW
inline constexpr std::uint32_t eqe_type = 0x0b48;      // RW: type << 8 | subtype
inline constexpr std::uint32_t eqe_data = 0x0b4c;      // RW: 7 words, the first in memory first, low byte first
inline constexpr std::uint32_t eqe_push = 0x0b68;      // W
inline constexpr std::uint32_t eqe_status = 0x0b6c;    // R: ContextStatus of the last push

// ---- Hardware event FIFO
inline constexpr std::uint32_t fifo_code = 0x0b80;  // R: EventCode of the oldest; 0: empty
inline constexpr std::uint32_t fifo_function = 0x0b84;
inline constexpr std::uint32_t fifo_object = 0x0b88;
inline constexpr std::uint32_t fifo_detail = 0x0b8c;
inline constexpr std::uint32_t fifo_pop = 0x0b90;   // W: drops the oldest
inline constexpr std::uint32_t fifo_lost = 0x0b94;  // R: events that found it full

// ---- Work requests that the hardware leaves to the firmware (EventCode::work_request)
inline constexpr std::uint32_t work_qp = 0x0bc0;        // W: loads the WQE that QP `value` waits for
inline constexpr std::uint32_t work_length = 0x0bc4;    // R: its bytes; 0: none waits
inline constexpr std::uint32_t work_complete = 0x0bc8;  // W: WorkResult: ends it; its queue goes on
inline constexpr std::uint32_t work_data = 0x1000;      // R: 256 words, as in guest memory
inline constexpr std::uint32_t work_words = 256;
enum class WorkResult : std::uint32_t {
  success = 0,
  local_qp_operation = 1,
  local_protection = 2,
  memory_window_bind = 3,
};

// ---- Init segment: what the guest reads at the start of BAR0 -----------------------------------------------------
// Raw bytes in guest order. The BAR adapter puts its own over: NIC_INTERFACE, "initializing", timers, the health
// counter and the health syndrome of a fatal error.
inline constexpr std::uint32_t init_select = 0x0bd0;   // RW: function whose segment is in the window
inline constexpr std::uint32_t init_segment = 0x2000;  // RW: 4 KiB
inline constexpr std::uint32_t init_segment_bytes = 0x1000;

// ---- Crash record: kept over a restart of the firmware -----------------------------------------------------------
// Word 0 count of crashes, 1 ResetCause, 2 syndrome, 3 EVENT_PENDING, 4/5 time, 6 last TRACE_COMMAND, 7 EVENT_ENABLE;
// words 16 … 63 are the firmware's own.
inline constexpr std::uint32_t crash_record = 0x1400;  // RW
inline constexpr std::uint32_t crash_words = 64;

// ---- SRAM
inline constexpr std::uint32_t sram = 0x10'0000;  // RW: STRAP_SRAM_BYTES
inline constexpr std::uint32_t sram_bytes = 0x10'0000;

}  // namespace orrery::rnic::reg
