/* SPDX-License-Identifier: Apache-2.0
 *
 * Orrery RNIC, self-test personality: register map of BAR0. C and C++.
 *
 * This is the PCI function alone: identification, a page that counts writes, port counters and a DMA
 * self-test engine. It has no verbs, queues or network port.
 *
 * BARs
 *   BAR0  registers, 64 KiB, 32-bit, not prefetchable.
 *   BAR4  MSI-X table and PBA, 32-bit, not prefetchable.
 *
 * Access rules are the GPU's (gpu_registers.h): little-endian; reads of any size; writes of whole aligned
 * 32-bit words, others ignored and counted; reading the low half of a 64-bit counter latches its high half.
 * A function-level or conventional reset puts every register to its reset value (0 unless noted).
 */
#ifndef ORRERY_SYSTEMC_MODELS_RNIC_RNIC_REGISTERS_H
#define ORRERY_SYSTEMC_MODELS_RNIC_RNIC_REGISTERS_H

#include <stdint.h>

#define ORRERY_RNIC_BAR_REGISTERS 0
#define ORRERY_RNIC_BAR_MSIX 4
#define ORRERY_RNIC_BAR0_SIZE 0x10000u
#define ORRERY_RNIC_BAR4_SIZE 0x1000u
#define ORRERY_RNIC_MSIX_TABLE_OFFSET 0x0u
#define ORRERY_RNIC_MSIX_PBA_OFFSET 0x800u

/* ---- Identification (read-only unless noted) ---- */
#define ORRERY_RNIC_ID 0x0000u       /* 32: ORRERY_RNIC_ID_VALUE */
#define ORRERY_RNIC_VERSION 0x0004u  /* 32: major << 16 | minor */
#define ORRERY_RNIC_INDEX 0x0008u    /* 32: index of this RNIC in the platform */
#define ORRERY_RNIC_FEATURES 0x000cu /* 32: ORRERY_RNIC_FEATURE_* */
#define ORRERY_RNIC_SERIAL 0x0010u   /* 64: the device serial number, see device_identity.h */
#define ORRERY_RNIC_VECTORS 0x0018u  /* 32: number of MSI-X vectors */
#define ORRERY_RNIC_SCRATCH 0x0030u  /* 32, read-write: no function */
#define ORRERY_RNIC_TIME 0x0038u     /* 64: simulated time, ps */

#define ORRERY_RNIC_ID_VALUE 0x4e52524fu /* "ORRN" */
#define ORRERY_RNIC_VERSION_VALUE 0x00010000u
#define ORRERY_RNIC_FEATURE_TIMED (1u << 8) /* the platform runs in timed mode */
#define ORRERY_RNIC_VECTOR_COUNT 8u

/* ---- DMA self-test ----
 * Set the operation up, then write START. The set-up registers can be written only while no test runs (else
 * ignored and counted), as can START. ABORT stops a running test, which then FAILED with ABORTED.
 *
 * The data is a sequence of 64-bit words w(k), k = 0, 1, ..., little-endian, byte i of the range being byte
 * i mod 8 of w(i / 8). With s = SEED + loop (loop counts from 0), all modulo 2^64:
 *   z = s + (k + 1) * 0x9e3779b97f4a7c15
 *   z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
 *   z = (z ^ (z >> 27)) * 0x94d049bb133111eb
 *   w(k) = z ^ (z >> 31)
 * which is the (k + 1)-th output of the SplitMix64 generator seeded with s.
 *
 * WRITE    writes the sequence; every page is confirmed to have arrived.
 * READ     reads, and sums the words into CHECKSUM (a last word of fewer than 8 bytes is padded with 0).
 * COMPARE  reads, sums as READ, and stops at the first byte that differs from the sequence.
 * CHECKSUM is that of the last loop completed. */
#define ORRERY_RNIC_TEST_CONTROL 0x0040u   /* 32, write: ORRERY_RNIC_TEST_*; reads 0 */
#define ORRERY_RNIC_TEST_STATUS 0x0044u    /* 32: ORRERY_RNIC_STATUS_* */
#define ORRERY_RNIC_TEST_OPERATION 0x0048u /* 32, read-write: ORRERY_RNIC_OP_* */
#define ORRERY_RNIC_TEST_VECTOR 0x004cu    /* 32, read-write: MSI-X vector of the end of a test, or NO_VECTOR */
#define ORRERY_RNIC_TEST_ADDRESS 0x0050u   /* 64, read-write: bus address, any alignment */
#define ORRERY_RNIC_TEST_LENGTH 0x0058u    /* 64, read-write: bytes, >= 1 */
#define ORRERY_RNIC_TEST_SEED 0x0060u      /* 64, read-write */
#define ORRERY_RNIC_TEST_LOOPS 0x0068u     /* 32, read-write: times to run, >= 1; reset value 1 */

