/* SPDX-License-Identifier: Apache-2.0
 *
 * Orrery GPU: register map of BAR0 and command format. C and C++.
 *
 * BARs
 *   BAR0  registers, 64 KiB, 32-bit, not prefetchable.
 *   BAR2  the first BAR2_SIZE bytes of GPU memory, 64-bit, prefetchable.
 *   BAR4  MSI-X table and PBA, 32-bit, not prefetchable.
 *
 * Access rules of BAR0. All values are little-endian. Reads of any size and alignment return the bytes
 * of the registers they cover. Writes must cover whole aligned 32-bit words (4 or 8 bytes, or more); any
 * other write changes nothing and counts in WRITES_IGNORED, as do writes to read-only or unassigned
 * words. Unassigned words read 0. A 64-bit register may be accessed as one 8-byte word or as two 4-byte
 * halves; reading the low half of a 64-bit counter latches its high half for the read that follows.
 *
 * Reset. Function-level and conventional reset put every register to its reset value (0 unless noted) and
 * erase the memory (it reads zero). An engine reset (ENGINE_CONTROL.RESET) stops the engine, forgets
 * every outstanding DMA, clears the ring, error and interrupt registers, and leaves memory, counters,
 * the profile record and SCRATCH alone. Writes that had already left before a reset may still arrive.
 */
#ifndef ORRERY_SYSTEMC_MODELS_GPU_GPU_REGISTERS_H
#define ORRERY_SYSTEMC_MODELS_GPU_GPU_REGISTERS_H

#include <stdint.h>

#define ORRERY_GPU_BAR_REGISTERS 0
#define ORRERY_GPU_BAR_MEMORY 2
#define ORRERY_GPU_BAR_MSIX 4
#define ORRERY_GPU_BAR0_SIZE 0x10000u
#define ORRERY_GPU_BAR4_SIZE 0x1000u
#define ORRERY_GPU_MSIX_TABLE_OFFSET 0x0u
#define ORRERY_GPU_MSIX_PBA_OFFSET 0x800u

/* ---- Identification (read-only unless noted) ---- */
#define ORRERY_GPU_ID 0x0000u            /* 32: ORRERY_GPU_ID_VALUE */
#define ORRERY_GPU_VERSION 0x0004u       /* 32: major << 16 | minor; a new major breaks drivers */
#define ORRERY_GPU_INDEX 0x0008u         /* 32: index of this GPU in the platform */
#define ORRERY_GPU_FEATURES 0x000cu      /* 32: ORRERY_GPU_FEATURE_* */
#define ORRERY_GPU_SERIAL 0x0010u        /* 64: the device serial number, see device_identity.h */
#define ORRERY_GPU_MEMORY_SIZE 0x0018u   /* 64: bytes of GPU memory */
#define ORRERY_GPU_BAR2_SIZE 0x0020u     /* 64: bytes of it that BAR2 shows, from offset 0 */
#define ORRERY_GPU_VECTORS 0x0028u       /* 32: number of MSI-X vectors */
#define ORRERY_GPU_RING_LOG2_MAX 0x002cu /* 32: largest RING_LOG2 */
#define ORRERY_GPU_SCRATCH 0x0030u       /* 32, read-write: no function; for driver self-tests */
#define ORRERY_GPU_TIME 0x0038u          /* 64: simulated time, ps */

#define ORRERY_GPU_ID_VALUE 0x5547524fu /* "ORGU" */
#define ORRERY_GPU_VERSION_VALUE 0x00010000u
#define ORRERY_GPU_FEATURE_F32 (1u << 0)
#define ORRERY_GPU_FEATURE_BF16 (1u << 1)
#define ORRERY_GPU_FEATURE_TIMED (1u << 8) /* the platform runs in timed mode: times are meaningful */

