/* SPDX-License-Identifier: Apache-2.0 */
#include "pci.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "examples/systemc_device/crc32c_registers.h"
#include "examples/verilog_dma/verilog_dma_registers.h"
#include "systemc_models/device_identity.h"

#define DEVICES "/sys/bus/pci/devices"

static const struct {
  uint16_t vendor;
  uint16_t device;
  enum pci_kind kind;
} known[] = {
    {ORRERY_PCI_VENDOR, ORRERY_PCI_DEVICE_GPU, KIND_GPU},
    {ORRERY_PCI_VENDOR, ORRERY_PCI_DEVICE_RNIC, KIND_RNIC},
    {ORRERY_MLX5_VENDOR, ORRERY_MLX5_DEVICE_VF, KIND_RNIC_MLX5},
    {ORRERY_MLX5_VENDOR, ORRERY_MLX5_DEVICE_PF, KIND_RNIC_MLX5},
    {CRC32C_VENDOR_ID, CRC32C_DEVICE_ID, KIND_CRC32C},
    {VERILOG_DMA_VENDOR_ID, VERILOG_DMA_DEVICE_ID, KIND_VERILOG_DMA},
};
#define KNOWN (sizeof(known) / sizeof(known[0]))

void pci_attribute(const char* bdf, const char* name, char* text, size_t size) {
  char path[PATH_MAX];
  text[0] = 0;
  snprintf(path, sizeof(path), DEVICES "/%s/%s", bdf, name);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return;
  }
  const ssize_t got = read(fd, text, size - 1);
  close(fd);
  text[got > 0 ? got : 0] = 0;
  text[strcspn(text, "\n")] = 0;
}

bool pci_write_attribute(const char* path, const char* text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) {
    return false;
  }
  const ssize_t length = (ssize_t)strlen(text);
  const bool ok = write(fd, text, (size_t)length) == length;
  const int reason = errno;
  close(fd);
  errno = reason;
  return ok;
}

static uint64_t number_attribute(const char* bdf, const char* name) {
  char text[64];
  pci_attribute(bdf, name, text, sizeof(text));
  return strtoull(text, NULL, 0);
}

/* The device serial number (extended capability 3), by walking the list from offset 0x100. */
static uint64_t read_serial(const char* bdf) {
  char path[PATH_MAX];
  uint8_t config[4096];
  snprintf(path, sizeof(path), DEVICES "/%s/config", bdf);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return 0;
  }
  const ssize_t size = pread(fd, config, sizeof(config), 0);
  close(fd);
  uint32_t offset = 0x100;
  for (int steps = 0; steps < 960 && offset >= 0x100 && (ssize_t)offset + 12 <= size; ++steps) {
    uint32_t header;
    memcpy(&header, config + offset, 4);
    if ((header & 0xffffu) == 3) {
      uint64_t serial;
      memcpy(&serial, config + offset + 4, 8);
      return serial;
    }
    offset = header >> 20;
  }
  return 0;
}

static void read_bars(struct pci_function* function) {
  char path[PATH_MAX];
  snprintf(path, sizeof(path), DEVICES "/%s/resource", function->bdf);
  FILE* file = fopen(path, "re");
  if (file == NULL) {
    return;
  }
  for (int i = 0; i < PCI_BARS; ++i) {
    uint64_t start = 0;
    uint64_t end = 0;
    uint64_t flags = 0;
    if (fscanf(file, "%" SCNx64 " %" SCNx64 " %" SCNx64, &start, &end, &flags) != 3) {
      break;
    }
    if (end > start) {
      function->bars[i].address = start;
      function->bars[i].size = end - start + 1;
      /* linux/ioport.h, as sysfs shows it: IORESOURCE_PREFETCH, IORESOURCE_MEM_64 */
      function->bars[i].prefetchable = (flags & 0x2000) != 0;
      function->bars[i].is_64bit = (flags & 0x100000) != 0;
    }
  }
  fclose(file);
}

/* The path of the device in the tree, e.g. /sys/devices/pci0000:40/0000:40:00.0/0000:41:00.0. */
static void read_parents(struct pci_function* function) {
  char link[PATH_MAX];
  char path[PATH_MAX];
  snprintf(link, sizeof(link), DEVICES "/%s", function->bdf);
  if (realpath(link, path) == NULL) {
    return;
  }
  char* save = NULL;
  for (char* part = strtok_r(path, "/", &save); part != NULL; part = strtok_r(NULL, "/", &save)) {
    if (strncmp(part, "pci", 3) == 0) {
      snprintf(function->root_bus, sizeof(function->root_bus), "%.15s", part);
    } else if (function->root_bus[0] != 0 && strcmp(part, function->bdf) != 0 &&
               function->parent_count < PCI_MAX_PARENTS) {
      snprintf(function->parents[function->parent_count++], sizeof(function->parents[0]), "%.15s", part);
    }
  }
}

static int read_group(const char* bdf) {
  char path[PATH_MAX];
  char target[PATH_MAX];
  snprintf(path, sizeof(path), DEVICES "/%s/iommu_group", bdf);
  const ssize_t length = readlink(path, target, sizeof(target) - 1);
  if (length <= 0) {
    return -1;
  }
  target[length] = 0;
  const char* name = strrchr(target, '/');
  return name == NULL ? -1 : atoi(name + 1);
}

static int by_bdf(const void* a, const void* b) {
  return strcmp(((const struct pci_function*)a)->bdf, ((const struct pci_function*)b)->bdf);
}

int pci_scan(struct pci_function* functions, int capacity) {
  DIR* folder = opendir(DEVICES);
  if (folder == NULL) {
    fprintf(stderr, "orrery-guest-demo: can't read " DEVICES ": %s\n", strerror(errno));
    return -1;
  }
  int count = 0;
  const struct dirent* entry;
  while ((entry = readdir(folder)) != NULL && count < capacity) {
    if (entry->d_name[0] == '.') {
      continue;
    }
    const uint64_t vendor = number_attribute(entry->d_name, "vendor");
    const uint64_t device = number_attribute(entry->d_name, "device");
    size_t which = 0;
    while (which < KNOWN && (known[which].vendor != vendor || known[which].device != device)) {
      ++which;
    }
    if (which == KNOWN) {
      continue;
    }
    struct pci_function* function = &functions[count++];
    memset(function, 0, sizeof(*function));
    snprintf(function->bdf, sizeof(function->bdf), "%.15s", entry->d_name);
    function->kind = known[which].kind;
    function->vendor = (uint16_t)vendor;
    function->device = (uint16_t)device;
    function->class_code = (uint32_t)number_attribute(function->bdf, "class");
    function->serial = read_serial(function->bdf);
    char text[32];
    pci_attribute(function->bdf, "numa_node", text, sizeof(text));
    function->numa_node = text[0] == 0 ? -1 : atoi(text);
    function->iommu_group = read_group(function->bdf);
    read_bars(function);
    read_parents(function);
  }
  closedir(folder);
  qsort(functions, (size_t)count, sizeof(*functions), by_bdf);
  return count;
}

const char* pci_common_port(const struct pci_function* a, const struct pci_function* b) {
  const char* common = NULL;
  if (strcmp(a->root_bus, b->root_bus) != 0) {
    return NULL;
  }
  for (unsigned i = 0; i < a->parent_count && i < b->parent_count; ++i) {
    if (strcmp(a->parents[i], b->parents[i]) != 0) {
      break;
    }
    common = a->parents[i];
  }
  return common;
}
