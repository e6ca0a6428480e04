/* SPDX-License-Identifier: Apache-2.0
 *
 * A driver for one GPU's engine: ring, doorbell, fences, completion by interrupt or by polling.
 */
#ifndef ORRERY_GUESTS_PROGRAMS_GPU_H
#define ORRERY_GUESTS_PROGRAMS_GPU_H

#include <stdbool.h>
#include <stdint.h>

#include "device.h"
#include "report.h"
#include "systemc_models/gpu/gpu_registers.h"

#define GPU_RING_LOG2 6 /* of the ring that gpus_open() makes */
#define GPU_VECTOR_DONE 1

struct gpu {
  struct machine* machine;
  struct device* device;
  char name[8];  /* "gpu3": by the index in its registers */
  uint8_t* ring; /* 2^ring_log2 commands, contiguous on the bus; a new one takes effect with gpu_reset() */
  uint64_t ring_bus;
  unsigned ring_log2;
  volatile uint64_t* fence;
  uint64_t fence_bus;
  uint32_t tail;
  uint64_t fence_value; /* of the last fence pushed */
  uint64_t fences;      /* pushed since gpu_open */
  uint64_t interrupts;  /* of GPU_VECTOR_DONE, received */
};

/* Where an operand is. */
struct place {
  enum { OWN, BUS, HOST } kind;
  uint64_t address; /* OWN: offset; BUS: bus address; HOST: offset in `buffer` */
  const struct dma_buffer* buffer;
};
static inline struct place own(uint64_t offset) {
  return (struct place){.kind = OWN, .address = offset};
}
static inline struct place bus(uint64_t address) {
  return (struct place){.kind = BUS, .address = address};
}
static inline struct place host(const struct dma_buffer* buffer, uint64_t offset) {
  return (struct place){.kind = HOST, .address = offset, .buffer = buffer};
}

/* All GPUs of a machine; `control` is memory for rings and fences, made here. */
struct gpus {
  struct gpu gpu[PCI_MAX_FUNCTIONS];
  int count;
};
void gpus_open(struct machine* machine, struct gpus* gpus);

/* Resets the engine and sets it up anew. */
void gpu_reset(struct gpu* gpu);

/* Puts commands into the ring, waiting for room if need be; false if the engine has halted or doesn't move. */
bool gpu_push(struct gpu* gpu, const struct orrery_gpu_command* command);
bool gpu_copy(struct gpu* gpu, struct place from, struct place to, uint64_t length, uint8_t flags, uint32_t tag);
bool gpu_reduce_f32(struct gpu* gpu, struct place from, struct place into, uint64_t length);
/* With an interrupt if the machine has them. */
bool gpu_fence(struct gpu* gpu);
void gpu_doorbell(struct gpu* gpu);

/* Waits for the last fence; false on time-out or error of the engine. */
bool gpu_wait(struct gpu* gpu);
/* Copies and waits. */
bool gpu_copy_now(struct gpu* gpu, struct place from, struct place to, uint64_t length);

uint64_t gpu_bar_address(const struct gpu* gpu, uint64_t offset);

/* Engine status and error record as facts, and as text for people. */
void gpu_json_error(const struct gpu* gpu, struct json* json);
const char* gpu_error_text(const struct gpu* gpu);

/* The profile record: simulated time and what each hop added. */
void gpu_json_profile(const struct gpu* gpu, struct json* json);

#endif
