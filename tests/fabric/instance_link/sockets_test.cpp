// Links over real sockets: UNIX and TCP, refusals, a peer that goes and comes back, files and addresses that won't do.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>

#include "common/error.h"
#include "common/file_descriptor.h"
#include "common/listening_socket.h"
#include "common/log.h"
#include "fabric/instance_link/sockets.h"
#include "fabric/instance_link/token_file.h"
#include "tests/fabric/instance_link/link_rig.h"
#include "tests/fabric/support.h"

namespace orrery::sockets_test {
namespace {

using namespace orrery::instance_link;
using ::testing::HasSubstr;

class NoLocal final : public LocalAddresses {
 public:
  [[nodiscard]] bool is_local(unsigned /*plane*/, fabric::MacAddress /*address*/) const override { return false; }
};

struct Server {
  explicit Server(unsigned its_number)
      : number(its_number),
        uplinks(events, pool, 2, "server" + std::to_string(its_number), testing::addresses_of(its_number), local),
        arrived(events, pool) {
    uplinks.port(0).attach(arrived);
    uplinks.port(1).attach(arrived);
  }
  void send(std::uint64_t to, std::size_t size = 1000) {
    std::vector<std::byte> frame(size);
    for (unsigned i = 0; i < 6; ++i) {
      frame[i] = static_cast<std::byte>(to >> (40 - 8 * i));
      frame[6 + i] = static_cast<std::byte>(mac() >> (40 - 8 * i));
    }
    uplinks.port(0).send(fabric::packet_of(pool, pool.make_frame(frame)));
  }
  [[nodiscard]] std::uint64_t mac() const { return testing::addresses_of(number)[0].first; }

  unsigned number;
  EventQueue events;
  fabric::PacketPool pool;
  NoLocal local;
  Uplinks uplinks;
  fabric::testing::Collector arrived;
};

class LinkSockets : public ::testing::Test {
 protected:
  LinkSockets() {
    std::string name = std::filesystem::temp_directory_path() / "orrery-link-XXXXXX";
    directory = ::mkdtemp(name.data());
    set_log_file(directory / "log");
    token = write("token", "a secret of 24 bytes  ok", 0600);
  }
  ~LinkSockets() override {
    set_log_file({});
    std::filesystem::remove_all(directory);
  }
  std::string write(const std::string& name, const std::string& text, mode_t mode) const {
    std::string path = directory / name;
    std::ofstream(path) << text;
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
  }
  [[nodiscard]] std::string log_text() const {
    std::ifstream file(directory / "log");
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  [[nodiscard]] LinkOptions options(bool listen, const Endpoint& endpoint) const {
    return {"network.link.0", listen, endpoint, token, {}, 3};
  }
  [[nodiscard]] Endpoint unix_endpoint() const { return parse_endpoint("unix:" + (directory / "link").string()); }
  // Turns of the loop until it is so; false after 10 s.
  bool run_until(const std::function<bool()>& done, std::initializer_list<Sockets*> all) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!done()) {
      if (std::chrono::steady_clock::now() > end) {
        return false;
      }
      for (Sockets* each : all) {
        each->resume();
      }
      io.run_one_for(std::chrono::milliseconds(20));
      io.restart();
    }
    return true;
  }
  void exchange(const Endpoint& listen) {
    Server one(1);
    Server two(2);
    Sockets a(io, one.uplinks, {options(true, listen)});
    Sockets b(io, two.uplinks, {options(false, a.endpoint(0))});
    ASSERT_TRUE(run_until([&] { return one.uplinks.peers() == 1 && two.uplinks.peers() == 1; }, {&a, &b}));
    constexpr std::size_t frames = 3000;  // more than the sockets' buffers hold
    for (std::size_t i = 0; i < frames; ++i) {
      one.send(two.mac(), 9000);
      two.send(one.mac(), 60 + i % 1000);
    }
    ASSERT_TRUE(run_until([&] { return one.arrived.packets.size() == frames && two.arrived.packets.size() == frames; },
                          {&a, &b}));
    EXPECT_EQ(one.uplinks.total().congested, 0U);
  }

