/* SPDX-License-Identifier: Apache-2.0
 *
 * The sub-commands. Each reports its results (report.h); none knows what the platform is configured to be.
 */
#ifndef ORRERY_GUESTS_PROGRAMS_TESTS_H
#define ORRERY_GUESTS_PROGRAMS_TESTS_H

#include <stdint.h>

#include "gpu.h"

struct options {
  uint64_t size;      /* bytes of copies, and of one GPU's share of an AllReduce */
  uint64_t bar_bytes; /* bytes of each CPU access test through a BAR */
  uint64_t seed;
};

struct session {
  struct machine machine;
  struct gpus gpus;
  struct options options;
};

void test_topology(void); /* needs no access to any device */
void test_outage(struct session* session);
void test_load(struct session* session);
void test_memory(struct session* session);
void test_copy(struct session* session);
void test_allreduce(struct session* session);
void test_interrupt(struct session* session);
void test_unmap(struct session* session);
void test_rnic(struct session* session);
void test_plugins(struct session* session);

#endif
