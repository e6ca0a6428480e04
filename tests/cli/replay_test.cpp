// Recordings of a platform that is driven as a VMM drives it, and their replay; each in a process of its own, since
// SystemC has one simulation a process.
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "cli/platform_trace.h"
#include "cli/recorder.h"
#include "cli/replayer.h"
#include "common/error.h"
#include "pcie/tlp_trace.h"
#include "systemc_models/rnic/rnic_registers.h"
#include "tests/systemc_models/guest_rig.h"

namespace orrery::cli::replay_test {
namespace {

using models::testing::Ram;

constexpr std::uint64_t mib = 1U << 20;

// Whether `work`, in a child process, has met no failure.
bool in_child(const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    work();
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// An RNIC of a recorded platform, as its driver and the VMM use it.
class Guest {
 public:
  explicit Guest(const std::string& file)
      : platform_(models::testing::small_server(models::TimeMode::timed)),
        trace_(make_platform_trace(platform_)),
        recorder_(platform_, file) {
    for (std::size_t i = 0; i < platform_.functions(); ++i) {
      platform_.assign(i, "guest0");
    }
    platform_.settle();
    config(0x10, 0xd000'0000);
    config(0x20, 0xd001'0000);
    config(0x4, 6);
  }
  pcie::FunctionAccess& rnic() { return recorder_.function(models::testing::endpoint_of(platform_, "rnic3")); }
  unsigned node(const Ram& ram) { return platform_.dram().describe(ram.fd())->node; }
  void map(const Ram& ram, std::uint64_t iova) {
    ASSERT_EQ(rnic().dma_map(Iova{iova}, ram.size(), {true, true}, pcie::FileWindow{ram.fd(), 0}, nullptr),
              pcie::MapResult::ok);
  }
  // The RNIC reads guest memory; what it adds up.
  std::uint64_t read(std::uint64_t iova, std::uint64_t length) {
    set(ORRERY_RNIC_TEST_OPERATION, std::uint32_t{ORRERY_RNIC_OP_READ});
    set(ORRERY_RNIC_TEST_ADDRESS, iova);
    set(ORRERY_RNIC_TEST_LENGTH, length);
    set(ORRERY_RNIC_TEST_CONTROL, std::uint32_t{ORRERY_RNIC_TEST_START});
    models::testing::run(platform_);
    std::uint64_t sum = 0;
    rnic().bar_read(0, ORRERY_RNIC_RESULT_CHECKSUM, std::as_writable_bytes(std::span(&sum, 1)));
    return sum;
  }
  void close() {
    platform_.settle();
    recorder_.close(trace_->count(), trace_->hash());
    trace_->close();
  }

 private:
  void config(std::uint32_t offset, std::uint32_t value) {
    rnic().config_write(offset, std::as_bytes(std::span(&value, 1)));
  }
  template <class T>
  void set(std::uint64_t offset, T value) {
    rnic().bar_write(0, offset, std::as_bytes(std::span(&value, 1)));
  }
  models::Platform platform_;
  std::unique_ptr<pcie::TlpTrace> trace_;
  Recorder recorder_;
};

std::string recording(const std::string& name) {
  return (std::filesystem::path(::testing::TempDir()) / (name + std::to_string(getpid()) + ".rec")).string();
}

void expect_replay(const std::string& file) {
  try {
    Replayer replayer(file);
    const ReplayResult result = replayer.run();
    EXPECT_TRUE(result.matches()) << std::hex << result.recorded_hash << " recorded, now " << result.trace_hash;
    EXPECT_GT(result.trace_records, 0U);
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
}

// A virtual IOMMU that is switched on takes all mappings away, and the memory of the second NUMA node may be the
// first that is mapped again.
TEST(Replay, MemoryThatIsLetGoAndMappedAgainKeepsItsNode) {
  const std::string file = recording("again");
  EXPECT_TRUE(in_child([&] {
    Guest guest(file);
    const Ram first(2 * mib);
    const Ram second(2 * mib);
    const std::uint64_t word = 0x0123'4567'89ab'cdef;
    second.put(4096, std::as_bytes(std::span(&word, 1)));
    guest.map(first, 0);
    guest.map(second, 2 * mib);
    ASSERT_EQ(guest.node(first), 0U);
    ASSERT_EQ(guest.node(second), 1U);
    EXPECT_EQ(guest.read(2 * mib + 4096, 8), word);
    guest.rnic().dma_unmap_all();
    guest.map(second, 64 * mib);
    EXPECT_EQ(guest.node(second), 1U);
    EXPECT_EQ(guest.read(64 * mib + 4096, 8), word);
    guest.map(first, 0);
    EXPECT_EQ(guest.node(first), 0U);
    EXPECT_EQ(guest.read(0, 4096), 0U);
    guest.close();
  }));
  EXPECT_TRUE(in_child([&] { expect_replay(file); }));
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace orrery::cli::replay_test
