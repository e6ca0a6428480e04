#include "qemu_bridge/launcher/qmp_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "fake_peer.h"

namespace orrery::bridge::qmp_client_test {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using testing::FakePeer;
using ::testing::HasSubstr;
using testing::PeerConnection;

const json greeting = {{"QMP", {{"version", json::object()}, {"capabilities", json::array()}}}};

// Greeting and the answer to qmp_capabilities.
bool handshake(PeerConnection& peer) {
  peer.send_json(greeting);
  const json request = peer.request();
  if (!request.is_object() || request.value("execute", "") != "qmp_capabilities") {
    return false;
  }
  return peer.send_json(json{{"return", json::object()}, {"id", request["id"]}});
}

class QmpClientTest : public ::testing::Test {
 protected:
  std::string connect(const std::string& path, std::chrono::milliseconds limit = 5s) {
    std::optional<std::string> failure;
    client.connect(path, limit, [&](const std::string& f) { failure = f; });
    EXPECT_FALSE(failure) << "called from inside the call";
    run([&] { return failure.has_value(); });
    return failure.value_or("no answer at all");
  }
  QmpReply execute(const std::string& command, const json& arguments = json::object(),
                   std::chrono::milliseconds limit = 5s) {
    std::optional<QmpReply> reply;
    client.execute(command, arguments, limit, [&](const QmpReply& r) { reply = r; });
    EXPECT_FALSE(reply) << "called from inside the call";
    run([&] { return reply.has_value(); });
    return reply.value_or(QmpReply{});
  }
  std::string replug(const json& device, std::chrono::milliseconds limit = 5s) {
    std::optional<std::string> failure;
    client.replug(device, limit, [&](const std::string& f) { failure = f; });
    run([&] { return failure.has_value(); });
    return failure.value_or("no answer at all");
  }
  void run(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + 10s;
    while (!done() && std::chrono::steady_clock::now() < deadline) {
      io.restart();
      io.run_one_for(50ms);
    }
  }
  boost::asio::io_context io;
  QmpClient client{io};
};

TEST_F(QmpClientTest, ExecutesCommandsWithTheirArguments) {
  json seen;
  FakePeer peer([&](PeerConnection& p) {
    ASSERT_TRUE(handshake(p));
    seen = p.request();
    p.send_json(json{{"return", {{"status", "running"}}}, {"id", seen["id"]}});
    p.drain();
  });
  ASSERT_EQ(connect(peer.path()), "");
  const QmpReply reply = execute("query-status", {{"a", 1}});
  client.close();
  EXPECT_TRUE(reply.ok);
  EXPECT_EQ(reply.value["status"], "running");
  EXPECT_EQ(seen["execute"], "query-status");
  EXPECT_EQ(seen["arguments"], (json{{"a", 1}}));
}

TEST_F(QmpClientTest, AnswersMatchByIdWhateverTheirOrder) {
  FakePeer peer([](PeerConnection& p) {
    ASSERT_TRUE(handshake(p));
    const json first = p.request();
    const json second = p.request();
    p.send_json(json{{"return", "nobody asked"}, {"id", 4711}});
    p.send_json(json{{"return", "no id"}});
    p.send_json(json{{"return", "second"}, {"id", second["id"]}});
    p.send_json(json{{"return", "first"}, {"id", first["id"]}});
    p.drain();
  });
  ASSERT_EQ(connect(peer.path()), "");
  std::vector<std::string> answers;
  client.execute("first", {}, 5s, [&](const QmpReply& r) { answers.push_back("1:" + r.value.get<std::string>()); });
  client.execute("second", {}, 5s, [&](const QmpReply& r) { answers.push_back("2:" + r.value.get<std::string>()); });
  run([&] { return answers.size() == 2; });
  client.close();
  EXPECT_THAT(answers, ::testing::ElementsAre("2:second", "1:first"));
}

TEST_F(QmpClientTest, ErrorAnswerKeepsClassAndText) {
  FakePeer peer([](PeerConnection& p) {
    ASSERT_TRUE(handshake(p));
    const json r = p.request();
    p.send_json(
        json{{"error", {{"class", "CommandNotFound"}, {"desc", "no \x1b[31mred\x1b[0m command"}}}, {"id", r["id"]}});
    p.drain();
  });
  ASSERT_EQ(connect(peer.path()), "");
  const QmpReply reply = execute("nonsense");
  client.close();
  EXPECT_FALSE(reply.ok);
  EXPECT_EQ(reply.error_class, "CommandNotFound");
  EXPECT_EQ(reply.error_text, "no red command");
}

TEST_F(QmpClientTest, MessagesSplitAnywhereAndJoinedAreUnderstood) {
  FakePeer peer([](PeerConnection& p) {
    for (const char c : greeting.dump() + "\r\n") {
      p.send(std::string_view(&c, 1));
    }
    const json r = p.request();
    p.send(json{{"event", "A"}}.dump() + "\n" + json{{"return", json::object()}, {"id", r["id"]}}.dump() + "\n" +
           json{{"event", "B"}, {"data", {{"x", 1}}}}.dump() + "\n");
    p.drain();
  });
  std::vector<std::string> events;
  client.on_event([&](const std::string& name, const json& data) { events.push_back(name + data.dump()); });
  ASSERT_EQ(connect(peer.path()), "");
  run([&] { return events.size() == 2; });
  client.close();
  EXPECT_THAT(events, ::testing::ElementsAre("A{}", R"(B{"x":1})"));
}

TEST_F(QmpClientTest, SocketThatAppearsLateIsWaitedFor) {
  FakePeer peer([](PeerConnection& p) {
    handshake(p);
    p.drain();
  });
  const std::string late = peer.path() + "-late";
  std::thread renamer([&] {
    std::this_thread::sleep_for(150ms);
    std::filesystem::rename(peer.path(), late);
  });
  EXPECT_EQ(connect(late), "");
  renamer.join();
  client.close();
}

TEST_F(QmpClientTest, SocketThatNeverAppearsIsNamed) {
  EXPECT_THAT(connect("/nonexistent/qmp", 100ms), HasSubstr("/nonexistent/qmp"));
  EXPECT_FALSE(client.connected());
  const QmpReply reply = execute("query-status");
  EXPECT_EQ(reply.error_class, "Closed");
}

TEST_F(QmpClientTest, PathTooLongForASocketIsAMessage) {
  EXPECT_THAT(connect("/tmp/" + std::string(200, 'x')), HasSubstr("longer"));
}

TEST_F(QmpClientTest, PeerThatNeverGreetsTimesOut) {
  FakePeer peer([](PeerConnection& p) { p.drain(); });
  EXPECT_THAT(connect(peer.path(), 200ms), HasSubstr("doesn't answer"));
}

TEST_F(QmpClientTest, CommandThatIsNeverAnsweredTimesOutAndALateAnswerIsDropped) {
  FakePeer peer([](PeerConnection& p) {
    ASSERT_TRUE(handshake(p));
    const json late = p.request();
    const json next = p.request();
    p.send_json(json{{"return", "late"}, {"id", late["id"]}});
    p.send_json(json{{"return", "next"}, {"id", next["id"]}});
    p.drain();
  });
  ASSERT_EQ(connect(peer.path()), "");
  EXPECT_EQ(execute("slow", json::object(), 100ms).error_class, "Timeout");
  EXPECT_EQ(execute("next").value, "next");
  client.close();
}

// What a hostile or broken peer may send instead of a greeting, and after it.
// What the hostile peer sends, made when it is sent.
std::string text_of(const std::pair<const char*, std::string>& peer) {
  const std::string_view name = peer.first;
  if (name == "EndlessLine") {
    return std::string(5 << 20, 'x');
  }
  return name == "DeeplyNested" ? std::string(1 << 20, '[') + "\n" : peer.second;
}

class QmpHostile : public QmpClientTest, public ::testing::WithParamInterface<std::pair<const char*, std::string>> {};

TEST_P(QmpHostile, InsteadOfTheGreeting) {
  FakePeer peer([](PeerConnection& p) { p.send(text_of(GetParam())); });
  EXPECT_NE(connect(peer.path(), 2s), "");
  EXPECT_FALSE(client.connected());
}

TEST_P(QmpHostile, InsteadOfAnAnswer) {
  FakePeer peer([](PeerConnection& p) {
    ASSERT_TRUE(handshake(p));
    p.line();
    p.send(text_of(GetParam()));
  });
  std::string closed;
  client.on_closed([&](const std::string& reason) { closed = reason; });
  ASSERT_EQ(connect(peer.path()), "");
  const QmpReply reply = execute("query-status", json::object(), 3s);
  EXPECT_FALSE(reply.ok);
  EXPECT_EQ(reply.error_class, "Closed");
  run([&] { return !closed.empty(); });
  EXPECT_NE(closed, "");
}

INSTANTIATE_TEST_SUITE_P(
    Peers, QmpHostile,
    ::testing::Values(std::pair{"Nothing", std::string()}, std::pair{"Garbage", std::string("\x00\xff\x80 what\n", 9)},
                      std::pair{"NotAnObject", std::string("[1,2,3]\n")},
                      std::pair{"Truncated", std::string("{\"QMP\": {")}, std::pair{"EndlessLine", std::string()},
                      std::pair{"DeeplyNested", std::string()},
                      std::pair{"WrongTypes",
                                std::string("{\"event\": 1, \"id\": -1, \"error\": []}\n{\"return\": {}, "
                                            "\"id\": \"1\"}\n{\"error\": 7, \"id\": 18446744073709551615}\n")}),
    [](const auto& peer) { return std::string(peer.param.first); });

TEST_F(QmpClientTest, ReplugWaitsForTheDeviceToGo) {
  std::vector<json> seen;
  FakePeer peer([&](PeerConnection& p) {
    ASSERT_TRUE(handshake(p));
    seen.push_back(p.request());
    p.send_json(json{{"return", json::object()}, {"id", seen[0]["id"]}});
    p.send_json(json{{"event", "DEVICE_DELETED"}, {"data", {{"device", "another"}}}});
    p.send_json(json{{"event", "DEVICE_DELETED"}, {"data", {{"path", "/machine/peripheral/gpu0/x"}}}});
    p.send_json(json{{"event", "DEVICE_DELETED"}, {"data", {{"device", "gpu0"}}}});
    seen.push_back(p.request());
    p.send_json(json{{"return", json::object()}, {"id", seen[1]["id"]}});
    p.drain();
  });
  ASSERT_EQ(connect(peer.path()), "");
  const json device = {{"driver", "vfio-user-pci"}, {"id", "gpu0"}, {"bus", "gpu0.port"}};
  EXPECT_EQ(replug(device), "");
  client.close();
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0]["execute"], "device_del");
  EXPECT_EQ(seen[0]["arguments"], (json{{"id", "gpu0"}}));
  EXPECT_EQ(seen[1]["execute"], "device_add");
  EXPECT_EQ(seen[1]["arguments"], device);
}

