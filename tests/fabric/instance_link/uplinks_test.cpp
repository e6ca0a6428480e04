// The uplinks of two and three servers: which frames cross, and which are refused and counted.
#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "common/log.h"
#include "fabric/instance_link/uplinks.h"
#include "fabric/wire_codec.h"
#include "tests/fabric/instance_link/link_rig.h"
#include "tests/fabric/support.h"

namespace orrery::uplinks_test {
namespace {

using namespace orrery::fabric;
using namespace orrery::instance_link;
using fabric::testing::Collector;
using instance_link::testing::addresses_of;
using instance_link::testing::settings_of;

class KnownAddresses final : public LocalAddresses {
 public:
  [[nodiscard]] bool is_local(unsigned plane, MacAddress address) const override {
    return known.count({plane, address.value}) != 0;
  }
  std::set<std::pair<unsigned, std::uint64_t>> known;
};

class Transport final : public Peer::Transport {
 public:
  void on_output() override {}
  void on_open() override { ++opened; }
  void on_closed(Refusal reason, bool /*by_peer*/) override { closed.push_back(reason); }
  unsigned opened = 0;
  std::vector<Refusal> closed;
};

// A server without its switches: what would go to them is collected.
struct Server {
  explicit Server(unsigned its_number, unsigned planes = 2)
      : number(its_number),
        uplinks(events, pool, planes, "server" + std::to_string(its_number), addresses_of(its_number), local) {
    for (unsigned plane = 0; plane < planes; ++plane) {
      arrived.push_back(std::make_unique<Collector>(events, pool));
      arrived.back()->keep_contents = true;
      uplinks.port(plane).attach(*arrived.back());
    }
  }
  ~Server() {
    for (const auto& collector : arrived) {
      for (const Packet& packet : collector->packets) {
        pool.release(packet.content);
      }
    }
    EXPECT_EQ(pool.outstanding(), 0U);
  }
  void send(unsigned plane, std::uint64_t to, std::uint64_t from, std::size_t size = 64) {
    std::vector<std::byte> frame(size);
    for (unsigned i = 0; i < 6; ++i) {
      frame[i] = static_cast<std::byte>(to >> (40 - 8 * i));
      frame[6 + i] = static_cast<std::byte>(from >> (40 - 8 * i));
    }
    uplinks.port(plane).send(packet_of(pool, pool.make_frame(frame)));
  }
  [[nodiscard]] std::uint64_t mac(unsigned rnic = 0) const { return addresses_of(number)[0].first + rnic; }
  [[nodiscard]] std::size_t received(unsigned plane = 0) const { return arrived[plane]->packets.size(); }

