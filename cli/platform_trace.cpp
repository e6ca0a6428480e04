#include "cli/platform_trace.h"

namespace orrery::cli {

std::unique_ptr<pcie::TlpTrace> make_platform_trace(models::Platform& platform) {
  auto trace = std::make_unique<pcie::TlpTrace>(platform.simulation(), platform.config().name);
  for (const models::Platform::LinkReport& link : platform.links()) {
    trace->set_link(link.down_id, *link.settings);
    trace->set_link(link.up_id, *link.settings);
  }
  for (const models::Topology::Endpoint& endpoint : platform.topology().endpoints) {
    trace->set_function(endpoint.bdf, endpoint.name);
  }
  platform.simulation().observer = trace.get();
  return trace;
}

}  // namespace orrery::cli