TEST_F(QmpClientTest, ReplugAddsADeviceThatIsGoneAlready) {
  FakePeer peer([](PeerConnection& p) {
    ASSERT_TRUE(handshake(p));
    p.send_json(
        json{{"error", {{"class", "DeviceNotFound"}, {"desc", "Device 'gpu0' not found"}}}, {"id", p.request()["id"]}});
    const json add = p.request();
    ASSERT_EQ(add["execute"], "device_add");
    p.send_json(json{{"error", {{"class", "GenericError"}, {"desc", "Connection refused"}}}, {"id", add["id"]}});
    p.drain();
  });
  ASSERT_EQ(connect(peer.path()), "");
  EXPECT_EQ(replug({{"id", "gpu0"}}), "gpu0 can't be plugged in again: Connection refused");
  client.close();
}

TEST_F(QmpClientTest, UnplugThatIsPendingAlreadyIsWaitedFor) {
  FakePeer peer([](PeerConnection& p) {
    ASSERT_TRUE(handshake(p));
    p.send_json(
        json{{"error", {{"class", "GenericError"}, {"desc", "Device gpu0 is already in the process of unplug"}}},
             {"id", p.request()["id"]}});
    p.send_json(json{{"event", "DEVICE_DELETED"}, {"data", {{"device", "gpu0"}}}});
    p.send_json(json{{"return", json::object()}, {"id", p.request()["id"]}});
    p.drain();
  });
  ASSERT_EQ(connect(peer.path()), "");
  EXPECT_EQ(replug({{"id", "gpu0"}}), "");
  client.close();
}

