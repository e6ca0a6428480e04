// The PCI function of an RNIC: its BARs and its configuration space.
#pragma once

#include <cstdint>
#include <memory>

#include "pcie/bar.h"
#include "pcie/config_space.h"
#include "systemc_models/function_settings.h"
#include "systemc_models/rnic/rnic_core.h"

namespace orrery::models {

// BAR0 registers, BAR4 MSI-X. Neither may be mapped by a VMM, so that writes stay posted (D1).
[[nodiscard]] pcie::BarDescriptions rnic_bars();

// Header, power management, MSI-X, PCI Express endpoint with FLR, AER, serial number, ATS, and as an SR-IOV
// physical function has it: ARI, SR-IOV with `virtual_functions` VFs (0: none of the two), and an ACS capability
// without controls, as nothing passes from function to function inside the device (PCIe Base 6.3 §6.12.1.2).
// Enabling VFs changes registers only: no virtual function appears.
// Throws Error for values out of range.
[[nodiscard]] std::unique_ptr<pcie::ConfigSpace> make_rnic_config_space(const RnicCore& rnic, const FunctionLink& link,
                                                                        std::uint16_t virtual_functions);

}  // namespace orrery::models
