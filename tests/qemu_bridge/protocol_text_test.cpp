// Exchanges byte for byte, as the tables of QEMU's docs/interop/vfio-user.rst lay them out.
//
// The bytes are written by hand from the text, little-endian, header first: message ID (2), command (2),
// message size (4), flags (4), error (4).
#include <gtest/gtest.h>

#include "tests/qemu_bridge/session_harness.h"

namespace orrery::bridge::test::protocol_text_test {
namespace {

std::vector<std::byte> hex(std::string_view text) {
  std::vector<std::byte> bytes;
  unsigned value = 0;
  int digits = 0;
  for (const char c : text) {
    if (c == ' ') {
      continue;
    }
    value = value * 16 + static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10);
    if (++digits % 2 == 0) {
      bytes.push_back(static_cast<std::byte>(value));
      value = 0;
    }
  }
  return bytes;
}

class ProtocolText : public testing::Test {
 protected:
  // The bytes that answer `request`.
  std::vector<std::byte> exchange(std::string_view request, std::span<const int> descriptors = {}) {
    harness.sent.clear();
    harness.feed(hex(request), descriptors);
    std::vector<std::byte> bytes;
    for (const Reply& reply : harness.sent) {
      append(bytes, reply.header);
      append_bytes(bytes, reply.payload);
    }
    return bytes;
  }