TEST_F(QmpClientTest, GuestThatKeepsTheDeviceIsAFailure) {
  FakePeer peer([](PeerConnection& p) {
    ASSERT_TRUE(handshake(p));
    p.send_json(json{{"return", json::object()}, {"id", p.request()["id"]}});
    p.drain();
  });
  ASSERT_EQ(connect(peer.path()), "");
  EXPECT_EQ(replug({{"id", "gpu0"}}, 100ms), "the guest didn't let go of gpu0 in time");
  client.close();
}

TEST_F(QmpClientTest, DestroyedClientCallsNothing) {
  FakePeer peer([](PeerConnection& p) {
    handshake(p);
    p.drain();
  });
  bool called = false;
  {
    QmpClient other(io);
    std::string failure = "pending";
    other.connect(peer.path(), 5s, [&](const std::string& f) { failure = f; });
    run([&] { return failure != "pending"; });
    ASSERT_EQ(failure, "");
    other.execute("query-status", {}, 50ms, [&](const QmpReply&) { called = true; });
    other.unplug("gpu0", 50ms, [&](const std::string&) { called = true; });
  }
  io.restart();
  io.run_for(150ms);
  EXPECT_FALSE(called);
}

TEST_F(QmpClientTest, AClientMayBeDestroyedByItsOwnHandler) {
  FakePeer peer([](PeerConnection& p) {
    ASSERT_TRUE(handshake(p));
    p.send_json(json{{"event", "SHUTDOWN"}});
    p.drain();
  });
  auto other = std::make_unique<QmpClient>(io);
  other->on_event([&](const std::string&, const json&) { other.reset(); });
  other->connect(peer.path(), 5s, [](const std::string&) {});
  run([&] { return other == nullptr; });
  EXPECT_EQ(other, nullptr);
}

}  // namespace
}  // namespace orrery::bridge::qmp_client_test
