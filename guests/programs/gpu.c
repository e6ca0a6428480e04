/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RING_BYTES ((1u << GPU_RING_LOG2) * sizeof(struct orrery_gpu_command))
#define CONTROL_PAGE 4096

_Static_assert(RING_BYTES <= CONTROL_PAGE, "a ring fits into one page, so that it is contiguous on the bus");

void gpus_open(struct machine* machine, struct gpus* gpus) {
  gpus->count = 0;
  int count = 0;
  for (int i = 0; i < machine->count; ++i) {
    count += machine->devices[i].pci.kind == KIND_GPU;
  }
  if (count == 0) {
    return;
  }
  /* Two pages each: ring and fence. */
  const struct dma_buffer control = dma_allocate(machine, (size_t)count * 2 * CONTROL_PAGE);
  for (int i = 0; i < machine->count; ++i) {
    if (machine->devices[i].pci.kind != KIND_GPU) {
      continue;
    }
    struct gpu* gpu = &gpus->gpu[gpus->count];
    const size_t offset = (size_t)gpus->count * 2 * CONTROL_PAGE;
    memset(gpu, 0, sizeof(*gpu));
    gpu->machine = machine;
    gpu->device = &machine->devices[i];
    snprintf(gpu->name, sizeof(gpu->name), "gpu%u", register_read32(gpu->device, ORRERY_GPU_INDEX) % 1000);
    gpu->ring = control.bytes + offset;
    gpu->ring_bus = dma_address(&control, offset);
    gpu->ring_log2 = GPU_RING_LOG2;
    gpu->fence = (volatile uint64_t*)(void*)(control.bytes + offset + CONTROL_PAGE);
    gpu->fence_bus = dma_address(&control, offset + CONTROL_PAGE);
    gpu_reset(gpu);
    ++gpus->count;
  }
}

void gpu_reset(struct gpu* gpu) {
  const struct device* device = gpu->device;
  register_write32(device, ORRERY_GPU_ENGINE_CONTROL, ORRERY_GPU_CONTROL_RESET);
  register_write64(device, ORRERY_GPU_RING_BASE, gpu->ring_bus);
  register_write32(device, ORRERY_GPU_RING_LOG2, gpu->ring_log2);
  register_write32(device, ORRERY_GPU_INTERRUPT_STATUS, UINT32_MAX);
  register_write32(device, ORRERY_GPU_INTERRUPT_ENABLE, gpu->machine->vfio ? (1u << DEVICE_VECTORS) - 1 : 0);
  register_write32(device, ORRERY_GPU_ENGINE_CONTROL, ORRERY_GPU_CONTROL_ENABLE);
  gpu->tail = 0;
  *gpu->fence = gpu->fence_value;
  for (unsigned v = 0; v < DEVICE_VECTORS; ++v) {
    event_wait(device, v, 0); /* forget what the reset left behind */
  }
}

static bool halted(const struct gpu* gpu) {
  const uint32_t status = register_read32(gpu->device, ORRERY_GPU_ENGINE_STATUS);
  return status != ORRERY_GPU_STATUS_IDLE && status != ORRERY_GPU_STATUS_BUSY;
}

bool gpu_push(struct gpu* gpu, const struct orrery_gpu_command* command) {
  const int64_t deadline = now_ms() + gpu->machine->timeout_ms;
  const uint32_t commands = 1u << gpu->ring_log2;
  while (gpu->tail - register_read32(gpu->device, ORRERY_GPU_RING_HEAD) >= commands) {
    gpu_doorbell(gpu);
    if (halted(gpu) || now_ms() > deadline) {
      return false;
    }
    const struct timespec pause = {.tv_nsec = 100000};
    nanosleep(&pause, NULL);
  }
  memcpy(gpu->ring + gpu->tail % commands * sizeof(*command), command, sizeof(*command));
  ++gpu->tail;
  return true;
}

void gpu_doorbell(struct gpu* gpu) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST); /* commands in memory before the doorbell */
  register_write32(gpu->device, ORRERY_GPU_DOORBELL, gpu->tail);
}

/* The longest run at `place` that is contiguous for the device. */
static uint64_t contiguous(struct place place, uint64_t length) {
  if (place.kind != HOST) {
    return length;
  }
  const uint64_t run = place.buffer->granule - place.address % place.buffer->granule;
  return run < length ? run : length;
}

static uint64_t engine_address(struct place place) {
  return place.kind == HOST ? dma_address(place.buffer, place.address) : place.address;
}

/* One command for each run that is contiguous on both sides. */
static bool push_pieces(struct gpu* gpu, uint8_t opcode, struct place from, struct place to, uint64_t length,
                        uint8_t flags, uint32_t tag) {
  while (length > 0) {
    const uint64_t piece = contiguous(to, contiguous(from, length));
    struct orrery_gpu_command command = {
        .opcode = opcode,
        .flags = (uint8_t)(flags | (from.kind == OWN ? 0 : ORRERY_GPU_FLAG_SOURCE_BUS) |
                           (to.kind == OWN ? 0 : ORRERY_GPU_FLAG_DESTINATION_BUS)),
        .tag = tag,
        .length = piece,
        .source = engine_address(from),
        .destination = engine_address(to),
    };
    if (!gpu_push(gpu, &command)) {
      return false;
    }
    from.address += piece;
    to.address += piece;
    length -= piece;
  }
  return true;
}

bool gpu_copy(struct gpu* gpu, struct place from, struct place to, uint64_t length, uint8_t flags, uint32_t tag) {
  return push_pieces(gpu, ORRERY_GPU_OP_COPY, from, to, length, flags, tag);
}