  FileDescriptor bar = make_memfd(std::size_t{2} << 20);
  Harness harness{FakeFunction(4, std::uint64_t{2} << 20, bar.get()), {}};
};

TEST_F(ProtocolText, Version) {
  Harness fresh({}, false);
  // major 0, minor 0, {"capabilities":{"max_msg_fds":8}} NUL
  fresh.feed(
      hex("0700 0100 37000000 00000000 00000000 0000 0000"
          "7b226361706162696c6974696573223a7b226d61785f6d73675f666473223a387d7d 00"));
  ASSERT_EQ(fresh.sent.size(), 1U);
  const Reply& reply = fresh.sent[0];
  // ... :16}} NUL: one byte longer.
  EXPECT_EQ(bytes_of(reply.header), hex("0700 0100 38000000 01000000 00000000"));
  EXPECT_EQ(reply.payload, hex("0000 0000 7b226361706162696c6974696573223a7b226d61785f6d73675f666473223a31367d7d 00"));
}

TEST_F(ProtocolText, DmaMapAndUnmap) {
  const FileDescriptor ram = make_memfd(0x10000);
  const int fd = ram.get();
  // argsz 32, readable and writeable, file offset 0x1000, address 0x100000, size 0x2000
  EXPECT_EQ(exchange("0100 0200 30000000 00000000 00000000"
                     "20000000 03000000 0010000000000000 0000100000000000 0020000000000000",
                     {&fd, 1}),
            hex("0100 0200 10000000 01000000 00000000"));
  ASSERT_EQ(harness.function.mappings.size(), 1U);
  const auto& [iova, mapping] = *harness.function.mappings.begin();
  EXPECT_EQ(iova, 0x100000U);
  EXPECT_EQ(mapping.size, 0x2000U);
  EXPECT_EQ(mapping.file_offset, 0x1000U);
  EXPECT_TRUE(mapping.access.read && mapping.access.write);
  // Mapping over it: EEXIST, 17, header only.
  EXPECT_EQ(exchange("0200 0200 30000000 00000000 00000000"
                     "20000000 01000000 0000000000000000 0010100000000000 0010000000000000"),
            hex("0200 0200 10000000 21000000 11000000"));
  // The unmap's reply repeats its entry.
  EXPECT_EQ(exchange("0300 0300 28000000 00000000 00000000 18000000 00000000 0000100000000000 0020000000000000"),
            hex("0300 0300 28000000 01000000 00000000 18000000 00000000 0000100000000000 0020000000000000"));
}

TEST_F(ProtocolText, DeviceGetInfo) {
  // flags 3 (RESET, PCI), 9 regions, 5 interrupt types
  EXPECT_EQ(exchange("0400 0400 20000000 00000000 00000000 10000000 00000000 00000000 00000000"),
            hex("0400 0400 20000000 01000000 00000000 10000000 03000000 09000000 05000000"));
}

TEST_F(ProtocolText, RegionInfoOfConfigurationSpace) {
  EXPECT_EQ(exchange("0500 0500 30000000 00000000 00000000"
                     "20000000 00000000 07000000 00000000 0000000000000000 0000000000000000"),
            hex("0500 0500 30000000 01000000 00000000"
                "20000000 03000000 07000000 00000000 0010000000000000 0000000000000000"));
}

TEST_F(ProtocolText, RegionInfoOfAMappableBar) {
  // argsz 64: READ, WRITE, MMAP, CAPS; capability at 32: id 1, version 1, next 0, 1 area, offset 0, 2 MiB
  EXPECT_EQ(exchange("0600 0500 30000000 00000000 00000000"
                     "40000000 00000000 02000000 00000000 0000000000000000 0000000000000000"),
            hex("0600 0500 50000000 01000000 00000000"
                "40000000 0f000000 02000000 20000000 0000200000000000 0000000000000000"
                "0100 0100 00000000 01000000 00000000 0000000000000000 0000200000000000"));
  EXPECT_EQ(harness.sent[0].descriptors.size(), 1U);
}

TEST_F(ProtocolText, RegionIoFds) {
  EXPECT_EQ(exchange("0700 0600 20000000 00000000 00000000 10000000 00000000 02000000 00000000"),
            hex("0700 0600 20000000 01000000 00000000 10000000 00000000 02000000 00000000"));
}

TEST_F(ProtocolText, IrqInfo) {
  // MSI-X: EVENTFD and MASKABLE, 4 vectors
  EXPECT_EQ(exchange("0800 0700 20000000 00000000 00000000 10000000 00000000 02000000 00000000"),
            hex("0800 0700 20000000 01000000 00000000 10000000 03000000 02000000 04000000"));
}

TEST_F(ProtocolText, SetIrqs) {
  const FileDescriptor event = make_eventfd();
  const int fd = event.get();
  // argsz 20, DATA_EVENTFD and ACTION_TRIGGER, MSI-X, start 1, count 1
  EXPECT_EQ(exchange("0900 0800 24000000 00000000 00000000 14000000 24000000 02000000 01000000 01000000", {&fd, 1}),
            hex("0900 0800 10000000 01000000 00000000"));
  harness.function.sink->msix(1);
  EXPECT_EQ(take_events(fd), 1U);
  // DATA_BOOL and ACTION_TRIGGER for vectors 0 to 2: 0, 1, 0; argsz 23
  EXPECT_EQ(exchange("0a00 0800 27000000 00000000 00000000 17000000 22000000 02000000 00000000 03000000 000100"),
            hex("0a00 0800 10000000 01000000 00000000"));
  EXPECT_EQ(take_events(fd), 1U);
}

TEST_F(ProtocolText, RegionReadAndWrite) {
  // write 4 bytes at 0x10 of region 0; the reply repeats offset, region and count
  EXPECT_EQ(exchange("0b00 0a00 24000000 00000000 00000000 1000000000000000 00000000 04000000 deadbeef"),
            hex("0b00 0a00 20000000 01000000 00000000 1000000000000000 00000000 04000000"));
  EXPECT_EQ(exchange("0c00 0900 20000000 00000000 00000000 1000000000000000 00000000 04000000"),
            hex("0c00 0900 24000000 01000000 00000000 1000000000000000 00000000 04000000 deadbeef"));
  // No_reply: nothing comes back
  EXPECT_EQ(exchange("0d00 0a00 21000000 10000000 00000000 1000000000000000 00000000 01000000 77"), hex(""));
  EXPECT_EQ(harness.function.memory(0)[0x10], std::byte{0x77});
}

TEST_F(ProtocolText, RegionWriteMulti) {
  // two writes: 1 byte 0xaa at 0x20, 8 bytes at 0x28
  EXPECT_EQ(exchange("0e00 0f00 48000000 00000000 00000000 0200000000000000"
                     "2000000000000000 00000000 01000000 aa00000000000000"
                     "2800000000000000 00000000 08000000 0102030405060708"),
            hex("0e00 0f00 18000000 01000000 00000000 0200000000000000"));
  EXPECT_EQ(harness.function.memory(0)[0x20], std::byte{0xaa});
  EXPECT_EQ(harness.function.memory(0)[0x21], std::byte{0});
  EXPECT_EQ(harness.function.memory(0)[0x2f], std::byte{8});
}

TEST_F(ProtocolText, DmaReadAndWrite) {
  ASSERT_EQ(harness.map(0x4000, 0x1000), 0);
  harness.sent.clear();
  pcie::MessageMemory* memory = harness.function.mappings.at(0x4000).messages;
  ASSERT_NE(memory, nullptr);
  std::array<std::byte, 4> into{};
  int done = 0;
  const auto count = [](void* counter, bool ok) { *static_cast<int*>(counter) += ok ? 1 : 100; };
  memory->read(Iova{0x4010}, into, count, &done);
  ASSERT_EQ(harness.sent.size(), 1U);
  // address 0x4010, count 4
  EXPECT_EQ(bytes_of(harness.sent[0].header), hex("0000 0b00 20000000 00000000 00000000"));
  EXPECT_EQ(harness.sent[0].payload, hex("1040000000000000 0400000000000000"));
  harness.feed(hex("0000 0b00 24000000 01000000 00000000 1040000000000000 0400000000000000 cafebabe"));
  EXPECT_EQ(done, 1);
  EXPECT_EQ(std::vector<std::byte>(into.begin(), into.end()), hex("cafebabe"));

  harness.sent.clear();
  memory->write(Iova{0x4020}, into, count, &done);
  ASSERT_EQ(harness.sent.size(), 1U);
  EXPECT_EQ(bytes_of(harness.sent[0].header), hex("0100 0c00 24000000 00000000 00000000"));
  EXPECT_EQ(harness.sent[0].payload, hex("2040000000000000 0400000000000000 cafebabe"));
  // The reply to a write has a count of 4 bytes.
  harness.feed(hex("0100 0c00 1c000000 01000000 00000000 2040000000000000 04000000"));
  EXPECT_EQ(done, 2);
}

TEST_F(ProtocolText, DeviceReset) {
  EXPECT_EQ(exchange("0f00 0d00 10000000 00000000 00000000"), hex("0f00 0d00 10000000 01000000 00000000"));
  EXPECT_EQ(harness.function.resets, 1U);
}

TEST_F(ProtocolText, RefusalsAreBareHeaders) {
  // DEVICE_FEATURE: GET of feature 1, migration: ENOTTY, 25
  EXPECT_EQ(exchange("1000 1000 18000000 00000000 00000000 10000000 01000100"),
            hex("1000 1000 10000000 21000000 19000000"));
  // MIG_DATA_READ: EOPNOTSUPP, 95
  EXPECT_EQ(exchange("1100 1100 18000000 00000000 00000000 08000000 00000000"),
            hex("1100 1100 10000000 21000000 5f000000"));
  // Command 19, unknown: ENOSYS, 38
  EXPECT_EQ(exchange("1200 1300 10000000 00000000 00000000"), hex("1200 1300 10000000 21000000 26000000"));
}

}  // namespace
}  // namespace orrery::bridge::test::protocol_text_test
