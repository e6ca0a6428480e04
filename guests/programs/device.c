/* SPDX-License-Identifier: Apache-2.0 */
#include "device.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "systemc_models/gpu/gpu_registers.h"
#include "vfio.h"

#define PAGE ((size_t)4096)
#define HUGE_PAGE ((size_t)2 << 20)
#define FIRST_IOVA UINT64_C(0x10000000)

static void die(const char* what) {
  fprintf(stderr, "orrery-guest-demo: %s: %s\n", what, strerror(errno));
  exit(2);
}

static volatile uint8_t* map_resource(const struct pci_function* function, int bar, uint64_t size) {
  char path[PATH_MAX];
  snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/resource%d", function->bdf, bar);
  const int fd = open(path, O_RDWR | O_SYNC | O_CLOEXEC);
  if (fd < 0) {
    return NULL;
  }
  void* address = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return address == MAP_FAILED ? NULL : address;
}

static bool sysfs_enable(const char* bdf) {
  char path[PATH_MAX];
  snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/enable", bdf);
  if (!pci_write_attribute(path, "1")) {
    return false;
  }
  snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/config", bdf);
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  uint16_t command = 0;
  if (fd < 0) {
    return false;
  }
  bool ok = pread(fd, &command, 2, 4) == 2;
  command |= 0x6; /* memory space, bus master */
  ok = ok && pwrite(fd, &command, 2, 4) == 2;
  close(fd);
  return ok;
}

static bool sysfs_open(struct machine* machine) {
  for (int i = 0; i < machine->count; ++i) {
    struct device* device = &machine->devices[i];
    const char* bdf = device->pci.bdf;
    if (!sysfs_enable(bdf)) {
      fprintf(stderr, "orrery-guest-demo: %s: can't be enabled: %s (is this root?)\n", bdf, strerror(errno));
      return false;
    }
    device->registers = map_resource(&device->pci, 0, device->pci.bars[0].size);
    if (device->pci.kind == KIND_GPU) {
      const uint64_t size = device->pci.bars[ORRERY_GPU_BAR_MEMORY].size;
      device->memory_window = size < machine->window ? size : machine->window;
      device->memory = map_resource(&device->pci, ORRERY_GPU_BAR_MEMORY, device->memory_window);
    }
    if (device->registers == NULL || (device->pci.kind == KIND_GPU && device->memory == NULL)) {
      fprintf(stderr, "orrery-guest-demo: %s: its BARs can't be mapped: %s (does a driver have it?)\n", bdf,
              strerror(errno));
      return false;
    }
  }
  return true;
}

/* Those that the kernel doesn't use, or the one that was asked for. */
static bool is_wanted(const struct machine* machine, const struct pci_function* function) {
  return function->kind != KIND_RNIC_MLX5 && (machine->only == NULL || strcmp(function->bdf, machine->only) == 0);
}

bool machine_open(struct machine* machine) {
  static struct pci_function functions[PCI_MAX_FUNCTIONS];
  const int found = pci_scan(functions, PCI_MAX_FUNCTIONS);
  machine->count = 0;
  for (int i = 0; i < found; ++i) {
    if (!is_wanted(machine, &functions[i])) {
      continue;
    }
    struct device* device = &machine->devices[machine->count++];
    memset(device, 0, sizeof(*device));
    device->pci = functions[i];
    device->fd = -1;
    for (unsigned v = 0; v < DEVICE_VECTORS; ++v) {
      device->events[v] = -1;
    }
  }
  if (machine->count == 0) {
    if (found >= 0) {
      fprintf(stderr, "orrery-guest-demo: no Orrery function %s%s\n", machine->only == NULL ? "" : "at ",
              machine->only == NULL ? "on this machine's PCI bus" : machine->only);
    }
    return false;
  }
  machine->container = -1;
  machine->next_iova = FIRST_IOVA;
  return machine->vfio ? vfio_open(machine) : sysfs_open(machine);
}

void machine_close(struct machine* machine) {
  for (int i = 0; machine->vfio && i < machine->count; ++i) {
    const struct device* device = &machine->devices[i];
    if (device->memory != NULL) {
      dma_unmap(machine, device->memory_window, device->pci.bars[ORRERY_GPU_BAR_MEMORY].address);
    }
  }
  for (int i = 0; i < machine->count; ++i) {
    if (machine->devices[i].fd >= 0) {
      close(machine->devices[i].fd);
    }
  }
}

