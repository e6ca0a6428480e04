// Figures of the whole server, driven by a bare protocol client through a real socket: region read round
// trip through the modelled fabric, posted writes, start-up time, resident memory.
//
// Beside the round trip stands this machine's own floor: two threads that pass messages of the same sizes over
// a socket pair and do nothing else. The ratio says what the model and the protocol cost.
//
// Prints a table; asserts nothing. One process can hold one platform, so each variant is a run of its own:
//   server_bench [--poll] [--timed] [--reads N] [--writes N]
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
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

struct RoundTrips {
  std::vector<double> micros;

  void sort() { std::sort(micros.begin(), micros.end()); }
  [[nodiscard]] double at(double q) const {
    return micros[static_cast<std::size_t>(q * static_cast<double>(micros.size() - 1))];
  }
};

// A region read of four bytes and its reply on the wire: a header of 16 bytes, the region fields, the data.
constexpr std::size_t request_bytes = 32;
constexpr std::size_t reply_bytes = 36;

bool receive_all(int fd, std::span<std::byte> into, bool poll) {
  while (!into.empty()) {
    const ssize_t n = recv(fd, into.data(), into.size(), poll ? MSG_DONTWAIT : 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
      return false;
    }
    into = into.subspan(n > 0 ? static_cast<std::size_t>(n) : 0);
  }
  return true;
}

// The round trip of two threads that only echo.
RoundTrips socket_floor(const Options& options) {
  std::array<int, 2> ends{};
  RoundTrips result;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    fmt::print(stderr, "server_bench: no socket pair: {}\n", std::strerror(errno));
    std::exit(1);
  }
  std::thread echo([&] {
    std::array<std::byte, reply_bytes> message{};
    while (receive_all(ends[1], std::span(message).first(request_bytes), options.poll) &&
           send(ends[1], message.data(), reply_bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(reply_bytes)) {
    }
  });
  std::array<std::byte, reply_bytes> message{};
  result.micros.reserve(options.reads);
  for (std::size_t i = 0; i < options.reads; ++i) {
    const auto before = Clock::now();
    if (send(ends[0], message.data(), request_bytes, MSG_NOSIGNAL) != static_cast<ssize_t>(request_bytes) ||
        !receive_all(ends[0], message, options.poll)) {
      break;
    }
    result.micros.push_back(std::chrono::duration<double, std::micro>(Clock::now() - before).count());
  }
  shutdown(ends[0], SHUT_RDWR);
  echo.join();
  close(ends[0]);
  close(ends[1]);
  result.sort();
  return result;
}

void measure(const std::filesystem::path& socket, const Options& options, const RoundTrips& floor) {
  orrery::bridge::test::ProtocolClient client(socket.string(), options.poll);
  client.negotiate();
  enable(client, 0xc000'0000);
  RoundTrips trips;
  trips.micros.reserve(options.reads);
  std::uint32_t value = 0;
  const auto read_begin = Clock::now();
  for (std::size_t i = 0; i < options.reads; ++i) {
    const auto before = Clock::now();
    client.region_read(0, 0, std::as_writable_bytes(std::span(&value, 1)));
    trips.micros.push_back(std::chrono::duration<double, std::micro>(Clock::now() - before).count());
  }
  const double read_seconds = std::chrono::duration<double>(Clock::now() - read_begin).count();
  trips.sort();
  fmt::print("region read round trip  p50 {:6.2f} us   p99 {:6.2f} us   {:.0f} /s   (register 0 = {:#x})\n",
             trips.at(0.5), trips.at(0.99), static_cast<double>(options.reads) / read_seconds, value);
  if (floor.micros.size() == options.reads) {
    fmt::print("socket echo (the floor) p50 {:6.2f} us   p99 {:6.2f} us   ratio of p50 {:.2f}\n", floor.at(0.5),
               floor.at(0.99), trips.at(0.5) / floor.at(0.5));
  }

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

  const RoundTrips floor = options.reads > 0 ? socket_floor(options) : RoundTrips{};
  const auto begin = Clock::now();
  orrery::models::ServerConfig config;
  config.rnic.personality = orrery::models::RnicPersonality::self_test;
  config.time_mode = options.timed ? orrery::models::TimeMode::timed : orrery::models::TimeMode::functional;
  {
    orrery::cli::ServerHost host(config, {directory, options.poll});
    const double start_ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    fmt::print("{} mode, {}\n", options.timed ? "timed" : "functional", options.poll ? "both ends poll" : "blocking");
    fmt::print("server start            {:.0f} ms, resident {:.0f} MiB\n", start_ms, resident_mib());
    std::atomic<bool> done = false;
    std::thread client([&] {
      measure(host.socket("rnic0"), options, floor);
      done = true;
    });
    host.run_until([&] { return done.load(); }, std::chrono::minutes(10));
    client.join();
    fmt::print("resident at the end     {:.0f} MiB\n", resident_mib());
  }
  std::filesystem::remove_all(directory);
  return 0;
}
