#include "studies/fig13.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/error.h"
#include "studies/mlx5_client.h"
#include "studies/scripted_guest.h"
#include "systemc_models/rnic/mlx5/mlx5_rnic.h"

namespace orrery::studies {

namespace {

struct Published {
  std::uint64_t bytes;
  double value;
  bool calibrated;
};
// vStellar's curves.
constexpr Published latency_points[] = {
    {2, 7.28, true}, {64, 7.29, false}, {4096, 10.13, true}, {1 << 20, 32.9, false}, {8 << 20, 182.7, false}};
// The text and the plot: 392.4 to 392.8 from 64 KiB on.
constexpr Published throughput_points[] = {{4096, 157.4, false},
                                           {16384, 390.9, false},
                                           {65536, 392.4, false},
                                           {1 << 20, 392.8, false},
                                           {8 << 20, 392.8, false}};

constexpr std::uint32_t perftest_inline = 220;  // bytes: what ib_write_lat puts into the WQE
constexpr unsigned perftest_depth = 128;        // of ib_write_bw's send queue
constexpr std::uint64_t buffer_bytes = 8 << 20;
constexpr std::uint64_t guest_bytes = 64 << 20;
constexpr unsigned rounds = 4;
constexpr Picoseconds limit{1'000'000'000'000};

std::vector<const models::Topology::Endpoint*> rnics_of(const models::Topology& topology) {
  std::vector<const models::Topology::Endpoint*> rnics;
  for (const models::Topology::Endpoint& endpoint : topology.endpoints) {
    if (endpoint.kind == models::EndpointKind::rnic) {
      rnics.push_back(&endpoint);
    }
  }
  return rnics;
}

std::uint32_t lid_of(const models::Platform& platform, const models::Topology::Endpoint& rnic) {
  rnic::ManagementSettings settings;
  rnic::give_identity(settings, platform.config().server_index, rnic.ordinal);
  return settings.lid;
}

// One of the two programs: its client, and a buffer that the other writes to.
struct Side {
  Side(models::Platform& platform, const models::Topology::Endpoint& rnic)
      : guest(platform, rnic.name, guest_bytes),
        client(guest, {.lid = lid_of(platform, rnic), .mtu = 4096, .log_depth = 9, .max_inline = perftest_inline}),
        source(guest.allocate(buffer_bytes)),
        target(guest.allocate(buffer_bytes)) {}
  ScriptedGuest guest;
  Mlx5Client client;
  std::uint64_t source;
  std::uint64_t target;
};

// From `from`'s doorbell until the last byte of the message is in `to`'s memory.
Picoseconds one_way(models::Platform& platform, Side& from, Side& to, std::uint64_t bytes, std::byte mark) {
  from.guest.memory(from.source + bytes - 1, 1)[0] = mark;
  const std::byte* last = to.guest.memory(to.target + bytes - 1, 1).data();
  const Picoseconds start = platform.now();
  from.client.write(from.source, static_cast<std::uint32_t>(bytes), to.target, to.client.key());
  run_until(platform, limit, "a WRITE's last byte", [last, mark] { return *last == mark; });
  return platform.now() - start;
}

double latency_us(models::Platform& platform, Side& a, Side& b, std::uint64_t bytes) {
  Picoseconds sum;
  unsigned taken = 0;
  for (unsigned round = 0; round < rounds; ++round) {
    const auto mark = static_cast<std::byte>(round + 1);
    sum += one_way(platform, a, b, bytes, mark);
    sum += one_way(platform, b, a, bytes, mark);
    taken += a.client.poll();
  }
  run_until(platform, limit, "a WRITE's completion", [&] {
    taken += a.client.poll();
    return taken == rounds;
  });
  unsigned others = 0;
  run_until(platform, limit, "a WRITE's completion", [&] {
    others += b.client.poll();
    return others == rounds;
  });
  a.guest.memory(a.target + bytes - 1, 1)[0] = b.guest.memory(b.target + bytes - 1, 1)[0] = std::byte{0};
  return static_cast<double>(sum.count) / 1e6 / (2 * rounds);
}

double throughput_gbps(models::Platform& platform, Side& a, Side& b, std::uint64_t bytes) {
  const auto depth =
      static_cast<unsigned>(std::min<std::uint64_t>(perftest_depth, std::max<std::uint64_t>(2, guest_bytes / bytes)));
  const unsigned messages = depth + std::clamp(static_cast<unsigned>((std::uint64_t{24} << 20) / bytes), 3U, 512U);
  unsigned posted = 0;
  unsigned done = 0;
  Picoseconds begin;
  while (done < messages) {
    for (; posted < messages && posted - done < depth && a.client.room() != 0; ++posted) {
      a.client.write(a.source, static_cast<std::uint32_t>(bytes), b.target, b.client.key());
    }
    const unsigned before = done;
    run_until(platform, limit, "WRITEs' completions", [&] {
      done += a.client.poll();
      return done != before;
    });
    // The pipeline is full once the first of those that were posted at once are done.
    if (before < depth && done >= depth) {
      begin = platform.now();
    }
  }
  // `depth` (or a few more, if several were done at the same moment) before `begin`.
  return static_cast<double>(messages - depth) * static_cast<double>(bytes) * 8e3 /
         static_cast<double>((platform.now() - begin).count);
}

}  // namespace

models::ServerConfig fig13_config(models::ServerConfig config) {
  config.time_mode = models::TimeMode::timed;
  config.rnic.port_type = models::RnicPortType::infiniband;
  config.rnic.firmware = models::RnicFirmware::native;
  config.network.links.clear();
  if (config.rnic.personality != models::RnicPersonality::mlx5 || rnics_of(models::Topology::from(config)).size() < 2) {
    throw Error("figure 13 takes two RNICs with rnic.personality = \"mlx5\"", "see `orrery topo` for what there is");
  }
  return config;
}

Fig13Result run_fig13(models::Platform& platform) {
  const auto rnics = rnics_of(platform.topology());
  Side a(platform, *rnics.front());
  Side b(platform, *rnics.back());
  a.client.connect(b.client);
  b.client.connect(a.client);
  Fig13Result result;
  for (const Published& point : latency_points) {
    result.latency.push_back({point.bytes, point.value, latency_us(platform, a, b, point.bytes), point.calibrated});
  }
  for (const Published& point : throughput_points) {
    result.throughput.push_back({point.bytes, point.value, throughput_gbps(platform, a, b, point.bytes), false});
  }
  return result;
}

}  // namespace orrery::studies
