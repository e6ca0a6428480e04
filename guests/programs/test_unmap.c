/* SPDX-License-Identifier: Apache-2.0
 *
 * Unmapping one page under a running DMA: the engine must stop with that page's address, the page must not change
 * any more, and its neighbours must be untouched where the engine had no business.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "random.h"
#include "tests.h"

#define PAGE ((size_t)4096)
#define PAGES ((size_t)512) /* mapped: 2 MiB, with the page to go in the middle */
#define HOLE ((size_t)200)  /* index of that page */
#define GUARD ((size_t)16)  /* pages on both sides that are never mapped */

static struct json json;

struct target {
  uint8_t* memory; /* guard, pages, guard */
  uint8_t* pages;
  uint64_t iova;
};

/* VFIO takes away whole mappings only: the page gets one of its own. */
static bool map_target(struct machine* machine, const struct target* target) {
  return dma_map(machine, target->pages, HOLE * PAGE, target->iova) &&
         dma_map(machine, target->pages + HOLE * PAGE, PAGE, target->iova + HOLE * PAGE) &&
         dma_map(machine, target->pages + (HOLE + 1) * PAGE, (PAGES - HOLE - 1) * PAGE,
                 target->iova + (HOLE + 1) * PAGE);
}

static void unmap_target(struct machine* machine, const struct target* target) {
  dma_unmap(machine, HOLE * PAGE, target->iova);
  dma_unmap(machine, PAGE, target->iova + HOLE * PAGE);
  dma_unmap(machine, (PAGES - HOLE - 1) * PAGE, target->iova + (HOLE + 1) * PAGE);
}

static bool all_equal(const uint8_t* bytes, uint8_t value, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    if (bytes[i] != value) {
      return false;
    }
  }
  return true;
}

static bool guards_intact(const struct target* target) {
  return all_equal(target->memory, 0x5a, GUARD * PAGE) && all_equal(target->pages + PAGES * PAGE, 0x5a, GUARD * PAGE);
}

/* Copies kept in the ring, 2 GiB of them: at host speed the engine is still at work when the unmapping ends, which
 * under emulation takes tens of milliseconds. */
#define RING_LOG2 11u
#define QUEUED (1u << (RING_LOG2 - 1))

struct progress {
  bool unmapped;
  uint64_t copies;
  uint32_t tail_at_unmap; /* commands queued when the page was taken */
  uint32_t head_at_unmap; /* and complete */
  int64_t unmap_ms;
};

/* Keeps the engine copying over the whole target until it stops by itself, or time is up. */
static const char* keep_copying(struct gpu* gpu, const struct target* target, struct progress* progress) {
  const int64_t deadline = now_ms() + gpu->machine->timeout_ms;
  const uint32_t first = gpu->tail;
  while (register_read32(gpu->device, ORRERY_GPU_ENGINE_STATUS) != ORRERY_GPU_STATUS_ERROR) {
    if (now_ms() > deadline) {
      return progress->unmapped ? "the engine went on after the page was unmapped" : gpu_error_text(gpu);
    }
    const uint32_t head = register_read32(gpu->device, ORRERY_GPU_RING_HEAD);
    for (uint32_t queued = gpu->tail - head; queued < QUEUED; ++queued) {
      if (!gpu_copy(gpu, own(0), bus(target->iova), PAGES * PAGE, 0, 0)) {
        break; /* halted: the loop's condition sees it */
      }
      ++progress->copies;
    }
    gpu_doorbell(gpu);
    /* Copies have passed over the page and more are under way: take it. */
    if (!progress->unmapped && head - first >= 2) {
      progress->tail_at_unmap = gpu->tail;
      progress->head_at_unmap = head;
      const int64_t began = now_ms();
      if (!dma_unmap(gpu->machine, PAGE, target->iova + HOLE * PAGE)) {
        return "VFIO can't unmap the page";
      }
      progress->unmap_ms = now_ms() - began;
      progress->unmapped = true;
      /* From here on the page is the CPU's alone. */
      memset(target->pages + HOLE * PAGE, 0xc3, PAGE);
    }
  }
  return NULL;
}

/* The engine had emptied its queue before the page was gone: the host was busy elsewhere. Worth another try. */
static const char* const missed = "no DMA was running when the page was unmapped";
#define ATTEMPTS 8

