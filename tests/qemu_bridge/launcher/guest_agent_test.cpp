#include "qemu_bridge/launcher/guest_agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "fake_peer.h"

namespace orrery::bridge::guest_agent_test {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using ::testing::ElementsAre;
using testing::FakePeer;
using ::testing::HasSubstr;
using testing::PeerConnection;

// Answers syncs until one is followed by something else, which it returns.
json after_sync(PeerConnection& peer, const std::string& noise = {}) {
  const json sync = peer.request();
  if (!sync.is_object() || sync.value("execute", "") != "guest-sync-delimited") {
    ADD_FAILURE() << "not a sync: " << sync.dump();
    return {};
  }
  peer.send(std::string_view(noise));
  peer.send("\xff" + json{{"return", sync["arguments"]["id"]}}.dump() + "\n");
  return peer.request();
}

class GuestAgentTest : public ::testing::Test {
 protected:
  GuestExecResult exec(const std::string& path, std::vector<std::string> command, std::string input = {},
                       std::chrono::milliseconds limit = 5s, std::chrono::milliseconds answer_limit = 3s) {
    GuestAgent agent(io, path);
    agent.set_answer_limit(answer_limit);
    std::optional<GuestExecResult> result;
    agent.exec(std::move(command), std::move(input), limit, [&](const GuestExecResult& r) { result = r; });
    EXPECT_FALSE(result) << "called from inside the call";
    const auto deadline = std::chrono::steady_clock::now() + 10s;
    while (!result && std::chrono::steady_clock::now() < deadline) {
      io.restart();
      io.run_one_for(50ms);
    }
    EXPECT_TRUE(result);
    GuestExecResult none;
    none.failure = "no result at all";
    return result.value_or(none);
  }
  boost::asio::io_context io;
};

TEST(Base64, AgreesWithTheVectorsOfRfc4648) {
  const std::vector<std::pair<std::string, std::string>> vectors{{"", ""},
                                                                 {"f", "Zg=="},
                                                                 {"fo", "Zm8="},
                                                                 {"foo", "Zm9v"},
                                                                 {"foob", "Zm9vYg=="},
                                                                 {"fooba", "Zm9vYmE="},
                                                                 {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : vectors) {
    EXPECT_EQ(base64_encode(bytes), text);
    std::string decoded = "left over";
    EXPECT_TRUE(base64_decode(text, decoded));
    EXPECT_EQ(decoded, bytes);
  }
}

TEST(Base64, EveryByteSurvivesAndBadTextIsRefused) {
  std::string all;
  for (int i = 0; i < 256; ++i) {
    all += static_cast<char>(i);
  }
  std::string decoded;
  EXPECT_TRUE(base64_decode(base64_encode(all), decoded));
  EXPECT_EQ(decoded, all);
  for (const char* bad : {"Z", "Zg=", "Z===", "Zg==Zg==", "Zm9\n", "Zg=v", "====", "Zm 9"}) {
    EXPECT_FALSE(base64_decode(bad, decoded)) << bad;
  }
}

TEST_F(GuestAgentTest, RunsACommandAndBringsBackItsOutput) {
  json started;
  FakePeer peer([&](PeerConnection& p) {
    // Left over from an earlier conversation, half a message among it.
    started = after_sync(p, "{\"return\": 1}\n{\"error\": {}}\nhalf a mess");
    p.send_json(json{{"return", {{"pid", 42}}}});
    EXPECT_EQ(p.request()["arguments"], (json{{"pid", 42}}));
    p.send_json(json{{"return", {{"exited", false}}}});
    p.request();
    p.send_json(json{
        {"return",
         {{"exited", true}, {"exitcode", 3}, {"out-data", "AAEK"}, {"err-data", "ZXJy"}, {"err-truncated", true}}}});
    p.drain();
  });
  const GuestExecResult result = exec(peer.path(), {"prog", "a b", "--c"}, std::string("\0in", 3));
  EXPECT_EQ(result.failure, "");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.output, std::string("\0\1\n", 3));
  EXPECT_EQ(result.errors, "err");
  EXPECT_FALSE(result.output_truncated);
  EXPECT_TRUE(result.errors_truncated);
  EXPECT_EQ(started["execute"], "guest-exec");
  EXPECT_EQ(started["arguments"]["path"], "prog");
  EXPECT_EQ(started["arguments"]["arg"], (json{"a b", "--c"}));
  EXPECT_EQ(started["arguments"]["input-data"], "AGlu");
  EXPECT_EQ(started["arguments"]["capture-output"], true);
}

TEST_F(GuestAgentTest, ASignalIsGivenAsAShellGivesIt) {
  FakePeer peer([](PeerConnection& p) {
    after_sync(p);
    p.send_json(json{{"return", {{"pid", 1}}}});
    p.request();
    p.send_json(json{{"return", {{"exited", true}, {"signal", 9}}}});
    p.drain();
  });
  EXPECT_EQ(exec(peer.path(), {"x"}).exit_code, 137);
}

TEST_F(GuestAgentTest, GuestWithoutAnAgentSaysWhatIsNeeded) {
  FakePeer peer([](PeerConnection& p) { p.drain(); });
  const GuestExecResult result = exec(peer.path(), {"true"}, {}, 5s, 200ms);
  EXPECT_EQ(result.failure, "the guest's agent doesn't answer");
  EXPECT_THAT(result.remedy, HasSubstr("qemu-guest-agent"));
}

TEST_F(GuestAgentTest, AgentThatStartsLateIsAskedAgain) {
  FakePeer peer([](PeerConnection& p) {
    const json lost = p.request();  // as if no agent had the port open yet
    after_sync(p, "\xff" + json{{"return", lost["arguments"]["id"]}}.dump() + "\n");
    p.send_json(json{{"return", {{"pid", 1}}}});
    p.request();
    p.send_json(json{{"return", {{"exited", true}, {"exitcode", 0}}}});
    p.drain();
  });
  EXPECT_EQ(exec(peer.path(), {"x"}).failure, "");
}

TEST_F(GuestAgentTest, NoSocketIsNamed) {
  EXPECT_THAT(exec("/nonexistent/agent", {"x"}, {}, 100ms).failure, HasSubstr("/nonexistent/agent"));
}

TEST_F(GuestAgentTest, UnknownProgramIsTheAgentsOwnWords) {
  FakePeer peer([](PeerConnection& p) {
    after_sync(p);
    p.send_json(json{{"error", {{"class", "GenericError"}, {"desc", "Failed to execute child process \"x\""}}}});
    p.drain();
  });
  EXPECT_EQ(exec(peer.path(), {"x"}).failure, "the guest can't run x: Failed to execute child process \"x\"");
}

TEST_F(GuestAgentTest, BlockedGuestExecSaysWhereToAllowIt) {
  FakePeer peer([](PeerConnection& p) {
    after_sync(p);
    p.send_json(json{{"error", {{"class", "CommandNotFound"}, {"desc", "Command guest-exec has been disabled"}}}});
    p.drain();
  });
  const GuestExecResult result = exec(peer.path(), {"x"});
  EXPECT_THAT(result.failure, HasSubstr("disabled"));
  EXPECT_THAT(result.remedy, HasSubstr("qemu-ga.conf"));
}

TEST_F(GuestAgentTest, ACommandThatDoesNotEndIsKilledInTheGuest) {
  json kill;
  FakePeer peer([&](PeerConnection& p) {
    after_sync(p);
    p.send_json(json{{"return", {{"pid", 42}}}});
    while (true) {
      const json request = p.request();
      if (!request.is_object()) {
        return;
      }
      if (request["execute"] == "guest-exec") {
        kill = request;
        p.send_json(json{{"return", {{"pid", 43}}}});
      } else {
        p.send_json(json{{"return", {{"exited", false}}}});
      }
    }
  });
  EXPECT_EQ(exec(peer.path(), {"sleep"}, {}, 300ms).failure, "the command didn't end within 300 ms");
  EXPECT_EQ(kill["arguments"]["arg"], (json{"-KILL", "42"}));
}

// An agent that takes one client after the other; each is served until it goes.
class Agent {
 public:
  explicit Agent(unsigned clients, unsigned clients_until_exit)
      : peer_([this, clients_until_exit](PeerConnection& p) { serve(p, ++clients_ > clients_until_exit); }, clients) {}
  [[nodiscard]] const std::string& path() const { return peer_.path(); }
  [[nodiscard]] const std::vector<std::string>& commands() const { return commands_; }  // once the peer has ended

