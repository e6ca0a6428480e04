/* SPDX-License-Identifier: Apache-2.0
 *
 * The RNICs' DMA self-test engines against host memory and a GPU's BAR, their interrupts, and posted writes counted.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"
#include "systemc_models/rnic/rnic_registers.h"
#include "tests.h"

#define VECTOR 1
#define POSTED_WRITES 1000

static struct json json;

struct test {
  uint32_t operation;
  uint64_t address;
  uint64_t length;
  uint64_t seed;
};

/* Runs one self-test to its end; the result's error code, or UINT32_MAX if it doesn't end. */
static uint32_t run(const struct session* session, const struct device* rnic, struct test test) {
  register_write32(rnic, ORRERY_RNIC_INTERRUPT_ENABLE, session->machine.vfio ? 1u << VECTOR : 0);
  register_write32(rnic, ORRERY_RNIC_TEST_OPERATION, test.operation);
  register_write32(rnic, ORRERY_RNIC_TEST_VECTOR, VECTOR);
  register_write64(rnic, ORRERY_RNIC_TEST_ADDRESS, test.address);
  register_write64(rnic, ORRERY_RNIC_TEST_LENGTH, test.length);
  register_write64(rnic, ORRERY_RNIC_TEST_SEED, test.seed);
  register_write32(rnic, ORRERY_RNIC_TEST_LOOPS, 1);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  register_write32(rnic, ORRERY_RNIC_TEST_CONTROL, ORRERY_RNIC_TEST_START);
  const int64_t deadline = now_ms() + session->machine.timeout_ms;
  if (session->machine.vfio && event_wait(rnic, VECTOR, session->machine.timeout_ms) != 1) {
    return UINT32_MAX;
  }
  while (register_read32(rnic, ORRERY_RNIC_TEST_STATUS) == ORRERY_RNIC_STATUS_RUNNING) {
    if (now_ms() > deadline) {
      return UINT32_MAX;
    }
  }
  return register_read32(rnic, ORRERY_RNIC_RESULT_ERROR);
}

static uint64_t sum_of_words(const uint8_t* bytes, uint64_t length) {
  uint64_t sum = 0;
  for (uint64_t done = 0; done < length; done += 8) {
    uint64_t word = 0;
    memcpy(&word, bytes + done, length - done < 8 ? length - done : 8);
    sum += word;
  }
  return sum;
}

static const char* check_host(const struct session* session, const struct device* rnic,
                              const struct dma_buffer* buffer) {
  const uint64_t seed = session->options.seed + rnic->pci.serial;
  /* An odd start and end, with guards, within what is contiguous on the bus. */
  const uint64_t start = 35;
  const uint64_t length = (buffer->granule < buffer->size ? buffer->granule : buffer->size) - 2 * start;
  const struct test test = {ORRERY_RNIC_OP_WRITE, dma_address(buffer, start), length, seed};
  uint8_t* expected = malloc(length);
  if (expected == NULL) {
    return "no memory";
  }
  const char* problem = NULL;
  random_fill(seed, expected, length);
  memset(buffer->bytes, 0x5a, buffer->size);
  struct test next = test;
  if (run(session, rnic, next) != ORRERY_RNIC_ERROR_NONE) {
    problem = "writing host memory failed";
  } else if (memcmp(buffer->bytes + start, expected, length) != 0 || buffer->bytes[start - 1] != 0x5a ||
             buffer->bytes[start + length] != 0x5a) {
    problem = "host memory has other bytes than the pattern";
  }
  next.operation = ORRERY_RNIC_OP_READ;
  if (problem == NULL && (run(session, rnic, next) != ORRERY_RNIC_ERROR_NONE ||
                          register_read64(rnic, ORRERY_RNIC_RESULT_CHECKSUM) != sum_of_words(expected, length))) {
    problem = "the checksum read is not that of the bytes";
  }
  next.operation = ORRERY_RNIC_OP_COMPARE;
  if (problem == NULL && run(session, rnic, next) != ORRERY_RNIC_ERROR_NONE) {
    problem = "comparing what was written failed";
  }
  /* A byte that the CPU changes is found, at its address. */
  const uint64_t changed = length / 3;
  buffer->bytes[start + changed] ^= 0x10;
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (problem == NULL && (run(session, rnic, next) != ORRERY_RNIC_ERROR_MISMATCH ||
                          register_read64(rnic, ORRERY_RNIC_RESULT_ADDRESS) != test.address + changed ||
                          register_read32(rnic, ORRERY_RNIC_RESULT_EXPECTED) != expected[changed] ||
                          register_read32(rnic, ORRERY_RNIC_RESULT_FOUND) != buffer->bytes[start + changed])) {
    problem = "a changed byte was not found";
  }
  free(expected);
  return problem;
}

