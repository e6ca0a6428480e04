/* SPDX-License-Identifier: Apache-2.0
 *
 * Load without an end of its own: every GPU keeps copying to host memory until --timeout has passed or the program,
 * or its machine, is killed. What is measured or broken meanwhile is the caller's business.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests.h"

#define QUEUED 16u /* copies kept in each ring */

static struct json json;

/* Tops the ring up; the commands complete so far. */
static uint32_t feed(struct gpu* gpu, const struct dma_buffer* into, uint64_t size) {
  const uint32_t head = register_read32(gpu->device, ORRERY_GPU_RING_HEAD);
  while (gpu->tail - head < QUEUED) {
    if (!gpu_copy(gpu, own(0), host(into, 0), size, 0, 0)) {
      break; /* halted: the caller sees that nothing completes */
    }
  }
  gpu_doorbell(gpu);
  return head;
}

/* For other programs: the load is on. */
static void announce(void) {
  FILE* file = fopen("/run/orrery-load", "we");
  if (file == NULL || fprintf(file, "%ld\n", (long)getpid()) < 0 || fclose(file) != 0) {
    fprintf(stderr, "orrery-guest-demo: /run/orrery-load: %s; nothing tells that the load is on\n", strerror(errno));
  }
}

void test_load(struct session* session) {
  json_begin(&json, "load", "gpus");
  if (session->gpus.count == 0) {
    report(&json, SKIP, "there is no GPU");
    return;
  }
  const uint64_t size = session->options.size;
  const struct dma_buffer into = dma_allocate(&session->machine, size);
  const int64_t deadline = now_ms() + session->machine.timeout_ms;
  uint64_t copies = 0;
  int stuck = 0;
  for (bool announced = false; now_ms() < deadline;) {
    copies = 0;
    stuck = 0;
    for (int i = 0; i < session->gpus.count; ++i) {
      const uint32_t complete = feed(&session->gpus.gpu[i], &into, size);
      copies += complete;
      stuck += complete == 0;
    }
    if (!announced && stuck == 0) {
      announce();
      announced = true;
    }
  }
  json_number(&json, "copies", copies);
  json_number(&json, "bytes", copies * size);
  report(&json, stuck == 0 ? PASS : FAIL, "%" PRIu64 " copies by %d GPUs; %d completed none", copies,
         session->gpus.count, stuck);
  remove("/run/orrery-load");
  for (int i = 0; i < session->gpus.count; ++i) {
    gpu_reset(&session->gpus.gpu[i]);
  }
}
