/* SPDX-License-Identifier: Apache-2.0
 *
 * Register map of the Verilog DMA engine, for drivers. BAR0, 4 KiB, 32-bit registers, little-endian; a 64-bit
 * register is two of them, low half first. Everything is 0 after a reset. Set up while not busy, then write START.
 */
#ifndef VERILOG_DMA_REGISTERS_H
#define VERILOG_DMA_REGISTERS_H

#define VERILOG_DMA_VENDOR_ID 0x1234u
#define VERILOG_DMA_DEVICE_ID 0x0e31u

#define VERILOG_DMA_ID 0x00u          /* read: VERILOG_DMA_ID_VALUE */
#define VERILOG_DMA_SOURCE 0x08u      /* 64 bits: bus address, multiple of 8 */
#define VERILOG_DMA_DESTINATION 0x10u /* 64 bits: bus address, multiple of 8 */
#define VERILOG_DMA_LENGTH 0x18u      /* bytes; the source is read in whole words of 8 bytes */
#define VERILOG_DMA_CONTROL 0x1cu     /* write: VERILOG_DMA_START, ignored while busy */
#define VERILOG_DMA_STATUS 0x20u      /* read: VERILOG_DMA_BUSY ... */
#define VERILOG_DMA_BYTES 0x24u       /* read: bytes written by the last copy */
#define VERILOG_DMA_CYCLES 0x28u      /* read: clock cycles that it took */

#define VERILOG_DMA_ID_VALUE 0x414d4456u /* "VDMA" in memory */
#define VERILOG_DMA_START 1u
#define VERILOG_DMA_BUSY 1u
#define VERILOG_DMA_DONE 2u       /* the copy is over, MSI-X vector 0 has been sent */
#define VERILOG_DMA_FAILED 4u     /* ... because of an error */
#define VERILOG_DMA_MISALIGNED 8u /* ... an address that is no multiple of 8 */

#endif