uint64_t dma_reserve(struct machine* machine, size_t size) {
  const uint64_t bytes = (size + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
  uint64_t start = machine->next_iova;
  bool moved = true;
  while (moved) {
    moved = false;
    /* Not where a BAR is mapped, nor in the interrupt range of the architecture (0xfee00000). */
    for (int i = 0; i < machine->count * PCI_BARS + 1; ++i) {
      const struct pci_bar interrupts = {.address = 0xfee00000, .size = 0x100000};
      const struct pci_bar* taken =
          i == 0 ? &interrupts : &machine->devices[(i - 1) / PCI_BARS].pci.bars[(i - 1) % PCI_BARS];
      if (taken->size != 0 && start < taken->address + taken->size && taken->address < start + bytes) {
        start = (taken->address + taken->size + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
        moved = true;
      }
    }
  }
  machine->next_iova = start + bytes;
  return start;
}

/* Physical addresses, for a machine without an IOMMU. */
static bool find_physical(struct dma_buffer* buffer) {
  const int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return false;
  }
  bool ok = true;
  for (size_t i = 0; ok && i < buffer->size / buffer->granule; ++i) {
    uint64_t entry = 0;
    const uintptr_t address = (uintptr_t)buffer->bytes + i * buffer->granule;
    ok = pread(fd, &entry, 8, (off_t)(address / PAGE * 8)) == 8;
    /* Bit 63: present. Bits 0-54: page frame number, zero to those who may not know it. */
    const uint64_t frame = entry & ((UINT64_C(1) << 55) - 1);
    ok = ok && (entry >> 63) != 0 && frame != 0;
    buffer->bus[i] = frame * PAGE;
    errno = EPERM;
  }
  close(fd);
  return ok;
}

/* Huge pages stay where they are and keep long runs contiguous; without them, locked small pages. */
static void* physical_pages(struct dma_buffer* buffer) {
  const size_t huge = (buffer->size + HUGE_PAGE - 1) / HUGE_PAGE;
  char path[] = "/proc/sys/vm/nr_hugepages";
  static unsigned long wanted;
  char text[32];
  wanted += huge;
  snprintf(text, sizeof(text), "%lu", wanted);
  pci_write_attribute(path, text); /* may fail: then small pages */
  void* bytes = mmap(NULL, huge * HUGE_PAGE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_POPULATE, -1, 0);
  if (bytes != MAP_FAILED) {
    buffer->size = huge * HUGE_PAGE;
    buffer->granule = HUGE_PAGE;
    return bytes;
  }
  buffer->granule = PAGE;
  bytes =
      mmap(NULL, buffer->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED | MAP_POPULATE, -1, 0);
  return bytes;
}

struct dma_buffer dma_allocate(struct machine* machine, size_t size) {
  struct dma_buffer buffer = {.size = (size + PAGE - 1) / PAGE * PAGE};
  if (machine->vfio) {
    /* Aligned to 2 MiB on both sides and huge, so that the IOMMU gets few large entries. */
    uint8_t* raw = mmap(NULL, buffer.size + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) {
      die("no memory");
    }
    buffer.bytes = raw + (HUGE_PAGE - (uintptr_t)raw % HUGE_PAGE) % HUGE_PAGE;
    madvise(buffer.bytes, buffer.size, MADV_HUGEPAGE); /* advice only */
    memset(buffer.bytes, 0, buffer.size);
    buffer.granule = buffer.size;
    buffer.bus = malloc(sizeof(uint64_t));
    if (buffer.bus == NULL) {
      die("no memory");
    }
    buffer.bus[0] = dma_reserve(machine, buffer.size);
    if (!dma_map(machine, buffer.bytes, buffer.size, buffer.bus[0])) {
      die("VFIO can't map memory for DMA (is the limit of locked memory, ulimit -l, too low?)");
    }
    return buffer;
  }
  void* bytes = physical_pages(&buffer);
  buffer.bus = malloc(buffer.size / buffer.granule * sizeof(uint64_t));
  if (bytes == MAP_FAILED || buffer.bus == NULL) {
    die("no memory");
  }
  buffer.bytes = bytes;
  memset(buffer.bytes, 0, buffer.size);
  if (!find_physical(&buffer)) {
    die("/proc/self/pagemap gives no physical addresses (is this root?)");
  }
  return buffer;
}

uint64_t dma_address(const struct dma_buffer* buffer, size_t offset) {
  return buffer->bus[offset / buffer->granule] + offset % buffer->granule;
}

uint32_t register_read32(const struct device* device, uint32_t offset) {
  return *(const volatile uint32_t*)(const volatile void*)(device->registers + offset);
}
uint64_t register_read64(const struct device* device, uint32_t offset) {
  return *(const volatile uint64_t*)(const volatile void*)(device->registers + offset);
}
void register_write32(const struct device* device, uint32_t offset, uint32_t value) {
  *(volatile uint32_t*)(volatile void*)(device->registers + offset) = value;
}
void register_write64(const struct device* device, uint32_t offset, uint64_t value) {
  *(volatile uint64_t*)(volatile void*)(device->registers + offset) = value;
}

void bar_write(volatile uint8_t* to, const void* from, size_t size) {
  const uint8_t* bytes = from;
  size_t i = 0;
  while (i < size) {
    uint64_t word;
    if ((uintptr_t)(to + i) % 8 == 0 && size - i >= 8) {
      memcpy(&word, bytes + i, 8);
      *(volatile uint64_t*)(volatile void*)(to + i) = word;
      i += 8;
    } else {
      to[i] = bytes[i];
      ++i;
    }
  }
}

void bar_read(void* into, const volatile uint8_t* from, size_t size) {
  uint8_t* bytes = into;
  size_t i = 0;
  while (i < size) {
    if ((uintptr_t)(from + i) % 8 == 0 && size - i >= 8) {
      const uint64_t word = *(const volatile uint64_t*)(const volatile void*)(from + i);
      memcpy(bytes + i, &word, 8);
      i += 8;
    } else {
      bytes[i] = from[i];
      ++i;
    }
  }
}

uint64_t event_wait(const struct device* device, unsigned vector, int timeout_ms) {
  struct pollfd file = {.fd = device->events[vector], .events = POLLIN};
  uint64_t fired = 0;
  if (file.fd < 0 || poll(&file, 1, timeout_ms) != 1 || read(file.fd, &fired, 8) != 8) {
    return 0;
  }
  return fired;
}

int64_t now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}
