// How fast an instance link is: RoCE packets from one server's uplink to another's.
//
// "InMemory": both ends on one thread, bytes handed over: what encoding, session, decoding and address checks cost.
// "Socket": two threads and a UNIX or TCP socket. "RoundTrip": one packet at a time over the socket, both ends sleeping
// in between as servers do. items_per_second counts packets, bytes_per_second their payload.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/log.h"
#include "fabric/instance_link/sockets.h"
#include "fabric/wire_codec.h"

namespace orrery::instance_link {
namespace {

constexpr std::uint64_t first_address = 0x024f'5200'0000U;

class NoLocal final : public LocalAddresses {
 public:
  [[nodiscard]] bool is_local(unsigned /*plane*/, fabric::MacAddress /*address*/) const override { return false; }
};

class Server final : private fabric::PortListener {
 public:
  explicit Server(unsigned number)
      : number_(number),
        uplinks(events, pool, 1, "server" + std::to_string(number), {{address(number), address(number)}}, local_) {
    set_log_level(LogLevel::warning);
    uplinks.port(0).attach(*this);
  }
  static std::uint64_t address(unsigned number) { return first_address + (std::uint64_t{number} << 16); }
  void send(unsigned to, std::span<const std::byte> payload) {
    fabric::RoceHeaders headers;
    headers.network.destination_mac = {address(to)};
    headers.network.source_mac = {address(number_)};
    headers.bth.opcode = fabric::opcode_of(fabric::RoceTransport::rc, fabric::RoceOperation::send_middle);
    uplinks.port(0).send(fabric::packet_of(pool, pool.make_roce(headers, payload)));
  }

 private:
  void on_packet(const fabric::Packet& packet) override {
    pool.release(packet.content);
    received.fetch_add(1, std::memory_order_relaxed);
    if (answer != 0) {
      send(answer, {});
    }
  }
  unsigned number_;
  NoLocal local_;

 public:
  EventQueue events;
  fabric::PacketPool pool;
  Uplinks uplinks;
  std::atomic<std::uint64_t> received = 0;
  unsigned answer = 0;  // server that gets an empty packet for each; 0: nobody
};

class Silent final : public Peer::Transport {
 public:
  void on_output() override {}
  void on_open() override {}
  void on_closed(Refusal /*reason*/, bool /*by_peer*/) override {}
};

void InMemory(benchmark::State& state) {
  Server one(1);
  Server two(2);
  Silent silent;
  SessionSettings settings;
  settings.token.assign(16, std::byte{1});
  settings.role = Role::connector;
  Peer left(one.uplinks, settings, silent);
  settings.role = Role::listener;
  Peer right(two.uplinks, settings, silent);
  left.session().start();
  right.session().start();
  Session::Output output;
  const auto exchange = [&] {
    while (left.session().has_output() || right.session().has_output()) {
      left.session().take_output(output);
      right.session().receive(output.bytes());
      right.session().take_output(output);
      left.session().receive(output.bytes());
    }
  };
  exchange();
  const std::vector<std::byte> payload(static_cast<std::size_t>(state.range(0)), std::byte{0x5a});
  constexpr unsigned burst = 64;
  for (auto _ : state) {
    for (unsigned i = 0; i < burst; ++i) {
      one.send(2, payload);
    }
    exchange();
  }
  if (two.received != static_cast<std::uint64_t>(state.iterations()) * burst) {
    state.SkipWithError("packets are missing");
  }
  state.SetItemsProcessed(state.iterations() * burst);
  state.SetBytesProcessed(state.iterations() * burst * state.range(0));
}
BENCHMARK(InMemory)->Arg(8)->Arg(1024)->Arg(4096);

// Two servers joined by a socket, the second on a thread of its own.
class Pair {
 public:
  explicit Pair(bool tcp) : one(1), two(2) {
    std::string name = std::filesystem::temp_directory_path() / "orrery-link-bench-XXXXXX";
    directory_ = ::mkdtemp(name.data());
    const std::string token = directory_ / "token";
    std::ofstream(token) << "a token for a benchmark";
    std::filesystem::permissions(token, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    const Endpoint endpoint = parse_endpoint(tcp ? "tcp:0" : "unix:" + (directory_ / "socket").string());
    far_ = std::make_unique<Sockets>(far_io_, two.uplinks,
                                     std::vector<LinkOptions>{{"far", true, endpoint, token, {}, 1}});
    near_ = std::make_unique<Sockets>(near_io_, one.uplinks,
                                      std::vector<LinkOptions>{{"near", false, far_->endpoint(0), token, {}, 1}});
    thread_ = std::thread([this] {
      while (!stop_) {
        turn_of(far_io_, *far_);
      }
    });
    while (one.uplinks.peers() == 0) {
      turn();
    }
  }
  ~Pair() {
    stop_ = true;
    thread_.join();
    near_.reset();
    far_.reset();
    std::filesystem::remove_all(directory_);
  }
  void turn() { turn_of(near_io_, *near_); }

  Server one;
  Server two;

 private:
  static void turn_of(boost::asio::io_context& io, Sockets& sockets) {
    sockets.resume();
    io.run_one_for(std::chrono::milliseconds(1));
    io.poll();
    io.restart();
  }
  std::filesystem::path directory_;
  boost::asio::io_context near_io_;
  boost::asio::io_context far_io_;
  std::unique_ptr<Sockets> far_;
  std::unique_ptr<Sockets> near_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

void Socket(benchmark::State& state) {
  Pair pair(state.range(1) != 0);
  const std::vector<std::byte> payload(static_cast<std::size_t>(state.range(0)), std::byte{0x5a});
  constexpr unsigned burst = 64;
  const std::uint64_t window = 4096;  // packets on the way: as connections would have
  std::uint64_t sent = 0;
  for (auto _ : state) {
    for (unsigned i = 0; i < burst; ++i) {
      pair.one.send(2, payload);
    }
    sent += burst;
    do {
      pair.turn();
    } while (sent - pair.two.received > window);
  }
  while (pair.two.received < sent) {
    pair.turn();
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(sent));
  state.SetBytesProcessed(static_cast<std::int64_t>(sent) * state.range(0));
}
BENCHMARK(Socket)->ArgNames({"bytes", "tcp"})->ArgsProduct({{8, 4096}, {0, 1}})->UseRealTime();

void RoundTrip(benchmark::State& state) {
  Pair pair(state.range(0) != 0);
  pair.two.answer = 1;
  std::uint64_t sent = 0;
  for (auto _ : state) {
    pair.one.send(2, {});
    ++sent;
    while (pair.one.received < sent) {
      pair.turn();
    }
  }
}
BENCHMARK(RoundTrip)->ArgName("tcp")->Arg(0)->Arg(1)->UseRealTime();

}  // namespace
}  // namespace orrery::instance_link
