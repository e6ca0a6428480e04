// What the protocol server costs by itself: a client thread, a real UNIX socket, and a function that does
// nothing. Prints a table; asserts nothing.
//
//   bridge_bench [ROUNDS]     region reads per row, 200000 by default
//
// The round trip of a read counts from before the client's sendmsg to after its last recvmsg. "Blocking":
// both threads sleep in the kernel between messages. "Polling": both spin (two free cores are needed).
// A write's rate ends with the answer to a read behind it; "server CPU" is what the server's thread used,
// kernel included, which other load on the machine disturbs less. "Floor": the same bytes to and fro over a
// bare socket pair, with nothing done to them; what the machine's kernel leaves us no choice about.
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "qemu_bridge/server.h"
#include "tests/qemu_bridge/fake_function.h"
#include "tests/qemu_bridge/protocol_client.h"

namespace orrery::bridge {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// CPU time of the calling thread.
double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

void print_round_trip(const char* what, bool polling, std::vector<double> micros) {
  std::sort(micros.begin(), micros.end());
  std::printf("%-18s %-8s   p50 %6.2f us   p99 %8.2f us\n", what, polling ? "polling" : "blocking",
              micros[micros.size() / 2], micros[micros.size() * 99 / 100]);
}

void floor_round_trip(bool polling, std::size_t rounds) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    std::perror("socketpair");
    std::exit(1);
  }
  const FileDescriptor here(ends[0]);
  const FileDescriptor there(ends[1]);
  const auto receive = [&](int fd, std::span<char> into) {
    while (::recv(fd, into.data(), into.size(), polling ? MSG_DONTWAIT : 0) <= 0) {
    }
  };
  std::thread echo([&] {
    std::array<char, 64> bytes{};
    for (std::size_t i = 0; i < rounds; ++i) {
      receive(there.get(), bytes);
      [[maybe_unused]] const ssize_t sent = ::send(there.get(), bytes.data(), 36, 0);
    }
  });
  std::vector<double> micros(rounds);
  std::array<char, 64> bytes{};
  for (double& result : micros) {
    const Clock::time_point start = Clock::now();
    [[maybe_unused]] const ssize_t sent = ::send(here.get(), bytes.data(), 32, 0);
    receive(here.get(), bytes);
    result = seconds_since(start) * 1e6;
  }
  echo.join();
  print_round_trip("floor", polling, std::move(micros));
}

class Bench {
 public:
  explicit Bench(std::filesystem::path directory) : directory_(std::move(directory)) {
    function_.keep_accesses = false;
  }

  // Runs `client` on a thread of its own against a server that sleeps or spins.
  // Returns the CPU seconds of the server's thread.
  double run(bool polling, const std::function<void(test::ProtocolClient&)>& client) {
    boost::asio::io_context io;
    Server server(io, function_, {directory_ / "bench.sock", {}});
    std::atomic<bool> done = false;
    std::thread thread([&] {
      test::ProtocolClient connection((directory_ / "bench.sock").string(), polling);
      connection.negotiate();
      client(connection);
      done = true;
    });
    const double start = cpu_seconds();
    for (unsigned turn = 0; !done; ++turn) {
      if (!polling) {
        io.run_one_for(std::chrono::milliseconds(100));
      } else if (!server.poll() && turn % 64 == 0) {
        io.poll();
      }
    }
    const double used = cpu_seconds() - start;
    thread.join();
    return used;
  }

  void read_round_trip(bool polling, std::size_t rounds) {
    run(polling, [&](test::ProtocolClient& client) {
      std::vector<double> micros(rounds);
      std::array<std::byte, 4> value{};
      for (std::size_t i = 0; i < rounds / 10; ++i) {
        client.region_read(0, 0, value);
      }
      for (double& result : micros) {
        const Clock::time_point start = Clock::now();
        client.region_read(0, 0, value);
        result = seconds_since(start) * 1e6;
      }
      print_round_trip("region read", polling, std::move(micros));
    });
  }

  // `send` holds `writes_per_send` writes and leaves in one system call.
  void posted_writes(const char* name, bool polling, std::size_t writes, std::size_t writes_per_send,
                     const std::vector<std::byte>& send) {
    double rate = 0;
    const double cpu = run(polling, [&](test::ProtocolClient& client) {
      const Clock::time_point start = Clock::now();
      for (std::size_t i = 0; i < writes; i += writes_per_send) {
        client.send_raw(send);
      }
      std::array<std::byte, 4> value{};
      client.region_read(0, 0, value);  // answered when all of them are done
      rate = static_cast<double>(writes) / seconds_since(start);
    });
    std::printf("%-54s %8.0f k/s   server CPU %6.3f us\n", name, rate / 1e3, cpu / static_cast<double>(writes) * 1e6);
  }

 private:
  std::filesystem::path directory_;
  test::FakeFunction function_;
};

std::vector<std::byte> posted_write() {
  std::vector<std::byte> message;
  test::append(message, wire::Header{0, static_cast<std::uint16_t>(wire::Command::region_write),
                                     sizeof(wire::Header) + sizeof(wire::RegionAccess) + 8, wire::flag_no_reply, 0});
  test::append(message, wire::RegionAccess{0x100, 0, 8});
  test::append(message, std::uint64_t{1});
  return message;
}

std::vector<std::byte> write_multi(std::uint64_t count) {
  std::vector<std::byte> message;
  test::append(message, wire::Header{0, static_cast<std::uint16_t>(wire::Command::region_write_multi),
                                     static_cast<std::uint32_t>(sizeof(wire::Header) + sizeof(count) +
                                                                count * sizeof(wire::WriteMultiEntry)),
                                     wire::flag_no_reply, 0});
  test::append(message, count);
  for (std::uint64_t i = 0; i < count; ++i) {
    test::append(message, wire::WriteMultiEntry{0x100, 0, 8, {1}});
  }
  return message;
}

int run(std::size_t rounds) {
  std::string name = (std::filesystem::temp_directory_path() / "orrery-bench-XXXXXX").string();
  const std::filesystem::path directory = ::mkdtemp(name.data());
  Bench bench(directory);
  std::printf("round trip of 32 bytes there, 36 back\n");
  for (const bool polling : {false, true}) {
    floor_round_trip(polling, rounds);
    bench.read_round_trip(polling, rounds);
  }
  const std::size_t writes = rounds * 10;
  for (const bool polling : {false, true}) {
    bench.posted_writes(polling ? "posted writes, a message and system call each, polling"
                                : "posted writes, a message and system call each",
                        polling, writes, 1, posted_write());
  }
  bench.posted_writes("posted writes, WRITE_MULTI of 200 (as QEMU's largest)", false, writes, 200, write_multi(200));
  std::filesystem::remove_all(directory);
  return 0;
}

}  // namespace
}  // namespace orrery::bridge

int main(int argc, char** argv) {
  const long rounds = argc > 1 && argv[1][0] != '-' ? std::atol(argv[1]) : 200000;
  if (rounds < 100) {
    std::fprintf(stderr, "bridge_bench: ROUNDS must be at least 100\n");
    return 1;
  }
  return orrery::bridge::run(static_cast<std::size_t>(rounds));
}
