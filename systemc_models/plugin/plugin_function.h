// The PCI function of a plug-in device, from what its factory described.
#pragma once

#include <memory>
#include <string>

#include "pcie/bar.h"
#include "pcie/config_space.h"
#include "systemc_models/function_settings.h"
#include "systemc_models/plugin/tlm_device.h"

namespace orrery::models {

struct PluginFunction {
  pcie::BarDescriptions bars;
  std::unique_ptr<pcie::ConfigSpace> config_space;
  int msix_bar = -1;  // where table and PBA are; -1: no MSI-X
};

// Header, BARs, power management, MSI-X, PCI Express endpoint with FLR, AER, and what the function asks for.
// Throws Error naming the device and the field for what no function can have.
[[nodiscard]] PluginFunction make_plugin_function(const std::string& device, const TlmFunction& function,
                                                  const FunctionLink& link);

}  // namespace orrery::models
