// VFIO_USER_DMA_MAP and VFIO_USER_DMA_UNMAP.
#include <gtest/gtest.h>

#include <cerrno>

#include "tests/qemu_bridge/session_harness.h"

namespace orrery::bridge::test::dma_map_test {
namespace {

constexpr std::uint64_t page = 4096;
constexpr std::uint64_t top = ~std::uint64_t{0};

std::vector<std::byte> map_payload(std::uint32_t argsz, std::uint32_t flags, std::uint64_t offset,
                                   std::uint64_t address, std::uint64_t size) {
  return bytes_of(wire::DmaMap{argsz, flags, offset, address, size});
}

TEST(DmaMap, PassesTheDescriptorAndRights) {
  Harness harness;
  const FileDescriptor ram = make_memfd(16 * page);
  const int fd = ram.get();
  EXPECT_EQ(harness.map(0x10000, 4 * page, {&fd, 1}, 2 * page, wire::dma_map_readable), 0);
  const FakeFunction::Mapping& mapping = harness.function.mappings.at(0x10000);
  EXPECT_EQ(mapping.file_offset, 2 * page);
  EXPECT_TRUE(mapping.access.read);
  EXPECT_FALSE(mapping.access.write);
  EXPECT_EQ(mapping.messages, nullptr) << "memory with a descriptor needs no messages";
  EXPECT_EQ(harness.map(0x20000, page), 0);
  EXPECT_NE(harness.function.mappings.at(0x20000).messages, nullptr);
}

TEST(DmaMap, MalformedRequestsNeverReachTheFunction) {
  Harness harness;
  const auto error = [&](const std::vector<std::byte>& payload) {
    return harness.error_of(wire::Command::dma_map, payload);
  };
  EXPECT_EQ(error({}), EINVAL);
  std::vector<std::byte> payload = map_payload(32, 3, 0, page, page);
  payload.pop_back();
  EXPECT_EQ(error(payload), EINVAL);  // truncated
  payload.resize(33);
  EXPECT_EQ(error(payload), EINVAL);  // oversized
  EXPECT_EQ(error(map_payload(31, 3, 0, page, page)), EINVAL);
  EXPECT_EQ(error(map_payload(32, 0, 0, page, page)), EINVAL);  // no right
  EXPECT_EQ(error(map_payload(32, 7, 0, page, page)), EINVAL);  // unknown flag
  EXPECT_EQ(error(map_payload(32, 3, 0, page, 0)), EINVAL);
  EXPECT_EQ(error(map_payload(32, 3, 0, page + 1, page)), EINVAL);
  EXPECT_EQ(error(map_payload(32, 3, 0, page, page - 1)), EINVAL);
  EXPECT_EQ(error(map_payload(32, 3, 0, top - page + 1, 2 * page)), EINVAL);  // wraps
  EXPECT_EQ(error(map_payload(32, 3, 0, 2 * page, top - page + 1)), EINVAL);
  EXPECT_EQ(error(map_payload(32, 3, page, page, page)), EINVAL);  // an offset without a descriptor
  const FileDescriptor ram = make_memfd(page);
  const std::array<int, 2> two{ram.get(), ram.get()};
  EXPECT_EQ(harness.map(page, page, two), EINVAL);
  EXPECT_EQ(harness.map(page, page, {two.data(), 1}, 100), EINVAL);                 // unaligned offset
  EXPECT_EQ(harness.map(page, 2 * page, {two.data(), 1}, top - page + 1), EINVAL);  // offset + size wraps
  EXPECT_EQ(harness.function.map_calls, 0U);
  EXPECT_EQ(harness.session.state(), Session::State::ready);
}

TEST(DmaMap, TheLastPageOfTheAddressSpaceCanBeMapped) {
  Harness harness;
  EXPECT_EQ(harness.map(top - page + 1, page), 0);
  EXPECT_EQ(harness.map(top - page + 1, page), EEXIST);
  EXPECT_EQ(harness.unmap(top - page + 1, page), 0);
}

TEST(DmaMap, OverlapIsEexist) {
  Harness harness;
  ASSERT_EQ(harness.map(0x10000, 4 * page), 0);
  EXPECT_EQ(harness.map(0x10000, 4 * page), EEXIST);          // the same
  EXPECT_EQ(harness.map(0x0f000, 2 * page), EEXIST);          // its head
  EXPECT_EQ(harness.map(0x13000, 2 * page), EEXIST);          // its tail
  EXPECT_EQ(harness.map(0x11000, page), EEXIST);              // inside
  EXPECT_EQ(harness.map(0, std::uint64_t{1} << 40), EEXIST);  // around
  EXPECT_EQ(harness.map(0x14000, page), 0);                   // right after
  EXPECT_EQ(harness.map(0x0f000, page), 0);                   // right before
  EXPECT_EQ(harness.function.map_calls, 3U);
}

TEST(DmaMap, TheFunctionsAnswerBecomesAnErrno) {
  Harness harness;
  const std::pair<pcie::MapResult, int> answers[] = {
      {pcie::MapResult::invalid, EINVAL}, {pcie::MapResult::overlap, EEXIST}, {pcie::MapResult::not_found, ENOENT},
      {pcie::MapResult::no_peer, ENXIO},  {pcie::MapResult::io_error, EIO},
  };
  for (const auto& [result, error] : answers) {
    harness.function.next_map_result = result;
    EXPECT_EQ(harness.map(page, page), error);
  }
  EXPECT_EQ(harness.map(page, page), 0) << "a failed mapping leaves nothing behind";
}

TEST(DmaMap, TheNumberOfMappingsIsBounded) {
  SessionOptions options;
  options.max_dma_maps = 3;
  Harness harness(options);
  for (std::uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(harness.map(i * 2 * page, page), 0);
  }
  EXPECT_EQ(harness.map(100 * page, page), ENOSPC);
  EXPECT_EQ(harness.unmap(0, page), 0);
  EXPECT_EQ(harness.map(100 * page, page), 0);
}

TEST(DmaMap, SixtyThousandMappings) {
  Harness harness;
  for (std::uint64_t i = 0; i < 65535; ++i) {
    ASSERT_EQ(harness.map(i * page, page), 0);
    harness.sent.clear();
  }
  EXPECT_EQ(harness.map(65535 * page, page), ENOSPC);
  EXPECT_EQ(harness.unmap(0, 0, wire::dma_unmap_all), 0);
  EXPECT_TRUE(harness.function.mappings.empty());
}

TEST(DmaMap, NoDescriptorIsLeftOpen) {
  const FileDescriptor ram = make_memfd(16 * page);
  const std::array<int, 3> fds{ram.get(), ram.get(), ram.get()};
  const std::size_t before = open_descriptors();
  {
    Harness harness;
    EXPECT_EQ(harness.map(page, page, {fds.data(), 1}), 0);
    EXPECT_EQ(harness.map(page, page, {fds.data(), 1}), EEXIST);
    EXPECT_EQ(harness.map(2 * page, page, fds), EINVAL);
    harness.function.next_map_result = pcie::MapResult::io_error;
    EXPECT_EQ(harness.map(2 * page, page, {fds.data(), 1}), EIO);
    EXPECT_EQ(open_descriptors(), before + 1) << "the fake holds one";
    EXPECT_EQ(harness.unmap(page, page), 0);
    EXPECT_EQ(open_descriptors(), before);
    EXPECT_EQ(harness.map(page, page, {fds.data(), 1}), 0);
    harness.session.close("test");
    EXPECT_EQ(open_descriptors(), before) << "the function lets go when its client does";
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(DmaUnmap, TakesExactlyOneMapping) {
  Harness harness;
  ASSERT_EQ(harness.map(0x10000, 2 * page), 0);
  ASSERT_EQ(harness.map(0x12000, page), 0);
  EXPECT_EQ(harness.unmap(0x10000, 2 * page), 0);
  EXPECT_EQ(harness.function.mappings.size(), 1U);
  EXPECT_TRUE(harness.function.mappings.contains(0x12000));
}

// The text has no word on it; VFIO allows it, and QEMU does it when a vIOMMU attaches a domain.
TEST(DmaUnmap, ASpanThatHoldsNothingIsNoError) {
  Harness harness;
  ASSERT_EQ(harness.map(0x10000, page), 0);
  EXPECT_EQ(harness.unmap(0x20000, 4 * page), 0);
  EXPECT_EQ(harness.unmap(0x10000, page), 0);
  EXPECT_EQ(harness.unmap(0x10000, page), 0);  // replayed
  EXPECT_EQ(harness.observer.notes, (std::vector<std::string>{"map", "unmap"})) << "the function saw one";
}

TEST(DmaUnmap, MayCutNoMapping) {
  Harness harness;
  ASSERT_EQ(harness.map(0x10000, 4 * page), 0);
  EXPECT_EQ(harness.unmap(0x10000, page), EINVAL);
  EXPECT_EQ(harness.unmap(0x13000, page), EINVAL);
  EXPECT_EQ(harness.unmap(0x11000, page), EINVAL);
  EXPECT_EQ(harness.unmap(0x0f000, 2 * page), EINVAL);
  EXPECT_EQ(harness.unmap(0x12000, 4 * page), EINVAL);
  EXPECT_EQ(harness.function.mappings.size(), 1U);
}

// QEMU sweeps ranges when a virtual IOMMU changes domains.
TEST(DmaUnmap, ARangeTakesAllMappingsInIt) {
  Harness harness;
  for (std::uint64_t i = 0; i < 8; ++i) {
    ASSERT_EQ(harness.map(i * 2 * page, page), 0);
  }
  EXPECT_EQ(harness.unmap(2 * page, 8 * page), 0);
  EXPECT_EQ(harness.function.mappings.size(), 4U);
  EXPECT_EQ(harness.session.dma_mappings(), 4U);
  EXPECT_TRUE(harness.function.mappings.contains(0));
  EXPECT_TRUE(harness.function.mappings.contains(10 * page));
}

TEST(DmaUnmap, AllOfThem) {
  Harness harness;
  ASSERT_EQ(harness.map(0, page), 0);
  ASSERT_EQ(harness.map(top - page + 1, page), 0);
  EXPECT_EQ(harness.unmap(page, 0, wire::dma_unmap_all), EINVAL);
  EXPECT_EQ(harness.unmap(0, page, wire::dma_unmap_all), EINVAL);
  EXPECT_EQ(harness.session.dma_mappings(), 2U);
  EXPECT_EQ(harness.unmap(0, 0, wire::dma_unmap_all), 0);
  EXPECT_TRUE(harness.function.mappings.empty());
  EXPECT_EQ(harness.unmap(0, 0, wire::dma_unmap_all), 0) << "nothing to take is not an error here";
}

TEST(DmaUnmap, MalformedRequests) {
  Harness harness;
  ASSERT_EQ(harness.map(0, page), 0);
  const auto error = [&](const wire::DmaUnmap& unmap) {
    return harness.error_of(wire::Command::dma_unmap, bytes_of(unmap));
  };
  EXPECT_EQ(harness.error_of(wire::Command::dma_unmap), EINVAL);
  EXPECT_EQ(harness.error_of(wire::Command::dma_unmap, bytes_of(wire::DmaMap{32, 0, 0, page, 0})), EINVAL);
  EXPECT_EQ(error({23, 0, 0, page}), EINVAL);
  EXPECT_EQ(error({24, 1, 0, page}), EINVAL);  // the dirty bitmap flag of older drafts
  EXPECT_EQ(error({24, 0, 0, 0}), EINVAL);
  EXPECT_EQ(error({24, 0, 1, page}), EINVAL);
  EXPECT_EQ(error({24, 0, 0, page + 1}), EINVAL);
  EXPECT_EQ(error({24, 0, 2 * page, top - page + 1}), EINVAL);  // wraps
  const FileDescriptor event = make_eventfd();
  const int fd = event.get();
  EXPECT_EQ(harness.error_of(wire::Command::dma_unmap, bytes_of(wire::DmaUnmap{24, 0, 0, page}), {&fd, 1}), EINVAL);
  EXPECT_EQ(harness.function.mappings.size(), 1U);
}

}  // namespace
}  // namespace orrery::bridge::test::dma_map_test
