/* SPDX-License-Identifier: Apache-2.0 */
#include "vfio.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/vfio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "report.h"
#include "systemc_models/gpu/gpu_registers.h"

#define PCI_COMMAND_OFFSET 4
#define PCI_COMMAND_MEMORY_AND_MASTER 0x6

static bool complain(const char* what, const char* bdf) {
  fprintf(stderr, "orrery-guest-demo: %s%s%s: %s\n", bdf, bdf[0] == 0 ? "" : ": ", what, strerror(errno));
  return false;
}

static void load_modules(void) {
  const pid_t child = fork();
  if (child == 0) {
    execlp("modprobe", "modprobe", "-q", "-a", "vfio_iommu_type1", "vfio-pci", (char*)NULL);
    _exit(127);
  }
  int status = 0;
  if (child > 0) {
    waitpid(child, &status, 0); /* whether it helped shows when the files are opened */
  }
}

/* Takes the function from whatever driver has it and gives it to vfio-pci. */
static bool bind_to_vfio(const char* bdf) {
  char path[PATH_MAX];
  char target[PATH_MAX];
  snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/driver", bdf);
  const ssize_t length = readlink(path, target, sizeof(target) - 1);
  if (length > 0) {
    target[length] = 0;
    const char* driver = strrchr(target, '/');
    if (driver != NULL && strcmp(driver + 1, "vfio-pci") == 0) {
      return true;
    }
    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/driver/unbind", bdf);
    if (!pci_write_attribute(path, bdf)) {
      return complain("can't be taken from its driver", bdf);
    }
  }
  snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/driver_override", bdf);
  if (!pci_write_attribute(path, "vfio-pci")) {
    return complain("can't be given to vfio-pci (driver_override)", bdf);
  }
  if (!pci_write_attribute("/sys/bus/pci/drivers_probe", bdf)) {
    return complain("vfio-pci doesn't take it; are the modules vfio-pci and vfio_iommu_type1 there?", bdf);
  }
  return true;
}

static bool set_iommu(struct machine* machine) {
  if (ioctl(machine->container, VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU) == 0) {
    return true;
  }
  if (errno != EPERM) {
    return complain("no type 1 IOMMU for the container", "");
  }
  /* The IOMMU doesn't remap interrupts; type 1 refuses that unless told that it is fine. In this guest it is. */
  if (!pci_write_attribute("/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts", "1") ||
      ioctl(machine->container, VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU) != 0) {
    return complain("no type 1 IOMMU for the container, even with allow_unsafe_interrupts", "");
  }
  say("vfio: this IOMMU doesn't remap interrupts, so allow_unsafe_interrupts was set");
  return true;
}

/* A group's file can be opened once; functions of one group share it. */
static int group_file(struct machine* machine, int group, bool* first_of_all) {
  static int groups[PCI_MAX_FUNCTIONS];
  static int files[PCI_MAX_FUNCTIONS];
  static int count;
  for (int i = 0; i < count; ++i) {
    if (groups[i] == group) {
      return files[i];
    }
  }
  char path[64];
  snprintf(path, sizeof(path), "/dev/vfio/%d", group);
  const int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) {
    complain(path, "");
    return -1;
  }
  struct vfio_group_status status = {.argsz = sizeof(status)};
  if (ioctl(file, VFIO_GROUP_GET_STATUS, &status) != 0 || (status.flags & VFIO_GROUP_FLAGS_VIABLE) == 0) {
    fprintf(stderr, "orrery-guest-demo: IOMMU group %d has other devices with drivers of their own\n", group);
    close(file);
    return -1;
  }
  if (ioctl(file, VFIO_GROUP_SET_CONTAINER, &machine->container) != 0) {
    complain("can't join the container", path);
    close(file);
    return -1;
  }
  if (*first_of_all) {
    if (!set_iommu(machine)) {
      close(file);
      return -1;
    }
    *first_of_all = false;
  }
  groups[count] = group;
  files[count++] = file;
  return file;
}