bool gpu_reduce_f32(struct gpu* gpu, struct place from, struct place into, uint64_t length) {
  return push_pieces(gpu, ORRERY_GPU_OP_REDUCE_F32_SUM, from, into, length, 0, 0);
}

bool gpu_fence(struct gpu* gpu) {
  struct orrery_gpu_command command = {
      .opcode = ORRERY_GPU_OP_FENCE,
      .flags = ORRERY_GPU_FLAG_DESTINATION_BUS,
      .destination = gpu->fence_bus,
      .value = gpu->fence_value + 1,
  };
  if (gpu->machine->vfio) {
    command.flags |= ORRERY_GPU_FLAG_INTERRUPT;
    command.vector = GPU_VECTOR_DONE;
  }
  if (!gpu_push(gpu, &command)) {
    return false;
  }
  ++gpu->fence_value;
  ++gpu->fences;
  return true;
}

bool gpu_wait(struct gpu* gpu) {
  const int64_t deadline = now_ms() + gpu->machine->timeout_ms;
  while (__atomic_load_n(gpu->fence, __ATOMIC_ACQUIRE) < gpu->fence_value) {
    if (gpu->machine->vfio) {
      gpu->interrupts += event_wait(gpu->device, GPU_VECTOR_DONE, 50);
    } else {
      const struct timespec pause = {.tv_nsec = 100000};
      nanosleep(&pause, NULL);
    }
    if (halted(gpu) || now_ms() > deadline) {
      return __atomic_load_n(gpu->fence, __ATOMIC_ACQUIRE) >= gpu->fence_value;
    }
  }
  return true;
}

bool gpu_copy_now(struct gpu* gpu, struct place from, struct place to, uint64_t length) {
  if (!gpu_copy(gpu, from, to, length, 0, 0) || !gpu_fence(gpu)) {
    return false;
  }
  gpu_doorbell(gpu);
  return gpu_wait(gpu);
}

uint64_t gpu_bar_address(const struct gpu* gpu, uint64_t offset) {
  return gpu->device->pci.bars[ORRERY_GPU_BAR_MEMORY].address + offset;
}

void gpu_json_error(const struct gpu* gpu, struct json* json) {
  const struct device* device = gpu->device;
  json_open(json, "engine", '{');
  json_number(json, "status", register_read32(device, ORRERY_GPU_ENGINE_STATUS));
  json_number(json, "error_code", register_read32(device, ORRERY_GPU_ERROR_CODE));
  json_number(json, "error_address", register_read64(device, ORRERY_GPU_ERROR_ADDRESS));
  json_number(json, "completion_status", register_read32(device, ORRERY_GPU_ERROR_COMPLETION));
  json_number(json, "command", register_read32(device, ORRERY_GPU_ERROR_COMMAND));
  json_close(json, '}');
}

const char* gpu_error_text(const struct gpu* gpu) {
  static char text[160];
  const struct device* device = gpu->device;
  if (!halted(gpu)) {
    snprintf(text, sizeof(text), "%s: no completion in time (head %" PRIu32 ", tail %" PRIu32 ")", gpu->name,
             register_read32(device, ORRERY_GPU_RING_HEAD), gpu->tail);
  } else {
    snprintf(text, sizeof(text), "%s: engine error %" PRIu32 " at %#" PRIx64 " (completion status %" PRIu32 ")",
             gpu->name, register_read32(device, ORRERY_GPU_ERROR_CODE),
             register_read64(device, ORRERY_GPU_ERROR_ADDRESS), register_read32(device, ORRERY_GPU_ERROR_COMPLETION));
  }
  return text;
}

static void json_hops(const struct device* device, struct json* json, const char* key, uint32_t count,
                      uint32_t window) {
  json_open(json, key, '[');
  for (uint32_t i = 0; i < count && i < ORRERY_GPU_PROFILE_MAX_HOPS; ++i) {
    const uint32_t at = window + i * (uint32_t)sizeof(struct orrery_gpu_hop);
    json_open(json, NULL, '{');
    json_number(json, "component", register_read32(device, at));
    json_number(json, "queue_ps", register_read32(device, at + 4));
    json_number(json, "credit_ps", register_read32(device, at + 8));
    json_number(json, "serialise_ps", register_read32(device, at + 12));
    json_number(json, "propagate_ps", register_read32(device, at + 16));
    json_number(json, "process_ps", register_read32(device, at + 20));
    json_close(json, '}');
  }
  json_close(json, ']');
}

void gpu_json_profile(const struct gpu* gpu, struct json* json) {
  const struct device* device = gpu->device;
  json_open(json, "profile", '{');
  json_bool(json, "timed", (register_read32(device, ORRERY_GPU_FEATURES) & ORRERY_GPU_FEATURE_TIMED) != 0);
  json_number(json, "tag", register_read32(device, ORRERY_GPU_PROFILE_TAG));
  json_number(json, "bytes", register_read64(device, ORRERY_GPU_PROFILE_BYTES));
  json_number(json, "start_ps", register_read64(device, ORRERY_GPU_PROFILE_START));
  json_number(json, "end_ps", register_read64(device, ORRERY_GPU_PROFILE_END));
  json_hops(device, json, "read_hops", register_read32(device, ORRERY_GPU_PROFILE_READ_HOPS),
            ORRERY_GPU_PROFILE_READ_WINDOW);
  json_hops(device, json, "write_hops", register_read32(device, ORRERY_GPU_PROFILE_WRITE_HOPS),
            ORRERY_GPU_PROFILE_WRITE_WINDOW);
  json_close(json, '}');
}
