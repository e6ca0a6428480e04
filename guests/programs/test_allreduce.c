/* SPDX-License-Identifier: Apache-2.0
 *
 * Ring AllReduce (reduce-scatter, then all-gather) in binary32 over all GPUs, computed by their engines: every GPU
 * sends 2 (n - 1) / n of its S bytes to its right neighbour. The CPU verifies the sums and the byte counters.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"
#include "tests.h"

static struct json json;

/* Multiples of 1/1024 below 1024 in magnitude: 21 bits, so that sums of up to 8 are exact in binary32, and of more
 * GPUs with smaller magnitudes. Whatever the order of the additions, one result is right. */
static float element(uint64_t* state, unsigned n) {
  const int64_t range = (INT64_C(1) << 23) / (int64_t)n;
  return (float)((int64_t)(random_next(state) % (uint64_t)(2 * range + 1)) - range) / 1024.0f;
}

static void make_data(uint64_t seed, unsigned n, float* data, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    data[i] = element(&seed, n);
  }
}

struct ring {
  struct session* session;
  unsigned n;
  uint64_t part;  /* bytes each GPU sends a step: S / n */
  uint64_t inbox; /* offset of two inboxes, used in turn, behind the data */
};

static bool wait_all(struct ring* ring) {
  for (unsigned g = 0; g < ring->n; ++g) {
    gpu_doorbell(&ring->session->gpus.gpu[g]);
  }
  for (unsigned g = 0; g < ring->n; ++g) {
    if (!gpu_wait(&ring->session->gpus.gpu[g])) {
      json_string(&json, "failed_gpu", ring->session->gpus.gpu[g].name);
      gpu_json_error(&ring->session->gpus.gpu[g], &json);
      report(&json, FAIL, "%s", gpu_error_text(&ring->session->gpus.gpu[g]));
      return false;
    }
  }
  return true;
}

/* Every GPU sends one part to its right neighbour and fences; the step is over when all fences are there. What a GPU
 * received in a reduce step it adds before it sends on: its ring executes in order. Two inboxes keep the left
 * neighbour's next part away from the one being added. */
static bool run_step(struct ring* ring, unsigned step, bool reduce) {
  const unsigned n = ring->n;
  for (unsigned g = 0; g < n; ++g) {
    struct gpu* gpu = &ring->session->gpus.gpu[g];
    const struct gpu* right = &ring->session->gpus.gpu[(g + 1) % n];
    const uint64_t sent = (g + (reduce ? 0 : 1) + 2 * n - step) % n * ring->part;
    const uint64_t into = reduce ? ring->inbox + step % 2 * ring->part : sent;
    if (!gpu_copy(gpu, own(sent), bus(gpu_bar_address(right, into)), ring->part, 0, step) || !gpu_fence(gpu)) {
      report(&json, FAIL, "%s", gpu_error_text(gpu));
      return false;
    }
  }
  if (!wait_all(ring)) {
    return false;
  }
  for (unsigned g = 0; reduce && g < n; ++g) {
    struct gpu* gpu = &ring->session->gpus.gpu[g];
    const uint64_t received = (g + 2 * n - 1 - step) % n * ring->part;
    if (!gpu_reduce_f32(gpu, own(ring->inbox + step % 2 * ring->part), own(received), ring->part)) {
      report(&json, FAIL, "%s", gpu_error_text(gpu));
      return false;
    }
  }
  return true;
}

/* Loads every GPU by its own engine; the CPU keeps the sum. */
static bool load(struct ring* ring, const struct dma_buffer* buffer, float* sum, uint64_t size) {
  for (unsigned g = 0; g < ring->n; ++g) {
    float* data = (float*)(void*)buffer->bytes;
    make_data(ring->session->options.seed + g, ring->n, data, size / 4);
    for (uint64_t i = 0; i < size / 4; ++i) {
      sum[i] += data[i];
    }
    if (!gpu_copy_now(&ring->session->gpus.gpu[g], host(buffer, 0), own(0), size)) {
      report(&json, FAIL, "loading: %s", gpu_error_text(&ring->session->gpus.gpu[g]));
      return false;
    }
  }
  return true;
}

struct counters {
  uint64_t sent, received, messages, doorbells, busy_ps, fences;
};

static struct counters read_counters(const struct gpu* gpu) {
  return (struct counters){register_read64(gpu->device, ORRERY_GPU_WRITE_BYTES_SENT),
                           register_read64(gpu->device, ORRERY_GPU_WRITE_BYTES_RECEIVED),
                           register_read64(gpu->device, ORRERY_GPU_MSIX_SENT),
                           register_read64(gpu->device, ORRERY_GPU_DOORBELLS),
                           register_read64(gpu->device, ORRERY_GPU_BUSY_TIME),
                           gpu->fences};
}

/* Counters of each GPU over the steps. Sent: data, 8 bytes a fence, 4 bytes an MSI-X message. Received: data, and 4
 * bytes a doorbell, the only register that was written meanwhile. Nothing else. */