static volatile uint8_t* map_region(const struct device* device, unsigned index, uint64_t limit, uint64_t* mapped,
                                    uint64_t* region_offset) {
  struct vfio_region_info info = {.argsz = sizeof(info), .index = index};
  if (ioctl(device->fd, VFIO_DEVICE_GET_REGION_INFO, &info) != 0 || info.size == 0) {
    return NULL;
  }
  *mapped = info.size < limit ? info.size : limit;
  *region_offset = info.offset;
  if ((info.flags & VFIO_REGION_INFO_FLAG_MMAP) == 0) {
    errno = ENODEV;
    return NULL;
  }
  void* address = mmap(NULL, *mapped, PROT_READ | PROT_WRITE, MAP_SHARED, device->fd, (off_t)info.offset);
  return address == MAP_FAILED ? NULL : address;
}

static bool enable_device(const struct device* device) {
  struct vfio_region_info info = {.argsz = sizeof(info), .index = VFIO_PCI_CONFIG_REGION_INDEX};
  uint16_t command = 0;
  if (ioctl(device->fd, VFIO_DEVICE_GET_REGION_INFO, &info) != 0 ||
      pread(device->fd, &command, 2, (off_t)info.offset + PCI_COMMAND_OFFSET) != 2) {
    return false;
  }
  command |= PCI_COMMAND_MEMORY_AND_MASTER;
  return pwrite(device->fd, &command, 2, (off_t)info.offset + PCI_COMMAND_OFFSET) == 2;
}