/* ---- Engine ---- */
#define ORRERY_GPU_ENGINE_CONTROL 0x0040u /* 32, read-write */
#define ORRERY_GPU_ENGINE_STATUS 0x0044u  /* 32: ORRERY_GPU_STATUS_* */

/* ENABLE 0 -> 1 checks RING_BASE and RING_LOG2 (error RING_CONFIG) and starts with HEAD = TAIL = 0.
 * ENABLE 1 -> 0 is an engine reset. RESET reads 0; written together with ENABLE, reset comes first
 * (and, as it clears the ring registers, ENABLE then fails with RING_CONFIG). */
#define ORRERY_GPU_CONTROL_ENABLE (1u << 0)
#define ORRERY_GPU_CONTROL_RESET (1u << 1)

#define ORRERY_GPU_STATUS_DISABLED 0u
#define ORRERY_GPU_STATUS_IDLE 1u /* every command up to TAIL is complete */
#define ORRERY_GPU_STATUS_BUSY 2u
#define ORRERY_GPU_STATUS_ERROR 3u /* halted: only an engine reset or a function reset leaves it */
/* No DMA starts in ERROR, and none is outstanding, but for a command that a bad doorbell interrupted. */

/* ---- Error record: valid while STATUS is ERROR ---- */
#define ORRERY_GPU_ERROR_CODE 0x0080u       /* 32: ORRERY_GPU_ERROR_* */
#define ORRERY_GPU_ERROR_COMMAND 0x0084u    /* 32: index (free running, as HEAD) of the failing command */
#define ORRERY_GPU_ERROR_ADDRESS 0x0088u    /* 64: bus address of the failed TLP, or the offending value */
#define ORRERY_GPU_ERROR_COMPLETION 0x0090u /* 32: completion status (1 UR, 2 CRS, 4 CA) of a DMA error, else 0 */
#define ORRERY_GPU_ERROR_TAG 0x0094u        /* 32: `tag` of the failing command, 0 if none was fetched */

#define ORRERY_GPU_ERROR_NONE 0u
#define ORRERY_GPU_ERROR_RING_CONFIG                                               \
  1u /* base not 64-byte aligned or wrapping, or size out of range; ADDRESS = base \
      */
#define ORRERY_GPU_ERROR_DOORBELL \
  2u /* engine disabled, or more than the ring holds, or less than TAIL; ADDRESS = the value written */
#define ORRERY_GPU_ERROR_RING_FETCH 3u /* a command could not be read */
#define ORRERY_GPU_ERROR_OPCODE 4u     /* unknown opcode; ADDRESS = opcode */
#define ORRERY_GPU_ERROR_FIELD 5u      /* unknown flag, flag not allowed, reserved field not 0, vector out of range */
#define ORRERY_GPU_ERROR_LENGTH 6u     /* 0, not a multiple of the element size, or not 0 where 0 is due */
#define ORRERY_GPU_ERROR_ADDRESS_RANGE \
  7u                                   /* own memory exceeded, or a bus address range that wraps; ADDRESS = operand */
#define ORRERY_GPU_ERROR_ALIGNMENT 8u  /* operand of a reduce or fence not aligned to its element; ADDRESS = operand */
#define ORRERY_GPU_ERROR_OVERLAP 9u    /* overlapping operands where that is refused; ADDRESS = destination */
#define ORRERY_GPU_ERROR_DMA_READ 10u  /* an operand could not be read */
#define ORRERY_GPU_ERROR_DMA_WRITE 11u /* an operand could not be written */

/* ---- Interrupts ----
 * Vector 0 reports errors; a command may name any vector. An event sets its bit of STATUS; if its bit
 * of ENABLE is set, it also sends the vector's MSI-X message. Setting an ENABLE bit later sends nothing. */
#define ORRERY_GPU_INTERRUPT_ENABLE 0x00c0u /* 32, read-write */
#define ORRERY_GPU_INTERRUPT_STATUS 0x00c4u /* 32, write 1 to clear */
#define ORRERY_GPU_VECTOR_COUNT 32u
#define ORRERY_GPU_VECTOR_ERROR 0u