  unsigned number;
  EventQueue events;
  PacketPool pool;
  KnownAddresses local;
  Uplinks uplinks;
  std::vector<std::unique_ptr<Collector>> arrived;
};

// A link between two of them.
struct Joint {
  Joint(Server& a, Server& b, SessionSettings one, SessionSettings other)
      : left(a.uplinks, std::move(one), left_transport), right(b.uplinks, std::move(other), right_transport) {
    left.session().start();
    right.session().start();
    exchange();
  }
  Joint(Server& a, Server& b)
      : Joint(a, b, settings_of(Role::connector, a.number), settings_of(Role::listener, b.number)) {}
  void exchange() {
    Session::Output output;
    while (left.session().has_output() || right.session().has_output()) {
      left.session().take_output(output);
      right.session().receive(output.bytes());
      right.session().take_output(output);
      left.session().receive(output.bytes());
    }
  }
  Transport left_transport;
  Transport right_transport;
  Peer left;
  Peer right;
};

class LinkUplinks : public ::testing::Test {
 protected:
  LinkUplinks() { set_log_level(LogLevel::off); }
  ~LinkUplinks() override { set_log_level(LogLevel::info); }
};

TEST_F(LinkUplinks, AFrameGoesToTheServerThatHasItsDestination) {
  Server one(1);
  Server two(2);
  Server three(3);
  Joint a(one, two);
  Joint b(one, three);
  ASSERT_EQ(one.uplinks.peers(), 2U);
  one.send(0, two.mac(1), one.mac());
  one.send(1, three.mac(), one.mac(1));
  a.exchange();
  b.exchange();
  EXPECT_EQ(two.received(0), 1U);
  EXPECT_EQ(two.received(1), 0U);
  EXPECT_EQ(three.received(1), 1U);
  EXPECT_EQ(three.received(0), 0U);
  EXPECT_EQ(two.uplinks.total().received, 1U);
  EXPECT_EQ(one.uplinks.total().sent, 2U);
  EXPECT_EQ(two.uplinks.total().refused() + three.uplinks.total().refused(), 0U);
}

TEST_F(LinkUplinks, MulticastGoesToAllAndNeverOnToAThird) {
  Server one(1);
  Server two(2);
  Server three(3);
  Joint a(one, two);
  Joint b(two, three);
  Joint c(one, three);
  one.send(0, 0xffff'ffff'ffff, one.mac());
  for (int turn = 0; turn < 3; ++turn) {
    a.exchange();
    b.exchange();
    c.exchange();
  }
  EXPECT_EQ(two.received(), 1U);
  EXPECT_EQ(three.received(), 1U);
  EXPECT_EQ(one.received(), 0U);
}

TEST_F(LinkUplinks, WhatIsFloodedForANeighbourStaysHere) {
  Server one(1);
  Server two(2);
  Joint a(one, two);
  one.send(0, one.mac(1), one.mac());
  a.exchange();
  EXPECT_EQ(two.received(), 0U);
  EXPECT_EQ(two.uplinks.total().refused(), 0U);
}

TEST_F(LinkUplinks, ARocePacketArrivesWithEveryFieldAndMark) {
  Server one(1);
  Server two(2);
  Joint a(one, two);
  RoceHeaders headers;
  headers.network.destination_mac = {two.mac()};
  headers.network.source_mac = {one.mac()};
  headers.network.ecn = Ecn::ect0;
  headers.bth.opcode = opcode_of(RoceTransport::rc, RoceOperation::send_only);
  headers.bth.destination_qp = 0x123456;
  headers.bth.psn = 77;
  std::vector<std::byte> payload(1021, std::byte{0x5a});
  Packet packet = packet_of(one.pool, one.pool.make_roce(headers, payload));
  packet.entropy = 0xd00d;  // chosen after the record was made
  packet.ecn = Ecn::ce;
  packet.flags |= packet_flag::bad_icrc;
  one.uplinks.port(1).send(packet);
  a.exchange();
  ASSERT_EQ(two.received(1), 1U);
  const Packet& there = two.arrived[1]->packets[0];
  EXPECT_EQ(there.entropy, 0xd00d);
  EXPECT_EQ(there.ecn, Ecn::ce);
  EXPECT_EQ(there.flags & packet_flag::bad_icrc, packet_flag::bad_icrc);
  EXPECT_EQ(there.kind, PacketClass::roce_data);
  EXPECT_EQ(there.wire_bytes, packet.wire_bytes);
  const PacketContent& content = two.pool.at(there.content);
  ASSERT_TRUE(content.is_roce);
  EXPECT_EQ(content.roce.bth.destination_qp, 0x123456U);
  EXPECT_EQ(content.roce.bth.psn, 77U);
  EXPECT_TRUE(std::equal(payload.begin(), payload.end(), content.bytes().begin(), content.bytes().end()));
}

TEST_F(LinkUplinks, ServersWithTheSameAddressesAreNotLinked) {
  Server one(1);
  Server two(2);
  Server twin(2);
  Joint a(one, one);  // to itself
  EXPECT_EQ(a.left_transport.closed, std::vector<Refusal>{Refusal::duplicate_address});
  Joint b(one, two);
  Joint c(one, twin);
  EXPECT_EQ(c.left_transport.closed, std::vector<Refusal>{Refusal::duplicate_address});
  EXPECT_EQ(c.left_transport.opened, 0U);
  EXPECT_EQ(one.uplinks.peers(), 1U);
  // Once the first has gone, there is room for the other.
  b.left.session().lost();
  EXPECT_EQ(one.uplinks.peers(), 0U);
  Joint d(one, twin);
  EXPECT_EQ(d.left_transport.opened, 1U);
}

TEST_F(LinkUplinks, FramesWithAddressesOfOthersAreRefusedAndCounted) {
  Server one(1);
  Server two(2);
  Server three(3);
  Joint a(one, two);
  Joint b(two, three);
  two.local.known.insert({0, 0x0200'0000'0042});
  const PeerCounters& counters = a.right.counters();
  const auto refused = [&](std::uint64_t to, std::uint64_t from, std::uint64_t PeerCounters::*counter) {
    const std::uint64_t before = counters.*counter;
    const std::uint64_t all = counters.refused();
    one.send(0, to, from);
    a.exchange();
    EXPECT_EQ(counters.*counter, before + 1) << std::hex << to << " " << from;
    EXPECT_EQ(counters.refused(), all + 1);
    EXPECT_EQ(two.received(), 0U);
  };
  refused(two.mac(), two.mac(1), &PeerCounters::own_source);
  refused(two.mac(), 0x0200'0000'0042, &PeerCounters::own_source);
  refused(two.mac(), three.mac(), &PeerCounters::foreign_source);
  refused(two.mac(), 0, &PeerCounters::foreign_source);
  refused(two.mac(), 0x0100'0000'0001, &PeerCounters::foreign_source);
  refused(0x024f'5202'0002, one.mac(), &PeerCounters::unknown_destination);
  refused(0x0200'0000'0043, one.mac(), &PeerCounters::unknown_destination);
  EXPECT_EQ(two.uplinks.total().refused(), 7U);
  // The link goes on, and a guest's own address is known once its switch has seen it.
  one.send(0, 0x0200'0000'0042, one.mac());
  a.exchange();
  EXPECT_EQ(two.received(), 1U);
}

TEST_F(LinkUplinks, AnAddressThatAGuestChoseIsLearned) {
  Server one(1);
  Server two(2);
  Server three(3);
  Joint a(one, two);
  Joint b(one, three);
  constexpr std::uint64_t chosen = 0x0200'0000'0007;
  three.send(0, one.mac(), chosen);
  b.exchange();
  ASSERT_EQ(one.received(), 1U);
  three.local.known.insert({0, chosen});
  one.send(0, chosen, one.mac());
  a.exchange();
  b.exchange();
  EXPECT_EQ(three.received(), 1U);
  EXPECT_EQ(two.received(), 0U);
  EXPECT_EQ(two.uplinks.total().refused(), 0U);
}

TEST_F(LinkUplinks, WhatIsSaidToBeRoceMustBe) {
  Server one(1);
  Server two(2);
  Joint a(one, two);
  std::vector<std::byte> body(60);
  const std::uint64_t to = two.mac();
  for (unsigned i = 0; i < 6; ++i) {
    body[i] = static_cast<std::byte>(to >> (40 - 8 * i));
  }
  const std::span<std::byte> room = a.left.session().begin_frame(body.size());
  std::copy(body.begin(), body.end(), room.begin());
  a.left.session().end_frame({{0}, 0, frame_flag::roce, room.first(body.size())});
  a.exchange();
  EXPECT_EQ(a.right.counters().malformed, 1U);
  EXPECT_EQ(two.received(), 0U);
}

TEST_F(LinkUplinks, ALinkOfOnePlaneCarriesOnlyThat) {
  Server one(1);
  Server two(2);
  SessionSettings settings = settings_of(Role::connector, 1);
  settings.planes = 2;
  Joint a(one, two, settings, settings_of(Role::listener, 2));
  one.send(0, two.mac(), one.mac());
  one.send(1, two.mac(), one.mac());
  a.exchange();
  EXPECT_EQ(two.received(0), 0U);
  EXPECT_EQ(two.received(1), 1U);
  EXPECT_EQ(one.uplinks.without_peer(), 1U);
}

TEST_F(LinkUplinks, WithoutPeersFramesAreCountedAndGone) {
  Server one(1);
  one.send(0, 0xffff'ffff'ffff, one.mac());
  one.send(0, 0x024f'5202'0000, one.mac(), 13);  // shorter than a header: no frame at all
  EXPECT_EQ(one.uplinks.without_peer(), 1U);
  EXPECT_EQ(one.uplinks.total().sent, 0U);
}

TEST_F(LinkUplinks, WhatAPeerDoesntTakeInTimeIsDroppedAndCounted) {
  Server one(1);
  Server two(2);
  SessionSettings settings = settings_of(Role::connector, 1);
  settings.max_unsent = 5000;
  Joint a(one, two, settings, settings_of(Role::listener, 2));
  for (int i = 0; i < 10; ++i) {
    one.send(0, two.mac(), one.mac(), 1000);
  }
  EXPECT_EQ(a.left.counters().sent, 4U);
  EXPECT_EQ(a.left.counters().congested, 6U);
  a.exchange();
  EXPECT_EQ(two.received(), 4U);
}

}  // namespace
}  // namespace orrery::uplinks_test
