// Headers, message boundaries, descriptors in the stream, and commands the text doesn't know.
#include <gtest/gtest.h>

#include <cerrno>
#include <random>

#include "tests/qemu_bridge/session_harness.h"

namespace orrery::bridge::test::framing_test {
namespace {

constexpr std::uint64_t page = 4096;

std::vector<std::byte> read_request(std::uint16_t id, std::uint64_t offset = 0) {
  return Harness::message(id, 9, bytes_of(wire::RegionAccess{offset, 0, 4}));
}
std::vector<std::byte> map_request(std::uint16_t id, std::uint64_t iova) {
  return Harness::message(id, 2, bytes_of(wire::DmaMap{32, 3, 0, iova, page}));
}
void add(std::vector<std::byte>& stream, const std::vector<std::byte>& message) {
  append_bytes(stream, message);
}

TEST(Framing, UnknownCommandsAreEnosys) {
  Harness harness;
  for (const std::uint16_t command : {0, 19, 20, 255, 65535}) {
    EXPECT_EQ(harness.error_of(static_cast<wire::Command>(command)), ENOSYS) << command;
  }
  EXPECT_EQ(harness.session.counters().commands[0], 5U);
  EXPECT_EQ(harness.session.state(), Session::State::ready);
}

TEST(Framing, WhatThisServerDoesNotDo) {
  Harness harness;
  EXPECT_EQ(harness.error_of(wire::Command::dirty_pages), EOPNOTSUPP);
  EXPECT_EQ(harness.error_of(wire::Command::mig_data_read, bytes_of(wire::MigData{64, 56})), EOPNOTSUPP);
  EXPECT_EQ(harness.error_of(wire::Command::mig_data_write, bytes_of(wire::MigData{8, 0})), EOPNOTSUPP);
  EXPECT_EQ(harness.error_of(wire::Command::mig_data_write, bytes_of(wire::MigData{8, 4})), EINVAL);
  EXPECT_EQ(harness.error_of(wire::Command::mig_data_read), EINVAL);
  // The server's commands, from the wrong side.
  EXPECT_EQ(harness.error_of(wire::Command::dma_read, bytes_of(wire::DmaAccess{0, 4})), EINVAL);
  EXPECT_EQ(harness.error_of(wire::Command::dma_write, bytes_of(wire::DmaAccess{0, 0})), EINVAL);
}

TEST(Framing, MigrationFeaturesAreMissing) {
  Harness harness;
  const auto error = [&](std::uint32_t argsz, std::uint32_t flags) {
    return harness.error_of(wire::Command::device_feature, bytes_of(wire::DeviceFeature{argsz, flags}));
  };
  for (const std::uint32_t feature : {1U, 2U, 6U, 7U, 8U, 3U, 65535U}) {
    EXPECT_EQ(error(16, wire::feature_get | feature), ENOTTY);
    EXPECT_EQ(error(16, wire::feature_set | feature), ENOTTY);
    EXPECT_EQ(error(16, wire::feature_probe | feature), ENOTTY);
    EXPECT_EQ(error(16, wire::feature_probe | wire::feature_get | wire::feature_set | feature), ENOTTY);
  }
  EXPECT_EQ(error(16, 1), EINVAL) << "no operation";
  EXPECT_EQ(error(16, wire::feature_get | wire::feature_set | 1), EINVAL) << "mutually exclusive";
  EXPECT_EQ(error(16, wire::feature_get | 0x80000 | 1), EINVAL);
  EXPECT_EQ(error(7, wire::feature_get | 1), EINVAL);
  EXPECT_EQ(harness.error_of(wire::Command::device_feature, bytes_of(std::uint32_t{16})), EINVAL);
}

TEST(Framing, HeaderFlags) {
  Harness harness;
  const auto answer = [&](std::uint32_t flags) { return harness.call(wire::Command::device_reset, {}, {}, flags); };
  for (const std::uint32_t flags : {2U, 7U, 15U, 0x20U, 0x40U, 0x80000000U}) {
    const Reply reply = answer(flags);
    EXPECT_EQ(reply.error(), EINVAL) << flags;
    EXPECT_EQ(reply.header.message_size, 16U);
  }
  EXPECT_EQ(answer(0x50).header.message_size, 0U) << "No_reply is honoured in what is refused";
  EXPECT_EQ(harness.function.resets, 0U);
  EXPECT_EQ(answer(0x10).header.message_size, 0U);
  EXPECT_EQ(harness.function.resets, 1U);
}

TEST(Framing, TheErrorFieldOfACommandIsReserved) {
  Harness harness;
  harness.sent.clear();
  harness.feed(Harness::message(5, 13, {}, 0, 77));
  ASSERT_EQ(harness.sent.size(), 1U);
  EXPECT_EQ(harness.sent[0].error(), 0);
}

TEST(Framing, ImpossibleSizesEndTheSession) {
  for (const std::uint32_t size : {0U, 1U, 15U, static_cast<std::uint32_t>(max_message) + 1, 0x7fffffffU, ~0U}) {
    Harness harness;
    harness.sent.clear();
    harness.feed(bytes_of(wire::Header{1, 13, size, 0, 0}));
    EXPECT_EQ(harness.session.state(), Session::State::closed) << size;
    EXPECT_EQ(harness.function.disconnects, 1U);
    EXPECT_EQ(harness.function.resets, 0U);
    ASSERT_EQ(harness.sent.size(), 1U);
    EXPECT_EQ(harness.sent[0].error(), EMSGSIZE);
  }
}

TEST(Framing, NothingAfterTheEndIsHeard) {
  Harness harness;
  std::vector<std::byte> stream = bytes_of(wire::Header{1, 13, 3, 0, 0});
  add(stream, Harness::message(2, 13, {}));
  harness.feed(stream);
  EXPECT_EQ(harness.function.resets, 0U);
}

TEST(Framing, AnyCutOfTheStreamGivesTheSameReplies) {
  std::vector<std::byte> stream;
  for (std::uint16_t i = 0; i < 50; ++i) {
    add(stream, read_request(i, i));
    add(stream, Harness::message(static_cast<std::uint16_t>(1000 + i), 10, [&] {
          std::vector<std::byte> payload = bytes_of(wire::RegionAccess{i, 0, 3});
          payload.resize(19, static_cast<std::byte>(i));
          return payload;
        }()));
  }
  Harness whole;
  whole.sent.clear();
  whole.feed(stream);
  ASSERT_EQ(whole.sent.size(), 100U);
  std::mt19937 random(1);
  for (int round = 0; round < 20; ++round) {
    Harness cut;
    cut.sent.clear();
    for (std::span<const std::byte> rest = stream; !rest.empty();) {
      const std::size_t count =
          round == 0 ? 1
                     : std::min<std::size_t>(rest.size(), std::uniform_int_distribution<std::size_t>(1, 60)(random));
      cut.feed(rest.first(count));
      rest = rest.subspan(count);
    }
    ASSERT_EQ(cut.sent.size(), whole.sent.size());
    for (std::size_t i = 0; i < whole.sent.size(); ++i) {
      EXPECT_EQ(bytes_of(cut.sent[i].header), bytes_of(whole.sent[i].header));
      EXPECT_EQ(cut.sent[i].payload, whole.sent[i].payload);
    }
  }
}

TEST(Framing, LongMessagesBetweenShortOnes) {
  Harness harness(FakeFunction(4, std::uint64_t{2} << 20), {});
  harness.function.keep_accesses = false;
  std::vector<std::byte> stream;
  for (std::uint16_t i = 0; i < 6; ++i) {
    std::vector<std::byte> payload = bytes_of(wire::RegionAccess{0, 2, 300000U * i % 1048577});
    payload.resize(16 + 300000U * i % 1048577, static_cast<std::byte>(i));
    add(stream, Harness::message(i, 10, payload));
    add(stream, read_request(static_cast<std::uint16_t>(100 + i)));
  }
  harness.sent.clear();
  harness.feed(stream);
  ASSERT_EQ(harness.sent.size(), 12U);
  for (const Reply& reply : harness.sent) {
    EXPECT_EQ(reply.error(), 0);
  }
}

TEST(Framing, AReplayedCommandIsACommandAgain) {
  Harness harness;
  harness.sent.clear();
  const std::vector<std::byte> request = map_request(7, page);
  harness.feed(request);
  harness.feed(request);
  ASSERT_EQ(harness.sent.size(), 2U);
  EXPECT_EQ(harness.sent[0].error(), 0);
  EXPECT_EQ(harness.sent[1].error(), EEXIST);
}

TEST(Framing, RepliesToNothingAreIgnored) {
  Harness harness;
  harness.sent.clear();
  for (const std::uint16_t command : {9, 11, 12, 1, 99}) {
    harness.feed(Harness::message(0, command, bytes_of(wire::DmaAccess{0, 0}), wire::type_reply));
  }
  EXPECT_EQ(harness.session.counters().unsolicited_replies, 5U);
  EXPECT_TRUE(harness.sent.empty());
  EXPECT_EQ(harness.session.state(), Session::State::ready);
}

TEST(Framing, DescriptorsBelongToTheLastMessageOfTheRead) {
  Harness harness;
  const FileDescriptor ram = make_memfd(page);
  const int fd = ram.get();
  // QEMU pipelines maps with and without descriptors; the kernel ends the read after the one that has some.
  std::vector<std::byte> stream = map_request(1, 0x1000);
  add(stream, map_request(2, 0x3000));
  add(stream, map_request(3, 0x5000));
  harness.feed(stream, {&fd, 1});
  EXPECT_FALSE(harness.function.mappings.at(0x1000).file);
  EXPECT_FALSE(harness.function.mappings.at(0x3000).file);
  EXPECT_TRUE(harness.function.mappings.at(0x5000).file);
}

TEST(Framing, DescriptorsWaitForTheRestOfTheirMessage) {
  const FileDescriptor ram = make_memfd(page);
  const int fd = ram.get();
  const std::size_t before = open_descriptors();
  const std::vector<std::byte> message = map_request(1, 0x1000);
  for (std::size_t cut = 1; cut < message.size(); ++cut) {
    Harness harness;
    std::vector<std::byte> stream = map_request(2, 0x9000);
    append_bytes(stream, std::span(message).first(cut));
    harness.feed(stream, {&fd, 1});
    std::vector<std::byte> rest(message.begin() + static_cast<std::ptrdiff_t>(cut), message.end());
    add(rest, map_request(3, 0x3000));
    harness.feed(rest, {&fd, 1});
    ASSERT_EQ(harness.function.mappings.size(), 3U) << cut;
    EXPECT_FALSE(harness.function.mappings.at(0x9000).file);
    EXPECT_TRUE(harness.function.mappings.at(0x1000).file);
    EXPECT_TRUE(harness.function.mappings.at(0x3000).file);
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(Framing, DescriptorsOfAnUnfinishedMessageAreClosed) {
  const FileDescriptor ram = make_memfd(page);
  const std::array<int, 4> fds{ram.get(), ram.get(), ram.get(), ram.get()};
  const std::size_t before = open_descriptors();
  {
    Harness harness;
    const std::vector<std::byte> message = map_request(1, 0x1000);
    // A byte and four descriptors at a time: the number held stays bounded.
    for (std::size_t i = 0; i < message.size() - 1; ++i) {
      harness.feed(std::span(message).subspan(i, 1), fds);
      EXPECT_LE(open_descriptors(), before + 16);
    }
    harness.sent.clear();
    harness.feed(std::span(message).last(1));
    ASSERT_EQ(harness.sent.size(), 1U);
    EXPECT_EQ(harness.sent[0].error(), EINVAL);
    EXPECT_EQ(open_descriptors(), before);
    harness.feed(std::span(message).first(20), fds);
    EXPECT_EQ(open_descriptors(), before + 4);
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(Framing, SurplusOrLostDescriptorsSpoilTheirMessage) {
  const FileDescriptor event = make_eventfd();
  std::array<int, 17> fds{};
  fds.fill(event.get());
  const std::size_t before = open_descriptors();
  {
    Harness harness(FakeFunction(32), {});
    const auto set = [&](std::uint32_t count) { return bytes_of(wire::IrqSet{20, 0x24, 2, 0, count}); };
    EXPECT_EQ(harness.error_of(wire::Command::device_set_irqs, set(16), std::span(fds).first(16)), 0);
    EXPECT_EQ(harness.error_of(wire::Command::device_set_irqs, set(17), fds), EINVAL);
    EXPECT_EQ(open_descriptors(), before + 16);
    harness.sent.clear();
    harness.feed(Harness::message(1, 8, set(1)), std::span(fds).first(1), true);
    EXPECT_EQ(harness.sent.at(0).error(), EINVAL) << "the kernel had more than it could deliver";
    EXPECT_EQ(harness.error_of(wire::Command::device_set_irqs, set(1), std::span(fds).first(1)), 0);
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(Framing, DescriptorsOfCommandsThatTakeNone) {
  Harness harness;
  const FileDescriptor event = make_eventfd();
  const int fd = event.get();
  const std::size_t before = open_descriptors();
  for (const auto& [command, payload] : std::initializer_list<std::pair<wire::Command, std::vector<std::byte>>>{
           {wire::Command::device_reset, {}},
           {wire::Command::region_read, bytes_of(wire::RegionAccess{0, 0, 4})},
           {wire::Command::dma_unmap, bytes_of(wire::DmaUnmap{24, 2, 0, 0})}}) {
    EXPECT_EQ(harness.error_of(command, payload, {&fd, 1}), EINVAL);
  }
  EXPECT_EQ(harness.function.resets, 0U);
  EXPECT_EQ(open_descriptors(), before);
}

TEST(Framing, AClientThatDoesNotReadIsLetGo) {
  Harness harness;
  harness.accepts = false;
  harness.feed(read_request(1));
  EXPECT_EQ(harness.session.state(), Session::State::closed);
  EXPECT_EQ(harness.function.disconnects, 1U);
}

TEST(Framing, ClosingIsDoneOnce) {
  Harness harness;
  ASSERT_EQ(harness.map(0, page), 0);
  harness.observer.notes.clear();
  harness.session.close("first");
  harness.session.close("second");
  EXPECT_EQ(harness.session.close_reason(), "first");
  EXPECT_EQ(harness.function.disconnects, 1U);
  EXPECT_EQ(harness.observer.notes, std::vector<std::string>{"disconnect"});
}

}  // namespace
}  // namespace orrery::bridge::test::framing_test
