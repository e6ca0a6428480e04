// Figure 13 of Stellar (SIGCOMM 2025): latency and throughput of RDMA WRITE by message size.
//
// (a) one-way latency as ib_write_lat measures it: half of a write there and the write that answers it, each seen by
// polling the last byte. (b) throughput as ib_write_bw measures it, 128 requests under way. Two RNICs of the configured
// server stand for two servers below one ToR. The figure's numbers are read off its plots (digitised).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "systemc_models/server/platform.h"
#include "systemc_models/server/server_config.h"

namespace orrery::studies {

struct Fig13Point {
  std::uint64_t bytes = 0;
  double paper = 0;  // us, or Gb/s
  double ours = 0;
  bool calibrated = false;  // one of the points that rnic.pipeline_ns and rnic.gather_ns were set by
  [[nodiscard]] double deviation() const { return ours / paper - 1; }
};

struct Fig13Result {
  std::vector<Fig13Point> latency;     // us
  std::vector<Fig13Point> throughput;  // Gb/s of payload
};

// What a server's configuration has to be for it: timed mode, InfiniBand ports (which need no address set-up), firmware
// of this process. Throws Error if `config` has fewer than two RNICs with the mlx5 personality.
models::ServerConfig fig13_config(models::ServerConfig config);

// `platform` has a configuration of fig13_config(), and nobody else uses it.
Fig13Result run_fig13(models::Platform& platform);

}  // namespace orrery::studies
