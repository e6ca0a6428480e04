// The server on a real socket: accepting, refusing, batching, clients that die or don't read.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <future>
#include <thread>

#include "common/error.h"
#include "common/listening_socket.h"
#include "qemu_bridge/server.h"
#include "tests/qemu_bridge/session_harness.h"

namespace orrery::bridge::test::server_test {
namespace {

constexpr std::uint64_t page = 4096;
constexpr std::uint64_t mib = std::uint64_t{1} << 20;

// A private directory that goes with the test.
class Directory {
 public:
  Directory() {
    std::string name = (std::filesystem::temp_directory_path() / "orrery-test-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  [[nodiscard]] std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

class ServerTest : public testing::Test {
 protected:
  void start(ServerOptions options = {}) {
    options.socket = directory / "fake0.sock";
    server = std::make_unique<Server>(io, function, options, &observer);
    thread = std::thread([this] { io.run(); });
  }
  // Runs f on the server's thread and waits for it.
  template <class F>
  auto in_server(F f) {
    std::packaged_task<decltype(f())()> task(std::move(f));
    auto result = task.get_future();
    boost::asio::post(io, [&task] { task(); });
    return result.get();
  }
  void TearDown() override { stop(); }
  void stop() {
    if (thread.joinable()) {
      in_server([this] { server.reset(); });
      work.reset();
      thread.join();
    }
  }
  void wait_until(const std::function<bool()>& condition) {
    for (int i = 0; i < 5000; ++i) {
      if (in_server(condition)) {
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    FAIL() << "not within 5 s";
  }
  std::string socket() const { return (directory / "fake0.sock").string(); }

  Directory directory;
  FakeFunction function{8, 2 * mib};
  NotingObserver observer;
  boost::asio::io_context io;
  std::optional<boost::asio::executor_work_guard<boost::asio::io_context::executor_type>> work{io.get_executor()};
  std::unique_ptr<Server> server;
  std::thread thread;
};

TEST_F(ServerTest, AWholeSession) {
  const FileDescriptor bar = make_memfd(2 * mib);
  function.set_bar(2, {2 * mib, true, true, bar.get()});
  start();
  ProtocolClient client(socket());
  EXPECT_EQ(client.negotiate().error(), 0);
  const FileDescriptor ram = make_memfd(16 * page);
  EXPECT_EQ(client.dma_map(0, 16 * page, ram.get()), 0);
  EXPECT_EQ(client.dma_map(0, page), EEXIST);
  Reply info = client.call(wire::Command::device_get_region_info, bytes_of(wire::RegionInfo{64, 0, 2, 0, 0, 0}));
  ASSERT_EQ(info.descriptors.size(), 1U);
  struct stat mine {};
  struct stat theirs {};
  ASSERT_EQ(::fstat(bar.get(), &mine), 0);
  ASSERT_EQ(::fstat(info.descriptors[0].get(), &theirs), 0);
  EXPECT_EQ(mine.st_ino, theirs.st_ino);
  const FileDescriptor event = make_eventfd();
  const int fd = event.get();
  EXPECT_EQ(client.set_msix_eventfds(5, {&fd, 1}), 0);
  const std::array<std::byte, 4> value{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
  EXPECT_EQ(client.region_write(0, 16, value, true), 0);
  std::array<std::byte, 4> back{};
  EXPECT_EQ(client.region_read(0, 16, back), 0);
  EXPECT_EQ(back, value);
  in_server([this] { function.sink->msix(5); });
  EXPECT_EQ(take_events(fd), 1U);
  EXPECT_EQ(client.region_read(0, page, back), EINVAL);
  EXPECT_EQ(client.dma_unmap(0, 16 * page), 0);
}

TEST_F(ServerTest, ABurstOfPostedWritesKeepsItsOrder) {
  start();
  ProtocolClient client(socket());
  client.negotiate();
  std::vector<std::byte> burst;
  for (std::uint32_t i = 0; i < 20000; ++i) {
    append(burst, wire::Header{0, 10, 36, wire::flag_no_reply, 0});
    append(burst, wire::RegionAccess{8, 0, 4});
    append(burst, i);
  }
  client.send_raw(burst);
  std::array<std::byte, 4> last{};
  ASSERT_EQ(client.region_read(0, 8, last), 0);
  EXPECT_EQ(value_of<std::uint32_t>(last), 19999U);
  ASSERT_EQ(function.accesses.size(), 20001U);
  for (std::uint32_t i = 0; i < 20000; ++i) {
    ASSERT_EQ(value_of<std::uint32_t>(function.accesses[i].data), i);
  }
}

TEST_F(ServerTest, DmaMessagesThroughTheSocket) {
  start();
  ProtocolClient client(socket());
  client.negotiate();
  ASSERT_EQ(client.dma_map(0, 4 * mib), 0);
  std::vector<std::byte> ram(4 * mib);
  ram[mib + 5] = std::byte{77};
  client.serve_memory([&](bool write, std::uint64_t address, std::span<std::byte> data) {
    if (write) {
      std::copy(data.begin(), data.end(), ram.begin() + static_cast<std::ptrdiff_t>(address));
    } else {
      std::copy_n(ram.begin() + static_cast<std::ptrdiff_t>(address), data.size(), data.begin());
    }
    return 0;
  });
  std::vector<std::byte> into(mib);
  std::atomic<int> done = 0;
  const auto count = [](void* context, bool ok) { *static_cast<std::atomic<int>*>(context) += ok ? 1 : 100; };
  in_server([&] { function.mappings.at(0).messages->read(Iova{mib}, into, count, &done); });
  client.serve_commands(1);
  wait_until([&] { return done == 1; });
  EXPECT_EQ(into[5], std::byte{77});
  const std::array<std::byte, 2> two{std::byte{8}, std::byte{9}};
  in_server([&] { function.mappings.at(0).messages->write(Iova{100}, two, count, &done); });
  client.serve_commands(1);
  wait_until([&] { return done == 2; });
  EXPECT_EQ(ram[101], std::byte{9});
}

TEST_F(ServerTest, TwinSocketCarriesTheServersCommands) {
  start();
  ProtocolClient client(socket());
  Reply reply = client.negotiate(R"({"capabilities":{"twin_socket":{"supported":true}}})");
  ASSERT_EQ(reply.descriptors.size(), 1U);
  ProtocolClient twin(std::move(reply.descriptors[0]));
  ASSERT_EQ(client.dma_map(0, page), 0);
  twin.serve_memory([](bool, std::uint64_t address, std::span<std::byte> data) {
    std::fill(data.begin(), data.end(), static_cast<std::byte>(address));
    return 0;
  });
  std::array<std::byte, 3> into{};
  std::atomic<int> done = 0;
  in_server([&] {
    function.mappings.at(0).messages->read(
        Iova{0x21}, into, [](void* context, bool ok) { *static_cast<std::atomic<int>*>(context) += ok ? 1 : 100; },
        &done);
  });
  // The main channel stays free for replies.
  std::array<std::byte, 4> value{};
  EXPECT_EQ(client.region_read(0, 0, value), 0);
  twin.serve_commands(1);
  wait_until([&] { return done == 1; });
  EXPECT_EQ(into[2], std::byte{0x21});
  twin.disconnect();
  wait_until([&] { return !server->connected(); });
}

TEST_F(ServerTest, ASecondClientIsRefusedAndTheFirstUndisturbed) {
  start();
  ProtocolClient first(socket());
  first.negotiate();
  for (int i = 0; i < 3; ++i) {
    ProtocolClient second(socket());
    EXPECT_EQ(second.negotiate().error(), EBUSY);
    EXPECT_TRUE(second.closed_within(5000));
  }
  std::array<std::byte, 4> value{};
  EXPECT_EQ(first.region_read(0, 0, value), 0);
  EXPECT_EQ(in_server([this] { return server->counters().refused; }), 3U);
  EXPECT_EQ(function.disconnects, 0U);
}

TEST_F(ServerTest, ACrowdOfSilentClientsCostsNothing) {
  start();
  ProtocolClient first(socket());
  first.negotiate();
  const std::size_t before = open_descriptors();
  std::vector<std::unique_ptr<ProtocolClient>> crowd;
  crowd.reserve(100);
  for (int i = 0; i < 100; ++i) {
    crowd.push_back(std::make_unique<ProtocolClient>(socket()));
  }
  wait_until([this] { return server->counters().refused == 100; });
  EXPECT_LE(open_descriptors(), before + 100 + 8);
  std::array<std::byte, 4> value{};
  EXPECT_EQ(first.region_read(0, 0, value), 0);
}

TEST_F(ServerTest, TheNextClientComesAfterADeath) {
  start();
  const FileDescriptor ram = make_memfd(16 * page);
  const FileDescriptor event = make_eventfd();
  const int fd = event.get();
  const std::size_t before = open_descriptors();
  for (unsigned round = 1; round <= 20; ++round) {
    ProtocolClient client(socket());
    ASSERT_EQ(client.negotiate().error(), 0) << "even when the death of the last has not been read yet";
    ASSERT_EQ(client.dma_map(0, 16 * page, ram.get()), 0);
    ASSERT_EQ(client.set_msix_eventfds(0, {&fd, 1}), 0);
    // Half a message is the last thing it says.
    client.send_raw(std::as_bytes(std::span("orphan")), {&fd, 1});
    client.disconnect();
    if (round % 2 == 0) {
      wait_until([this] { return !server->connected(); });
    }
  }
  wait_until([this] { return !server->connected(); });
  EXPECT_EQ(function.disconnects, 20U);
  EXPECT_TRUE(function.mappings.empty());
  EXPECT_EQ(function.sink, nullptr);
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(ServerTest, ClientsThatOnlyLookIn) {
  start();
  const std::size_t before = open_descriptors();
  for (int i = 0; i < 50; ++i) {
    ProtocolClient client(socket());
  }
  ProtocolClient client(socket());
  EXPECT_EQ(client.negotiate().error(), 0);
  client.disconnect();
  wait_until([this] { return !server->connected(); });
  EXPECT_EQ(function.disconnects, 1U) << "only the one that negotiated was ever a client to the function";
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(ServerTest, RubbishEndsTheConnectionOnly) {
  start();
  for (int i = 0; i < 5; ++i) {
    ProtocolClient client(socket());
    client.send_raw(std::vector<std::byte>(100, static_cast<std::byte>(0xff - i)));
    EXPECT_TRUE(client.closed_within(5000));
  }
  ProtocolClient client(socket());
  EXPECT_EQ(client.negotiate().error(), 0);
}

TEST_F(ServerTest, AClientThatDoesNotReadIsDisconnected) {
  start();
  ProtocolClient client(socket());
  client.negotiate();
  const auto request = Harness::message(1, 9, bytes_of(wire::RegionAccess{0, 2, static_cast<std::uint32_t>(mib)}));
  try {
    for (int i = 0; i < 1000; ++i) {
      client.send_raw(request);
    }
  } catch (const std::runtime_error&) {
    // the connection went while we were asking
  }
  wait_until([this] { return !server->connected(); });
  EXPECT_EQ(function.disconnects, 1U);
  ProtocolClient next(socket());
  EXPECT_EQ(next.negotiate().error(), 0);
}

TEST_F(ServerTest, ASlowReaderGetsEverything) {
  start();
  ProtocolClient client(socket());
  client.negotiate();
  // 4 MiB of answers: more than the socket holds, less than the limit.
  for (int i = 0; i < 4; ++i) {
    client.send(wire::Command::region_read, bytes_of(wire::RegionAccess{0, 2, static_cast<std::uint32_t>(mib)}));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  for (int i = 0; i < 4; ++i) {
    const Reply reply = client.receive();
    EXPECT_EQ(reply.error(), 0);
    EXPECT_EQ(reply.payload.size(), 16 + mib);
  }
}

TEST_F(ServerTest, HundredsOfDescriptorsAreClosed) {
  start();
  ProtocolClient client(socket());
  client.negotiate();
  const FileDescriptor event = make_eventfd();
  const std::size_t before = open_descriptors();
  const std::vector<int> fds(250, event.get());
  for (int i = 0; i < 20; ++i) {
    client.send(wire::Command::device_get_info, bytes_of(wire::DeviceInfo{16, 0, 0, 0}), fds);
    EXPECT_EQ(client.receive().error(), EINVAL);
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(ServerTest, TheServersEndReachesTheClient) {
  start();
  ProtocolClient client(socket());
  client.negotiate();
  stop();
  EXPECT_TRUE(client.closed_within(5000));
  EXPECT_EQ(function.disconnects, 1U);
  EXPECT_EQ(observer.notes.back(), "disconnect");
  EXPECT_FALSE(std::filesystem::exists(socket()));
}

// Descriptors that a child process would inherit.
std::size_t inheritable() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int flags = ::fcntl(std::stoi(entry.path().filename().string()), F_GETFD);
    count += flags >= 0 && (flags & FD_CLOEXEC) == 0 ? 1U : 0U;
  }
  return count;
}

TEST_F(ServerTest, DescriptorsAreNotInherited) {
  const std::size_t before = inheritable();
  start();
  ProtocolClient client(socket());
  client.negotiate();
  const FileDescriptor ram = make_memfd(page);
  const FileDescriptor event = make_eventfd();
  const int fd = event.get();
  ASSERT_EQ(client.dma_map(0, page, ram.get()), 0);
  ASSERT_EQ(client.set_msix_eventfds(0, {&fd, 1}), 0);
  EXPECT_EQ(inheritable(), before);
}

TEST(ServerPolling, WorksWithoutTheReactor) {
  Directory directory;
  FakeFunction function;
  boost::asio::io_context io;
  Server server(io, function, {directory / "polled.sock", {}});
  std::atomic<bool> stop = false;
  std::thread client([&] {
    ProtocolClient inner((directory / "polled.sock").string(), true);
    EXPECT_EQ(inner.negotiate().error(), 0);
    std::array<std::byte, 4> value{};
    for (int i = 0; i < 1000; ++i) {
      EXPECT_EQ(inner.region_read(0, 0, value), 0);
    }
    stop = true;
  });
  while (!server.connected()) {
    io.poll();
  }
  while (!stop) {
    server.poll();
  }
  client.join();
  EXPECT_EQ(function.accesses.size(), 1000U);
}

// --- The socket's place ------------------------------------------------------------------------------

TEST(ListeningSocketTest, IsPrivate) {
  Directory directory;
  const ::mode_t before = ::umask(0);
  {
    const ListeningSocket socket(directory / "made" / "x.sock");
    struct stat status {};
    ASSERT_EQ(::stat((directory / "made").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777U, 0700U);
    ASSERT_EQ(::lstat(socket.path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777U, 0600U);
  }
  ::umask(before);
  EXPECT_TRUE(std::filesystem::is_empty(directory / "made")) << "nothing is left";
}

TEST(ListeningSocketTest, ReplacesADeadServersSocket) {
  Directory directory;
  {
    const FileDescriptor dead(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = (directory / "x.sock").string();
    std::copy(path.begin(), path.end(), address.sun_path);
    ASSERT_EQ(::bind(dead.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  ASSERT_TRUE(std::filesystem::exists(directory / "x.sock"));
  const ListeningSocket socket(directory / "x.sock");
  ProtocolClient client((directory / "x.sock").string());
}

void expect_error(const std::filesystem::path& path, std::string_view part) {
  try {
    const ListeningSocket socket(path);
    FAIL() << "no error for " << path;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    EXPECT_FALSE(error.remedy().empty());
  }
}

TEST(ListeningSocketTest, SaysWhatIsWrong) {
  Directory directory;
  {
    const ListeningSocket socket(directory / "x.sock");
    expect_error(directory / "x.sock", "in use by a live server");
    EXPECT_TRUE(std::filesystem::exists(directory / "x.sock")) << "the live one keeps its place";
  }
  { FileDescriptor file(::open((directory / "file").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600)); }
  expect_error(directory / "file", "is not a socket");
  expect_error(directory / "no" / "such" / "x.sock", "cannot create the socket directory");
  expect_error(directory / "file" / "x.sock", "cannot open the socket directory");
  expect_error(directory / std::string(120, 'x'), "bytes");
  ASSERT_EQ(::chmod(directory.path().c_str(), 0755), 0);
  expect_error(directory / "y.sock", "open to other users");
  ASSERT_EQ(::chmod(directory.path().c_str(), 0700), 0);
}

TEST(ListeningSocketTest, RemovesOnlyItsOwn) {
  Directory directory;
  auto first = std::make_unique<ListeningSocket>(directory / "x.sock");
  std::filesystem::remove(directory / "x.sock");
  const ListeningSocket second(directory / "x.sock");
  first.reset();
  EXPECT_TRUE(std::filesystem::exists(directory / "x.sock"));
}

TEST(ListeningSocketTest, NoDescriptorIsLeftByErrors) {
  Directory directory;
  const ListeningSocket socket(directory / "x.sock");
  const std::size_t before = open_descriptors();
  for (int i = 0; i < 10; ++i) {
    EXPECT_THROW(ListeningSocket(directory / "x.sock"), Error);
    EXPECT_THROW(ListeningSocket(directory / std::string(120, 'x')), Error);
  }
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace orrery::bridge::test::server_test
