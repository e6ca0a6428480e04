/* SPDX-License-Identifier: Apache-2.0
 *
 * VFIO with a type 1 container (groups; the kernel's own or iommufd's compatible one).
 */
#ifndef ORRERY_GUESTS_PROGRAMS_VFIO_H
#define ORRERY_GUESTS_PROGRAMS_VFIO_H

#include "device.h"

/* Makes the container and binds, opens and maps every device of `machine`. Messages on stderr on failure. */
bool vfio_open(struct machine* machine);

#endif
