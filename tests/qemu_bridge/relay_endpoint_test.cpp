// The relay on real sockets, between a client and servers that come and go.
#include "qemu_bridge/relay/relay_endpoint.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <thread>

#include "qemu_bridge/server.h"
#include "tests/qemu_bridge/relay_harness.h"

namespace orrery::bridge::test::relay_endpoint_test {
namespace {

class RelayEndpointTest : public testing::Test, public RelayObserver {
 protected:
  RelayEndpointTest() {
    std::string name = (std::filesystem::temp_directory_path() / "orrery-test-XXXXXX").string();
    directory = ::mkdtemp(name.data());
    thread = std::thread([this] { io.run(); });
  }
  // Runs f on the loop's thread and waits for it.
  template <class F>
  auto in_loop(F f) {
    std::packaged_task<decltype(f())()> task(std::move(f));
    auto result = task.get_future();
    boost::asio::post(io, [&task] { task(); });
    return result.get();
  }
  void TearDown() override {
    in_loop([this] {
      endpoint.reset();
      server.reset();
      return 0;
    });
    work.reset();
    thread.join();
    std::filesystem::remove_all(directory);
  }
  void start_server() {
    in_loop([this] {
      function.emplace(relayed_function());
      ServerOptions options;
      options.socket = directory / "fake0.sock";
      server = std::make_unique<Server>(io, *function, options);
      return 0;
    });
  }
  void stop_server() {
    in_loop([this] {
      server.reset();
      return 0;
    });
  }
  void start_relay() {
    in_loop([this] {
      endpoint = std::make_unique<RelayEndpoint>(
          io, RelayEndpointOptions{directory / "relay.sock", directory / "fake0.sock"}, *this);
      return 0;
    });
  }
  void wait_for(Relay::State state) {
    for (int i = 0; i < 5000; ++i) {
      if (in_loop([this] { return endpoint->state(); }) == state) {
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    FAIL() << "not within 5 s";
  }
  std::string socket() const { return (directory / "relay.sock").string(); }

  std::filesystem::path directory;
  boost::asio::io_context io;
  std::optional<boost::asio::executor_work_guard<boost::asio::io_context::executor_type>> work{io.get_executor()};
  std::optional<FakeFunction> function;
  std::unique_ptr<Server> server;
  std::unique_ptr<RelayEndpoint> endpoint;
  std::thread thread;
};

TEST_F(RelayEndpointTest, OutlivesItsServer) {
  start_server();
  start_relay();
  struct stat status {};
  ASSERT_EQ(::stat(socket().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
  ProtocolClient client(socket());
  EXPECT_EQ(client.negotiate().error(), 0);
  const FileDescriptor memory = make_memfd(0x10000);
  const FileDescriptor event = make_eventfd();
  EXPECT_EQ(client.dma_map(0, 0x10000, memory.get()), 0);
  EXPECT_EQ(client.set_msix_eventfds(1, std::array{event.get()}), 0);
  std::uint32_t value = 0;
  const auto bytes = std::as_writable_bytes(std::span(&value, 1));
  EXPECT_EQ(client.region_read(wire::region_config, 0, bytes), 0);
  EXPECT_EQ(value, 0x0e101234U);
  for (int round = 0; round < 3; ++round) {
    stop_server();
    wait_for(Relay::State::absent);
    for (int i = 0; i < 1000; ++i) {
      ASSERT_EQ(client.region_read(wire::region_config, 0, bytes), 0);
      ASSERT_EQ(value, 0xffff'ffffU);
    }
    start_server();
    wait_for(Relay::State::live);
    EXPECT_EQ(client.region_read(wire::region_config, 0, bytes), 0);
    EXPECT_EQ(value, 0x0e101234U);
    EXPECT_EQ(in_loop([this] { return function->mappings.at(0).size; }), 0x10000U);
    in_loop([this] {
      function->sink->msix(1);
      return 0;
    });
    EXPECT_EQ(take_events(event.get()), 1U);
  }
}

TEST_F(RelayEndpointTest, PassesLongMessages) {
  start_server();
  start_relay();
  ProtocolClient client(socket());
  client.negotiate();
  std::vector<std::byte> data(std::size_t{1} << 20);
  for (std::size_t i = 0; i < data.size(); ++i) {
    data[i] = static_cast<std::byte>(i * 7 + (i >> 8U));
  }
  std::vector<std::byte> back(data.size());
  EXPECT_EQ(client.region_write(2, 0, data), 0);
  EXPECT_EQ(client.region_read(2, 0, back), 0);
  EXPECT_EQ(back, data);
}

TEST_F(RelayEndpointTest, ServesOneClientAndThenTheNext) {
  start_server();
  start_relay();
  ProtocolClient first(socket());
  EXPECT_EQ(first.negotiate().error(), 0);
  ProtocolClient second(socket());
  EXPECT_TRUE(second.closed_within(5000));
  std::uint32_t value = 0;
  EXPECT_EQ(first.region_read(wire::region_config, 0, std::as_writable_bytes(std::span(&value, 1))), 0);
  first.disconnect();
  wait_for(Relay::State::absent);
  ProtocolClient third(socket());
  EXPECT_EQ(third.negotiate().error(), 0);
}

TEST_F(RelayEndpointTest, TellsAClientThatThereIsNoServer) {
  start_relay();
  ProtocolClient client(socket());
  EXPECT_EQ(client.negotiate().error(), ENODEV);
  EXPECT_TRUE(client.closed_within(5000));
}

}  // namespace
}  // namespace orrery::bridge::test::relay_endpoint_test