 private:
  void serve(PeerConnection& peer, bool exited) {
    for (json request = peer.request(); request.is_object(); request = peer.request()) {
      if (request["execute"] == "guest-sync-delimited") {
        peer.send("\xff" + json{{"return", request["arguments"]["id"]}}.dump() + "\n");
      } else if (request["execute"] == "guest-exec") {
        commands_.push_back(request["arguments"]["path"]);
        peer.send_json(json{{"return", {{"pid", 42}}}});
      } else {
        peer.send_json(json{{"return", {{"exited", exited}, {"exitcode", 7}}}});
      }
    }
  }
  unsigned clients_ = 0;
  std::vector<std::string> commands_;
  FakePeer peer_;  // its thread uses the others
};

// The socket is let go of between questions, and the command is not started again.
TEST_F(GuestAgentTest, ACommandThatLastsLeavesRoomForOthers) {
  std::vector<std::string> commands;
  {
    Agent agent(4, 3);
    const GuestExecResult result = exec(agent.path(), {"sleep"});
    EXPECT_EQ(result.failure, "");
    EXPECT_EQ(result.exit_code, 7);
    commands = agent.commands();
  }
  EXPECT_THAT(commands, ElementsAre("sleep"));
}

TEST_F(GuestAgentTest, ACommandThatLastsIsKilledOverANewConnection) {
  GuestExecResult result;
  std::vector<std::string> commands;
  {
    Agent agent(2, 2);
    result = exec(agent.path(), {"sleep"}, {}, 1300ms);
    commands = agent.commands();
  }
  EXPECT_EQ(result.failure, "the command didn't end within 1300 ms");
  EXPECT_EQ(result.remedy, "it was killed");
  EXPECT_THAT(commands, ElementsAre("sleep", "kill"));
}

TEST_F(GuestAgentTest, InputThatIsTooLongIsRefused) {
  EXPECT_THAT(exec("/nonexistent/agent", {"x"}, std::string((16 << 20) + 1, 'x')).failure, HasSubstr("16 MiB"));
}

// What the hostile agent sends. Made when it is sent: every test of this program is a process that would make
// all of them at its start.
std::string text_of(const std::pair<const char*, std::string>& answer) {
  return std::string_view(answer.first) == "EndlessLine" ? std::string(49 << 20, 'x') : answer.second;
}

class AgentHostile : public GuestAgentTest,
                     public ::testing::WithParamInterface<std::pair<const char*, std::string>> {};

// Whatever the guest answers to guest-exec or guest-exec-status: a failure, never a crash or a hang.
TEST_P(AgentHostile, ToGuestExec) {
  FakePeer peer([](PeerConnection& p) {
    after_sync(p);
    p.send(text_of(GetParam()));
  });
  EXPECT_NE(exec(peer.path(), {"x"}, {}, 2s).failure, "");
}

TEST_P(AgentHostile, ToGuestExecStatus) {
  FakePeer peer([](PeerConnection& p) {
    after_sync(p);
    p.send_json(json{{"return", {{"pid", 1}}}});
    p.request();
    p.send(text_of(GetParam()));
  });
  EXPECT_NE(exec(peer.path(), {"x"}, {}, 2s).failure, "");
}

INSTANTIATE_TEST_SUITE_P(
    Answers, AgentHostile,
    ::testing::Values(std::pair{"Gone", std::string()}, std::pair{"Garbage", std::string("\xff\xfe\x00\n", 4)},
                      std::pair{"NoReturn", std::string("{}\n")},
                      std::pair{"ReturnIsAList", std::string("{\"return\": [1]}\n")},
                      std::pair{"PidIsText", std::string("{\"return\": {\"pid\": \"1\", \"exited\": \"yes\"}}\n")},
                      std::pair{"NotBase64", std::string("{\"return\": {\"exited\": true, \"out-data\": \"!!!!\"}}\n")},
                      std::pair{"OutputIsANumber", std::string("{\"return\": {\"exited\": true, \"out-data\": 5}}\n")},
                      std::pair{"ErrorIsText", std::string("{\"error\": \"bad\"}\n")},
                      std::pair{"EndlessLine", std::string()}),
    [](const auto& answer) { return std::string(answer.param.first); });

}  // namespace
}  // namespace orrery::bridge::guest_agent_test
