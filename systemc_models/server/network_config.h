// The Ethernet that a server's RNICs are plugged into. docs/configuration.md is the user's page.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/time.h"

namespace orrery::models {

// A link to another server's process.
struct InstanceLinkConfig {
  bool listen = false;                         // wait there for the other side; otherwise connect
  std::string address = "tcp:127.0.0.1:4791";  // instance_link::parse_endpoint()
  std::string token_file = "link.token";
  std::string peer;                   // server.name of the other side; empty: any
  std::vector<std::uint64_t> planes;  // none: all
};

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
  std::vector<InstanceLinkConfig> links;
};

}  // namespace orrery::models
