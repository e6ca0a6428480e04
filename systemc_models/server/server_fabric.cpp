#include "systemc_models/server/server_fabric.h"

#include <algorithm>

namespace orrery::models {

namespace {

fabric::TorSettings tor_settings(unsigned ports, std::uint64_t seed) {
  fabric::TorSettings settings;
  settings.ports = std::max(ports, 1U);
  settings.seed = seed;
  return settings;
}

}  // namespace

ServerFabric::ServerFabric(EventQueue& events, unsigned ports, std::uint64_t seed)
    : events_(events), seed_(seed), tor_(events, packets_, tor_settings(ports, seed)) {}

fabric::Port& ServerFabric::plug_in(std::uint64_t bits_per_second) {
  fabric::LinkSettings settings;
  settings.bits_per_second = bits_per_second;
  settings.seed = seed_;
  settings.stream = links_.size();
  links_.push_back(std::make_unique<fabric::Link>(events_, packets_, settings));
  fabric::Link& link = *links_.back();
  tor_.attach(static_cast<unsigned>(links_.size() - 1), link.end(1));
  return link.end(0);
}

}  // namespace orrery::models
