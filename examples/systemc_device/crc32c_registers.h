/* SPDX-License-Identifier: Apache-2.0
 *
 * Register map of the CRC32C example device, for the model and for drivers. BAR0, 4 KiB, 32-bit registers,
 * little-endian; a 64-bit register is two of them, low half first. Everything is 0 after a reset.
 */
#ifndef CRC32C_REGISTERS_H
#define CRC32C_REGISTERS_H

#define CRC32C_VENDOR_ID 0x1234u
#define CRC32C_DEVICE_ID 0x0e30u

#define CRC32C_ID 0x00u      /* read: CRC32C_ID_VALUE */
#define CRC32C_SOURCE 0x08u  /* 64 bits: bus address of the data */
#define CRC32C_LENGTH 0x10u  /* 64 bits: bytes of data */
#define CRC32C_RECORD 0x18u  /* 64 bits: bus address of a struct crc32c_record */
#define CRC32C_CONTROL 0x20u /* write: CRC32C_START, ignored while busy */
#define CRC32C_STATUS 0x24u  /* read: CRC32C_IDLE ... CRC32C_FAILED */
#define CRC32C_RESULT 0x28u  /* read: the checksum, once done */

#define CRC32C_ID_VALUE 0x43524333u /* "3CRC" in memory */
#define CRC32C_START 1u
#define CRC32C_IDLE 0u
#define CRC32C_BUSY 1u
#define CRC32C_DONE 2u
#define CRC32C_FAILED 3u /* a DMA failed; no record has been written */

/* Written when done, before MSI-X vector 0 is sent. */
struct crc32c_record {
  unsigned int crc;
  unsigned int status; /* CRC32C_DONE */
  unsigned long long length;
};

#endif