static const char* run(struct session* session, struct gpu* gpu, struct target* target) {
  struct progress progress = {0};
  const size_t bytes = PAGES * PAGE;
  uint8_t* data = malloc(bytes);
  if (data == NULL) {
    return "no memory";
  }
  random_fill(session->options.seed, data, bytes);
  /* Through the target itself into the GPU's memory: it works before anything is unmapped. */
  memcpy(target->pages, data, bytes);
  const char* problem = NULL;
  if (!gpu_copy_now(gpu, bus(target->iova), own(0), bytes)) {
    problem = gpu_error_text(gpu);
  }
  problem = problem != NULL ? problem : keep_copying(gpu, target, &progress);
  json_number(&json, "copies_queued", progress.copies);
  json_number(&json, "copies_complete_at_unmap", progress.head_at_unmap);
  json_number(&json, "copies_queued_at_unmap", progress.tail_at_unmap);
  json_number(&json, "unmap_ms", (uint64_t)progress.unmap_ms);
  json_number(&json, "unmapped_iova", target->iova + HOLE * PAGE);
  gpu_json_error(gpu, &json);
  const uint64_t address = register_read64(gpu->device, ORRERY_GPU_ERROR_ADDRESS);
  const uint32_t code = register_read32(gpu->device, ORRERY_GPU_ERROR_CODE);
  if (problem == NULL && code != ORRERY_GPU_ERROR_DMA_WRITE) {
    problem = "the engine's error is not that of a write";
  }
  if (problem == NULL && event_wait(gpu->device, ORRERY_GPU_VECTOR_ERROR, session->machine.timeout_ms) == 0) {
    problem = "no error interrupt";
  }
  if (problem == NULL && register_read32(gpu->device, ORRERY_GPU_ERROR_COMMAND) - progress.head_at_unmap >=
                             progress.tail_at_unmap - progress.head_at_unmap) {
    problem = missed;
  }
  if (problem == NULL && address / PAGE != target->iova / PAGE + HOLE) {
    problem = "the engine names another address";
  }
  if (problem == NULL && !all_equal(target->pages + HOLE * PAGE, 0xc3, PAGE)) {
    problem = "the page changed after it was unmapped";
  }
  if (problem == NULL &&
      (memcmp(target->pages, data, HOLE * PAGE) != 0 ||
       memcmp(target->pages + (HOLE + 1) * PAGE, data + (HOLE + 1) * PAGE, (PAGES - HOLE - 1) * PAGE) != 0 ||
       !guards_intact(target))) {
    problem = "another page was harmed";
  }
  /* Mapped again and reset, it works as before. */
  gpu_reset(gpu);
  if (problem == NULL && !dma_map(&session->machine, target->pages + HOLE * PAGE, PAGE, target->iova + HOLE * PAGE)) {
    problem = "VFIO can't map the page again";
  }
  if (problem == NULL && (!gpu_copy_now(gpu, own(0), bus(target->iova), bytes) ||
                          memcmp(target->pages, data, bytes) != 0 || !guards_intact(target))) {
    problem = "no recovery after the page was mapped again";
  }
  free(data);
  return problem;
}

void test_unmap(struct session* session) {
  json_begin(&json, "unmap", "page-under-dma");
  if (!session->machine.vfio || session->gpus.count == 0) {
    report(&json, SKIP, session->gpus.count == 0 ? "there is no GPU" : "unmapping needs VFIO");
    return;
  }
  struct gpu* gpu = &session->gpus.gpu[0];
  const struct gpu usual = *gpu;
  const struct dma_buffer ring = dma_allocate(&session->machine, sizeof(struct orrery_gpu_command) << RING_LOG2);
  gpu->ring = ring.bytes;
  gpu->ring_bus = dma_address(&ring, 0);
  gpu->ring_log2 = RING_LOG2;
  gpu_reset(gpu);
  struct target target = {.iova = dma_reserve(&session->machine, PAGES * PAGE)};
  target.memory = mmap(NULL, (PAGES + 2 * GUARD) * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (target.memory == MAP_FAILED) {
    report(&json, FAIL, "no memory: %s", strerror(errno));
    return;
  }
  memset(target.memory, 0x5a, (PAGES + 2 * GUARD) * PAGE);
  target.pages = target.memory + GUARD * PAGE;
  json_string(&json, "bdf", gpu->device->pci.bdf);
  if (gpu->device->memory_window < PAGES * PAGE || !map_target(&session->machine, &target)) {
    report(&json, FAIL, "the target can't be mapped: %s", strerror(errno));
  } else {
    const char* problem = run(session, gpu, &target);
    for (unsigned attempt = 1; problem == missed && attempt < ATTEMPTS; ++attempt) {
      if (!dma_map(&session->machine, target.pages + HOLE * PAGE, PAGE, target.iova + HOLE * PAGE)) {
        problem = "VFIO can't map the page again";
        break;
      }
      json_begin(&json, "unmap", "page-under-dma");
      json_string(&json, "bdf", gpu->device->pci.bdf);
      problem = run(session, gpu, &target);
    }
    if (problem != NULL) {
      report(&json, FAIL, "%s", problem);
    } else {
      report(&json, PASS, "the engine stopped with the page's address; nothing strayed; it recovers");
    }
  }
  gpu->ring = usual.ring;
  gpu->ring_bus = usual.ring_bus;
  gpu->ring_log2 = usual.ring_log2;
  gpu_reset(gpu);
  unmap_target(&session->machine, &target);
  munmap(target.memory, (PAGES + 2 * GUARD) * PAGE);
}
