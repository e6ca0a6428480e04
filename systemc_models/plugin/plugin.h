// Loads a team's own device model (tlm_device.h) from a shared object.
#pragma once

#include <string>

#include "systemc_models/server/device_factory.h"

namespace orrery::models {

// The file that `model` of a [[device]] names: a path with a '/' is itself (relative to the working directory),
// a bare file name is looked for in the directories of ORRERY_PLUGIN_PATH (separated by ':').
// Throws Error if there is no such file.
[[nodiscard]] std::string find_plugin(const std::string& device, const std::string& model);

// Loads the shared object, has it make its model, and wraps it for the endpoint. During elaboration only. A
// shared object stays loaded until the process ends, and may make any number of devices.
// Throws Error, naming device and file, if it can't be loaded, is no plug-in, was built for another interface
// or SystemC, refuses its parameters or throws anything else, or describes an impossible function.
Device make_plugin(const ServerConfig& config, const Topology::Endpoint& endpoint, pcie::EventHost& host);

}  // namespace orrery::models
