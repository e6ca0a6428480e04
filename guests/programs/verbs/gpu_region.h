/* SPDX-License-Identifier: Apache-2.0
 *
 * A GPU's memory as a region of RDMA operations (GPUDirect): its BAR by VFIO, exported as a dma-buf.
 */
#ifndef ORRERY_GUESTS_PROGRAMS_VERBS_GPU_REGION_H
#define ORRERY_GUESTS_PROGRAMS_VERBS_GPU_REGION_H

#include <stddef.h>
#include <stdint.h>

struct gpu_region {
  int dmabuf;
  uint8_t* bytes; /* the first `size` bytes of the memory, for the CPU */
};

/* Takes the GPU with this BDF from its driver. Ends the program with a message if it can't. */
struct gpu_region gpu_region_open(const char* bdf, size_t size);
/* Function level reset: what was exported is taken back meanwhile, its importers have to map it anew. */
void gpu_region_reset(void);

#endif
