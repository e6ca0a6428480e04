// DRAM on guests' files: sharing, bounds, frames, truncation, messages.
#include "systemc_models/host/dram.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

namespace orrery::models::dram_test {
namespace {

constexpr std::uint64_t mib = 1U << 20;

class Memfd {
 public:
  explicit Memfd(std::uint64_t size) : fd_(memfd_create("guest", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(size)), 0);
  }
  Memfd(const Memfd&) = delete;
  Memfd& operator=(const Memfd&) = delete;
  ~Memfd() { close(fd_); }
  [[nodiscard]] int fd() const { return fd_; }
  void resize(std::uint64_t size) const { EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(size)), 0); }

 private:
  int fd_;
};

TEST(Dram, AFileIsMappedOnceHoweverOftenItIsOffered) {
  Dram dram({});
  std::string why;
  const Memfd file(4 * mib);
  const int duplicate = dup(file.fd());
  const auto a = dram.acquire({file.fd(), 0}, mib, 0, &why);
  const auto b = dram.acquire({duplicate, 2 * mib}, mib, 1, &why);  // another node: too late, the file has its own
  close(duplicate);
  ASSERT_TRUE(a && b) << why;
  EXPECT_EQ(a->file, b->file);
  EXPECT_EQ(a->address, Hpa{Dram::base(0)});
  EXPECT_EQ(b->address - a->address, 2 * mib);
  EXPECT_EQ(dram.mapped_bytes(), 4 * mib);
  // Both names are the same bytes as the file's.
  const auto window = dram.find(b->address);
  ASSERT_EQ(window.kind, pcie::HostMemory::Kind::direct);
  EXPECT_EQ(window.contiguous, 2 * mib);
  std::memcpy(window.bytes, "orrery", 6);
  std::array<char, 6> text{};
  ASSERT_EQ(pread(file.fd(), text.data(), 6, 2 * mib), 6);
  EXPECT_EQ(std::string(text.data(), 6), "orrery");
  dram.release(a->file);
  EXPECT_EQ(dram.mapped_bytes(), 4 * mib);
  dram.retain(b->file);
  dram.release(b->file);
  EXPECT_EQ(dram.mapped_bytes(), 4 * mib);
  dram.release(b->file);
  EXPECT_EQ(dram.mapped_bytes(), 0U);
  EXPECT_EQ(dram.find(a->address).kind, pcie::HostMemory::Kind::none);
  dram.release(b->file);  // once too often: nothing
}

TEST(Dram, WindowsPastTheEndAreRefused) {
  Dram dram({});
  const Memfd file(2 * mib + 100);  // the last page is not whole: it doesn't count
  struct Row {
    std::uint64_t offset;
    std::uint64_t size;
    bool ok;
  };
  const Row rows[] = {{0, 2 * mib, true},
                      {mib, mib, true},
                      {0, 2 * mib + 4096, false},
                      {2 * mib, 4096, false},
                      {4 * mib, 4096, false},
                      {0, 0, false},
                      {4096, ~std::uint64_t{0} - 4095, false},
                      {~std::uint64_t{0} - 4095, 4096, false}};
  for (const Row& row : rows) {
    std::string why;
    const auto window = dram.acquire({file.fd(), row.offset}, row.size, 0, &why);
    EXPECT_EQ(window.has_value(), row.ok) << row.offset << " " << row.size;
    EXPECT_EQ(why.empty(), row.ok);
    if (window) {
      dram.release(window->file);
    }
  }
  EXPECT_EQ(dram.mapped_bytes(), 0U);
}

TEST(Dram, AFileThatGrowsIsTakenAsItWas) {
  Dram dram({});
  const Memfd file(mib);
  std::string why;
  const auto window = dram.acquire({file.fd(), 0}, mib, 0, &why);
  ASSERT_TRUE(window);
  file.resize(8 * mib);
  EXPECT_FALSE(dram.acquire({file.fd(), mib}, mib, 0, &why));
  EXPECT_NE(why.find("grown"), std::string::npos);
  dram.release(window->file);
  EXPECT_TRUE(dram.acquire({file.fd(), mib}, mib, 0, &why)) << "mapped anew, as large as it is now";
}

