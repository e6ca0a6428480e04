// The Ethernet of a server: planes, a port that is down, the two time modes, captures.
#include "systemc_models/server/network.h"

#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/error.h"
#include "common/event_queue.h"
#include "systemc_models/server/device_factory.h"

namespace orrery::models::network_test {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t mac_base = 0x0200'0000'0000;
constexpr std::uint32_t frame_bytes = 1000;  // without FCS

struct Host final : fabric::PortListener {
  void on_packet(const fabric::Packet& packet) override {
    arrivals.push_back(events->now());
    pool->release(packet.content);
  }
  EventQueue* events = nullptr;
  fabric::PacketPool* pool = nullptr;
  std::vector<Picoseconds> arrivals;
};

struct Bench {
  explicit Bench(const NetworkConfig& config = {}, bool timed = true, unsigned hosts = 3)
      : network(events, config, hosts, 1, timed), host(hosts) {
    for (unsigned i = 0; i < hosts; ++i) {
      host[i].events = &events;
      host[i].pool = &network.pool();
      network.port(i).attach(host[i]);
    }
  }
  void run() { events.run_until(events.now() + Picoseconds{1'000'000'000}); }
  // A frame with an entropy value of the test's choice.
  void send(unsigned from, unsigned to, std::uint16_t entropy) {
    std::array<std::byte, frame_bytes> bytes{};
    for (unsigned i = 0; i < 6; ++i) {
      bytes[i] = static_cast<std::byte>((mac_base + to) >> (40 - 8 * i));
      bytes[6 + i] = static_cast<std::byte>((mac_base + from) >> (40 - 8 * i));
    }
    bytes[12] = std::byte{0x88};
    bytes[13] = std::byte{0xb5};  // IEEE 802 local experimental
    fabric::Packet packet = packet_of(network.pool(), network.pool().make_frame(bytes));
    packet.entropy = entropy;
    network.port(from).send(packet);
  }
  // Lets every ToR learn where every host is.
  void teach() {
    for (unsigned i = 0; i < host.size(); ++i) {
      for (unsigned plane = 0; plane < network.planes(); ++plane) {
        send(i, i == 0 ? 1 : 0, static_cast<std::uint16_t>(plane));
      }
    }
    run();
    for (Host& one : host) {
      one.arrivals.clear();
    }
  }

  EventQueue events;
  Network network;
  std::vector<Host> host;
};

TEST(Network, EntropyNamesThePlane) {
  Bench bench;
  bench.teach();
  const auto sent = [&](unsigned plane) { return bench.network.link(0, plane).counters(0).sent_packets; };
  const std::array before{sent(0), sent(1)};
  for (std::uint16_t entropy = 0xc000; entropy < 0xc00a; ++entropy) {
    bench.send(0, 2, entropy);
  }
  bench.send(0, 2, 0xc000);
  bench.run();
  EXPECT_EQ(sent(0) - before[0], 6U);
  EXPECT_EQ(sent(1) - before[1], 5U);
  EXPECT_EQ(bench.host[2].arrivals.size(), 11U);
  EXPECT_TRUE(bench.host[1].arrivals.empty());
  EXPECT_EQ(bench.network.pool().outstanding(), 0U);
}

TEST(Network, APortThatIsDownIsNotTakenWhileTheOtherIsUp) {
  Bench bench;
  bench.teach();
  bench.network.link(0, 0).set_up(false);
  bench.send(0, 2, 0);
  bench.send(0, 2, 1);
  bench.run();
  EXPECT_EQ(bench.host[2].arrivals.size(), 2U);
  bench.network.link(0, 1).set_up(false);
  bench.send(0, 2, 1);
  bench.run();
  EXPECT_EQ(bench.host[2].arrivals.size(), 2U);
  EXPECT_EQ(bench.network.link(0, 1).counters(0).down, 1U);
  EXPECT_EQ(bench.network.pool().outstanding(), 0U);
}

// Both ports transmit at once; each holds 256 KiB, then whoever looks at free_at() has to wait.
TEST(Network, PlanesTransmitAtOnce) {
  Bench bench;
  bench.teach();
  bench.send(0, 2, 0);
  EXPECT_LE(bench.network.port(0).free_at(), bench.events.now());
  bench.send(0, 2, 1);
  bench.run();
  ASSERT_EQ(bench.host[2].arrivals.size(), 2U);
  EXPECT_EQ(bench.host[2].arrivals[0], bench.host[2].arrivals[1]);

  const Picoseconds start = bench.events.now();
  const unsigned fifo = (256U << 10) / (frame_bytes + 24);  // frames of 1024 bytes on the wire
  for (unsigned i = 0; i < fifo; ++i) {
    bench.send(0, 2, 0);
  }
  EXPECT_LE(bench.network.port(0).free_at(), start);
  bench.send(0, 2, 0);
  EXPECT_EQ((bench.network.port(0).free_at() - start).count, (frame_bytes + 24) * 40U);
}

TEST(Network, ASinglePortIsFreeWhenItHasSent) {
  NetworkConfig config;
  config.ports = 1;
  Bench bench(config);
  bench.teach();
  const Picoseconds start = bench.events.now();
  bench.send(0, 2, 0);
  EXPECT_EQ((bench.network.port(0).free_at() - start).count, (frame_bytes + 24) * 40U);
}

// Two links of 1004 + 20 bytes at 200 Gb/s (40 ps a byte) and 500 ns each, and a ToR of 300 ns.
TEST(Network, TimedModeChargesLinksAndTheSwitch) {
  Bench bench;
  bench.teach();
  const Picoseconds start = bench.events.now();
  bench.send(0, 2, 0);
  bench.run();
  ASSERT_EQ(bench.host[2].arrivals.size(), 1U);
  EXPECT_EQ((bench.host[2].arrivals[0] - start).count, 2U * ((frame_bytes + 4 + 20) * 40 + 500'000) + 300'000);
}

// The fastest link that can be set up: 0.08 ps a byte, and nothing else.
TEST(Network, FunctionalModeChargesNextToNothing) {
  Bench bench({}, false);
  bench.teach();
  const Picoseconds start = bench.events.now();
  bench.send(0, 2, 0);
  bench.run();
  ASSERT_EQ(bench.host[2].arrivals.size(), 1U);
  EXPECT_LE((bench.host[2].arrivals[0] - start).count, 200U);
}

TEST(Network, ImpairmentsHoldInBothModes) {
  for (const bool timed : {false, true}) {
    NetworkConfig config;
    config.ports = 1;
    config.loss = 1;
    Bench bench(config, timed);
    bench.send(0, 2, 0);
    bench.run();
    EXPECT_EQ(bench.network.link(0, 0).counters(0).lost, 1U);
    EXPECT_TRUE(bench.host[2].arrivals.empty());
    EXPECT_EQ(bench.network.pool().outstanding(), 0U);
  }
}

TEST(Network, ACaptureHasEveryPortAndEveryFrameTwice) {
  const std::filesystem::path file =
      std::filesystem::path(::testing::TempDir()) / ("network_test." + std::to_string(getpid()) + ".pcapng");
  {
    NetworkConfig config;
    config.capture_file = file.string();
    Bench bench(config, true, 2);
    bench.send(0, 1, 0);
    bench.run();
  }
  std::ifstream in(file, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::filesystem::remove(file);
  // pcapng §4: blocks of type and length; 1 is an Interface Description, 6 an Enhanced Packet.
  std::array<unsigned, 7> blocks{};
  for (std::size_t at = 0; at + 8 <= bytes.size();) {
    std::uint32_t type = 0;
    std::uint32_t length = 0;
    std::memcpy(&type, bytes.data() + at, 4);
    std::memcpy(&length, bytes.data() + at + 4, 4);
    ASSERT_GE(length, 12U);
    if (type < blocks.size()) {
      ++blocks[type];
    }
    at += length;
  }
  EXPECT_EQ(blocks[1], 4U);
  EXPECT_EQ(blocks[6], 2U);  // sent by one port, heard by another
  EXPECT_THAT(bytes, HasSubstr("rnic1.port1"));
}

TEST(Network, ACaptureThatCantBeWrittenIsNamed) {
  NetworkConfig config;
  config.capture_file = "/nowhere/capture.pcapng";
  try {
    Bench bench(config);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("network.capture: can't write /nowhere/capture.pcapng"));
  }
}

// Two servers' networks in one event loop, joined by a link of which the test passes on the bytes.
TEST(Network, TwoServersReachEachOtherThroughTheirUplinks) {
  struct Silent final : instance_link::Peer::Transport {
    void on_output() override {}
    void on_open() override {}
    void on_closed(instance_link::Refusal reason, bool /*by_peer*/) override { ended = reason; }
    instance_link::Refusal ended = instance_link::Refusal::none;
  };
  struct Server {
    Server(unsigned number, instance_link::Role role)
        : network(events, config(), 2, 1, false, std::string("server") + std::to_string(number),
                  {{mac(number, 0), mac(number, 1)}}) {
      instance_link::SessionSettings settings;
      settings.role = role;
      settings.planes = 3;
      settings.token.assign(16, std::byte{1});
      peer = std::make_unique<instance_link::Peer>(*network.uplinks(), settings, transport);
      peer->session().start();
      for (unsigned i = 0; i < 2; ++i) {
        host[i].events = &events;
        host[i].pool = &network.pool();
        network.port(i).attach(host[i]);
      }
    }
    static NetworkConfig config() {
      NetworkConfig config;
      config.links.resize(1);
      return config;
    }
    static std::uint64_t mac(unsigned number, unsigned rnic) { return mac_base + 256 * number + rnic; }
    void send(std::uint64_t from, std::uint64_t to, std::uint16_t entropy) {
      std::array<std::byte, frame_bytes> bytes{};
      for (unsigned i = 0; i < 6; ++i) {
        bytes[i] = static_cast<std::byte>(to >> (40 - 8 * i));
        bytes[6 + i] = static_cast<std::byte>(from >> (40 - 8 * i));
      }
      fabric::Packet packet = packet_of(network.pool(), network.pool().make_frame(bytes));
      packet.entropy = entropy;
      network.port(0).send(packet);
    }
    EventQueue events;
    Network network;
    Silent transport;
    std::unique_ptr<instance_link::Peer> peer;
    std::array<Host, 2> host;
  };
  Server one(1, instance_link::Role::connector);
  Server two(2, instance_link::Role::listener);
  const auto run = [&] {
    instance_link::Session::Output output;
    for (int turn = 0; turn < 4; ++turn) {
      one.events.run_until(one.events.now() + Picoseconds{1'000'000});
      one.peer->session().take_output(output);
      two.peer->session().receive(output.bytes());
      two.events.run_until(two.events.now() + Picoseconds{1'000'000});
      two.peer->session().take_output(output);
      one.peer->session().receive(output.bytes());
    }
  };
  run();
  ASSERT_EQ(one.network.uplinks()->peers(), 1U);
  one.send(Server::mac(1, 0), Server::mac(2, 1), 0);  // plane 0
  one.send(Server::mac(1, 0), 0xffff'ffff'ffff, 1);   // plane 1
  run();
  // Nobody has learned where that address is: the switch floods, and its owner sorts it out.
  EXPECT_EQ(two.host[0].arrivals.size(), 2U);
  EXPECT_EQ(two.host[1].arrivals.size(), 2U);
  EXPECT_EQ(one.host[1].arrivals.size(), 2U);
  EXPECT_EQ(one.host[0].arrivals.size(), 0U);
  two.send(Server::mac(2, 0), Server::mac(1, 0), 0);
  run();
  EXPECT_EQ(one.host[0].arrivals.size(), 1U);
  EXPECT_EQ(one.host[1].arrivals.size(), 2U);  // plane 0 has learned where it is
  two.send(Server::mac(2, 0), Server::mac(1, 5), 0);
  run();
  EXPECT_EQ(one.network.uplinks()->total().unknown_destination, 1U);
  EXPECT_EQ(one.network.pool().outstanding() + two.network.pool().outstanding(), 0U);
}

// Every server that server.index allows, as full as its addresses allow: no two RNICs have the same.
TEST(Network, NoTwoServersHaveTheSameAddresses) {
  for (const RnicPortType port_type : {RnicPortType::infiniband, RnicPortType::ethernet}) {
    std::map<std::uint64_t, std::uint64_t> ranges;  // first: last
    std::size_t rnics = 0;
    for (unsigned server = 0; server < (port_type == RnicPortType::ethernet ? 256U : 12U); ++server) {
      ServerConfig config;
      config.server_index = server;
      config.rnic.port_type = port_type;
      config.topology.switches = 8;
      config.topology.gpus_per_switch = 0;
      config.topology.rnics_per_switch = port_type == RnicPortType::infiniband && server == 11 ? 7 : 8;
      for (const instance_link::AddressRange& range : rnic_addresses(config, Topology::from(config))) {
        ++rnics;
        EXPECT_TRUE(ranges.emplace(range.first, range.last).second) << std::hex << range.first;
        EXPECT_LE(range.first, range.last);
        EXPECT_FALSE(fabric::MacAddress{range.first}.is_multicast());
      }
    }
    EXPECT_EQ(rnics, port_type == RnicPortType::ethernet ? 256U * 64 : 11U * 64 + 56);
    std::uint64_t last = 0;
    for (const auto& [first, end] : ranges) {
      EXPECT_GT(first, last);
      last = end;
    }
  }
  ServerConfig plain;
  plain.rnic.personality = RnicPersonality::self_test;
  EXPECT_TRUE(rnic_addresses(plain, Topology::from(plain)).empty());
}

}  // namespace
}  // namespace orrery::models::network_test
