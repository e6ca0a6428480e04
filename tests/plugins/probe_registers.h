// The probe device: a plug-in model that does to the interface whatever a test asks for.
#pragma once

#include <cstdint>

namespace orrery::test::probe {

// BAR0 (4 KiB): registers of 8 bytes, answered with an access of any size up to 8.
inline constexpr std::uint64_t scratch = 0x00;      // a register like any other
inline constexpr std::uint64_t last_length = 0x08;  // of an access to BAR2 or BAR4
inline constexpr std::uint64_t accesses = 0x10;     // to BAR2 or BAR4 since the reset
inline constexpr std::uint64_t delay_ns = 0x18;     // annotated by every access to `slow`
inline constexpr std::uint64_t slow = 0x20;
inline constexpr std::uint64_t fail = 0x28;  // reads and writes answer with the response status in `answer`
inline constexpr std::uint64_t answer = 0x30;
inline constexpr std::uint64_t throws = 0x38;            // an exception leaves b_transport
inline constexpr std::uint64_t waits = 0x40;             // b_transport waits
inline constexpr std::uint64_t dma_inside = 0x48;        // b_transport starts a DMA
inline constexpr std::uint64_t send_msix = 0x50;         // written: the vector; from inside the access
inline constexpr std::uint64_t raise_irq = 0x58;         // written: level of irq(1)
inline constexpr std::uint64_t throw_in_process = 0x68;  // written: an exception leaves a process
inline constexpr std::uint64_t resets = 0x60;            // times the model was reset
// DMA: `workers` transactions, worker i at address + i * length to buffer + i * length. Written to `start`: how.
inline constexpr std::uint64_t address = 0x80;
inline constexpr std::uint64_t length = 0x88;
inline constexpr std::uint64_t flags = 0x90;         // flag_*
inline constexpr std::uint64_t workers = 0x98;       // 1 … 4
inline constexpr std::uint64_t annotated_ns = 0xa0;  // delay handed to the transport call
inline constexpr std::uint64_t start = 0xa8;         // start_*
inline constexpr std::uint64_t kill = 0xb0;          // written: the worker whose thread is killed
// Results, 0x40 bytes a worker.
inline constexpr std::uint64_t results = 0x200;
inline constexpr std::uint64_t result_size = 0x40;
inline constexpr std::uint64_t result_ended = 0x00;     // transactions that have ended since the reset
inline constexpr std::uint64_t result_response = 0x08;  // tlm_response_status + 16
inline constexpr std::uint64_t result_status = 0x10;    // completion status
inline constexpr std::uint64_t result_failed_address = 0x18;
inline constexpr std::uint64_t result_cancelled = 0x20;
inline constexpr std::uint64_t result_started = 0x28;   // ps
inline constexpr std::uint64_t result_finished = 0x30;  // ps
inline constexpr std::uint64_t result_returned = 0x38;  // ps, by the kernel's clock

inline constexpr std::uint64_t flag_write = 1;
inline constexpr std::uint64_t flag_confirm = 2;
inline constexpr std::uint64_t flag_translated = 4;
inline constexpr std::uint64_t flag_interrupt = 8;  // MSI-X vector 0 when worker 0 has ended
inline constexpr std::uint64_t flag_no_extension = 16;
inline constexpr std::uint64_t flag_ignore = 32;  // command IGNORE
inline constexpr std::uint64_t flag_byte_enables = 64;
inline constexpr std::uint64_t flag_streaming = 128;  // streaming width shorter than the data

inline constexpr std::uint64_t start_blocking = 0;
// nb_transport; BEGIN_RESP answered with TLM_COMPLETED, with TLM_UPDATED and END_RESP, or TLM_ACCEPTED and END_RESP
// 100 ns later.
inline constexpr std::uint64_t start_completed = 1;
inline constexpr std::uint64_t start_updated = 2;
inline constexpr std::uint64_t start_accepted = 3;

// BAR2 (64 KiB, 64-bit, prefetchable): memory, accesses as they come; also the DMA buffer.
// BAR4 (4 KiB): the buffer's first bytes, in accesses of at most 2 bytes.
inline constexpr std::uint64_t buffer_size = 0x10000;

}  // namespace orrery::test::probe
