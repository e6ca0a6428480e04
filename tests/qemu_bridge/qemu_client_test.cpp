// QEMU itself as the client: an independent check of the protocol, without a guest.
//
// QEMU runs under its qtest accelerator, where this test plays the CPU: port and memory accesses come as
// text commands. Skipped, with a word, where no QEMU with vfio-user-pci is found.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "common/error.h"
#include "qemu_bridge/launcher/qemu_program.h"
#include "qemu_bridge/server.h"
#include "tests/qemu_bridge/session_harness.h"

namespace orrery::bridge::test::qemu_client_test {
namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;
constexpr std::uint64_t bar0 = 0xe0000000;
constexpr std::uint64_t bar2 = 0xe0200000;

// A function with the configuration space QEMU needs: MSI-X (table and PBA in BAR0) and PCI Express.
class Endpoint : public FakeFunction {
 public:
  explicit Endpoint(int bar2_fd) : FakeFunction(8, 2 * mib, bar2_fd) {
    keep_accesses = false;
    put(0x00, 0x11e81234, 4);  // device and vendor ID
    put(0x06, 0x0010, 2);      // status: capability list
    put(0x08, 0x02000001, 4);
    put(0x18, 0x0c, 4);  // BAR2: 64 bits, prefetchable
    put(0x34, 0x40, 1);
    put(0x40, 0x00076011, 4);  // MSI-X, 8 vectors, next capability at 0x60
    put(0x44, 0x800, 4);
    put(0x48, 0xc00, 4);
    put(0x60, 0x00020010, 4);  // PCI Express, version 2, endpoint
    put(0x64, 0x10008000, 4);  // function level reset
  }
  void config_write(std::uint32_t offset, std::span<const std::byte> from) override {
    ++config_writes;
    if (offset == 4) {
      std::memcpy(config().data() + offset, from.data(), from.size());
    }
  }
  void bar_write(unsigned bar, std::uint64_t offset, std::span<const std::byte> from) override {
    ++bar_writes;
    FakeFunction::bar_write(bar, offset, from);
  }
  std::atomic<int> config_writes = 0;
  std::atomic<int> bar_writes = 0;