  std::filesystem::path directory;
  std::string token;
  boost::asio::io_context io;
};

TEST_F(LinkSockets, CarryFramesOverAUnixSocket) {
  exchange(unix_endpoint());
  struct stat status {};
  EXPECT_NE(::stat((directory / "link").c_str(), &status), 0) << "the socket is removed";
}

TEST_F(LinkSockets, CarryFramesOverTcp) {
  exchange(parse_endpoint("tcp:0"));
  EXPECT_THAT(log_text(), HasSubstr("linked to server2 over tcp:127.0.0.1:"));
}

TEST_F(LinkSockets, TheUnixSocketIsPrivate) {
  Server one(1);
  Sockets a(io, one.uplinks, {options(true, unix_endpoint())});
  struct stat status {};
  ASSERT_EQ(::stat((directory / "link").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
  ASSERT_EQ(::chmod(directory.c_str(), 0755), 0);
  LinkOptions other = options(true, parse_endpoint("unix:" + (directory / "other").string()));
  try {
    Sockets b(io, one.uplinks, {other});
    FAIL() << "a directory that others may enter";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("network.link.0: "));
    EXPECT_THAT(error.what(), HasSubstr("open to other users"));
  }
}

TEST_F(LinkSockets, AConnectorWaitsForItsPeerAndComesBackToIt) {
  Server one(1);
  Server two(2);
  Sockets connector(io, two.uplinks, {options(false, unix_endpoint())});
  ASSERT_TRUE(run_until([&] { return log_text().find("nobody listens on") != std::string::npos; }, {&connector}));
  for (unsigned life = 1; life <= 2; ++life) {
    Sockets listener(io, one.uplinks, {options(true, unix_endpoint())});
    ASSERT_TRUE(
        run_until([&] { return one.uplinks.peers() == 1 && two.uplinks.peers() == 1; }, {&connector, &listener}));
    EXPECT_EQ(connector.counters().opened, life);
    two.send(one.mac());
    ASSERT_TRUE(run_until([&] { return one.arrived.packets.size() == life; }, {&connector, &listener}));
  }
  ASSERT_TRUE(run_until([&] { return two.uplinks.peers() == 0; }, {&connector}));
  EXPECT_EQ(connector.counters().lost, 2U);
  EXPECT_THAT(log_text(), HasSubstr("the link to server1 has ended: the server has stopped"));
}

TEST_F(LinkSockets, AnotherTokenIsSaidOnBothSidesAndNoFrameCrosses) {
  Server one(1);
  Server two(2);
  Sockets a(io, one.uplinks, {options(true, unix_endpoint())});
  LinkOptions wrong = options(false, unix_endpoint());
  wrong.token_file = write("other", "another secret, as long", 0400);
  Sockets b(io, two.uplinks, {wrong});
  ASSERT_TRUE(run_until([&] { return a.counters().refused == 1 && b.counters().refused == 1; }, {&a, &b}));
  EXPECT_EQ(one.uplinks.peers() + two.uplinks.peers(), 0U);
  EXPECT_THAT(log_text(), HasSubstr("no link with server2: the shared token differs"));
  EXPECT_THAT(log_text(),
              HasSubstr("no link with server1: it says: the shared token differs; give both sides the same"));
}

TEST_F(LinkSockets, TheSameServerIndexTwiceIsSaid) {
  Server one(1);
  Server twin(1);
  Sockets a(io, one.uplinks, {options(true, unix_endpoint())});
  Sockets b(io, twin.uplinks, {options(false, unix_endpoint())});
  ASSERT_TRUE(run_until([&] { return a.counters().refused == 1 && b.counters().refused == 1; }, {&a, &b}));
  EXPECT_THAT(log_text(), HasSubstr("RNICs of two servers have the same addresses; give each server a server.index"));
}

FileDescriptor connect_to(const Endpoint& endpoint) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(endpoint.port);
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  return socket;
}

TEST_F(LinkSockets, StrangersAndCrowdsAreTurnedAwayWhileALinkWorks) {
  Server one(1);
  Server two(2);
  Sockets a(io, one.uplinks, {options(true, parse_endpoint("tcp:0"))});
  Sockets b(io, two.uplinks, {options(false, a.endpoint(0))});
  ASSERT_TRUE(run_until([&] { return one.uplinks.peers() == 1 && two.uplinks.peers() == 1; }, {&a, &b}));
  std::vector<FileDescriptor> crowd;  // says nothing
  for (int i = 0; i < 70; ++i) {
    crowd.push_back(connect_to(a.endpoint(0)));
    if (i % 8 == 0) {
      run_until([turns = 0]() mutable { return ++turns > 20; }, {&a, &b});
    }
  }
  const std::string http = "GET / HTTP/1.1\r\n\r\n";
  ASSERT_EQ(::send(crowd[0].get(), http.data(), http.size(), MSG_NOSIGNAL), static_cast<ssize_t>(http.size()));
  ASSERT_TRUE(run_until([&] { return a.counters().refused >= 7; }, {&a, &b}));
  two.send(one.mac());
  ASSERT_TRUE(run_until([&] { return one.arrived.packets.size() == 1; }, {&a, &b}));
  EXPECT_EQ(one.uplinks.peers(), 1U);
  EXPECT_THAT(log_text(), HasSubstr("isn't an Orrery instance link"));
}

TEST_F(LinkSockets, APeerThatDiesIsNoticed) {
  Server one(1);
  Server two(2);
  Sockets a(io, one.uplinks, {options(true, parse_endpoint("tcp:0"))});
  auto b = std::make_unique<Sockets>(io, two.uplinks, std::vector{options(false, a.endpoint(0))});
  ASSERT_TRUE(run_until([&] { return one.uplinks.peers() == 1 && two.uplinks.peers() == 1; }, {&a, b.get()}));
  b.reset();
  ASSERT_TRUE(run_until([&] { return one.uplinks.peers() == 0; }, {&a}));
  EXPECT_EQ(a.counters().lost, 1U);
}

TEST_F(LinkSockets, AnAddressInUseIsNamed) {
  Server one(1);
  Sockets a(io, one.uplinks, {options(true, parse_endpoint("tcp:0"))});
  try {
    Sockets b(io, one.uplinks, {options(true, a.endpoint(0))});
    FAIL() << "twice the same port";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("network.link.0: can't listen on " + a.endpoint(0).text()));
  }
}

TEST_F(LinkSockets, ATokenFileMustBeASecret) {
  const auto refused = [](const std::string& path) {
    try {
      static_cast<void>(read_token(path));
    } catch (const Error& error) {
      EXPECT_NE(error.remedy(), "");
      EXPECT_THAT(error.what(), HasSubstr("token file " + path));
      return std::string(error.what());
    }
    return std::string("taken");
  };
  EXPECT_THAT(refused((directory / "none").string()), HasSubstr("No such file"));
  EXPECT_THAT(refused(directory.string()), HasSubstr("isn't a regular file"));
  EXPECT_THAT(refused(write("open", "0123456789abcdef", 0640)), HasSubstr("mode 0640"));
  EXPECT_THAT(refused(write("short", "0123456789abcde\n\n \n", 0600)), HasSubstr("15 bytes"));
  EXPECT_THAT(refused(write("long", std::string(4097, 'x'), 0600)), HasSubstr("more than 4096"));
  EXPECT_EQ(refused(write("good", "0123456789abcdef\n", 0600)), "taken");
  EXPECT_EQ(read_token(write("good", "0123456789abcdef\r\n", 0600)), testing::bytes_of("0123456789abcdef"));
}

}  // namespace
}  // namespace orrery::sockets_test
