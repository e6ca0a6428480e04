/* SPDX-License-Identifier: Apache-2.0
 *
 * A driver for the CRC32C example device, in C, for a guest program that has BAR0 mapped (VFIO, or sysfs resource0)
 * and knows the bus addresses of its buffers. Memory space and bus mastering must be enabled.
 */
#ifndef CRC32C_DRIVER_H
#define CRC32C_DRIVER_H

#include <stdint.h>

#include "crc32c_registers.h"

static inline uint32_t crc32c_read(const volatile uint8_t* bar0, unsigned offset) {
  return *(const volatile uint32_t*)(const volatile void*)(bar0 + offset);
}

static inline void crc32c_write(volatile uint8_t* bar0, unsigned offset, uint32_t value) {
  *(volatile uint32_t*)(volatile void*)(bar0 + offset) = value;
}

static inline void crc32c_write64(volatile uint8_t* bar0, unsigned offset, uint64_t value) {
  crc32c_write(bar0, offset, (uint32_t)value);
  crc32c_write(bar0, offset + 4, (uint32_t)(value >> 32));
}

/* Starts a checksum of `length` bytes at bus address `source`; a struct crc32c_record goes to bus address `record`.
 * Returns 0, or -1 if the device isn't there or is busy. */
static inline int crc32c_begin(volatile uint8_t* bar0, uint64_t source, uint64_t length, uint64_t record) {
  if (crc32c_read(bar0, CRC32C_ID) != CRC32C_ID_VALUE || crc32c_read(bar0, CRC32C_STATUS) == CRC32C_BUSY) {
    return -1;
  }
  crc32c_write64(bar0, CRC32C_SOURCE, source);
  crc32c_write64(bar0, CRC32C_LENGTH, length);
  crc32c_write64(bar0, CRC32C_RECORD, record);
  crc32c_write(bar0, CRC32C_CONTROL, CRC32C_START);
  return 0;
}

/* 1: done, *crc is the checksum; 0: still busy; -1: failed. MSI-X vector 0 says when to ask. */
static inline int crc32c_end(const volatile uint8_t* bar0, uint32_t* crc) {
  switch (crc32c_read(bar0, CRC32C_STATUS)) {
    case CRC32C_BUSY:
      return 0;
    case CRC32C_DONE:
      *crc = crc32c_read(bar0, CRC32C_RESULT);
      return 1;
    default:
      return -1;
  }
}

#endif
