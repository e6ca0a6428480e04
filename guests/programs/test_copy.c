/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies by the engines: host to GPU and back, and GPU to GPU, below one switch and across, pushed (written to
 * the peer) and pulled (read from it). The CPU compares what arrived.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"
#include "tests.h"

struct buffers {
  struct dma_buffer source;
  struct dma_buffer result;
};

static struct json json;

static void begin(const char* name, const struct gpu* gpu, uint64_t size) {
  json_begin(&json, "copy", name);
  json_string(&json, "engine_bdf", gpu->device->pci.bdf);
  json_number(&json, "bytes", size);
}

/* One profiled copy; the milliseconds of the wall it took, or -1. */
static int64_t profiled_copy(struct gpu* gpu, struct place from, struct place to, uint64_t size, uint32_t tag) {
  const int64_t start = now_ms();
  if (!gpu_copy(gpu, from, to, size, ORRERY_GPU_FLAG_PROFILE, tag) || !gpu_fence(gpu)) {
    return -1;
  }
  gpu_doorbell(gpu);
  return gpu_wait(gpu) ? now_ms() - start : -1;
}

static void finish(struct gpu* gpu, int64_t wall_ms, bool equal, const char* what) {
  gpu_json_profile(gpu, &json);
  json_number(&json, "wall_ms", wall_ms < 0 ? 0 : (uint64_t)wall_ms);
  if (wall_ms < 0) {
    gpu_json_error(gpu, &json);
    report(&json, FAIL, "%s", gpu_error_text(gpu));
    gpu_reset(gpu);
  } else if (!equal) {
    report(&json, FAIL, "%s: the bytes that arrived differ", what);
  } else {
    report(&json, PASS, "%s verified by the CPU", what);
  }
}

/* The CPU's own look at the first and last bytes in a GPU's memory. */
static bool bar_shows(const struct gpu* gpu, uint64_t offset, const uint8_t* expected, uint64_t size) {
  uint8_t seen[512];
  const size_t piece = size < sizeof(seen) ? size : sizeof(seen);
  bar_read(seen, gpu->device->memory + offset, piece);
  if (memcmp(seen, expected, piece) != 0) {
    return false;
  }
  bar_read(seen, gpu->device->memory + offset + size - piece, piece);
  return memcmp(seen, expected + size - piece, piece) == 0;
}

static void copy_host(struct session* session, struct gpu* gpu, struct buffers* buffers) {
  const uint64_t size = session->options.size;
  random_fill(session->options.seed + gpu->device->pci.serial, buffers->source.bytes, size);
  memset(buffers->result.bytes, 0, size);
  char name[64];
  snprintf(name, sizeof(name), "host-%s", gpu->name);
  begin(name, gpu, size);
  int64_t wall = profiled_copy(gpu, host(&buffers->source, 0), own(0), size, 1);
  finish(gpu, wall, wall >= 0 && bar_shows(gpu, 0, buffers->source.bytes, size), "host to GPU");
  if (wall < 0) {
    return;
  }
  snprintf(name, sizeof(name), "%s-host", gpu->name);
  begin(name, gpu, size);
  wall = profiled_copy(gpu, own(0), host(&buffers->result, 0), size, 2);
  finish(gpu, wall, memcmp(buffers->source.bytes, buffers->result.bytes, size) == 0, "GPU to host, every byte,");
}

