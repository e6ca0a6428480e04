// Loads a team's own device model.
#pragma once

#include "systemc_models/server/device_factory.h"

namespace orrery::models {

// Throws Error if the shared object can't be loaded or refuses its parameters.
Device make_plugin(const ServerConfig& config, const Topology::Endpoint& endpoint);

}  // namespace orrery::models
