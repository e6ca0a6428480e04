/* SPDX-License-Identifier: Apache-2.0
 *
 * Completion by MSI-X: one command at a time, so that every interrupt is one event; errors by vector 0.
 */
#include <inttypes.h>
#include <string.h>

#include "tests.h"

#define ROUNDS 32
#define QUIET_MS 20 /* how long nothing must come after the last interrupt */

static struct json json;

static const char* check_completions(struct gpu* gpu, uint64_t* slowest_ms) {
  const uint64_t messages = register_read64(gpu->device, ORRERY_GPU_MSIX_SENT);
  for (unsigned round = 0; round < ROUNDS; ++round) {
    const unsigned vector = 1 + round % (DEVICE_VECTORS - 1);
    const struct orrery_gpu_command command = {
        .opcode = ORRERY_GPU_OP_NOP, .flags = ORRERY_GPU_FLAG_INTERRUPT, .vector = (uint8_t)vector, .tag = round};
    const int64_t start = now_ms();
    if (!gpu_push(gpu, &command)) {
      return gpu_error_text(gpu);
    }
    gpu_doorbell(gpu);
    if (event_wait(gpu->device, vector, gpu->machine->timeout_ms) != 1) {
      return "no interrupt, or more than one";
    }
    const uint64_t took = (uint64_t)(now_ms() - start);
    *slowest_ms = took > *slowest_ms ? took : *slowest_ms;
  }
  for (unsigned vector = 0; vector < DEVICE_VECTORS; ++vector) {
    if (event_wait(gpu->device, vector, QUIET_MS) != 0) {
      return "an interrupt that no command asked for";
    }
  }
  if (register_read64(gpu->device, ORRERY_GPU_MSIX_SENT) - messages != ROUNDS) {
    return "the device counted another number of messages";
  }
  return NULL;
}

/* A masked source sets its status bit and sends nothing. */
static const char* check_masking(struct gpu* gpu) {
  const struct orrery_gpu_command command = {
      .opcode = ORRERY_GPU_OP_NOP, .flags = ORRERY_GPU_FLAG_INTERRUPT, .vector = 2};
  register_write32(gpu->device, ORRERY_GPU_INTERRUPT_STATUS, UINT32_MAX);
  register_write32(gpu->device, ORRERY_GPU_INTERRUPT_ENABLE, 1);
  if (!gpu_push(gpu, &command)) {
    return gpu_error_text(gpu);
  }
  gpu_doorbell(gpu);
  const int64_t deadline = now_ms() + gpu->machine->timeout_ms;
  while (register_read32(gpu->device, ORRERY_GPU_INTERRUPT_STATUS) != 1u << 2) {
    if (now_ms() > deadline) {
      return "a masked interrupt's status bit doesn't appear";
    }
  }
  if (event_wait(gpu->device, 2, QUIET_MS) != 0) {
    return "a masked interrupt was sent";
  }
  return NULL;
}

/* A command that can't be: vector 0, error registers, and recovery. */
static const char* check_error_interrupt(struct gpu* gpu) {
  const struct orrery_gpu_command command = {.opcode = 0xee, .tag = 77};
  if (!gpu_push(gpu, &command)) {
    return gpu_error_text(gpu);
  }
  gpu_doorbell(gpu);
  if (event_wait(gpu->device, ORRERY_GPU_VECTOR_ERROR, gpu->machine->timeout_ms) != 1) {
    return "no error interrupt";
  }
  if (register_read32(gpu->device, ORRERY_GPU_ENGINE_STATUS) != ORRERY_GPU_STATUS_ERROR ||
      register_read32(gpu->device, ORRERY_GPU_ERROR_CODE) != ORRERY_GPU_ERROR_OPCODE ||
      register_read64(gpu->device, ORRERY_GPU_ERROR_ADDRESS) != 0xee ||
      register_read32(gpu->device, ORRERY_GPU_ERROR_TAG) != 77) {
    return "the error registers don't tell what was wrong";
  }
  gpu_reset(gpu);
  if (!gpu_fence(gpu)) {
    return gpu_error_text(gpu);
  }
  gpu_doorbell(gpu);
  return gpu_wait(gpu) ? NULL : gpu_error_text(gpu);
}

void test_interrupt(struct session* session) {
  for (int i = 0; i < session->gpus.count; ++i) {
    struct gpu* gpu = &session->gpus.gpu[i];
    json_begin(&json, "interrupt", gpu->name);
    json_string(&json, "bdf", gpu->device->pci.bdf);
    if (!session->machine.vfio) {
      report(&json, SKIP, "interrupts need VFIO");
      continue;
    }
    uint64_t slowest_ms = 0;
    gpu_reset(gpu);
    const char* problem = check_completions(gpu, &slowest_ms);
    problem = problem != NULL ? problem : check_masking(gpu);
    gpu_reset(gpu);
    problem = problem != NULL ? problem : check_error_interrupt(gpu);
    json_number(&json, "interrupts", ROUNDS);
    json_number(&json, "slowest_ms", slowest_ms);
    if (problem != NULL) {
      gpu_json_error(gpu, &json);
      report(&json, FAIL, "%s", problem);
      gpu_reset(gpu);
    } else {
      report(&json, PASS, "%d interrupts, each once; masking and the error vector work", ROUNDS);
    }
  }
}
