/* SPDX-License-Identifier: Apache-2.0
 *
 * Repeatable test data: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). The same sequence is the RNIC's self-test
 * pattern; this is the guest's own implementation of it.
 */
#ifndef ORRERY_GUESTS_PROGRAMS_RANDOM_H
#define ORRERY_GUESTS_PROGRAMS_RANDOM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t random_next(uint64_t* state) {
  *state += UINT64_C(0x9e3779b97f4a7c15);
  uint64_t z = *state;
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

static inline void random_fill(uint64_t seed, void* into, size_t size) {
  uint8_t* bytes = into;
  for (size_t done = 0; done < size; done += 8) {
    const uint64_t word = random_next(&seed);
    memcpy(bytes + done, &word, size - done < 8 ? size - done : 8);
  }
}

#endif
