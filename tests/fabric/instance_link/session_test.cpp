// One connection of an instance link: the handshake, who gets in and who doesn't, and what a hostile peer may send.
#include <gtest/gtest.h>

#include <numeric>

#include "fabric/instance_link/proof.h"
#include "fabric/instance_link/session.h"
#include "tests/fabric/instance_link/link_rig.h"

namespace orrery::session_test {
namespace {

using namespace orrery::instance_link;
using testing::bytes_of;
using testing::converse;
using testing::End;
using testing::message;
using testing::settings_of;

using State = Session::State;
using Closed = std::pair<Refusal, bool>;

std::vector<std::byte> some_frame(std::size_t size = 100) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>(i * 7);
  }
  return bytes;
}

class LinkSession : public ::testing::Test {
 protected:
  LinkSession() : LinkSession(settings_of(Role::connector, 1), settings_of(Role::listener, 2)) {}
  LinkSession(SessionSettings a, SessionSettings b) : connector(std::move(a)), listener(std::move(b)) {}
  void start() {
    connector.session.start();
    listener.session.start();
  }
  void open() {
    start();
    converse(connector, listener);
    ASSERT_EQ(connector.session.state(), State::open);
    ASSERT_EQ(listener.session.state(), State::open);
  }
  // What both ends hear in the end, with these settings.
  static std::pair<std::vector<Closed>, std::vector<Closed>> ends_of(SessionSettings a, SessionSettings b) {
    End one(std::move(a));
    End other(std::move(b));
    one.session.start();
    other.session.start();
    converse(one, other);
    EXPECT_TRUE(one.heard.closed.empty() || (one.session.state() == State::closed && one.heard.frames.empty()));
    return {one.heard.closed, other.heard.closed};
  }
  End connector;
  End listener;
};

TEST_F(LinkSession, OpensAndCarriesFramesBothWays) {
  open();
  ASSERT_EQ(connector.heard.peers.size(), 1U);
  EXPECT_EQ(connector.heard.peers[0].name, "server2");
  EXPECT_EQ(listener.heard.peers[0].addresses, testing::addresses_of(1));
  EXPECT_EQ(connector.session.version(), newest_version);
  EXPECT_TRUE(connector.send(0, {5}, some_frame(), frame_flag::roce));
  EXPECT_TRUE(connector.send(1, {5}, some_frame(fabric::max_frame_bytes)));
  EXPECT_TRUE(listener.send(1, {9}, some_frame(14), frame_flag::bad_icrc));
  converse(connector, listener);
  ASSERT_EQ(listener.heard.frames.size(), 2U);
  EXPECT_EQ(listener.heard.frames[0].bytes, some_frame());
  EXPECT_EQ(listener.heard.frames[0].flags, frame_flag::roce);
  EXPECT_EQ(listener.heard.frames[0].time, Picoseconds{5});
  EXPECT_EQ(listener.heard.frames[1].bytes, some_frame(fabric::max_frame_bytes));
  ASSERT_EQ(connector.heard.frames.size(), 1U);
  EXPECT_EQ(connector.heard.frames[0].plane, 1U);
  EXPECT_TRUE(listener.heard.closed.empty());
}

TEST_F(LinkSession, TheSameBytesInAnyPiecesAreTheSame) {
  start();
  std::vector<std::byte> said;
  for (int turn = 0; turn < 4; ++turn) {  // byte by byte
    for (const std::byte byte : connector.take()) {
      listener.session.receive({&byte, 1});
    }
    for (const std::byte byte : listener.take()) {
      connector.session.receive({&byte, 1});
    }
  }
  ASSERT_EQ(listener.session.state(), State::open);
  for (unsigned i = 0; i < 50; ++i) {
    EXPECT_TRUE(connector.send(0, {i}, some_frame(14 + i)));
  }
  said = connector.take();
  for (std::size_t at = 0, piece = 1; at < said.size(); at += piece, piece = piece % 37 + 1) {
    listener.session.receive(std::span(said).subspan(at, std::min(piece, said.size() - at)));
  }
  ASSERT_EQ(listener.heard.frames.size(), 50U);
  EXPECT_EQ(listener.heard.frames[49].bytes, some_frame(63));
}

