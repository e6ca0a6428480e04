// The example device crc32c_device.so, built against an installed tree, in both time modes.
#include <sys/wait.h>

#include <array>
#include <boost/crc.hpp>

#include "crc32c_registers.h"
#include "pcie/tlp_trace.h"
#include "plugin_host.h"

namespace orrery::test {
namespace {

class Crc32c : public testing::TestWithParam<const char*> {
 protected:
  PluginHost host{ORRERY_TEST_EXAMPLES "/systemc_device/crc32c_device.so", GetParam()};

  static constexpr std::uint64_t record_at = 0x8000;

  crc32c_record record() const {
    crc32c_record found;
    std::memcpy(&found, host.ram + record_at, sizeof(found));
    return found;
  }
  void set_up(std::uint64_t source, std::uint64_t length, std::uint64_t record_address) {
    host.write64(CRC32C_SOURCE, source);
    host.write64(CRC32C_LENGTH, length);
    host.write64(CRC32C_RECORD, record_address);
  }
  void run(std::uint64_t offset, std::uint64_t length) {
    std::memset(host.ram + record_at, 0xee, sizeof(crc32c_record));
    set_up(host.iova(offset), length, host.iova(record_at));
    const std::size_t before = host.interrupts.size();
    host.write32(CRC32C_CONTROL, CRC32C_START);
    ASSERT_TRUE(host.wait_for_interrupts(before + 1));
    EXPECT_EQ(host.interrupts.back(), 0U);
  }
  // Starts, and stops in the middle: some of its reads have been made.
  void start_and_step() {
    host.post(CRC32C_CONTROL, CRC32C_START);
    const Picoseconds start = host.platform.now();
    for (int i = 0; i < 20 || (GetParam() == std::string("timed") && host.platform.now() < start + 5_us); ++i) {
      host.platform.advance(host.platform.next_activity(), 1);
    }
    ASSERT_EQ(host.read32(CRC32C_STATUS), CRC32C_BUSY);
  }
  void expect_result(std::uint32_t crc, std::uint64_t length) {
    EXPECT_EQ(host.read32(CRC32C_STATUS), CRC32C_DONE);
    EXPECT_EQ(host.read32(CRC32C_RESULT), crc);
    EXPECT_EQ(record().crc, crc);
    EXPECT_EQ(record().status, CRC32C_DONE);
    EXPECT_EQ(record().length, length);
  }
};

TEST_P(Crc32c, ShowsItsIdentity) {
  EXPECT_EQ(host.config_read32(0), (CRC32C_DEVICE_ID << 16) | CRC32C_VENDOR_ID);
  EXPECT_EQ(host.config_read32(8) >> 8, 0x12'0000U);
  EXPECT_EQ(host.device->msix_vectors(), 1U);
  EXPECT_EQ(host.read32(CRC32C_ID), CRC32C_ID_VALUE);
}

// RFC 3720, appendix B.4. The document prints the bytes as they are sent, least significant first.
TEST_P(Crc32c, PublishedVectors) {
  std::memset(host.ram + 0x1000, 0, 32);
  run(0x1000, 32);
  expect_result(0x8a9136aa, 32);
  std::memset(host.ram + 0x1000, 0xff, 32);
  run(0x1000, 32);
  expect_result(0x62a8ab43, 32);
  for (unsigned i = 0; i < 32; ++i) {
    host.ram[0x1000 + i] = static_cast<unsigned char>(i);
  }
  run(0x1000, 32);
  expect_result(0x46dd794e, 32);
  for (unsigned i = 0; i < 32; ++i) {
    host.ram[0x1000 + i] = static_cast<unsigned char>(31 - i);
  }
  run(0x1000, 32);
  expect_result(0x113fdb5c, 32);
}

TEST_P(Crc32c, RandomDataOfAnyLengthAndAlignment) {
  for (const std::uint64_t length : {0UL, 1UL, 7UL, 4096UL, 65536UL, 65537UL, 300'001UL}) {
    const std::uint64_t offset = 0x10000 + host.uniform(0, 4095);
    host.fill_random(offset, length);
    boost::crc_optimal<32, 0x1edc6f41, 0xffffffff, 0xffffffff, true, true> reference;
    reference.process_bytes(host.ram + offset, length);
    run(offset, length);
    expect_result(reference.checksum(), length);
  }
}

TEST_P(Crc32c, UnmappedSourceFailsAndWritesNothing) {
  host.fill_random(0x20000, 0x4000);
  host.unmap(0x22000, 4096);
  run(0x20000, 0x4000);
  EXPECT_EQ(host.read32(CRC32C_STATUS), CRC32C_FAILED);
  EXPECT_EQ(record().crc, 0xeeee'eeeeU);
  const auto fault = host.platform.iommu().take_fault();
  ASSERT_TRUE(fault);
  EXPECT_GE(fault->address.value, host.iova(0x22000) & ~std::uint64_t{511});
  EXPECT_LT(fault->address.value, host.iova(0x23000));
  // And the device works on.
  run(0x20000, 0x2000);
  EXPECT_EQ(host.read32(CRC32C_STATUS), CRC32C_DONE);
}

TEST_P(Crc32c, ReadOnlyRecordPageFails) {
  host.unmap(record_at, 4096);
  host.map(record_at, 4096, {true, false});
  run(0x1000, 64);
  // A zero-length read of a page that may only be read succeeds: only the fault record tells of the write.
  EXPECT_EQ(record().crc, 0xeeee'eeeeU);
  const auto fault = host.platform.iommu().take_fault();
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->direction, pcie::DmaDirection::write);
}

TEST_P(Crc32c, UnmappedRecordPageFails) {
  host.unmap(record_at, 4096);
  run(0x1000, 64);
  EXPECT_EQ(host.read32(CRC32C_STATUS), CRC32C_FAILED);
}

TEST_P(Crc32c, BusMasterOffStopsDmaAndInterrupts) {
  set_up(host.iova(0x1000), 64, host.iova(record_at));
  host.command(pcie::command_bit::memory_space);
  host.write32(CRC32C_CONTROL, CRC32C_START);
  host.run_to_rest();
  EXPECT_EQ(host.read32(CRC32C_STATUS), CRC32C_FAILED);
  EXPECT_TRUE(host.interrupts.empty());
}

TEST_P(Crc32c, ResetInTheMiddleOfDmaThenStartsAtOnce) {
  host.fill_random(0x100000, 0x100000);
  std::memset(host.ram + record_at, 0xee, sizeof(crc32c_record));
  set_up(host.iova(0x100000), 0x100000, host.iova(record_at));
  start_and_step();
  host.device->reset();
  host.command(pcie::command_bit::memory_space | pcie::command_bit::bus_master);
  EXPECT_EQ(host.read32(CRC32C_STATUS), CRC32C_IDLE);
  EXPECT_EQ(host.read32(CRC32C_SOURCE), 0U);
  EXPECT_EQ(record().crc, 0xeeee'eeeeU);

  host.ram[0x1000] = 'a';
  boost::crc_optimal<32, 0x1edc6f41, 0xffffffff, 0xffffffff, true, true> reference;
  reference.process_byte('a');
  run(0x1000, 1);
  expect_result(reference.checksum(), 1);
  host.run_to_rest();
  EXPECT_EQ(host.interrupts.size(), 1U);
  expect_result(reference.checksum(), 1);
  EXPECT_TRUE(host.platform.at_rest());
}

TEST_P(Crc32c, DisconnectedGuestLeavesNothingBehind) {
  set_up(host.iova(0x100000), 0x100000, host.iova(record_at));
  start_and_step();
  host.device->disconnect();
  host.run_to_rest();
  EXPECT_TRUE(host.interrupts.empty());
  EXPECT_TRUE(host.platform.at_rest());
}

TEST_P(Crc32c, RefusesUnknownRegistersAndSizes) {
  EXPECT_EQ(host.read32(0x2c), 0xffff'ffffU);
  EXPECT_EQ(host.read32(0xffc), 0xffff'ffffU);
  EXPECT_EQ(host.read<std::uint16_t>(CRC32C_ID), 0xffffU);
  host.write64(CRC32C_SOURCE, 0x1234'5678'9abc'def0);
  EXPECT_EQ(host.read64(CRC32C_SOURCE), 0x1234'5678'9abc'def0U);  // as two of 32 bits
  host.post<std::uint8_t>(CRC32C_SOURCE, 0x55);
  host.platform.settle();
  EXPECT_EQ(host.read64(CRC32C_SOURCE), 0x1234'5678'9abc'def0U);
}

INSTANTIATE_TEST_SUITE_P(Modes, Crc32c, testing::Values("functional", "timed"),
                         [](const auto& mode) { return std::string(mode.param); });

TEST(Crc32cTime, BytesCostWhatTheParameterSays) {
  PluginHost host(ORRERY_TEST_EXAMPLES "/systemc_device/crc32c_device.so", "timed", "byte_ps = 1000");
  const auto measure = [&](std::uint64_t length) {
    host.write64(CRC32C_SOURCE, host.iova(0x10000));
    host.write64(CRC32C_LENGTH, length);
    host.write64(CRC32C_RECORD, host.iova(0x8000));
    const std::size_t before = host.interrupts.size();
    const Picoseconds start = host.platform.now();
    host.write32(CRC32C_CONTROL, CRC32C_START);
    EXPECT_TRUE(host.wait_for_interrupts(before + 1));
    return (host.platform.now() - start).count;
  };
  // Without data: one confirmed write and an interrupt, a few round trips. With 64 KiB: 65.536 us more for the
  // checksum, and the time of a read of 64 KiB over a link of at most 63 GB/s.
  const std::uint64_t empty = measure(0);
  EXPECT_GT(empty, 1'000'000U);
  EXPECT_LT(empty, 10'000'000U);
  const std::uint64_t full = measure(65536);
  EXPECT_GT(full - empty, 65'536'000U + 1'040'000U);
  EXPECT_LT(full - empty, 65'536'000U + 10'000'000U);
}

TEST(Crc32cTime, FunctionalModeTakesNoTime) {
  PluginHost host(ORRERY_TEST_EXAMPLES "/systemc_device/crc32c_device.so", "functional", "byte_ps = 1000");
  host.write64(CRC32C_SOURCE, host.iova(0));
  host.write64(CRC32C_LENGTH, 1 << 20);
  host.write64(CRC32C_RECORD, host.iova(0x8000));
  const Picoseconds start = host.platform.now();
  host.write32(CRC32C_CONTROL, CRC32C_START);
  EXPECT_TRUE(host.wait_for_interrupts(1));
  EXPECT_EQ(host.platform.now(), start);
}

// Two processes, as a process has one platform.
TEST(Crc32cTime, EqualRunsAreEqualToThePicosecond) {
  const auto run = [](int into) {
    PluginHost host(ORRERY_TEST_EXAMPLES "/systemc_device/crc32c_device.so", "timed", "byte_ps = 7");
    pcie::TlpTrace trace(host.platform.simulation());
    host.platform.simulation().observer = &trace;
    for (unsigned i = 0; i < 5; ++i) {
      host.write64(CRC32C_SOURCE, host.iova(host.uniform(0, 1 << 20)));
      host.write64(CRC32C_LENGTH, host.uniform(0, 1 << 18));
      host.write64(CRC32C_RECORD, host.iova(0x800000));
      host.write32(CRC32C_CONTROL, CRC32C_START);
      host.wait_for_interrupts(i + 1);
    }
    const std::array<std::uint64_t, 3> end{host.platform.now().count, trace.hash(), host.interrupts.size()};
    return write(into, end.data(), sizeof(end)) == sizeof(end);
  };
  std::array<std::array<std::uint64_t, 3>, 2> ends{};
  for (auto& end : ends) {
    std::array<int, 2> ends_of_pipe{};
    ASSERT_EQ(pipe(ends_of_pipe.data()), 0);
    const pid_t child = fork();
    if (child == 0) {
      _exit(run(ends_of_pipe[1]) ? 0 : 1);
    }
    close(ends_of_pipe[1]);
    EXPECT_EQ(read(ends_of_pipe[0], end.data(), sizeof(end)), static_cast<ssize_t>(sizeof(end)));
    close(ends_of_pipe[0]);
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(ends[0], ends[1]);
  EXPECT_EQ(ends[0][2], 5U);
}

}  // namespace
}  // namespace orrery::test
