/* SPDX-License-Identifier: Apache-2.0
 *
 * Access to PCI functions from user space: registers, memory BARs, DMA memory, interrupts.
 *
 * With VFIO (the default) every function joins one container, so that a DMA buffer has one IOVA for all of
 * them, and every GPU's memory window is mapped at IOVA = its bus address, which is how peers reach it. It needs a
 * kernel with an IOMMU (QEMU's intel-iommu, intel_iommu=on).
 * Without (--no-vfio), BARs come from sysfs, DMA addresses are physical ones found in /proc/self/pagemap, and
 * there are no interrupts. It needs a kernel without IOMMU translation, and root.
 */
#ifndef ORRERY_GUESTS_PROGRAMS_DEVICE_H
#define ORRERY_GUESTS_PROGRAMS_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pci.h"

#define DEVICE_VECTORS 4 /* MSI-X vectors that this program uses, if the function has as many */

struct device {
  struct pci_function pci;
  int fd;                      /* VFIO device, or -1 */
  volatile uint8_t* registers; /* BAR0 */
  volatile uint8_t* memory;    /* the first memory_window bytes of BAR2, GPUs only */
  uint64_t memory_window;
  uint64_t memory_region;     /* VFIO: offset of BAR2 in fd */
  int events[DEVICE_VECTORS]; /* eventfds, or -1 */
};

struct machine {
  bool vfio;
  int container;
  uint64_t next_iova;
  int timeout_ms;   /* for anything that the hardware is waited for */
  uint64_t window;  /* bytes of each GPU's BAR2 that peers and the CPU get to see */
  const char* only; /* null: every function; else that with this BDF */
  struct device devices[PCI_MAX_FUNCTIONS];
  int count;
};

/* Memory that devices can reach. Bus addresses are contiguous within a granule. */
struct dma_buffer {
  uint8_t* bytes;
  size_t size;
  size_t granule;
  uint64_t* bus; /* of each granule */
};

/* Opens every Orrery function. False, with messages on stderr that say what to mend, if one can't be had. */
bool machine_open(struct machine* machine);
/* VFIO: a dma-buf of `size` bytes of a GPU's memory BAR from `offset` on, which other drivers can import
 * (VFIO_DEVICE_FEATURE_DMA_BUF, Linux 6.19 and later). -1 with errno if there is none. */
int device_export(const struct device* device, uint64_t offset, uint64_t size);
/* VFIO: function level reset. False with errno. */
bool device_reset(const struct device* device);
/* Gives them back. VFIO: first takes away what was mapped of the BARs, which vanish with the devices. */
void machine_close(struct machine* machine);

/* Zeroed memory. Ends the program with a message if there is none: nothing works without. */
struct dma_buffer dma_allocate(struct machine* machine, size_t size);
uint64_t dma_address(const struct dma_buffer* buffer, size_t offset);

/* VFIO: maps bytes at an IOVA for all devices, and takes exactly such a mapping away. False with errno. */
bool dma_map(struct machine* machine, void* bytes, size_t size, uint64_t iova);
bool dma_unmap(struct machine* machine, size_t size, uint64_t iova);
/* VFIO: IOVAs that nothing else uses, a multiple of 2 MiB. */
uint64_t dma_reserve(struct machine* machine, size_t size);

uint32_t register_read32(const struct device* device, uint32_t offset);
uint64_t register_read64(const struct device* device, uint32_t offset);
void register_write32(const struct device* device, uint32_t offset, uint32_t value);
void register_write64(const struct device* device, uint32_t offset, uint64_t value);

/* Copies by naturally aligned accesses of at most 8 bytes, which any kind of BAR understands. */
void bar_write(volatile uint8_t* to, const void* from, size_t size);
void bar_read(void* into, const volatile uint8_t* from, size_t size);

/* Waits until vector's event has fired; returns how often it has since the last call, 0 on time-out. */
uint64_t event_wait(const struct device* device, unsigned vector, int timeout_ms);

/* Monotonic milliseconds. */
int64_t now_ms(void);

#endif
