/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "systemc_models/device_identity.h"
#include "tests.h"

static void json_group(struct json* json, int group) {
  char path[PATH_MAX];
  json_signed(json, "iommu_group", group);
  json_open(json, "group_members", '[');
  snprintf(path, sizeof(path), "/sys/kernel/iommu_groups/%d/devices", group);
  struct dirent** entries = NULL;
  const int count = group < 0 ? 0 : scandir(path, &entries, NULL, alphasort);
  for (int i = 0; i < count; ++i) {
    if (entries[i]->d_name[0] != '.') {
      json_string(json, NULL, entries[i]->d_name);
    }
    free(entries[i]);
  }
  free(entries);
  json_close(json, ']');
}

static void json_link(struct json* json, const char* key, const char* bdf) {
  static const char* const names[] = {"current_link_speed", "current_link_width", "max_link_speed", "max_link_width"};
  json_open(json, key, '{');
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
    char text[64];
    pci_attribute(bdf, names[i], text, sizeof(text));
    json_string(json, names[i], text);
  }
  json_close(json, '}');
}

static void report_function(const struct pci_function* function) {
  static struct json json;
  char text[64];
  json_begin(&json, "topology", function->bdf);
  json_string(&json, "kind", function->kind == KIND_GPU ? "gpu" : "rnic");
  json_number(&json, "vendor_id", function->vendor);
  json_number(&json, "device_id", function->device);
  json_number(&json, "class_code", function->class_code);
  snprintf(text, sizeof(text), "%016" PRIx64, function->serial);
  json_string(&json, "serial_number", text);
  json_signed(&json, "numa_node", function->numa_node);
  json_string(&json, "root_bus", function->root_bus);
  json_open(&json, "parents", '[');
  for (unsigned i = 0; i < function->parent_count; ++i) {
    json_open(&json, NULL, '{');
    json_string(&json, "bdf", function->parents[i]);
    pci_attribute(function->parents[i], "vendor", text, sizeof(text));
    json_number(&json, "vendor_id", strtoull(text, NULL, 0));
    pci_attribute(function->parents[i], "device", text, sizeof(text));
    json_number(&json, "device_id", strtoull(text, NULL, 0));
    json_link(&json, "link", function->parents[i]);
    json_close(&json, '}');
  }
  json_close(&json, ']');
  json_open(&json, "bars", '[');
  for (int i = 0; i < PCI_BARS; ++i) {
    if (function->bars[i].size != 0) {
      json_open(&json, NULL, '{');
      json_number(&json, "index", (uint64_t)i);
      json_number(&json, "address", function->bars[i].address);
      json_number(&json, "size", function->bars[i].size);
      json_bool(&json, "is_64bit", function->bars[i].is_64bit);
      json_bool(&json, "prefetchable", function->bars[i].prefetchable);
      json_close(&json, '}');
    }
  }
  json_close(&json, ']');
  json_link(&json, "link", function->bdf);
  json_group(&json, function->iommu_group);

  const bool kind_right = ((function->serial >> 32) & 0xff) ==
                          (function->kind == KIND_GPU ? ORRERY_SERIAL_KIND_GPU : ORRERY_SERIAL_KIND_RNIC);
  if (function->serial >> 40 != ORRERY_SERIAL_PREFIX || !kind_right) {
    report(&json, FAIL, "serial number %016" PRIx64 " is not that of such a function", function->serial);
  } else if (function->bars[0].address == 0) {
    report(&json, FAIL, "BAR0 has no address");
  } else if (function->kind == KIND_GPU && function->bars[ORRERY_GPU_BAR_MEMORY].address == 0) {
    report(&json, FAIL, "BAR2 has no address");
  } else {
    char above[128] = "";
    for (unsigned i = 0; i < function->parent_count; ++i) {
      strncat(above, i == 0 ? "" : " ", sizeof(above) - strlen(above) - 1);
      strncat(above, function->parents[i] + 5, sizeof(above) - strlen(above) - 1);
    }
    report(&json, PASS, "%s%u below %s [%s], NUMA node %d, IOMMU group %d", function->kind == KIND_GPU ? "gpu" : "rnic",
           (unsigned)(function->serial & 0xffff) >> (function->kind == KIND_RNIC_MLX5 ? 8 : 0), function->root_bus,
           above, function->numa_node, function->iommu_group);
  }
}

void test_topology(void) {
  static struct pci_function functions[PCI_MAX_FUNCTIONS];
  const int count = pci_scan(functions, PCI_MAX_FUNCTIONS);
  if (count <= 0) {
    report_failure("topology", "functions", "no Orrery function on this machine's PCI bus");
    return;
  }
  for (int i = 0; i < count; ++i) {
    /* A plug-in model needn't have what these are recognised by. */
    if (functions[i].kind == KIND_GPU || functions[i].kind == KIND_RNIC || functions[i].kind == KIND_RNIC_MLX5) {
      report_function(&functions[i]);
    }
  }
}
