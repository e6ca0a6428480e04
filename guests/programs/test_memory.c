/* SPDX-License-Identifier: Apache-2.0
 *
 * GPU memory through BAR2, by the CPU: random data, unaligned pieces, the edges of the BAR, and the same bytes
 * seen by the engine.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "random.h"
#include "tests.h"

/* The end of the BAR through read() and write() of the VFIO device, which reaches what isn't mapped here. */
static bool check_last_bytes(const struct gpu* gpu, uint64_t seed, uint64_t* checked) {
  const struct device* device = gpu->device;
  const uint64_t size = device->pci.bars[ORRERY_GPU_BAR_MEMORY].size;
  uint8_t wrote[256];
  uint8_t read_back[256];
  random_fill(seed, wrote, sizeof(wrote));
  if (device->fd < 0) {
    return true; /* no VFIO: nothing but mappings */
  }
  const off_t at = (off_t)(device->memory_region + size - sizeof(wrote));
  if (pwrite(device->fd, wrote, sizeof(wrote), at) != (ssize_t)sizeof(wrote) ||
      pread(device->fd, read_back, sizeof(read_back), at) != (ssize_t)sizeof(read_back)) {
    return false;
  }
  *checked += sizeof(wrote);
  return memcmp(wrote, read_back, sizeof(wrote)) == 0;
}

static const char* check_gpu(const struct session* session, struct gpu* gpu, const struct dma_buffer* buffer,
                             uint64_t seed, uint64_t* checked) {
  const uint64_t window = gpu->device->memory_window;
  volatile uint8_t* bar = gpu->device->memory;
  const size_t block = session->options.bar_bytes;
  uint8_t* wrote = malloc(block);
  uint8_t* read_back = malloc(block);
  const char* problem = NULL;
  if (wrote == NULL || read_back == NULL || block > window / 4) {
    free(wrote);
    free(read_back);
    return "the size given doesn't fit the memory window";
  }

  /* Blocks at the start, across odd addresses in the middle, and at the end of the window. */
  const uint64_t places[] = {0, window / 2 - 3, window - block};
  for (unsigned i = 0; i < 3 && problem == NULL; ++i) {
    random_fill(seed + i, wrote, block);
    bar_write(bar + places[i], wrote, block);
  }
  for (unsigned i = 0; i < 3 && problem == NULL; ++i) {
    random_fill(seed + i, wrote, block);
    bar_read(read_back, bar + places[i], block);
    *checked += block;
    problem = memcmp(wrote, read_back, block) == 0 ? NULL : "a block read back differs";
  }
  /* Every access size at every offset of a word leaves its neighbours alone. */
  uint8_t image[32];
  random_fill(seed + 3, image, sizeof(image));
  bar_write(bar, image, sizeof(image));
  for (unsigned offset = 0; offset < 16 && problem == NULL; ++offset) {
    bar[offset] = image[offset] = (uint8_t)~image[offset];
    if (offset % 2 == 0) {
      const uint16_t half = (uint16_t)(0x1357 * (offset + 1));
      *(volatile uint16_t*)(volatile void*)(bar + offset + 8) = half;
      memcpy(image + offset + 8, &half, 2);
    }
    if (offset % 4 == 0) {
      const uint32_t word = 0x89abcdef + offset;
      *(volatile uint32_t*)(volatile void*)(bar + offset + 12) = word;
      memcpy(image + offset + 12, &word, 4);
    }
    bar_read(read_back, bar, sizeof(image));
    *checked += sizeof(image);
    problem = memcmp(image, read_back, sizeof(image)) == 0 ? NULL : "a small access changed other bytes";
  }
  if (problem == NULL && !check_last_bytes(gpu, seed + 4, checked)) {
    problem = "the last bytes of the BAR differ";
  }
  /* What the CPU wrote is what the engine reads. */
  if (problem == NULL) {
    random_fill(seed + 1, wrote, block);
    if (!gpu_copy_now(gpu, own(window / 2 - 3), host(buffer, 0), block)) {
      problem = gpu_error_text(gpu);
    } else if (memcmp(wrote, buffer->bytes, block) != 0) {
      problem = "the engine sees other bytes than the CPU wrote";
    }
    *checked += block;
  }
  free(wrote);
  free(read_back);
  return problem;
}

void test_memory(struct session* session) {
  static struct json json;
  const struct dma_buffer buffer = dma_allocate(&session->machine, session->options.bar_bytes);
  for (int i = 0; i < session->gpus.count; ++i) {
    struct gpu* gpu = &session->gpus.gpu[i];
    uint64_t checked = 0;
    const int64_t start = now_ms();
    const char* problem = check_gpu(session, gpu, &buffer, session->options.seed + (uint64_t)i * 100, &checked);
    json_begin(&json, "memory", gpu->name);
    json_string(&json, "bdf", gpu->device->pci.bdf);
    json_number(&json, "memory_bytes", register_read64(gpu->device, ORRERY_GPU_MEMORY_SIZE));
    json_number(&json, "bar_bytes", gpu->device->pci.bars[ORRERY_GPU_BAR_MEMORY].size);
    json_number(&json, "bytes_checked", checked);
    json_number(&json, "wall_ms", (uint64_t)(now_ms() - start));
    if (problem != NULL) {
      gpu_json_error(gpu, &json);
      report(&json, FAIL, "%s", problem);
      gpu_reset(gpu);
    } else {
      report(&json, PASS, "%" PRIu64 " bytes checked", checked);
    }
  }
}
