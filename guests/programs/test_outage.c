/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices that vanish under a running guest and come back: while they are away every register reads as all ones;
 * afterwards they are the same devices, at the same addresses, just reset. The program keeps them open throughout.
 */
#include <inttypes.h>
#include <time.h>

#include "systemc_models/gpu/gpu_registers.h"
#include "systemc_models/rnic/rnic_registers.h"
#include "tests.h"

_Static_assert(ORRERY_GPU_SERIAL == ORRERY_RNIC_SERIAL, "one register tells any device's serial number");

static struct json json;

static uint64_t serial_register(const struct device* device) {
  return register_read64(device, ORRERY_GPU_SERIAL);
}

/* Waits until every GPU and RNIC reads as it should; the number of those that do, or 0 on time-out. */
static int wait_for_all(const struct machine* machine, bool away) {
  const int64_t deadline = now_ms() + machine->timeout_ms;
  while (true) {
    int devices = 0;
    int right = 0;
    for (int i = 0; i < machine->count; ++i) {
      const struct device* device = &machine->devices[i];
      if (device->pci.kind == KIND_GPU || device->pci.kind == KIND_RNIC) {
        ++devices;
        right += serial_register(device) == (away ? UINT64_MAX : device->pci.serial);
      }
    }
    if (right == devices) {
      return right;
    }
    if (now_ms() > deadline) {
      return 0;
    }
    const struct timespec pause = {.tv_nsec = 100000000};
    nanosleep(&pause, NULL);
  }
}

static bool stage(const struct machine* machine, const char* name, bool away, const char* what) {
  const int devices = wait_for_all(machine, away);
  json_begin(&json, "outage", name);
  json_number(&json, "devices", (uint64_t)devices);
  report(&json, devices > 0 ? PASS : FAIL, "%d devices %s", devices, what);
  return devices > 0;
}

void test_outage(struct session* session) {
  const struct machine* machine = &session->machine;
  if (!stage(machine, "before", false, "have their serial numbers") ||
      !stage(machine, "during", true, "read all ones") ||
      !stage(machine, "after", false, "have their serial numbers again")) {
    return;
  }
  for (int i = 0; i < session->gpus.count; ++i) {
    gpu_reset(&session->gpus.gpu[i]); /* its ring and interrupt sources went with the reset */
  }
}
