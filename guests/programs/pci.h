/* SPDX-License-Identifier: Apache-2.0
 *
 * The Orrery functions of this machine, and those of the example plug-in models (examples/), as the kernel's sysfs
 * and their configuration space show them.
 */
#ifndef ORRERY_GUESTS_PROGRAMS_PCI_H
#define ORRERY_GUESTS_PROGRAMS_PCI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PCI_BARS 6
#define PCI_MAX_PARENTS 8
#define PCI_MAX_FUNCTIONS 64

/* KIND_RNIC has the self-test registers; KIND_RNIC_MLX5 belongs to the kernel's own driver, and is only looked at. */
enum pci_kind { KIND_GPU, KIND_RNIC, KIND_RNIC_MLX5, KIND_CRC32C, KIND_VERILOG_DMA };

struct pci_bar {
  uint64_t address; /* bus address, which on this architecture is also the CPU's */
  uint64_t size;    /* 0: no such BAR */
  bool is_64bit;
  bool prefetchable;
};

struct pci_function {
  char bdf[16]; /* "0000:43:00.0" */
  enum pci_kind kind;
  uint16_t vendor;
  uint16_t device;
  uint32_t class_code;
  uint64_t serial;                   /* 0: no serial number capability, or configuration space not readable */
  int numa_node;                     /* -1: unknown */
  int iommu_group;                   /* -1: none */
  char root_bus[16];                 /* "pci0000:40" */
  char parents[PCI_MAX_PARENTS][16]; /* BDFs of the ports above, from the root port down */
  unsigned parent_count;
  struct pci_bar bars[PCI_BARS];
};

/* Fills `functions`, sorted by BDF; returns how many, or -1 with a message on stderr. */
int pci_scan(struct pci_function* functions, int capacity);

/* Reads a file of a function's sysfs folder into `text` without the trailing newline; "" if it can't. */
void pci_attribute(const char* bdf, const char* name, char* text, size_t size);
/* Writes one; false (errno set) if it can't. */
bool pci_write_attribute(const char* path, const char* text);

/* The deepest port above both; null if they have none in common. */
const char* pci_common_port(const struct pci_function* a, const struct pci_function* b);

#endif
