/* SPDX-License-Identifier: Apache-2.0
 *
 * How a guest recognises Orrery's functions. C and C++: shared by the models and by in-guest programs.
 *
 * Vendor 0x1234 is the id that QEMU's own educational devices use; it is assigned to nobody.
 */
#ifndef ORRERY_SYSTEMC_MODELS_DEVICE_IDENTITY_H
#define ORRERY_SYSTEMC_MODELS_DEVICE_IDENTITY_H

#include <stdint.h>

#define ORRERY_PCI_VENDOR 0x1234u
#define ORRERY_PCI_DEVICE_GPU 0x0e10u
#define ORRERY_PCI_DEVICE_RNIC 0x0e20u
#define ORRERY_PCI_DEVICE_MANAGEMENT                                               \
  0x0e21u /* an RNIC's management registers, as its firmware's processor sees them \
           */
/* rnic.personality = "mlx5": what the stock drivers bind to */
#define ORRERY_MLX5_VENDOR 0x15b3u
#define ORRERY_MLX5_DEVICE_VF 0x101eu
#define ORRERY_MLX5_DEVICE_PF 0x101du
#define ORRERY_PCI_CLASS_GPU 0x030200u  /* 3D controller */
#define ORRERY_PCI_CLASS_RNIC 0x020000u /* Ethernet controller */

/* Device serial number (PCIe Base 6.3 section 7.9.3), an EUI-64 with the "locally administered" bit:
 *   63:56  0x02
 *   55:40  0x4f52
 *   39:32  kind: 1 GPU, 2 RNIC
 *   31:16  server number of the platform
 *   15:0   index of the device within its kind, as the configuration names it (gpu3, rnic0); of an RNIC with the
 *          mlx5 personality index << 8, the low byte being its function's number
 */
#define ORRERY_SERIAL_PREFIX UINT64_C(0x024f52)
#define ORRERY_SERIAL_KIND_GPU 1u
#define ORRERY_SERIAL_KIND_RNIC 2u

static inline uint64_t orrery_serial(uint64_t kind, uint64_t server, uint64_t index) {
  return (ORRERY_SERIAL_PREFIX << 40) | ((kind & 0xffu) << 32) | ((server & 0xffffu) << 16) | (index & 0xffffu);
}

#endif
