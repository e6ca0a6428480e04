#include "systemc_models/plugin/plugin.h"

#include "common/error.h"

namespace orrery::models {

Device make_plugin(const ServerConfig& /*config*/, const Topology::Endpoint& endpoint) {
  throw Error("device " + endpoint.name + ": this build can't load " + endpoint.model);
}

}  // namespace orrery::models
