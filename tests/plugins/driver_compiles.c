/* The example's driver is C, and clean under our warnings. */
#include "crc32c_driver.h"

int crc32c_checksum(volatile uint8_t* bar0, uint64_t source, uint64_t length, uint64_t record, uint32_t* crc);
int crc32c_checksum(volatile uint8_t* bar0, uint64_t source, uint64_t length, uint64_t record, uint32_t* crc) {
  int status = crc32c_begin(bar0, source, length, record);
  while (status == 0) {
    status = crc32c_end(bar0, crc);
  }
  return status;
}