/* ---- Command ring ----
 * RING_BASE and RING_LOG2 can be written only while the engine is disabled (else ignored and counted).
 * The ring has 1 << RING_LOG2 commands of 64 bytes. HEAD and TAIL are free-running 32-bit counts; the
 * command with count c lies in slot c mod ring size. HEAD counts the commands that are complete: their
 * slots may be reused, and everything they wrote has arrived. Commands execute in order, one at a time. */
#define ORRERY_GPU_RING_BASE 0x0100u /* 64, read-write: bus address, multiple of 64 */
#define ORRERY_GPU_RING_LOG2 0x0108u /* 32, read-write: 1 ... ORRERY_GPU_RING_LOG2_LIMIT */
#define ORRERY_GPU_RING_HEAD 0x010cu /* 32 */
#define ORRERY_GPU_RING_TAIL 0x0110u /* 32: the last doorbell accepted */
#define ORRERY_GPU_DOORBELL 0x1000u  /* 32, write-only (reads 0), on a page of its own: the new TAIL */
#define ORRERY_GPU_RING_LOG2_LIMIT 16u

/* ---- Counters: 64-bit, since the platform started unless noted. Payload bytes, headers not counted. ---- */
#define ORRERY_GPU_WRITE_BYTES_SENT 0x0200u /* memory writes, MSI-X messages (4 bytes each) included */
#define ORRERY_GPU_WRITE_BYTES_RECEIVED 0x0208u
#define ORRERY_GPU_READ_BYTES_REQUESTED 0x0210u
#define ORRERY_GPU_COMPLETION_BYTES_SENT 0x0218u
#define ORRERY_GPU_COMPLETION_BYTES_RECEIVED 0x0220u
#define ORRERY_GPU_MSIX_SENT 0x0228u
#define ORRERY_GPU_COMPLETION_ERRORS 0x0230u
#define ORRERY_GPU_UNEXPECTED_COMPLETIONS 0x0238u
/* The engine's own, since the last function reset. */
#define ORRERY_GPU_COMMANDS_COMPLETED 0x0240u
#define ORRERY_GPU_COMMANDS_FAILED 0x0248u
#define ORRERY_GPU_DOORBELLS 0x0250u
#define ORRERY_GPU_WRITES_IGNORED 0x0258u
#define ORRERY_GPU_DATA_BYTES 0x0260u /* sum of `length` over completed copies, fills and reduces */
#define ORRERY_GPU_BUSY_TIME 0x0268u  /* ps during which a command was executing */

/* ---- Profile: the last completed command that had ORRERY_GPU_FLAG_PROFILE ---- */
#define ORRERY_GPU_PROFILE_COUNT 0x0300u      /* 32: profiled commands since the last function reset */
#define ORRERY_GPU_PROFILE_TAG 0x0304u        /* 32: its tag */
#define ORRERY_GPU_PROFILE_START 0x0308u      /* 64: execution began, simulated ps */
#define ORRERY_GPU_PROFILE_END 0x0310u        /* 64: its last byte had arrived, simulated ps */
#define ORRERY_GPU_PROFILE_BYTES 0x0318u      /* 64: its length */
#define ORRERY_GPU_PROFILE_READ_HOPS 0x0320u  /* 32: entries of the read window */
#define ORRERY_GPU_PROFILE_WRITE_HOPS 0x0324u /* 32: entries of the write window */
/* What each hop added to the latency of one transaction: the one that finished last among the
 * command's DMA reads, and among its DMA writes (a write's confirmation included). Entries of 6 x 32 bits. */
#define ORRERY_GPU_PROFILE_READ_WINDOW 0x0400u
#define ORRERY_GPU_PROFILE_WRITE_WINDOW 0x0800u
#define ORRERY_GPU_PROFILE_MAX_HOPS 24u

