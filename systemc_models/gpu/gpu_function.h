// The PCI function of a GPU: its BARs and its configuration space.
#pragma once

#include <memory>

#include "pcie/bar.h"
#include "pcie/config_space.h"
#include "systemc_models/function_settings.h"
#include "systemc_models/gpu/gpu_core.h"

namespace orrery::models {

// BAR0 registers, BAR2 memory (with the memfd, if it may be mapped), BAR4 MSI-X. Valid as long as the core.
[[nodiscard]] pcie::BarDescriptions gpu_bars(const GpuCore& gpu);

// Header, power management, MSI-X, PCI Express endpoint with FLR, AER, serial number and ATS. A function that is
// alone in its device has no peers behind its own port and so no ACS capability (PCIe Base 6.3 §6.12.1.2).
// Throws Error for link values out of range.
[[nodiscard]] std::unique_ptr<pcie::ConfigSpace> make_gpu_config_space(const GpuCore& gpu, const FunctionLink& link);

}  // namespace orrery::models
