/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu_region.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "../device.h"
#include "link.h"

static struct machine machine;

struct gpu_region gpu_region_open(const char* bdf, size_t size) {
  /* Ranges are whole pages. */
  const size_t bytes = (size + 4095) / 4096 * 4096;
  machine = (struct machine){.vfio = true, .timeout_ms = 10000, .window = bytes, .only = bdf};
  if (!machine_open(&machine)) {
    stop("the GPU at %s can't be had (above)", bdf);
  }
  struct device* device = &machine.devices[0];
  if (device->pci.kind != KIND_GPU || device->memory_window < bytes) {
    stop("%s has no GPU memory of %zu bytes in its BAR", bdf, bytes);
  }
  const struct gpu_region region = {.dmabuf = device_export(device, 0, bytes),
                                    .bytes = (uint8_t*)(uintptr_t)device->memory};
  if (region.dmabuf < 0) {
    stop("%s: this kernel doesn't export its memory as a dma-buf (VFIO_DEVICE_FEATURE_DMA_BUF, Linux 6.19): %s", bdf,
         strerror(errno));
  }
  return region;
}

void gpu_region_reset(void) {
  if (!device_reset(&machine.devices[0])) {
    stop("%s: VFIO_DEVICE_RESET: %s", machine.devices[0].pci.bdf, strerror(errno));
  }
}