struct orrery_gpu_hop {
  uint32_t component; /* id of a link, switch, root complex or memory in the platform's trace */
  uint32_t queue;     /* ps, waiting for an occupied link or port */
  uint32_t credit;    /* ps, waiting for flow-control credits */
  uint32_t serialise; /* ps, bytes on the wire */
  uint32_t propagate; /* ps, time of flight */
  uint32_t process;   /* ps, switch, root complex, translation, memory */
};

/* ---- Commands: 64 bytes, little-endian ----
 *
 * COPY            destination[i] = source[i] for `length` >= 1 bytes, any alignment. Within own memory
 *                 overlapping ranges behave as memmove(). Overlapping bus ranges are refused (OVERLAP). The
 *                 engine can't know that a bus address leads back to its own memory; nothing orders the
 *                 two names of one byte.
 * FILL            destination[i] = byte (i mod 4) of the low 32 bits of `value`; `length` >= 1 bytes.
 * REDUCE_F32_SUM  destination[i] = destination[i] + source[i], IEEE 754 binary32, round to nearest even,
 *                 subnormals kept. Length and operands multiples of 4. The two ranges, if of one kind, may
 *                 be the same or disjoint, else OVERLAP.
 * REDUCE_BF16_SUM the same for bfloat16 (upper half of binary32): both widened exactly, added in binary32,
 *                 the sum rounded to nearest even. Length and operands multiples of 2.
 *                 Either reduce: infinities as IEEE 754 says, overflow gives infinity, and every NaN
 *                 result is the quiet NaN 0x7fc00000 (binary32) or 0x7fc0 (bfloat16), whatever the operands.
 * FENCE           writes the 8 bytes of `value` to `destination` (multiple of 8) after everything before has
 *                 arrived. `length` and `source` must be 0.
 * NOP             nothing. All other fields must be 0 except `tag`, INTERRUPT, PROFILE and `vector`.
 *
 * An operand is an offset into GPU memory, or, if its BUS flag is set, a bus address (sent untranslated).
 * With INTERRUPT, interrupt `vector` is raised when the command is complete, ordered behind its writes.
 * `source` must be 0 in FILL; `value` must be 0 in COPY and REDUCE; its upper half in FILL.
 * On an error some of the destination may have been written, and nothing outside it.
 */
struct orrery_gpu_command {
  uint8_t opcode; /* ORRERY_GPU_OP_* */
  uint8_t flags;  /* ORRERY_GPU_FLAG_* */
  uint8_t vector; /* MSI-X vector; must be 0 without INTERRUPT */
  uint8_t reserved0;
  uint32_t tag; /* the driver's own; appears in the error and profile records */
  uint64_t length;
  uint64_t source;
  uint64_t destination;
  uint64_t value;
  uint64_t reserved1[3];
};

#define ORRERY_GPU_OP_NOP 0u
#define ORRERY_GPU_OP_COPY 1u
#define ORRERY_GPU_OP_FILL 2u
#define ORRERY_GPU_OP_REDUCE_F32_SUM 3u
#define ORRERY_GPU_OP_REDUCE_BF16_SUM 4u
#define ORRERY_GPU_OP_FENCE 5u

#define ORRERY_GPU_FLAG_SOURCE_BUS (1u << 0)
#define ORRERY_GPU_FLAG_DESTINATION_BUS (1u << 1)
#define ORRERY_GPU_FLAG_INTERRUPT (1u << 2)
#define ORRERY_GPU_FLAG_PROFILE (1u << 3)

#ifdef __cplusplus
static_assert(sizeof(struct orrery_gpu_command) == 64, "command format");
static_assert(sizeof(struct orrery_gpu_hop) == 24, "profile window format");
#else
_Static_assert(sizeof(struct orrery_gpu_command) == 64, "command format");
_Static_assert(sizeof(struct orrery_gpu_hop) == 24, "profile window format");
#endif

#endif