/* `engine` moves bytes between its own memory at 0 and the peer's at `size`. */
static void copy_peer(struct session* session, struct gpu* engine, struct gpu* peer, struct buffers* buffers,
                      bool push) {
  const uint64_t size = session->options.size;
  struct gpu* target = push ? peer : engine;
  const char* common = pci_common_port(&engine->device->pci, &peer->device->pci);
  const uint64_t peer_received = register_read64(peer->device, ORRERY_GPU_WRITE_BYTES_RECEIVED);
  const uint64_t peer_sent = register_read64(peer->device, ORRERY_GPU_COMPLETION_BYTES_SENT);
  char name[64];
  snprintf(name, sizeof(name), "%s-%s-%s", engine->name, push ? "push" : "pull", peer->name);

  random_fill(session->options.seed + engine->device->pci.serial * 3 + peer->device->pci.serial + push,
              buffers->source.bytes, size);
  memset(buffers->result.bytes, 0, size);
  const bool loaded = push ? gpu_copy_now(engine, host(&buffers->source, 0), own(0), size)
                           : gpu_copy_now(peer, host(&buffers->source, 0), own(size), size);
  begin(name, engine, size);
  json_string(&json, "peer_bdf", peer->device->pci.bdf);
  json_string(&json, "common_port", common == NULL ? "" : common);
  json_string(&json, "direction", push ? "push" : "pull");
  if (!loaded) {
    gpu_json_error(push ? engine : peer, &json);
    report(&json, FAIL, "loading the data: %s", gpu_error_text(push ? engine : peer));
    gpu_reset(push ? engine : peer);
    return;
  }
  const int64_t wall = push ? profiled_copy(engine, own(0), bus(gpu_bar_address(peer, size)), size, 3)
                            : profiled_copy(engine, bus(gpu_bar_address(peer, size)), own(size), size, 4);
  /* Read back by the engine of the GPU that now has the bytes, past the path under test. */
  const bool equal = wall >= 0 && gpu_copy_now(target, own(size), host(&buffers->result, 0), size) &&
                     memcmp(buffers->source.bytes, buffers->result.bytes, size) == 0 &&
                     bar_shows(target, size, buffers->source.bytes, size);
  json_number(&json, "peer_write_bytes_received",
              register_read64(peer->device, ORRERY_GPU_WRITE_BYTES_RECEIVED) - peer_received);
  json_number(&json, "peer_completion_bytes_sent",
              register_read64(peer->device, ORRERY_GPU_COMPLETION_BYTES_SENT) - peer_sent);
  finish(engine, wall, equal, common == NULL ? "GPU to GPU across root ports" : "GPU to GPU below one switch");
}

void test_copy(struct session* session) {
  struct gpus* gpus = &session->gpus;
  const uint64_t size = session->options.size;
  if (gpus->count == 0) {
    json_begin(&json, "copy", "gpus");
    report(&json, SKIP, "there is no GPU");
    return;
  }
  for (int i = 0; i < gpus->count; ++i) {
    if (size == 0 || size > gpus->gpu[i].device->memory_window / 2) {
      report_failure("copy", gpus->gpu[i].name,
                     "--size %" PRIu64 " must be 1 ... half of the memory window (%" PRIu64 ")", size,
                     gpus->gpu[i].device->memory_window);
      return;
    }
  }
  struct buffers buffers = {dma_allocate(&session->machine, size), dma_allocate(&session->machine, size)};
  for (int i = 0; i < gpus->count; ++i) {
    copy_host(session, &gpus->gpu[i], &buffers);
  }
  /* From the first GPU to one below the same port and to one that isn't, if there are such. */
  const struct gpu* first = &gpus->gpu[0];
  int near = -1;
  int far = -1;
  for (int i = 1; i < gpus->count; ++i) {
    const bool together = pci_common_port(&first->device->pci, &gpus->gpu[i].device->pci) != NULL;
    if (together && near < 0) {
      near = i;
    }
    if (!together) {
      far = i; /* the last: on another socket, if there is one */
    }
  }
  const int peers[] = {near, far};
  for (unsigned i = 0; i < 2; ++i) {
    if (peers[i] < 0) {
      json_begin(&json, "copy", i == 0 ? "same-switch" : "across-switches");
      report(&json, SKIP, "no such pair of GPUs in this machine");
      continue;
    }
    copy_peer(session, &gpus->gpu[0], &gpus->gpu[peers[i]], &buffers, true);
    copy_peer(session, &gpus->gpu[0], &gpus->gpu[peers[i]], &buffers, false);
  }
}
