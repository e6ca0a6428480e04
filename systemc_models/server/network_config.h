// The Ethernet that a server's RNICs are plugged into. docs/configuration.md is the user's page.
#pragma once

#include <cstdint>
#include <string>

#include "common/time.h"

namespace orrery::models {

struct NetworkConfig {
  unsigned ports = 2;  // of one RNIC, each in a plane of its own: 1 … 2
  std::uint64_t port_gbit_per_s = 200;
  Picoseconds propagation = {500'000};
  // Impairments of every direction of every link.
  double loss = 0;
  double corruption = 0;
  double duplication = 0;
  double reordering = 0;
  Picoseconds reorder_delay = {10'000'000};
  // The ToR of each plane.
  Picoseconds switch_latency = {300'000};
  std::uint64_t port_limit_kib = 2048;
  std::uint64_t buffer_kib = 65536;
  bool ecn = true;
  std::uint64_t ecn_kmin_kib = 100;
  std::uint64_t ecn_kmax_kib = 400;
  double ecn_pmax = 0.2;
  std::string capture_file;  // pcapng of every RNIC port; empty: none
};

}  // namespace orrery::models
