// VFIO_USER_DEVICE_GET_INFO, GET_REGION_INFO, GET_REGION_IO_FDS, GET_IRQ_INFO and DEVICE_RESET.
#include <gtest/gtest.h>

#include <cerrno>

#include "tests/qemu_bridge/session_harness.h"

namespace orrery::bridge::test::device_info_test {
namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;

wire::RegionInfo region_query(std::uint32_t index, std::uint32_t argsz = sizeof(wire::RegionInfo)) {
  return {argsz, 0, index, 0, 0, 0};
}

template <class Query>
void expect_fixed_size(wire::Command command, Query query) {
  Harness harness;
  const std::vector<std::byte> right = bytes_of(query);
  EXPECT_EQ(harness.error_of(command, right), 0);
  std::vector<std::byte> wrong = right;
  wrong.pop_back();
  EXPECT_EQ(harness.error_of(command, wrong), EINVAL);
  wrong = right;
  wrong.push_back(std::byte{0});
  EXPECT_EQ(harness.error_of(command, wrong), EINVAL);
  EXPECT_EQ(harness.error_of(command), EINVAL);
  query.argsz -= 1;
  EXPECT_EQ(harness.error_of(command, bytes_of(query)), EINVAL) << "no room for the reply";
  query.argsz = ~0U;
  EXPECT_EQ(harness.error_of(command, bytes_of(query)), 0) << "more room than needed is fine";
  const FileDescriptor event = make_eventfd();
  const int fd = event.get();
  EXPECT_EQ(harness.error_of(command, right, {&fd, 1}), EINVAL);
  EXPECT_EQ(harness.session.state(), Session::State::ready);
}

TEST(DeviceInfo, SizesAndRoom) {
  expect_fixed_size(wire::Command::device_get_info, wire::DeviceInfo{16, 0, 0, 0});
  expect_fixed_size(wire::Command::device_get_region_info, region_query(7));
  expect_fixed_size(wire::Command::device_get_region_io_fds, wire::RegionIoFds{16, 0, 0, 0});
  expect_fixed_size(wire::Command::device_get_irq_info, wire::IrqInfo{16, 0, 2, 0});
}

TEST(RegionInfo, EveryIndex) {
  Harness harness;
  for (std::uint32_t index = 0; index < wire::region_count; ++index) {
    const Reply reply = harness.call(wire::Command::device_get_region_info, bytes_of(region_query(index)));
    ASSERT_EQ(reply.error(), 0);
    const auto info = value_of<wire::RegionInfo>(reply.payload);
    const std::uint64_t size = index == 0 ? 4096 : index == 2 ? 2 * mib : index == 7 ? 4096 : 0;
    EXPECT_EQ(info.index, index);
    EXPECT_EQ(info.size, size);
    EXPECT_EQ(info.flags, size == 0 ? 0U : 3U);
    EXPECT_TRUE(reply.descriptors.empty());
  }
  for (const std::uint32_t index : {9U, 100U, ~0U}) {
    EXPECT_EQ(harness.error_of(wire::Command::device_get_region_info, bytes_of(region_query(index))), EINVAL);
  }
}

TEST(RegionInfo, MappableBar) {
  const FileDescriptor memory = make_memfd(2 * mib);
  const std::size_t before = open_descriptors();
  {
    Harness harness(FakeFunction(4, 2 * mib, memory.get()), {});
    // Without room for the capability: what there is, the room needed, and no promise of a list.
    const Reply brief = harness.call(wire::Command::device_get_region_info, bytes_of(region_query(2)));
    ASSERT_EQ(brief.payload.size(), 32U);
    const auto partial = value_of<wire::RegionInfo>(brief.payload);
    EXPECT_EQ(partial.argsz, 64U);
    EXPECT_EQ(partial.flags, 7U);
    EXPECT_EQ(partial.cap_offset, 0U);
    EXPECT_EQ(brief.descriptors.size(), 1U) << "the MMAP flag comes with a descriptor";
    const Reply odd = harness.call(wire::Command::device_get_region_info, bytes_of(region_query(2, 63)));
    EXPECT_EQ(odd.payload.size(), 32U);
    const Reply full = harness.call(wire::Command::device_get_region_info, bytes_of(region_query(2, 64)));
    ASSERT_EQ(full.payload.size(), 64U);
    EXPECT_EQ(value_of<wire::RegionInfo>(full.payload).flags, 15U);
    ASSERT_EQ(full.descriptors.size(), 1U);
    // It is the BAR's memory.
    ASSERT_EQ(::pwrite(full.descriptors[0].get(), "orrery", 6, 4096), 6);
    char text[6];
    ASSERT_EQ(::pread(memory.get(), text, 6, 4096), 6);
    EXPECT_EQ(std::string_view(text, 6), "orrery");
    // The descriptor belongs to this reply only.
    EXPECT_TRUE(
        harness.call(wire::Command::device_get_info, bytes_of(wire::DeviceInfo{16, 0, 0, 0})).descriptors.empty());
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(RegionInfo, MappingCanBeTurnedOff) {
  const FileDescriptor memory = make_memfd(2 * mib);
  SessionOptions options;
  options.allow_bar_mapping = false;
  Harness harness(FakeFunction(4, 2 * mib, memory.get()), options);
  const Reply reply = harness.call(wire::Command::device_get_region_info, bytes_of(region_query(2, 64)));
  const auto info = value_of<wire::RegionInfo>(reply.payload);
  EXPECT_EQ(info.flags, 3U);
  EXPECT_EQ(info.argsz, 32U);
  EXPECT_EQ(reply.payload.size(), 32U);
  EXPECT_TRUE(reply.descriptors.empty());
}

TEST(RegionInfo, ThirtyTwoGibibyteBar) {
  Harness harness({}, false);
  // The fake has no memory for it; only the description counts.
  class Huge : public FakeFunction {
   public:
    std::array<pcie::BarDescription, pcie::bar_count> bars() const override {
      auto all = FakeFunction::bars();
      all[2].size = std::uint64_t{32} << 30;
      return all;
    }
  } huge;
  Session session(huge, harness, harness.observer);
  const auto version = Harness::message(1, 1, version_payload(0, 0, ""));
  const auto query = Harness::message(2, 5, bytes_of(region_query(2)));
  for (const auto& message : {version, query}) {
    std::memcpy(session.space(Channel::main).data(), message.data(), message.size());
    session.received(Channel::main, message.size());
  }
  ASSERT_EQ(harness.sent.size(), 2U);
  EXPECT_EQ(value_of<wire::RegionInfo>(harness.sent[1].payload).size, std::uint64_t{32} << 30);
}

TEST(RegionIoFds, OffersNone) {
  const FileDescriptor memory = make_memfd(2 * mib);
  Harness harness(FakeFunction(4, 2 * mib, memory.get()), {});
  for (std::uint32_t index = 0; index < wire::region_count; ++index) {
    const Reply reply =
        harness.call(wire::Command::device_get_region_io_fds, bytes_of(wire::RegionIoFds{4096, 0, index, 0}));
    ASSERT_EQ(reply.error(), 0);
    const auto fds = value_of<wire::RegionIoFds>(reply.payload);
    EXPECT_EQ(reply.payload.size(), 16U);
    EXPECT_EQ(fds.argsz, 16U);
    EXPECT_EQ(fds.count, 0U);
    EXPECT_TRUE(reply.descriptors.empty());
  }
  const auto error = [&](const wire::RegionIoFds& query) {
    return harness.error_of(wire::Command::device_get_region_io_fds, bytes_of(query));
  };
  EXPECT_EQ(error({16, 0, 9, 0}), EINVAL);
  EXPECT_EQ(error({16, 1, 0, 0}), EINVAL);
  EXPECT_EQ(error({16, 0, 0, 1}), EINVAL);
}

TEST(IrqInfo, EveryIndex) {
  Harness harness(FakeFunction(32), {});
  const std::pair<std::uint32_t, std::uint32_t> expected[] = {{0, 0}, {0, 0}, {3, 32}, {1, 1}, {1, 1}};
  for (std::uint32_t index = 0; index < 5; ++index) {
    const Reply reply = harness.call(wire::Command::device_get_irq_info, bytes_of(wire::IrqInfo{16, 0, index, 0}));
    const auto info = value_of<wire::IrqInfo>(reply.payload);
    EXPECT_EQ(info.index, index);
    EXPECT_EQ(info.flags, expected[index].first);
    EXPECT_EQ(info.count, expected[index].second);
  }
  EXPECT_EQ(harness.error_of(wire::Command::device_get_irq_info, bytes_of(wire::IrqInfo{16, 0, 5, 0})), EINVAL);
  Harness without(FakeFunction(0), {});
  const Reply reply = without.call(wire::Command::device_get_irq_info, bytes_of(wire::IrqInfo{16, 0, 2, 0}));
  EXPECT_EQ(value_of<wire::IrqInfo>(reply.payload).count, 0U);
}

TEST(DeviceReset, ResetsAndKeepsMappingsAndEventfds) {
  Harness harness;
  const FileDescriptor event = make_eventfd();
  const int fd = event.get();
  ASSERT_EQ(harness.map(0, 4096), 0);
  const auto assign = bytes_of(wire::IrqSet{20, 0x24, 2, 0, 1});
  ASSERT_EQ(harness.error_of(wire::Command::device_set_irqs, assign, {&fd, 1}), 0);
  ASSERT_EQ(harness.error_of(wire::Command::device_set_irqs, bytes_of(wire::IrqSet{20, 0x09, 2, 0, 1})), 0);
  harness.function.sink->msix(0);
  EXPECT_EQ(harness.error_of(wire::Command::device_reset, bytes_of(std::uint32_t{0})), EINVAL);
  EXPECT_EQ(harness.function.resets, 0U);
  EXPECT_EQ(harness.error_of(wire::Command::device_reset), 0);
  EXPECT_EQ(harness.function.resets, 1U);
  EXPECT_EQ(harness.session.dma_mappings(), 1U);
  EXPECT_FALSE(harness.session.interrupts().masked(2, 0));
  EXPECT_EQ(take_events(fd), 0U) << "what was pending has gone with the reset";
  harness.function.sink->msix(0);
  EXPECT_EQ(take_events(fd), 1U);
}

}  // namespace
}  // namespace orrery::bridge::test::device_info_test