TEST_F(LinkSession, ATokenThatDiffersIsFoundByTheListenerFirst) {
  SessionSettings wrong = settings_of(Role::connector, 1);
  wrong.token.back() ^= std::byte{1};
  const auto [one, other] = ends_of(wrong, settings_of(Role::listener, 2));
  EXPECT_EQ(one, std::vector<Closed>({{Refusal::token, true}}));
  EXPECT_EQ(other, std::vector<Closed>({{Refusal::token, false}}));
}

TEST_F(LinkSession, AListenerWithoutTheTokenIsFoundByTheConnector) {
  open();  // a listener that takes any proof, and sends one of its own making
  End victim(settings_of(Role::connector, 1));
  victim.session.start();
  static_cast<void>(victim.take());
  Hello hello;
  hello.planes = 3;
  hello.name = "evil";
  victim.session.receive(message(MessageType::hello, 0, encode_hello(hello)));
  static_cast<void>(victim.take());
  victim.session.receive(message(MessageType::proof, 1, std::vector<std::byte>(32)));
  EXPECT_EQ(victim.heard.closed, std::vector<Closed>({{Refusal::token, false}}));
  EXPECT_TRUE(victim.heard.peers.empty());
}

TEST_F(LinkSession, TheTokenIsNeverSaid) {
  start();
  std::string said;
  for (int turn = 0; turn < 4; ++turn) {
    const auto from_connector = connector.take();
    const auto from_listener = listener.take();
    said.append(reinterpret_cast<const char*>(from_connector.data()), from_connector.size());
    said.append(reinterpret_cast<const char*>(from_listener.data()), from_listener.size());
    listener.session.receive(from_connector);
    connector.session.receive(from_listener);
  }
  ASSERT_EQ(listener.session.state(), State::open);
  EXPECT_EQ(said.find("horse"), std::string::npos);
}

TEST_F(LinkSession, ARecordedHandshakeOpensNothing) {
  start();
  std::vector<std::byte> recorded;  // all that the connector ever says
  for (int turn = 0; turn < 4; ++turn) {
    const auto said = connector.take();
    recorded.insert(recorded.end(), said.begin(), said.end());
    listener.session.receive(said);
    connector.session.receive(listener.take());
  }
  ASSERT_EQ(listener.session.state(), State::open);
  SessionSettings settings = settings_of(Role::listener, 2);
  settings.nonce.fill(std::byte{0x99});  // as every connection has its own
  End again(settings);
  again.session.start();
  again.session.receive(recorded);
  EXPECT_EQ(again.heard.closed, std::vector<Closed>({{Refusal::token, false}}));
  EXPECT_TRUE(again.heard.peers.empty());
  EXPECT_TRUE(again.heard.frames.empty());
}

TEST_F(LinkSession, OnesOwnWordsSentBackAreNoProof) {
  start();
  const auto hello = connector.take();
  connector.session.receive(hello);
  EXPECT_EQ(connector.heard.closed, std::vector<Closed>({{Refusal::role, false}}));

  // With the role changed in the clear, the proof still says who made it.
  End victim(settings_of(Role::connector, 3));
  victim.session.start();
  std::vector<std::byte> reflected = victim.take();
  reflected[header_bytes + 12] = static_cast<std::byte>(Role::listener);
  victim.session.receive(reflected);
  ASSERT_EQ(victim.session.state(), State::proof);
  std::vector<std::byte> proof = victim.take();
  victim.session.receive(proof);
  EXPECT_EQ(victim.heard.closed, std::vector<Closed>({{Refusal::token, false}}));
}

TEST_F(LinkSession, AHelloThatWasChangedOnTheWayIsFound) {
  for (const std::size_t at : {14U, 20U, 56U}) {  // planes, nonce, name
    End one(settings_of(Role::connector, 1));
    End other(settings_of(Role::listener, 2));
    one.session.start();
    other.session.start();
    std::vector<std::byte> hello = one.take();
    hello[header_bytes + at] ^= std::byte{1};
    other.session.receive(hello);
    converse(one, other);
    EXPECT_EQ(other.heard.closed, std::vector<Closed>({{Refusal::token, false}})) << at;
    EXPECT_TRUE(other.heard.peers.empty());
  }
}

