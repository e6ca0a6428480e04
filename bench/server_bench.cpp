// Figures of the whole server, driven by a bare protocol client through a real socket: region read round
// trip through the modelled fabric, posted writes, start-up time, resident memory.
//
// Prints a table; asserts nothing. One process can hold one platform, so each variant is a run of its own:
//   server_bench [--poll] [--timed] [--reads N] [--writes N]
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "cli/server_host.h"
#include "systemc_models/gpu/gpu_registers.h"
#include "systemc_models/rnic/rnic_registers.h"
#include "tests/qemu_bridge/protocol_client.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  bool poll = false;
  bool timed = false;
  std::size_t reads = 100'000;
  std::size_t writes = 1'000'000;
};

double resident_mib() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t total = 0;
  std::uint64_t resident = 0;
  statm >> total >> resident;
  return static_cast<double>(resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE))) / (1 << 20);
}

void write32(orrery::bridge::test::ProtocolClient& client, std::uint32_t region, std::uint64_t offset,
             std::uint32_t value) {
  client.region_write(region, offset, std::as_bytes(std::span(&value, 1)));
}

// What a guest's firmware does: BARs at addresses of their own, memory decoding and bus mastering on.
void enable(orrery::bridge::test::ProtocolClient& client, std::uint32_t base) {
  constexpr std::uint32_t config = orrery::bridge::wire::region_config;
  write32(client, config, 0x10, base);
  write32(client, config, 0x04, 0x6);
}

void measure(const std::filesystem::path& socket, const Options& options) {
  orrery::bridge::test::ProtocolClient client(socket.string(), options.poll);
  client.negotiate();
  enable(client, 0xc000'0000);
  std::vector<double> micros;
  micros.reserve(options.reads);
  std::uint32_t value = 0;
  const auto read_begin = Clock::now();
  for (std::size_t i = 0; i < options.reads; ++i) {
    const auto before = Clock::now();
    client.region_read(0, 0, std::as_writable_bytes(std::span(&value, 1)));
    micros.push_back(std::chrono::duration<double, std::micro>(Clock::now() - before).count());
  }
  const double read_seconds = std::chrono::duration<double>(Clock::now() - read_begin).count();
  std::sort(micros.begin(), micros.end());
  const auto at = [&](double q) {
    return micros[static_cast<std::size_t>(q * static_cast<double>(micros.size() - 1))];
  };
  fmt::print("region read round trip  p50 {:6.2f} us   p99 {:6.2f} us   {:.0f} /s   (register 0 = {:#x})\n", at(0.5),
             at(0.99), static_cast<double>(options.reads) / read_seconds, value);

  const auto write_begin = Clock::now();
  for (std::size_t i = 0; i < options.writes; ++i) {
    client.region_write(0, ORRERY_RNIC_WRITE_PAGE, std::as_bytes(std::span(&value, 1)), true);
  }
  client.region_read(0, 0, std::as_writable_bytes(std::span(&value, 1)));  // behind all writes
  const double write_seconds = std::chrono::duration<double>(Clock::now() - write_begin).count();
  fmt::print("posted writes           {:.0f} k/s\n", static_cast<double>(options.writes) / write_seconds / 1e3);
}

}  // namespace

int main(int argc, char* argv[]) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--poll") {
      options.poll = true;
    } else if (argument == "--timed") {
      options.timed = true;
    } else if (argument == "--reads" && i + 1 < argc) {
      options.reads = std::strtoull(argv[++i], nullptr, 10);
    } else if (argument == "--writes" && i + 1 < argc) {
      options.writes = std::strtoull(argv[++i], nullptr, 10);
    } else if (argument.rfind("--benchmark_", 0) == 0) {
      continue;  // options of Google Benchmark, which ./dev bench gives to every program
    } else {
      fmt::print(stderr, "usage: server_bench [--poll] [--timed] [--reads N] [--writes N]\n");
      return 2;
    }
  }
  std::string pattern = (std::filesystem::temp_directory_path() / "orrery-bench-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) {
    fmt::print(stderr, "server_bench: can't make a directory for the sockets\n");
    return 1;
  }
  const std::filesystem::path directory = pattern;
  std::filesystem::create_directory(directory / "guest0");
  std::filesystem::permissions(directory / "guest0", std::filesystem::perms::owner_all);

  const auto begin = Clock::now();
  orrery::models::ServerConfig config;
  config.time_mode = options.timed ? orrery::models::TimeMode::timed : orrery::models::TimeMode::functional;
  {
    orrery::cli::ServerHost host(config, {directory, options.poll});
    const double start_ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    fmt::print("{} mode, {}\n", options.timed ? "timed" : "functional", options.poll ? "both ends poll" : "blocking");
    fmt::print("server start            {:.0f} ms, resident {:.0f} MiB\n", start_ms, resident_mib());
    std::atomic<bool> done = false;
    std::thread client([&] {
      measure(host.socket("rnic0"), options);
      done = true;
    });
    host.run_until([&] { return done.load(); }, std::chrono::minutes(10));
    client.join();
    fmt::print("resident at the end     {:.0f} MiB\n", resident_mib());
  }
  std::filesystem::remove_all(directory);
  return 0;
}
