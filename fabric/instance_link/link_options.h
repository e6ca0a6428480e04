// One end of an instance link, as a configuration says it.
#pragma once

#include <cstdint>
#include <string>

#include "fabric/instance_link/endpoint.h"

namespace orrery::instance_link {

struct LinkOptions {
  std::string key;  // what messages call it: "network.link.0"
  bool listen = false;
  Endpoint endpoint;
  std::string token_file;
  std::string peer;         // server.name of the other side; empty: any
  std::uint8_t planes = 1;  // bit p: plane p
};

}  // namespace orrery::instance_link