TEST_F(LinkSession, WhatDoesntFitTogetherIsRefusedByName) {
  const SessionSettings one = settings_of(Role::connector, 1);
  const SessionSettings other = settings_of(Role::listener, 2);
  const auto reason = [&](auto change_one, auto change_other) {
    SessionSettings a = one;
    SessionSettings b = other;
    change_one(a);
    change_other(b);
    const auto [first, second] = ends_of(a, b);
    EXPECT_EQ(first.size(), 1U);
    EXPECT_EQ(second.size(), 1U);
    EXPECT_EQ(first.at(0).first, second.at(0).first);
    return second.at(0).first;
  };
  const auto nothing = [](SessionSettings&) {};
  EXPECT_EQ(reason([](SessionSettings& s) { s.timed = true; }, nothing), Refusal::time_mode);
  EXPECT_EQ(reason([](SessionSettings& s) { s.planes = 1; }, [](SessionSettings& s) { s.planes = 2; }),
            Refusal::planes);
  EXPECT_EQ(reason(nothing, [](SessionSettings& s) { s.expected_peer = "server7"; }), Refusal::name);
  EXPECT_EQ(reason([](SessionSettings& s) { s.expected_peer = "server7"; }, nothing), Refusal::name);
}

TEST_F(LinkSession, ARefusalOfTheHostReachesThePeer) {
  listener.heard.answer = Refusal::duplicate_address;
  start();
  converse(connector, listener);
  EXPECT_EQ(connector.heard.closed, std::vector<Closed>({{Refusal::duplicate_address, true}}));
  EXPECT_TRUE(connector.heard.peers.empty());
}

TEST_F(LinkSession, AnotherVersionIsNamedWhateverElseItsHelloHolds) {
  ByteWriter body;
  body.put(std::as_bytes(std::span("ORRYLINK", 8)));
  body.put(std::uint16_t{7});
  body.put(std::uint16_t{9});
  body.put(std::as_bytes(std::span("a layout of the future", 22)));
  start();
  listener.session.receive(message(MessageType::hello, 0, body.bytes()));
  EXPECT_EQ(listener.heard.closed, std::vector<Closed>({{Refusal::version, false}}));
  connector.session.receive(listener.take());
  EXPECT_EQ(connector.heard.closed, std::vector<Closed>({{Refusal::version, true}}));
}