static const char* check_gpu(const struct session* session, const struct device* rnic, struct gpu* gpu,
                             const struct dma_buffer* buffer, uint64_t length) {
  const uint64_t seed = session->options.seed ^ rnic->pci.serial ^ (gpu->device->pci.serial << 8);
  const uint64_t offset = 4096 - 5;
  struct test test = {ORRERY_RNIC_OP_WRITE, gpu_bar_address(gpu, offset), length, seed};
  uint8_t* expected = malloc(length);
  if (expected == NULL) {
    return "no memory";
  }
  random_fill(seed, expected, length);
  const char* problem = NULL;
  uint8_t seen[64];
  if (run(session, rnic, test) != ORRERY_RNIC_ERROR_NONE) {
    problem = "writing the GPU's memory failed";
  } else if (!gpu_copy_now(gpu, own(offset), host(buffer, 0), length)) {
    problem = gpu_error_text(gpu);
  } else if (memcmp(buffer->bytes, expected, length) != 0) {
    problem = "the GPU's memory has other bytes than the pattern";
  }
  bar_read(seen, gpu->device->memory + offset, sizeof(seen));
  if (problem == NULL && memcmp(seen, expected, sizeof(seen)) != 0) {
    problem = "the CPU sees other bytes through the GPU's BAR";
  }
  test.operation = ORRERY_RNIC_OP_COMPARE;
  if (problem == NULL && run(session, rnic, test) != ORRERY_RNIC_ERROR_NONE) {
    problem = "comparing the GPU's memory failed";
  }
  free(expected);
  return problem;
}

/* Posted writes: all arrive, each once. */
static const char* check_posted_writes(const struct device* rnic) {
  const uint64_t count = register_read64(rnic, ORRERY_RNIC_WRITES_COUNTED);
  uint64_t sum = register_read64(rnic, ORRERY_RNIC_WRITES_SUM);
  for (uint32_t i = 0; i < POSTED_WRITES; ++i) {
    const uint32_t value = i * 2654435761u;
    register_write32(rnic, ORRERY_RNIC_WRITE_PAGE + i % (ORRERY_RNIC_WRITE_PAGE_SIZE / 4) * 4, value);
    sum += value;
  }
  return register_read64(rnic, ORRERY_RNIC_WRITES_COUNTED) - count == POSTED_WRITES &&
                 register_read64(rnic, ORRERY_RNIC_WRITES_SUM) == sum
             ? NULL
             : "posted writes were lost or doubled";
}

/* Only VFIO tells which addresses lead nowhere. */
static const char* check_unmapped(struct session* session, const struct device* rnic) {
  if (!session->machine.vfio) {
    return NULL;
  }
  const uint64_t nowhere = dma_reserve(&session->machine, 4096);
  const struct test test = {ORRERY_RNIC_OP_WRITE, nowhere + 8, 64, 1};
  return run(session, rnic, test) == ORRERY_RNIC_ERROR_DMA_WRITE &&
                 register_read64(rnic, ORRERY_RNIC_RESULT_ADDRESS) / 4096 == nowhere / 4096
             ? NULL
             : "a write to an unmapped address was no clean error";
}

static void finish(const struct device* rnic, const char* problem, const char* what) {
  if (problem == NULL) {
    report(&json, PASS, "%s", what);
    return;
  }
  json_number(&json, "error", register_read32(rnic, ORRERY_RNIC_RESULT_ERROR));
  json_number(&json, "error_address", register_read64(rnic, ORRERY_RNIC_RESULT_ADDRESS));
  json_number(&json, "completion_status", register_read32(rnic, ORRERY_RNIC_RESULT_COMPLETION));
  report(&json, FAIL, "%s", problem);
}

static void begin(const struct device* rnic, const char* what) {
  static char name[64];
  snprintf(name, sizeof(name), "rnic%u-%s", register_read32(rnic, ORRERY_RNIC_INDEX) % 1000, what);
  json_begin(&json, "rnic", name);
  json_string(&json, "bdf", rnic->pci.bdf);
}

void test_rnic(struct session* session) {
  const uint64_t length = 1 << 20;
  int count = 0;
  const struct dma_buffer buffer = dma_allocate(&session->machine, length);
  for (int i = 0; i < session->machine.count; ++i) {
    const struct device* rnic = &session->machine.devices[i];
    if (rnic->pci.kind != KIND_RNIC) {
      continue;
    }
    ++count;
    if (register_read32(rnic, ORRERY_RNIC_ID) != ORRERY_RNIC_ID_VALUE) {
      report_failure("rnic", rnic->pci.bdf, "BAR0 doesn't show the self-test registers");
      continue;
    }
    begin(rnic, "registers");
    finish(rnic, check_posted_writes(rnic), "1000 posted writes arrived, each once");
    begin(rnic, "host");
    const char* problem = check_host(session, rnic, &buffer);
    problem = problem != NULL ? problem : check_unmapped(session, rnic);
    finish(rnic, problem, "wrote, read and compared host memory; errors are clean");
    for (int g = 0; g < session->gpus.count; ++g) {
      struct gpu* gpu = &session->gpus.gpu[g];
      /* A GPU below the same port, if there is one, and the first of all. */
      const char* common = pci_common_port(&rnic->pci, &gpu->device->pci);
      if (common == NULL && g != 0) {
        continue;
      }
      begin(rnic, gpu->name);
      json_string(&json, "peer_bdf", gpu->device->pci.bdf);
      json_string(&json, "common_port", common == NULL ? "" : common);
      json_number(&json, "bytes", length / 2);
      finish(rnic, check_gpu(session, rnic, gpu, &buffer, length / 2), "wrote and compared GPU memory");
    }
  }
  if (count == 0) {
    json_begin(&json, "rnic", "rnics");
    report(&json, SKIP, "there is no RNIC");
  }
}
