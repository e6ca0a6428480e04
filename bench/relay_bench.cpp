// What a relay between client and server costs a region read: the round trip through one, against the same server
// without.
//
// The server, the relay and the client are threads of their own; two functions of the server are read in turns, so
// that both ways see the same machine. Prints a table; asserts nothing.
//   relay_bench [--reads N]
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include "cli/server_host.h"
#include "qemu_bridge/relay/relay_endpoint.h"
#include "tests/qemu_bridge/protocol_client.h"

namespace {

using Clock = std::chrono::steady_clock;
using orrery::bridge::test::ProtocolClient;

constexpr std::size_t turn = 1000;  // reads before the other way has its turn

struct Way {
  explicit Way(const std::filesystem::path& socket) : client(socket.string()) {
    client.negotiate();
    // What a guest's firmware does: BAR0 at an address, memory decoding on.
    write_config(0x10, 0xc000'0000);
    write_config(0x04, 0x6);
  }
  void write_config(std::uint64_t offset, std::uint32_t value) {
    client.region_write(orrery::bridge::wire::region_config, offset, std::as_bytes(std::span(&value, 1)));
  }
  void read(std::size_t count) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const auto before = Clock::now();
      client.region_read(0, 0, std::as_writable_bytes(std::span(&value, 1)));
      micros.push_back(std::chrono::duration<double, std::micro>(Clock::now() - before).count());
    }
  }
  double at(double q) {
    std::sort(micros.begin(), micros.end());
    return micros[static_cast<std::size_t>(q * static_cast<double>(micros.size() - 1))];
  }

  ProtocolClient client;
  std::vector<double> micros;
};

class SilentObserver final : public orrery::bridge::RelayObserver {};

void measure(const std::filesystem::path& direct_socket, const std::filesystem::path& relay_socket, std::size_t reads) {
  Way direct(direct_socket);
  Way relayed(relay_socket);
  for (std::size_t done = 0; done < reads; done += turn) {
    direct.read(turn);
    relayed.read(turn);
  }
  fmt::print("region read, direct     p50 {:6.2f} us   p99 {:6.2f} us\n", direct.at(0.5), direct.at(0.99));
  fmt::print("region read, relayed    p50 {:6.2f} us   p99 {:6.2f} us   ratio of p50 {:.2f}\n", relayed.at(0.5),
             relayed.at(0.99), relayed.at(0.5) / direct.at(0.5));
}

}  // namespace

int main(int argc, char* argv[]) {
  std::size_t reads = 100'000;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--reads" && i + 1 < argc) {
      reads = std::max<std::size_t>(std::strtoull(argv[++i], nullptr, 10), 1);
    } else if (argument.rfind("--benchmark_", 0) != 0) {  // options of Google Benchmark: ./dev bench gives them to all
      fmt::print(stderr, "usage: relay_bench [--reads N]\n");
      return 2;
    }
  }
  std::string pattern = (std::filesystem::temp_directory_path() / "orrery-bench-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) {
    fmt::print(stderr, "relay_bench: can't make a directory for the sockets\n");
    return 1;
  }
  const std::filesystem::path directory = pattern;
  std::filesystem::create_directory(directory / "guest0");
  std::filesystem::permissions(directory / "guest0", std::filesystem::perms::owner_all);
  {
    orrery::models::ServerConfig config;
    config.rnic.personality = orrery::models::RnicPersonality::self_test;
    orrery::cli::ServerHost host(config, {directory, false});
    SilentObserver observer;
    boost::asio::io_context io;
    orrery::bridge::RelayEndpoint relay(io, {directory / "relay.sock", host.socket("rnic1")}, observer);
    std::thread relaying([&] {
      const auto work = boost::asio::make_work_guard(io);
      io.run();
    });
    std::atomic<bool> done = false;
    std::thread client([&] {
      measure(host.socket("rnic0"), relay.socket(), reads);
      done = true;
    });
    host.run_until([&] { return done.load(); }, std::chrono::minutes(10));
    client.join();
    io.stop();
    relaying.join();
  }
  std::filesystem::remove_all(directory);
  return 0;
}