TEST(Dram, DescriptorsThatCantBeGuestMemory) {
  Dram dram({});
  const Memfd file(mib);
  const int read_only = open(("/proc/self/fd/" + std::to_string(file.fd())).c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(read_only, 0);
  std::array<int, 2> pipe_ends{};
  ASSERT_EQ(pipe2(pipe_ends.data(), O_CLOEXEC), 0);
  const int closed = dup(read_only);
  close(closed);
  for (const int fd : {read_only, pipe_ends[0], pipe_ends[1], closed, -1}) {
    std::string why;
    EXPECT_FALSE(dram.acquire({fd, 0}, 4096, 0, &why));
    EXPECT_FALSE(why.empty());
  }
  close(read_only);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  EXPECT_EQ(dram.mapped_bytes(), 0U);
}

TEST(Dram, FramesRunOutAndComeBack) {
  DramSettings settings;
  settings.bytes_per_socket = 8 * mib;
  Dram dram(settings);
  std::string why;
  const Memfd a(3 * mib);  // takes 4 MiB: frames come in units of a large page
  const Memfd b(2 * mib);
  const Memfd c(4 * mib);
  const auto first = dram.acquire({a.fd(), 0}, mib, 0, &why);
  const auto second = dram.acquire({b.fd(), 0}, mib, 0, &why);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(second->address - first->address, 4 * mib);
  EXPECT_FALSE(dram.acquire({c.fd(), 0}, mib, 0, &why));
  EXPECT_NE(why.find("free frames"), std::string::npos);
  EXPECT_EQ(dram.mapped_bytes(), 5 * mib) << "the refused file is not left mapped";
  const auto other = dram.acquire({c.fd(), 0}, mib, 1, &why);
  ASSERT_TRUE(other) << "the other socket has frames";
  EXPECT_EQ(other->address, Hpa{Dram::base(1)});
  dram.release(other->file);
  dram.release(first->file);
  const auto third = dram.acquire({c.fd(), 0}, mib, 0, &why);
  ASSERT_TRUE(third) << why;
  EXPECT_EQ(third->address, Hpa{Dram::base(0)}) << "the gap is used again";
  EXPECT_NE(third->file, first->file) << "numbers are never used twice";
  // A file beyond any socket, sparse as it is.
  const Memfd huge(std::uint64_t{1} << 40);
  EXPECT_FALSE(dram.acquire({huge.fd(), 0}, 4096, 0, &why));
}

TEST(Dram, NumaLatency) {
  DramSettings settings;
  settings.latency = {80'000};
  settings.remote_socket = {50'000};
  Dram dram(settings);
  std::string why;
  const Memfd file(mib);
  const auto window = dram.acquire({file.fd(), 0}, mib, 1, &why);
  ASSERT_TRUE(window);
  const unsigned node = dram.find(window->address).node;
  EXPECT_EQ(node, 1U);
  EXPECT_EQ(dram.access_time(node, 1), Picoseconds{80'000});
  EXPECT_EQ(dram.access_time(node, 0), Picoseconds{130'000});
  const Memfd far(mib);
  const auto clamped = dram.acquire({far.fd(), 0}, mib, 77, &why);
  ASSERT_TRUE(clamped);
  EXPECT_EQ(dram.find(clamped->address).node, 1U) << "a node that the server does not have";
}

TEST(Dram, ATruncatedFileReadsZeroesAndIsReported) {
  Dram dram({});
  std::string why;
  const Memfd file(2 * mib);
  const Memfd innocent(mib);
  const auto window = dram.acquire({file.fd(), 0}, 2 * mib, 0, &why);
  const auto other = dram.acquire({innocent.fd(), 0}, mib, 0, &why);
  ASSERT_TRUE(window && other);
  std::byte* bytes = dram.find(window->address).bytes;
  std::memset(bytes, 0x5a, 2 * mib);
  EXPECT_TRUE(dram.truncated().empty());
  file.resize(mib);
  std::vector<std::byte> copy(mib);
  std::memcpy(copy.data(), bytes + mib, mib);  // SIGBUS on every page, were it not for the guard
  for (const std::byte b : copy) {
    ASSERT_EQ(b, std::byte{0});
  }
  EXPECT_EQ(bytes[mib - 1], std::byte{0x5a});
  bytes[2 * mib - 1] = std::byte{1};  // a write is no crash either
  EXPECT_EQ(dram.truncated(), std::vector<unsigned>{window->file});
  EXPECT_TRUE(dram.truncated().empty()) << "reported once";
  file.resize(0);
  EXPECT_EQ(bytes[0], std::byte{0});
  EXPECT_EQ(dram.truncated(), std::vector<unsigned>{window->file});
  dram.release(window->file);
  dram.release(other->file);
  EXPECT_EQ(dram.mapped_bytes(), 0U);
}

// A SIGBUS that no guard expects still kills.
TEST(DramDeathTest, OtherBusErrorsKeepTheirEffect) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        Dram dram({});
        std::string why;
        const Memfd file(mib);
        static_cast<void>(dram.acquire({file.fd(), 0}, mib, 0, &why));
        const Memfd other(4096);
        auto* mapped =
            static_cast<volatile char*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, other.fd(), 0));
        other.resize(0);
        *mapped = 1;
      },
      ::testing::KilledBySignal(SIGBUS), "");
}

TEST(Dram, ManyFilesAtOnceAreRefusedNotLost) {
  Dram dram({});
  std::vector<std::unique_ptr<Memfd>> files;
  std::vector<unsigned> numbers;
  std::string why;
  for (int i = 0; i < 300; ++i) {
    files.push_back(std::make_unique<Memfd>(4096));
    const auto window = dram.acquire({files.back()->fd(), 0}, 4096, 0, &why);
    if (!window) {
      break;
    }
    numbers.push_back(window->file);
  }
  EXPECT_EQ(numbers.size(), 256U);
  EXPECT_NE(why.find("256"), std::string::npos);
  for (const unsigned number : numbers) {
    dram.release(number);
  }
  EXPECT_TRUE(dram.acquire({files.back()->fd(), 0}, 4096, 0, &why));
}

struct Log final : DramObserver {
  void before_device_read(unsigned file, std::uint64_t offset, std::span<std::byte> bytes) override {
    reads.emplace_back(file, offset, bytes.size());
    if (!replay.empty()) {
      std::copy(replay.begin(), replay.end(), bytes.begin());
    }
  }
  void after_device_write(unsigned file, std::uint64_t offset, std::span<const std::byte> bytes) override {
    writes.emplace_back(file, offset, bytes.size());
  }
  std::vector<std::tuple<unsigned, std::uint64_t, std::uint64_t>> reads;
  std::vector<std::tuple<unsigned, std::uint64_t, std::uint64_t>> writes;
  std::vector<std::byte> replay;
};

TEST(Dram, ObserversSeeFilesAndOffsets) {
  Dram dram({});
  std::string why;
  const Memfd first(mib);
  const Memfd file(mib);
  ASSERT_TRUE(dram.acquire({first.fd(), 0}, mib, 0, &why));
  const auto window = dram.acquire({file.fd(), 8192}, 4096, 0, &why);
  ASSERT_TRUE(window);
  Log log;
  dram.set_observer(&log);
  std::byte* bytes = dram.find(window->address + 16).bytes;
  dram.device_wrote(window->address + 16, {bytes, 32});
  log.replay.assign(8, std::byte{7});
  dram.device_reads(window->address + 16, {bytes, 8});
  EXPECT_EQ(bytes[0], std::byte{7}) << "an observer may put other bytes there before they are read";
  using Entry = std::tuple<unsigned, std::uint64_t, std::uint64_t>;
  EXPECT_EQ(log.writes, (std::vector<Entry>{{1, 8208, 32}}));
  EXPECT_EQ(log.reads, (std::vector<Entry>{{1, 8208, 8}}));
  dram.device_wrote(Hpa{5}, {bytes, 8});  // no memory: nobody is told
  EXPECT_EQ(log.writes.size(), 1U);
}

// ---- Messages -----------------------------------------------------------------------------------------------

struct Messages final : pcie::MessageMemory {
  struct Call {
    std::uint64_t address;
    std::span<std::byte> into;
    std::span<const std::byte> from;
    Done done;
    void* context;
  };
  void read(Iova address, std::span<std::byte> into, Done done, void* context) override {
    calls.push_back({address.value, into, {}, done, context});
  }
  void write(Iova address, std::span<const std::byte> from, Done done, void* context) override {
    calls.push_back({address.value, {}, from, done, context});
  }
  std::vector<Call> calls;
};
struct Listener final : pcie::HostMemoryListener {
  void on_host_memory(std::uint64_t context, bool ok) override { ended.emplace_back(context, ok); }
  std::vector<std::pair<std::uint64_t, bool>> ended;
};

TEST(Dram, RemoteMemoryIsReachedByDeviceAddress) {
  Dram dram({});
  Messages messages;
  Listener listener;
  const auto a = dram.acquire_remote(messages, Iova{0x7000'0000}, 64 * 1024);
  const auto b = dram.acquire_remote(messages, Iova{0x9000'0000}, 4096);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(dram.mapped_bytes(), 0U);
  const auto window = dram.find(*a + 4096);
  EXPECT_EQ(window.kind, pcie::HostMemory::Kind::remote);
  EXPECT_EQ(window.bytes, nullptr);
  EXPECT_EQ(window.contiguous, 60U * 1024);
  std::array<std::byte, 16> bytes{};
  dram.read_remote(*a + 0x1234, bytes, listener, 5);
  dram.write_remote(*b + 8, bytes, listener, 6);
  ASSERT_EQ(messages.calls.size(), 2U);
  EXPECT_EQ(messages.calls[0].address, 0x7000'1234U);
  EXPECT_EQ(messages.calls[0].into.data(), bytes.data());
  EXPECT_EQ(messages.calls[1].address, 0x9000'0008U);
  EXPECT_TRUE(listener.ended.empty());
  messages.calls[1].done(messages.calls[1].context, false);
  messages.calls[0].done(messages.calls[0].context, true);
  EXPECT_EQ(listener.ended, (std::vector<std::pair<std::uint64_t, bool>>{{6, false}, {5, true}}));
  dram.release_remote(*a);
  EXPECT_EQ(dram.find(*a).kind, pcie::HostMemory::Kind::none);
  EXPECT_EQ(dram.find(*b).kind, pcie::HostMemory::Kind::remote);
}

TEST(Dram, RemoteMemoryBeyondAllFramesIsRefused) {
  Dram dram({});
  Messages messages;
  for (const std::uint64_t size : {std::uint64_t{1} << 40, std::uint64_t{1} << 63, ~std::uint64_t{0} - 4095}) {
    EXPECT_FALSE(dram.acquire_remote(messages, Iova{0}, size)) << size;
  }
  EXPECT_TRUE(dram.acquire_remote(messages, Iova{0}, std::uint64_t{64} << 30));
  EXPECT_FALSE(dram.acquire_remote(messages, Iova{0}, 4096)) << "all frames of the socket are taken";
}

}  // namespace
}  // namespace orrery::models::dram_test