 private:
  void put(std::size_t offset, std::uint32_t value, std::size_t bytes) {
    std::memcpy(config().data() + offset, &value, bytes);
  }
};

struct CountingObserver : SessionObserver {
  void on_refused(std::uint16_t command, int error) override {
    ADD_FAILURE() << "QEMU was refused command " << command << " with errno " << error;
  }
  void on_disconnect(std::string_view) override { ++disconnects; }
  std::atomic<int> disconnects = 0;
};

// A QEMU process under qtest.
class Qemu {
 public:
  Qemu(const QemuInstallation& qemu, const std::string& socket, bool shared_memory) {
    std::vector<std::string> arguments{
        qemu.program,
        "-machine",
        shared_memory ? "q35,memory-backend=ram" : "q35",
        "-m",
        "64",
        "-nodefaults",
        "-nographic",
        "-monitor",
        "none",
        "-serial",
        "none",
        "-accel",
        "qtest",
        "-qtest",
        "stdio",
        "-qtest-log",
        "/dev/null",
        "-device",
        R"({"driver":"vfio-user-pci","addr":"3.0","socket":{"type":"unix","path":")" + socket + "\"}}"};
    if (!qemu.data_directory.empty()) {
      arguments.insert(arguments.end(), {"-L", qemu.data_directory});
    }
    if (shared_memory) {
      arguments.insert(arguments.end(), {"-object", "memory-backend-memfd,id=ram,size=64M,share=on"});
    }
    int to[2];
    int from[2];
    if (::pipe2(to, O_CLOEXEC) != 0 || ::pipe2(from, O_CLOEXEC) != 0) {
      throw std::runtime_error("pipe2");
    }
    to_.reset(to[1]);
    from_.reset(from[0]);
    const FileDescriptor child_in(to[0]);
    const FileDescriptor child_out(from[1]);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, child_in.get(), 0);
    ::posix_spawn_file_actions_adddup2(&actions, child_out.get(), 1);
    std::vector<char*> argv;
    argv.reserve(arguments.size() + 1);
    for (std::string& argument : arguments) {
      argv.push_back(argument.data());
    }
    argv.push_back(nullptr);
    const int error = ::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
      throw std::runtime_error("posix_spawn");
    }
  }
  ~Qemu() { kill(); }

  void kill() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
      pid_ = -1;
    }
  }

  // Sends one qtest command; what follows "OK".
  std::string command(const std::string& text) {
    const std::string line = text + "\n";
    if (::write(to_.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
      throw std::runtime_error("QEMU is gone");
    }
    while (true) {
      const std::string answer = read_line();
      if (answer.starts_with("OK")) {
        return answer.size() > 3 ? answer.substr(3) : "";
      }
      if (!answer.starts_with("IRQ")) {
        throw std::runtime_error("QEMU says: " + answer);
      }
    }
  }
  std::uint64_t number(const std::string& text) { return std::stoull(command(text), nullptr, 0); }

  void config_write(unsigned offset, std::uint32_t value, char size = 'l') {
    command("outl 0xcf8 " + std::to_string(0x80001800U | (offset & 0xfcU)));
    command(std::string("out") + size + " " + std::to_string(0xcfcU + offset % 4) + " " + std::to_string(value));
  }
  std::uint64_t config_read(unsigned offset) {
    command("outl 0xcf8 " + std::to_string(0x80001800U | offset));
    return number("inl 0xcfc");
  }
  void write(std::uint64_t address, std::uint32_t value) {
    command("writel " + std::to_string(address) + " " + std::to_string(value));
  }
  std::uint64_t read(std::uint64_t address) { return number("readl " + std::to_string(address)); }
  bool becomes(std::uint64_t address, std::uint64_t value) {
    for (int i = 0; i < 1000; ++i) {
      if (read(address) == value) {
        return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }
  // Assigns the BARs, enables memory and bus mastering.
  void enable() {
    config_write(0x10, bar0);
    config_write(0x18, bar2);
    config_write(0x1c, 0);
    config_write(0x04, 6, 'w');
  }

 private:
  std::string read_line() {
    std::string line;
    char c = 0;
    while (::read(from_.get(), &c, 1) == 1) {
      if (c == '\n') {
        return line;
      }
      line += c;
    }
    throw std::runtime_error("QEMU has ended");
  }

  pid_t pid_ = -1;
  FileDescriptor to_;
  FileDescriptor from_;
};

class QemuClient : public testing::Test {
 protected:
  void SetUp() override {
    ::signal(SIGPIPE, SIG_IGN);
    try {
      installation = find_qemu();
    } catch (const Error& error) {
      FAIL() << error.what();
    }
  }
  void start(int bar2_fd = -1) {
    std::string name = (std::filesystem::temp_directory_path() / "orrery-test-XXXXXX").string();
    directory = ::mkdtemp(name.data());
    function = std::make_unique<Endpoint>(bar2_fd);
    server = std::make_unique<Server>(io, *function, ServerOptions{socket(), {}}, &observer);
    thread = std::thread([this] { io.run(); });
  }
  template <class F>
  auto in_server(F f) {
    std::packaged_task<decltype(f())()> task(std::move(f));
    auto result = task.get_future();
    boost::asio::post(io, [&task] { task(); });
    return result.get();
  }
  void TearDown() override {
    if (thread.joinable()) {
      in_server([this] { server.reset(); });
      work.reset();
      thread.join();
      std::filesystem::remove_all(directory);
    }
  }
  bool wait_until(const std::function<bool()>& condition) {
    for (int i = 0; i < 2000; ++i) {
      if (in_server(condition)) {
        return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }
  [[nodiscard]] std::string socket() const { return (directory / "fake0.sock").string(); }

  QemuInstallation installation;
  std::filesystem::path directory;
  CountingObserver observer;
  boost::asio::io_context io;
  std::optional<boost::asio::executor_work_guard<boost::asio::io_context::executor_type>> work{io.get_executor()};
  std::unique_ptr<Endpoint> function;
  std::unique_ptr<Server> server;
  std::thread thread;
};

TEST_F(QemuClient, ReachesConfigurationSpaceAndRegisters) {
  start();
  Qemu qemu(installation, socket(), true);
  EXPECT_EQ(qemu.config_read(0), 0x11e81234U);
  qemu.enable();
  EXPECT_TRUE(wait_until([this] { return value_of<std::uint16_t>(std::span(function->config()).subspan(4)) == 6; }));
  qemu.write(bar0 + 0x10, 0xfeedf00d);
  EXPECT_EQ(qemu.read(bar0 + 0x10), 0xfeedf00dU);
  qemu.write(bar2 + 0x100000, 0x12345678);
  EXPECT_EQ(qemu.read(bar2 + 0x100000), 0x12345678U);
  const SessionCounters counters = in_server([this] { return server->session()->counters(); });
  EXPECT_EQ(counters.posted_writes, 2U) << "QEMU posts writes to a device without mappable regions";
  EXPECT_EQ(counters.error_replies, 0U);
  EXPECT_GE(in_server([this] { return function->resets; }), 1U);
}

TEST_F(QemuClient, SharesItsMemory) {
  start();
  Qemu qemu(installation, socket(), true);
  qemu.write(0x3000, 0xcafe1234);
  const auto seen = in_server([this] {
    std::uint32_t value = 0;
    for (const auto& [iova, mapping] : function->mappings) {
      if (iova <= 0x3000 && 0x3000 < iova + mapping.size && mapping.file) {
        EXPECT_EQ(::pread(mapping.file.get(), &value, 4, static_cast<off_t>(*mapping.file_offset + 0x3000 - iova)), 4);
      }
    }
    return value;
  });
  EXPECT_EQ(seen, 0xcafe1234U);
}

TEST_F(QemuClient, ServesDmaMessagesForMemoryItDoesNotShare) {
  start();
  Qemu qemu(installation, socket(), false);
  qemu.enable();
  qemu.write(0x3000, 0xcafe1234);
  EXPECT_TRUE(wait_until([this] { return value_of<std::uint16_t>(std::span(function->config()).subspan(4)) == 6; }));
  std::array<std::byte, 4> into{};
  const std::array<std::byte, 4> from{std::byte{0x44}, std::byte{0x33}, std::byte{0x22}, std::byte{0x11}};
  std::atomic<int> done = 0;
  const auto count = [](void* context, bool ok) { *static_cast<std::atomic<int>*>(context) += ok ? 1 : 100; };
  in_server([&] {
    pcie::MessageMemory* memory = nullptr;
    for (const auto& [iova, mapping] : function->mappings) {
      memory = iova == 0 ? mapping.messages : memory;
    }
    ASSERT_NE(memory, nullptr);
    memory->read(Iova{0x3000}, into, count, &done);
    memory->write(Iova{0x3010}, from, count, &done);
  });
  EXPECT_TRUE(wait_until([&] { return done == 2; }));
  EXPECT_EQ(value_of<std::uint32_t>(into), 0xcafe1234U);
  EXPECT_EQ(qemu.read(0x3010), 0x11223344U);
  EXPECT_EQ(qemu.read(0x300c), 0U);
  EXPECT_EQ(qemu.read(0x3014), 0U);
}

// Each vector's message is an address in memory, where its arrival can be seen.
TEST_F(QemuClient, DeliversMsix) {
  start();
  Qemu qemu(installation, socket(), true);
  qemu.enable();
  const auto entry = [&](unsigned vector, bool masked) {
    const std::uint64_t at = bar0 + 0x800 + vector * 16U;
    qemu.write(at, 0x5000 + vector * 4);
    qemu.write(at + 4, 0);
    qemu.write(at + 8, 0xab00 + vector);
    qemu.write(at + 12, masked ? 1 : 0);
  };
  entry(0, false);
  entry(3, true);
  qemu.config_write(0x42, 0x8000, 'w');
  const auto fire = [&](unsigned vector) { in_server([&] { function->sink->msix(vector); }); };
  fire(0);
  EXPECT_TRUE(qemu.becomes(0x5000, 0xab00));
  qemu.write(0x5000, 0);
  fire(0);
  EXPECT_TRUE(qemu.becomes(0x5000, 0xab00));
  // Masked: pending until the guest unmasks it, here or in QEMU.
  fire(3);
  EXPECT_EQ(qemu.read(0x500c), 0U);
  qemu.write(bar0 + 0x800 + 3 * 16 + 12, 0);
  EXPECT_TRUE(qemu.becomes(0x500c, 0xab03));
  EXPECT_EQ(qemu.read(0x5004), 0U);
}

TEST_F(QemuClient, MapsAMappableBar) {
  const FileDescriptor memory = make_memfd(2 * mib);
  start(memory.get());
  Qemu qemu(installation, socket(), true);
  qemu.enable();
  qemu.write(bar2 + 0x2000, 0xdecade00);
  std::uint32_t value = 0;
  ASSERT_EQ(::pread(memory.get(), &value, 4, 0x2000), 4);
  EXPECT_EQ(value, 0xdecade00U);
  value = 0x01020304;
  ASSERT_EQ(::pwrite(memory.get(), &value, 4, 0x2004), 4);
  EXPECT_EQ(qemu.read(bar2 + 0x2004), 0x01020304U);
  EXPECT_EQ(function->bar_writes, 0) << "none of it came as a message";
}

TEST_F(QemuClient, MayBeKilledAtAnyMoment) {
  start();
  const std::size_t before = open_descriptors();
  for (int round = 0; round < 3; ++round) {
    Qemu qemu(installation, socket(), true);
    EXPECT_EQ(qemu.config_read(0), 0x11e81234U);
    if (round == 1) {
      qemu.enable();
    }
    qemu.kill();
    EXPECT_TRUE(wait_until([&] { return observer.disconnects == round + 1; }));
    EXPECT_TRUE(in_server([this] { return function->mappings.empty() && !server->connected(); }));
  }
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace orrery::bridge::test::qemu_client_test