static bool enable_interrupts(struct device* device) {
  struct vfio_irq_info info = {.argsz = sizeof(info), .index = VFIO_PCI_MSIX_IRQ_INDEX};
  if (ioctl(device->fd, VFIO_DEVICE_GET_IRQ_INFO, &info) != 0) {
    return false;
  }
  const unsigned vectors = info.count < DEVICE_VECTORS ? info.count : DEVICE_VECTORS;
  if (vectors == 0) {
    return true;
  }
  _Alignas(struct vfio_irq_set) uint8_t raw[sizeof(struct vfio_irq_set) + DEVICE_VECTORS * sizeof(int32_t)];
  struct vfio_irq_set* set = (struct vfio_irq_set*)(void*)raw;
  for (unsigned i = 0; i < vectors; ++i) {
    device->events[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (device->events[i] < 0) {
      return false;
    }
    memcpy(set->data + i * sizeof(int32_t), &device->events[i], sizeof(int32_t));
  }
  set->argsz = (uint32_t)(sizeof(struct vfio_irq_set) + vectors * sizeof(int32_t));
  set->flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
  set->index = VFIO_PCI_MSIX_IRQ_INDEX;
  set->start = 0;
  set->count = vectors;
  return ioctl(device->fd, VFIO_DEVICE_SET_IRQS, set) == 0;
}

static bool open_device(struct machine* machine, struct device* device, bool* first_of_all) {
  const char* bdf = device->pci.bdf;
  const int group = group_file(machine, device->pci.iommu_group, first_of_all);
  if (group < 0) {
    return false;
  }
  device->fd = ioctl(group, VFIO_GROUP_GET_DEVICE_FD, bdf);
  if (device->fd < 0) {
    return complain("VFIO doesn't hand it out", bdf);
  }
  if (!enable_device(device)) {
    return complain("can't enable memory and bus mastering", bdf);
  }
  uint64_t mapped = 0;
  uint64_t offset = 0;
  device->registers = map_region(device, 0, UINT64_MAX, &mapped, &offset);
  if (device->registers == NULL) {
    return complain("can't map BAR0", bdf);
  }
  if (device->pci.kind == KIND_GPU) {
    device->memory =
        map_region(device, ORRERY_GPU_BAR_MEMORY, machine->window, &device->memory_window, &device->memory_region);
    if (device->memory == NULL) {
      return complain("can't map BAR2", bdf);
    }
  }
  if (!enable_interrupts(device)) {
    return complain("can't enable MSI-X", bdf);
  }
  return true;
}

bool vfio_open(struct machine* machine) {
  for (int i = 0; i < machine->count; ++i) {
    if (machine->devices[i].pci.iommu_group < 0) {
      fprintf(stderr,
              "orrery-guest-demo: %s is in no IOMMU group: this kernel uses no IOMMU\n"
              "  boot with a virtual IOMMU and intel_iommu=on, or use --no-vfio\n",
              machine->devices[i].pci.bdf);
      return false;
    }
  }
  load_modules();
  machine->container = open("/dev/vfio/vfio", O_RDWR | O_CLOEXEC);
  if (machine->container < 0) {
    return complain("/dev/vfio/vfio", "");
  }
  if (ioctl(machine->container, VFIO_GET_API_VERSION) != VFIO_API_VERSION ||
      ioctl(machine->container, VFIO_CHECK_EXTENSION, VFIO_TYPE1v2_IOMMU) != 1) {
    fprintf(stderr, "orrery-guest-demo: this kernel's VFIO has no type 1 (version 2) container\n");
    return false;
  }
  /* A group is viable only once every function in it is VFIO's: bind all before opening any. */
  for (int i = 0; i < machine->count; ++i) {
    if (!bind_to_vfio(machine->devices[i].pci.bdf)) {
      return false;
    }
  }
  bool first_of_all = true;
  for (int i = 0; i < machine->count; ++i) {
    if (!open_device(machine, &machine->devices[i], &first_of_all)) {
      return false;
    }
  }
  for (int i = 0; i < machine->count; ++i) {
    struct device* device = &machine->devices[i];
    if (device->memory == NULL) {
      continue;
    }
    const uint64_t bus = device->pci.bars[ORRERY_GPU_BAR_MEMORY].address;
    if (!dma_map(machine, (void*)(uintptr_t)device->memory, device->memory_window, bus)) {
      complain("can't map its memory BAR for its peers", device->pci.bdf);
      fprintf(stderr, "  BAR2 is at %#" PRIx64 ": does the virtual IOMMU have enough address bits (aw-bits=48)?\n",
              bus);
      return false;
    }
  }
  return true;
}

bool dma_map(struct machine* machine, void* bytes, size_t size, uint64_t iova) {
  struct vfio_iommu_type1_dma_map map = {
      .argsz = sizeof(map),
      .flags = VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE,
      .vaddr = (uintptr_t)bytes,
      .iova = iova,
      .size = size,
  };
  return ioctl(machine->container, VFIO_IOMMU_MAP_DMA, &map) == 0;
}

bool dma_unmap(struct machine* machine, size_t size, uint64_t iova) {
  struct vfio_iommu_type1_dma_unmap unmap = {.argsz = sizeof(unmap), .iova = iova, .size = size};
  if (ioctl(machine->container, VFIO_IOMMU_UNMAP_DMA, &unmap) != 0) {
    return false;
  }
  errno = EINVAL;
  return unmap.size == size;
}

/* As linux/vfio.h of 6.19 has it; the headers that this is built with may be older. */
#define FEATURE_DMA_BUF 11
struct dma_buf_request {
  struct {
    uint32_t argsz, flags;
  } feature;
  uint32_t region_index, open_flags, flags, nr_ranges;
  struct {
    uint64_t offset, length;
  } range;
};

int device_export(const struct device* device, uint64_t offset, uint64_t size) {
  struct dma_buf_request request = {
      .feature = {.argsz = sizeof(request), .flags = VFIO_DEVICE_FEATURE_GET | FEATURE_DMA_BUF},
      .region_index = ORRERY_GPU_BAR_MEMORY,
      .open_flags = O_RDWR | O_CLOEXEC,
      .nr_ranges = 1,
      .range = {offset, size},
  };
  return ioctl(device->fd, VFIO_DEVICE_FEATURE, &request);
}

bool device_reset(const struct device* device) {
  return ioctl(device->fd, VFIO_DEVICE_RESET) == 0;
}