#define ORRERY_RNIC_TEST_START (1u << 0)
#define ORRERY_RNIC_TEST_ABORT (1u << 1)
#define ORRERY_RNIC_OP_WRITE 0u
#define ORRERY_RNIC_OP_READ 1u
#define ORRERY_RNIC_OP_COMPARE 2u
#define ORRERY_RNIC_NO_VECTOR 0xffffffffu /* reset value of TEST_VECTOR */

#define ORRERY_RNIC_STATUS_IDLE 0u
#define ORRERY_RNIC_STATUS_RUNNING 1u
#define ORRERY_RNIC_STATUS_PASSED 2u
#define ORRERY_RNIC_STATUS_FAILED 3u

/* ---- Result of the last test ---- */
#define ORRERY_RNIC_RESULT_ERROR 0x0080u      /* 32: ORRERY_RNIC_ERROR_* */
#define ORRERY_RNIC_RESULT_COMPLETION 0x0084u /* 32: completion status (1 UR, 2 CRS, 4 CA) of a DMA error, else 0 */
#define ORRERY_RNIC_RESULT_ADDRESS 0x0088u    /* 64: bus address of the failed TLP or of the differing byte */
#define ORRERY_RNIC_RESULT_EXPECTED 0x0090u   /* 32: the byte COMPARE expected there */
#define ORRERY_RNIC_RESULT_FOUND 0x0094u      /* 32: the byte it found */
#define ORRERY_RNIC_RESULT_LOOPS 0x0098u      /* 32: loops completed without an error */
#define ORRERY_RNIC_RESULT_CHECKSUM 0x00a0u   /* 64 */
#define ORRERY_RNIC_RESULT_START 0x00a8u      /* 64: simulated ps */
#define ORRERY_RNIC_RESULT_END 0x00b0u        /* 64: simulated ps */

#define ORRERY_RNIC_ERROR_NONE 0u
#define ORRERY_RNIC_ERROR_SETUP 1u /* unknown operation, length or loops 0, range wraps, no such vector */
#define ORRERY_RNIC_ERROR_DMA_READ 2u
#define ORRERY_RNIC_ERROR_DMA_WRITE 3u
#define ORRERY_RNIC_ERROR_MISMATCH 4u
#define ORRERY_RNIC_ERROR_ABORTED 5u

/* ---- Interrupts: as in the GPU, an event sets STATUS and, if enabled, sends MSI-X ---- */
#define ORRERY_RNIC_INTERRUPT_ENABLE 0x00c0u /* 32, read-write */
#define ORRERY_RNIC_INTERRUPT_STATUS 0x00c4u /* 32, write 1 to clear */

/* ---- Port counters: 64-bit, order and meaning as in the GPU ---- */
#define ORRERY_RNIC_WRITE_BYTES_SENT 0x0200u
#define ORRERY_RNIC_WRITE_BYTES_RECEIVED 0x0208u
#define ORRERY_RNIC_READ_BYTES_REQUESTED 0x0210u
#define ORRERY_RNIC_COMPLETION_BYTES_SENT 0x0218u
#define ORRERY_RNIC_COMPLETION_BYTES_RECEIVED 0x0220u
#define ORRERY_RNIC_MSIX_SENT 0x0228u
#define ORRERY_RNIC_COMPLETION_ERRORS 0x0230u
#define ORRERY_RNIC_UNEXPECTED_COMPLETIONS 0x0238u
/* Of the write page, since the last function reset. */
#define ORRERY_RNIC_WRITES_COUNTED 0x0240u /* 32-bit words written to the write page */
#define ORRERY_RNIC_WRITES_SUM 0x0248u     /* their sum modulo 2^64 */
#define ORRERY_RNIC_WRITES_LAST 0x0250u    /* the last of them */
#define ORRERY_RNIC_WRITES_IGNORED 0x0258u

/* ---- Write page: 0x1000 ... 0x1fff, reads 0. Posted writes can be counted here. ---- */
#define ORRERY_RNIC_WRITE_PAGE 0x1000u
#define ORRERY_RNIC_WRITE_PAGE_SIZE 0x1000u

#endif