TEST_F(LinkSession, StrangersAreRecognised) {
  for (const char* text : {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n"}) {
    End end(settings_of(Role::listener, 2));
    end.session.start();
    EXPECT_FALSE(end.session.has_output());  // it doesn't speak first
    end.session.receive(bytes_of(text));
    EXPECT_EQ(end.heard.closed, std::vector<Closed>({{Refusal::not_a_link, false}}));
    EXPECT_FALSE(end.session.has_output());
  }
}

TEST_F(LinkSession, NoFrameBeforeTheProof) {
  std::vector<std::byte> body(frame_prefix_bytes);
  encode_frame_prefix({{1}, 0, 0, {}}, body);
  const auto bytes = some_frame();
  body.insert(body.end(), bytes.begin(), bytes.end());
  End early(settings_of(Role::listener, 2));
  early.session.start();
  early.session.receive(message(MessageType::frame, 0, body));
  EXPECT_EQ(early.heard.closed, std::vector<Closed>({{Refusal::not_a_link, false}}));

  start();
  listener.session.receive(connector.take());
  ASSERT_EQ(listener.session.state(), State::proof);
  listener.session.receive(message(MessageType::frame, 1, body));
  EXPECT_EQ(listener.heard.closed, std::vector<Closed>({{Refusal::protocol, false}}));
  EXPECT_TRUE(listener.heard.frames.empty());
  EXPECT_TRUE(connector.session.begin_frame(64).empty());
}

// What may come once a link is open, and ends it.
struct BadMessage {
  const char* what;
  std::vector<std::byte> bytes;
};
TEST_F(LinkSession, WhatBreaksTheProtocolEndsTheLinkBeforeAnythingIsDelivered) {
  std::vector<std::byte> body(frame_prefix_bytes + 60);
  encode_frame_prefix({{100}, 0, 0, {}}, body);
  const auto changed = [&](std::size_t at, unsigned value) {
    std::vector<std::byte> bytes = message(MessageType::frame, 3, body);
    bytes.at(at) = static_cast<std::byte>(value);
    return bytes;
  };
  std::vector<std::byte> earlier = body;
  encode_frame_prefix({{9}, 0, 0, {}}, earlier);
  std::vector<std::byte> too_long(frame_prefix_bytes + fabric::max_frame_bytes + 1);
  const std::vector<BadMessage> rows = {
      {"reordered", message(MessageType::frame, 4, body)},
      {"repeated", message(MessageType::frame, 2, body)},
      {"of an unknown type", message(static_cast<MessageType>(9), 3, body)},
      {"a second hello", message(MessageType::hello, 3, encode_hello({}))},
      {"a second proof", message(MessageType::proof, 3, std::vector<std::byte>(32))},
      {"shorter than its header", changed(0, 15)},
      {"oversized", message(MessageType::frame, 3, too_long)},
      {"of 4 GiB", changed(3, 0xff)},
      {"reserved bits", changed(6, 1)},
      {"a plane that isn't common", changed(header_bytes + 8, 2)},
      {"an unknown flag", changed(header_bytes + 9, 0x80)},
      {"from the past", message(MessageType::frame, 3, earlier)},
      {"a frame without an Ethernet header", message(MessageType::frame, 3, std::span(body).first(25))},
      {"a goodbye of the wrong size", message(MessageType::goodbye, 3, std::span(body).first(3))},
  };
  for (const BadMessage& row : rows) {
    End one(settings_of(Role::connector, 1));
    End other(settings_of(Role::listener, 2));
    one.session.start();
    other.session.start();
    converse(one, other);
    EXPECT_TRUE(one.send(0, {10}, some_frame()));  // sequence number 2
    converse(one, other);
    ASSERT_EQ(other.heard.frames.size(), 1U) << row.what;
    other.session.receive(row.bytes);
    EXPECT_EQ(other.heard.closed, std::vector<Closed>({{Refusal::protocol, false}})) << row.what;
    EXPECT_EQ(other.heard.frames.size(), 1U) << row.what;
    // For good: nothing opens it again.
    other.session.receive(message(MessageType::frame, 3, body));
    EXPECT_EQ(other.heard.frames.size(), 1U) << row.what;
    one.session.receive(other.take());
    EXPECT_EQ(one.heard.closed, std::vector<Closed>({{Refusal::protocol, true}})) << row.what;
  }
}

TEST_F(LinkSession, ATruncatedMessageDeliversNothing) {
  open();
  EXPECT_TRUE(connector.send(0, {1}, some_frame()));
  const auto said = connector.take();
  listener.session.receive(std::span(said).first(said.size() - 1));
  EXPECT_TRUE(listener.heard.frames.empty());
  listener.session.lost();
  EXPECT_EQ(listener.heard.closed, std::vector<Closed>({{Refusal::connection_lost, false}}));
  EXPECT_TRUE(listener.heard.frames.empty());
}

TEST_F(LinkSession, HandshakeMessagesAreSmall) {
  start();
  listener.session.receive(message(MessageType::hello, 0, std::vector<std::byte>(max_handshake_bytes)));
  EXPECT_EQ(listener.heard.closed, std::vector<Closed>({{Refusal::not_a_link, false}}));
}

TEST_F(LinkSession, APeerThatDoesntReadGetsNoMoreThanTheLimit) {
  SessionSettings settings = settings_of(Role::connector, 1);
  settings.max_unsent = 10'000;
  End one(settings);
  End other(settings_of(Role::listener, 2));
  one.session.start();
  other.session.start();
  converse(one, other);
  unsigned taken = 0;
  while (one.send(0, {1}, some_frame(1000)) && taken < 100) {
    ++taken;
  }
  EXPECT_EQ(taken, 9U);  // of 1028 bytes each
  const auto said = one.take();
  EXPECT_LE(said.size(), 10'000U);
  other.session.receive(said);
  EXPECT_EQ(other.heard.frames.size(), 9U);
  EXPECT_TRUE(one.send(0, {1}, some_frame(1000)));
}

TEST_F(LinkSession, AnEndInOrderIsTold) {
  open();
  connector.session.close(Refusal::stopped);
  EXPECT_EQ(connector.heard.closed, std::vector<Closed>({{Refusal::stopped, false}}));
  listener.session.receive(connector.take());
  EXPECT_EQ(listener.heard.closed, std::vector<Closed>({{Refusal::stopped, true}}));
  connector.session.close(Refusal::protocol);
  connector.session.lost();
  EXPECT_EQ(connector.heard.closed.size(), 1U);
}

}  // namespace
}  // namespace orrery::session_test