static bool check_counters(const struct ring* ring, const struct counters* before, const struct counters* after) {
  const uint64_t moved = 2 * (uint64_t)(ring->n - 1) * ring->part;
  bool right = true;
  json_number(&json, "expected_data_bytes", moved);
  json_open(&json, "gpus", '[');
  for (unsigned g = 0; g < ring->n; ++g) {
    const struct gpu* gpu = &ring->session->gpus.gpu[g];
    const uint64_t fences = after[g].fences - before[g].fences;
    const uint64_t messages = after[g].messages - before[g].messages;
    const uint64_t sent = after[g].sent - before[g].sent;
    const uint64_t received = after[g].received - before[g].received;
    const uint64_t doorbells = after[g].doorbells - before[g].doorbells;
    json_open(&json, NULL, '{');
    json_string(&json, "name", gpu->name);
    json_string(&json, "bdf", gpu->device->pci.bdf);
    json_number(&json, "write_bytes_sent", sent);
    json_number(&json, "write_bytes_received", received);
    json_number(&json, "fences", fences);
    json_number(&json, "msix_messages", messages);
    json_number(&json, "doorbells", doorbells);
    json_number(&json, "busy_ps", after[g].busy_ps - before[g].busy_ps);
    json_close(&json, '}');
    right = right && sent == moved + fences * 8 + messages * 4 && received == moved + doorbells * 4 &&
            messages == (ring->session->machine.vfio ? fences : 0);
  }
  json_close(&json, ']');
  return right;
}

static bool check_results(struct ring* ring, const struct dma_buffer* buffer, const float* sum, uint64_t size) {
  for (unsigned g = 0; g < ring->n; ++g) {
    struct gpu* gpu = &ring->session->gpus.gpu[g];
    memset(buffer->bytes, 0xff, size);
    if (!gpu_copy_now(gpu, own(0), host(buffer, 0), size)) {
      report(&json, FAIL, "reading back: %s", gpu_error_text(gpu));
      return false;
    }
    if (memcmp(buffer->bytes, sum, size) != 0) {
      const float* got = (const float*)(const void*)buffer->bytes;
      uint64_t i = 0;
      while (i + 1 < size / 4 && memcmp(&got[i], &sum[i], 4) == 0) {
        ++i;
      }
      report(&json, FAIL, "%s: element %" PRIu64 " is %.9g, the CPU's sum is %.9g", gpu->name, i, (double)got[i],
             (double)sum[i]);
      return false;
    }
  }
  return true;
}

void test_allreduce(struct session* session) {
  static struct counters before[PCI_MAX_FUNCTIONS];
  static struct counters after[PCI_MAX_FUNCTIONS];
  struct ring ring = {.session = session, .n = (unsigned)session->gpus.count};
  if (ring.n < 2) {
    json_begin(&json, "allreduce", "ring");
    report(&json, SKIP, "it takes two GPUs");
    return;
  }
  ring.part = (session->options.size / ring.n + 3) / 4 * 4; /* whole elements, the same for every GPU */
  const uint64_t size = ring.part * ring.n;
  ring.inbox = size;
  json_begin(&json, "allreduce", "ring-f32");
  json_number(&json, "gpu_count", ring.n);
  json_number(&json, "bytes", size);
  for (unsigned g = 0; g < ring.n; ++g) {
    if (ring.part == 0 || size + 2 * ring.part > session->gpus.gpu[g].device->memory_window) {
      report(&json, FAIL, "--size %" PRIu64 " doesn't fit the memory window (%" PRIu64 " bytes)", size,
             session->gpus.gpu[g].device->memory_window);
      return;
    }
  }
  struct dma_buffer buffer = dma_allocate(&session->machine, size);
  float* sum = calloc(size / 4, 4);
  if (sum == NULL) {
    report(&json, FAIL, "no memory for the CPU's sum");
    return;
  }
  if (load(&ring, &buffer, sum, size)) {
    for (unsigned g = 0; g < ring.n; ++g) {
      before[g] = read_counters(&session->gpus.gpu[g]);
    }
    const uint64_t start_ps = register_read64(session->gpus.gpu[0].device, ORRERY_GPU_TIME);
    const int64_t start = now_ms();
    bool ok = true;
    for (unsigned step = 0; ok && step + 1 < ring.n; ++step) {
      ok = run_step(&ring, step, true);
    }
    for (unsigned step = 0; ok && step + 1 < ring.n; ++step) {
      ok = run_step(&ring, step, false);
    }
    json_number(&json, "wall_ms", (uint64_t)(now_ms() - start));
    json_number(&json, "simulated_ps", register_read64(session->gpus.gpu[0].device, ORRERY_GPU_TIME) - start_ps);
    for (unsigned g = 0; g < ring.n; ++g) {
      after[g] = read_counters(&session->gpus.gpu[g]);
    }
    if (ok) {
      const bool counted = check_counters(&ring, before, after);
      if (check_results(&ring, &buffer, sum, size)) {
        report(&json, counted ? PASS : FAIL,
               counted ? "%u GPUs, %" PRIu64 " bytes each: sums verified by the CPU, byte counters are 2(n-1)/n S"
                       : "%u GPUs, %" PRIu64 " bytes each: sums are right, byte counters are not",
               ring.n, size);
      }
    }
  }
  for (unsigned g = 0; g < ring.n; ++g) {
    if (register_read32(session->gpus.gpu[g].device, ORRERY_GPU_ENGINE_STATUS) == ORRERY_GPU_STATUS_ERROR) {
      gpu_reset(&session->gpus.gpu[g]);
    }
  }
  free(sum);
}
