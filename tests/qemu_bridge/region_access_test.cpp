// VFIO_USER_REGION_READ, REGION_WRITE and REGION_WRITE_MULTI.
#include <gtest/gtest.h>

#include <cerrno>
#include <numeric>

#include "tests/qemu_bridge/session_harness.h"

namespace orrery::bridge::test::region_access_test {
namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;
constexpr std::uint64_t top = ~std::uint64_t{0};

std::vector<std::byte> access(std::uint64_t offset, std::uint32_t region, std::uint32_t count,
                              std::span<const std::byte> data = {}) {
  std::vector<std::byte> payload = bytes_of(wire::RegionAccess{offset, region, count});
  append_bytes(payload, data);
  return payload;
}

std::vector<std::byte> counting(std::size_t size) {
  std::vector<std::byte> data(size);
  for (std::size_t i = 0; i < size; ++i) {
    data[i] = static_cast<std::byte>(i * 7);
  }
  return data;
}

class RegionAccess : public testing::Test {
 protected:
  int read_error(std::uint64_t offset, std::uint32_t region, std::uint32_t count) {
    return harness.error_of(wire::Command::region_read, access(offset, region, count));
  }
  int write_error(std::uint64_t offset, std::uint32_t region, std::uint32_t count, std::span<const std::byte> data) {
    return harness.error_of(wire::Command::region_write, access(offset, region, count, data));
  }
  Harness harness;
};

TEST_F(RegionAccess, ReadsAndWritesEverySize) {
  for (const std::uint32_t size : {1U, 2U, 4U, 8U, 3U, 64U, 4096U}) {
    const std::vector<std::byte> data = counting(size);
    ASSERT_EQ(write_error(0, 0, size, data), 0);
    const Reply reply = harness.call(wire::Command::region_read, access(0, 0, size));
    ASSERT_EQ(reply.error(), 0);
    EXPECT_EQ(std::vector<std::byte>(reply.payload.begin() + 16, reply.payload.end()), data);
    EXPECT_EQ(harness.function.accesses.back().data, data) << "one access of the function";
  }
}

TEST_F(RegionAccess, AMebibyteAtOnce) {
  const std::vector<std::byte> data = counting(mib);
  ASSERT_EQ(write_error(mib, 2, mib, data), 0);
  const Reply reply = harness.call(wire::Command::region_read, access(mib, 2, mib));
  ASSERT_EQ(reply.payload.size(), 16 + mib);
  EXPECT_TRUE(std::equal(data.begin(), data.end(), reply.payload.begin() + 16));
  EXPECT_EQ(read_error(0, 2, mib + 1), EINVAL);
  EXPECT_EQ(read_error(0, 2, ~0U), EINVAL);
  const std::vector<std::byte> more = counting(mib + 1);
  harness.call(wire::Command::region_write, access(0, 2, mib + 1, more));
  EXPECT_EQ(harness.session.state(), Session::State::closed) << "a message above the limit can't be skipped";
}

// There are configuration requests of at most 4 bytes, and none crosses a double word. QEMU reads all
// 4096 bytes in one message.
TEST_F(RegionAccess, ConfigurationSpaceIsReadByDoubleWords) {
  harness.function.config() = counting(4096);
  const Reply reply = harness.call(wire::Command::region_read, access(0, 7, 4096));
  ASSERT_EQ(reply.payload.size(), 16U + 4096U);
  EXPECT_TRUE(std::equal(reply.payload.begin() + 16, reply.payload.end(), harness.function.config().begin()));
  EXPECT_EQ(harness.function.accesses.size(), 1024U);
  harness.function.accesses.clear();
  ASSERT_EQ(write_error(0x41, 7, 8, counting(8)), 0);
  std::vector<std::pair<std::uint64_t, std::size_t>> pieces;
  for (const Access& piece : harness.function.accesses) {
    pieces.emplace_back(piece.offset, piece.data.size());
  }
  const std::vector<std::pair<std::uint64_t, std::size_t>> expected{{0x41, 1}, {0x42, 2}, {0x44, 4}, {0x48, 1}};
  EXPECT_EQ(pieces, expected);
}

TEST_F(RegionAccess, BoundsOfTheRegion) {
  EXPECT_EQ(read_error(4095, 0, 1), 0);
  EXPECT_EQ(read_error(4095, 0, 2), EINVAL);
  EXPECT_EQ(read_error(4096, 0, 1), EINVAL);
  EXPECT_EQ(read_error(4096, 0, 0), 0) << "nothing, at the end";
  EXPECT_EQ(read_error(4097, 0, 0), EINVAL);
  EXPECT_EQ(read_error(top, 0, 1), EINVAL);
  EXPECT_EQ(read_error(top - 3, 0, 8), EINVAL) << "offset + count wraps";
  EXPECT_EQ(read_error(0xffe, 7, 4), EINVAL);
  for (const std::uint32_t region : {1U, 3U, 4U, 5U, 6U, 8U, 9U, 255U, ~0U}) {
    EXPECT_EQ(read_error(0, region, 4), EINVAL) << region;
    EXPECT_EQ(write_error(0, region, 1, counting(1)), EINVAL) << region;
  }
  harness.function.accesses.clear();
  EXPECT_EQ(write_error(top - 3, 2, 8, counting(8)), EINVAL);
  EXPECT_EQ(write_error(2 * mib - 4, 2, 8, counting(8)), EINVAL);
  EXPECT_TRUE(harness.function.accesses.empty());
}

TEST_F(RegionAccess, SizesMustAgree) {
  EXPECT_EQ(harness.error_of(wire::Command::region_read), EINVAL);
  EXPECT_EQ(harness.error_of(wire::Command::region_read, access(0, 0, 4, counting(4))), EINVAL);
  EXPECT_EQ(harness.error_of(wire::Command::region_write), EINVAL);
  EXPECT_EQ(write_error(0, 0, 4, counting(3)), EINVAL);
  EXPECT_EQ(write_error(0, 0, 4, counting(5)), EINVAL);
  EXPECT_EQ(write_error(0, 0, 0, counting(1)), EINVAL);
  EXPECT_EQ(write_error(0, 0, ~0U, counting(4)), EINVAL);
  EXPECT_TRUE(harness.function.accesses.empty());
}

TEST_F(RegionAccess, PostedWritesGetNoReplyEvenWhenTheyFail) {
  const Reply good = harness.call(wire::Command::region_write, access(0, 0, 4, counting(4)), {}, wire::flag_no_reply);
  const Reply bad = harness.call(wire::Command::region_write, access(top, 0, 4, counting(4)), {}, wire::flag_no_reply);
  EXPECT_EQ(good.header.message_size, 0U);
  EXPECT_EQ(bad.header.message_size, 0U);
  EXPECT_EQ(harness.function.accesses.size(), 1U);
  EXPECT_EQ(harness.session.counters().posted_writes, 1U);
  EXPECT_EQ(harness.session.counters().refused_posted, 1U);
  EXPECT_EQ(harness.session.state(), Session::State::ready);
}

TEST_F(RegionAccess, TheObserverSeesStimuliInOrder) {
  write_error(0, 0, 1, counting(1));
  read_error(0, 0, 1);
  read_error(top, 0, 1);
  const std::vector<std::string> expected{"write", "read", "read done", "refused"};
  EXPECT_EQ(harness.observer.notes, expected);
}

TEST_F(RegionAccess, AnInterruptFiredByAWriteReachesItsEventfd) {
  const FileDescriptor event = make_eventfd();
  const int fd = event.get();
  ASSERT_EQ(harness.error_of(wire::Command::device_set_irqs, bytes_of(wire::IrqSet{20, 0x24, 2, 3, 1}), {&fd, 1}), 0);
  harness.function.fire_on_write = true;
  const std::byte vector{3};
  ASSERT_EQ(write_error(8, 0, 1, {&vector, 1}), 0);
  EXPECT_EQ(take_events(fd), 1U);
}

class WriteMulti : public RegionAccess {
 protected:
  static wire::WriteMultiEntry entry(std::uint64_t offset, std::uint32_t region, std::uint32_t count) {
    return {offset, region, count, {1, 2, 3, 4, 5, 6, 7, 8}};
  }
  static std::vector<std::byte> multi(std::uint64_t count, std::span<const wire::WriteMultiEntry> entries) {
    std::vector<std::byte> payload = bytes_of(count);
    append_bytes(payload, std::as_bytes(entries));
    return payload;
  }
  int error(std::uint64_t count, std::span<const wire::WriteMultiEntry> entries) {
    return harness.error_of(wire::Command::region_write_multi, multi(count, entries));
  }
};

TEST_F(WriteMulti, WritesInOrder) {
  std::vector<wire::WriteMultiEntry> entries;
  for (std::uint64_t i = 0; i < 200; ++i) {
    entries.push_back(entry(i * 8, 0, static_cast<std::uint32_t>(i % 8 + 1)));
  }
  ASSERT_EQ(error(200, entries), 0);
  ASSERT_EQ(harness.function.accesses.size(), 200U);
  for (std::uint64_t i = 0; i < 200; ++i) {
    EXPECT_EQ(harness.function.accesses[i].offset, i * 8);
    EXPECT_EQ(harness.function.accesses[i].data.size(), i % 8 + 1);
  }
  harness.call(wire::Command::region_write_multi, multi(200, entries), {}, wire::flag_no_reply);
  EXPECT_EQ(harness.session.counters().posted_writes, 200U);
}

TEST_F(WriteMulti, OneBadWriteSpoilsAll) {
  const wire::WriteMultiEntry good = entry(0, 0, 4);
  for (const wire::WriteMultiEntry& bad : {entry(4093, 0, 4), entry(top, 0, 1), entry(0, 0, 0), entry(0, 0, 9),
                                           entry(0, 1, 4), entry(0, 9, 4), entry(0, 0, ~0U)}) {
    const std::array<wire::WriteMultiEntry, 3> entries{good, good, bad};
    EXPECT_EQ(error(3, entries), EINVAL);
  }
  EXPECT_TRUE(harness.function.accesses.empty());
}

TEST_F(WriteMulti, TheCountMustMatchTheSize) {
  const std::array<wire::WriteMultiEntry, 2> entries{entry(0, 0, 4), entry(8, 0, 4)};
  EXPECT_EQ(error(1, entries), EINVAL);
  EXPECT_EQ(error(3, entries), EINVAL);
  EXPECT_EQ(error(top, entries), EINVAL);
  EXPECT_EQ(error((std::uint64_t{1} << 61) + 2, entries), EINVAL) << "24 times the count wraps to the right size";
  EXPECT_EQ(error(0, {}), 0);
  EXPECT_EQ(harness.error_of(wire::Command::region_write_multi), EINVAL);
  std::vector<std::byte> payload = multi(2, entries);
  payload.pop_back();
  EXPECT_EQ(harness.error_of(wire::Command::region_write_multi, payload), EINVAL);
  EXPECT_TRUE(harness.function.accesses.empty());
}

TEST_F(WriteMulti, MustHaveBeenNegotiated) {
  Harness plain({}, false);
  plain.negotiate(R"({"capabilities":{"write_multiple":false}})");
  const std::array<wire::WriteMultiEntry, 1> entries{entry(0, 0, 4)};
  EXPECT_EQ(plain.error_of(wire::Command::region_write_multi, multi(1, entries)), EOPNOTSUPP);
}

}  // namespace
}  // namespace orrery::bridge::test::region_access_test
