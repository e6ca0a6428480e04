// VFIO_USER_DMA_READ and VFIO_USER_DMA_WRITE, the server's commands.
#include <gtest/gtest.h>

#include <cerrno>

#include "tests/qemu_bridge/session_harness.h"

namespace orrery::bridge::test::dma_messages_test {
namespace {

constexpr std::uint64_t page = 4096;

// How often a request was called back, and with what.
struct Outcome {
  int ok = 0;
  int failed = 0;
  static void done(void* context, bool ok) {
    auto& outcome = *static_cast<Outcome*>(context);
    ++(ok ? outcome.ok : outcome.failed);
  }
};

class DmaMessagesTest : public testing::Test {
 protected:
  void start(std::string_view json = qemu_capabilities) {
    harness.negotiate(json);
    ASSERT_EQ(harness.map(0x100000, 1024 * page), 0);
    memory = harness.function.mappings.at(0x100000).messages;
    harness.sent.clear();
  }
  void read(std::uint64_t address, std::span<std::byte> into) {
    memory->read(Iova{address}, into, Outcome::done, &outcome);
  }
  void write(std::uint64_t address, std::span<const std::byte> from) {
    memory->write(Iova{address}, from, Outcome::done, &outcome);
  }
  // The client's answer to the i-th message sent: `data` for reads.
  void answer_read(std::size_t i, std::span<const std::byte> data) {
    std::vector<std::byte> payload(harness.sent[i].payload.begin(), harness.sent[i].payload.begin() + 16);
    append_bytes(payload, data);
    harness.feed(Harness::message(harness.sent[i].header.message_id, 11, payload, wire::type_reply));
  }
  void answer_write(std::size_t i) {
    harness.feed(Harness::message(harness.sent[i].header.message_id, 12, {}, wire::type_reply));
  }

  Harness harness{{}, false};
  pcie::MessageMemory* memory = nullptr;
  Outcome outcome;
  std::array<std::byte, 2 * 1048576> buffer{};
};

TEST_F(DmaMessagesTest, RequestsAreCutToWhatTheClientTakes) {
  start(R"({"capabilities":{"max_data_xfer_size":1000}})");
  read(0x100000, std::span(buffer).first(2500));
  ASSERT_EQ(harness.sent.size(), 3U);
  const std::pair<std::uint64_t, std::uint64_t> expected[] = {
      {0x100000, 1000}, {0x100000 + 1000, 1000}, {0x100000 + 2000, 500}};
  for (std::size_t i = 0; i < 3; ++i) {
    const auto access = value_of<wire::DmaAccess>(harness.sent[i].payload);
    EXPECT_EQ(std::pair(access.address, access.count), expected[i]);
  }
  // Answered out of order.
  answer_read(2, std::vector<std::byte>(500, std::byte{3}));
  answer_read(0, std::vector<std::byte>(1000, std::byte{1}));
  EXPECT_EQ(outcome.ok, 0);
  answer_read(1, std::vector<std::byte>(1000, std::byte{2}));
  EXPECT_EQ(outcome.ok, 1);
  EXPECT_EQ(buffer[999], std::byte{1});
  EXPECT_EQ(buffer[1000], std::byte{2});
  EXPECT_EQ(buffer[2499], std::byte{3});
  EXPECT_EQ(buffer[2500], std::byte{0});
}

TEST_F(DmaMessagesTest, WritesCarryTheirBytes) {
  start();
  buffer[7] = std::byte{42};
  write(0x100010, std::span(buffer).first(1048576));
  ASSERT_EQ(harness.sent.size(), 1U);
  EXPECT_EQ(harness.sent[0].header.message_size, 16U + 16U + 1048576U);
  EXPECT_EQ(harness.sent[0].payload[16 + 7], std::byte{42});
  answer_write(0);  // QEMU's bare header
  EXPECT_EQ(outcome.ok, 1);
}

TEST_F(DmaMessagesTest, AWindowBoundsWhatIsUnderWay) {
  start();
  for (int i = 0; i < 200; ++i) {
    write(0x100000, std::span(buffer).first(8));
  }
  EXPECT_EQ(harness.sent.size(), DmaMessages::window);
  for (std::size_t i = 0; i < harness.sent.size(); ++i) {
    answer_write(i);
  }
  EXPECT_EQ(harness.sent.size(), 200U);
  EXPECT_EQ(outcome.ok, 200);
}

TEST_F(DmaMessagesTest, FailuresComeLaterNeverFromTheCall) {
  start();
  read(0x50000, std::span(buffer).first(4));                     // not mapped
  read(0x100000 + 1024 * page - 2, std::span(buffer).first(4));  // leaves the mapping
  read(0xfffffffffffffffe, std::span(buffer).first(4));          // wraps
  read(0x100000, std::span(buffer).first(1048577));              // more than a call may ask for
  EXPECT_EQ(outcome.failed, 0);
  EXPECT_TRUE(harness.sent.empty());
  harness.run_soon();
  EXPECT_EQ(outcome.failed, 4);
  read(0x100000, {});
  EXPECT_EQ(outcome.ok, 0);
  harness.run_soon();
  EXPECT_EQ(outcome.ok, 1) << "nothing is soon done";
}

TEST_F(DmaMessagesTest, RightsOfTheMapping) {
  start();
  ASSERT_EQ(harness.map(0x10000000, page, {}, 0, wire::dma_map_readable), 0);
  ASSERT_EQ(harness.map(0x10001000, page, {}, 0, wire::dma_map_writeable), 0);
  const FileDescriptor ram = make_memfd(page);
  const int fd = ram.get();
  ASSERT_EQ(harness.map(0x10002000, page, {&fd, 1}), 0);
  harness.sent.clear();
  write(0x10000000, std::span(buffer).first(4));
  read(0x10001000, std::span(buffer).first(4));
  read(0x10000ffe, std::span(buffer).first(4));
  read(0x10002000, std::span(buffer).first(4));  // has a descriptor: not for messages
  harness.run_soon();
  EXPECT_EQ(outcome.failed, 4);
  read(0x10000000, std::span(buffer).first(4));
  write(0x10001000, std::span(buffer).first(4));
  EXPECT_EQ(harness.sent.size(), 2U);
}

TEST_F(DmaMessagesTest, AdjacentMappingsAreOneRange) {
  start();
  ASSERT_EQ(harness.map(0x10000000, page), 0);
  ASSERT_EQ(harness.map(0x10001000, page), 0);
  harness.sent.clear();
  read(0x10000ffe, std::span(buffer).first(4));
  EXPECT_EQ(harness.sent.size(), 1U);
}

TEST_F(DmaMessagesTest, WrongRepliesFailTheRequest) {
  start();
  const auto reply = [&](std::span<const std::byte> payload, std::uint32_t flags = wire::type_reply) {
    harness.sent.clear();
    std::fill_n(buffer.begin(), 8, std::byte{0x5a});
    read(0x100000, std::span(buffer).first(8));
    harness.feed(Harness::message(harness.sent.at(0).header.message_id, 11, payload, flags, EFAULT));
    EXPECT_EQ(buffer[0], std::byte{0x5a}) << "nothing of a wrong reply is taken";
  };
  reply({}, wire::type_reply | wire::flag_error);
  reply({});
  reply(bytes_of(wire::DmaAccess{0x100000, 8}));  // no data
  std::vector<std::byte> payload = bytes_of(wire::DmaAccess{0x100000, 8});
  payload.resize(16 + 7);
  reply(payload);
  payload.resize(16 + 9);
  reply(payload);
  payload = bytes_of(wire::DmaAccess{0x100000, ~std::uint64_t{0}});
  payload.resize(16 + 8);
  reply(payload);
  EXPECT_EQ(outcome.failed, 6);
  harness.sent.clear();
  write(0x100000, std::span(buffer).first(8));
  harness.feed(
      Harness::message(harness.sent.at(0).header.message_id, 12, bytes_of(std::uint64_t{0x100000}), wire::type_reply));
  EXPECT_EQ(outcome.failed, 7);
  EXPECT_EQ(harness.session.state(), Session::State::ready);
}

TEST_F(DmaMessagesTest, RepliesMustMatchCommandAndIdAndComeOnce) {
  start();
  read(0x100000, std::span(buffer).first(4));
  const std::uint16_t id = harness.sent[0].header.message_id;
  std::vector<std::byte> payload = harness.sent[0].payload;
  payload.resize(20);
  harness.feed(Harness::message(id, 12, payload, wire::type_reply));
  harness.feed(Harness::message(static_cast<std::uint16_t>(id + 1), 11, payload, wire::type_reply));
  EXPECT_EQ(harness.session.counters().unsolicited_replies, 2U);
  EXPECT_EQ(outcome.ok + outcome.failed, 0);
  harness.feed(Harness::message(id, 11, payload, wire::type_reply));
  harness.feed(Harness::message(id, 11, payload, wire::type_reply));
  EXPECT_EQ(outcome.ok, 1);
  EXPECT_EQ(harness.session.counters().unsolicited_replies, 3U);
}

TEST_F(DmaMessagesTest, ARegionAccessIsAnsweredWhileDmaIsUnderWay) {
  start();
  read(0x100000, std::span(buffer).first(4));
  const Reply reply = harness.call(wire::Command::region_read, bytes_of(wire::RegionAccess{0, 0, 4}));
  EXPECT_EQ(reply.error(), 0);
  EXPECT_EQ(reply.header.message_size, 36U);
  EXPECT_EQ(outcome.ok, 0);
}

TEST_F(DmaMessagesTest, UnmappedMemoryIsNotAskedForAnyMore) {
  start(R"({"capabilities":{"max_data_xfer_size":1}})");
  read(0x100000, std::span(buffer).first(100));
  ASSERT_EQ(harness.sent.size(), DmaMessages::window);
  ASSERT_EQ(harness.unmap(0x100000, 1024 * page), 0);
  for (std::size_t i = 0; i < DmaMessages::window; ++i) {
    answer_read(i, {buffer.data(), 1});
  }
  harness.run_soon();
  EXPECT_EQ(outcome.failed, 1);
  EXPECT_EQ(harness.sent.size(), DmaMessages::window + 1) << "the unmap's reply, and no message more";
}

TEST_F(DmaMessagesTest, TheClientsEndFailsAllOfThem) {
  start();
  for (int i = 0; i < 100; ++i) {
    write(0x100000, std::span(buffer).first(8));
  }
  answer_write(70 % DmaMessages::window);  // one out of order, so that the queue has a hole
  harness.session.close("test");
  EXPECT_EQ(outcome.ok, 1);
  EXPECT_EQ(outcome.failed, 99);
  read(0x100000, std::span(buffer).first(4));
  harness.run_soon();
  EXPECT_EQ(outcome.failed, 100);
}

TEST_F(DmaMessagesTest, ACallbackMayAskAgain) {
  start();
  struct Chain {
    pcie::MessageMemory* memory;
    std::span<std::byte> into;
    int rounds = 0;
    static void done(void* context, bool) {
      auto& chain = *static_cast<Chain*>(context);
      if (++chain.rounds < 1000) {
        chain.memory->read(Iova{0x100000}, chain.into, done, context);
      }
    }
  };
  static Chain chain;  // outlives the session, whose end still answers what was asked last
  chain = {memory, std::span(buffer).first(4)};
  memory->read(Iova{0x100000}, chain.into, Chain::done, &chain);
  for (std::size_t i = 0; i < 10; ++i) {
    answer_read(i, {buffer.data(), 4});
  }
  EXPECT_EQ(chain.rounds, 10);
  harness.session.close("test");
  EXPECT_GE(chain.rounds, 11) << "called back, and not followed for ever";
}

TEST_F(DmaMessagesTest, AClientThatDoesNotReadThemIsLetGo) {
  start();
  harness.accepts = false;
  read(0x100000, std::span(buffer).first(4));
  EXPECT_EQ(outcome.failed, 0);
  harness.run_soon();
  EXPECT_EQ(outcome.failed, 1);
  EXPECT_EQ(harness.session.state(), Session::State::closed);
}

TEST_F(DmaMessagesTest, TwinSocketCarriesThemAndTheirReplies) {
  start(R"({"capabilities":{"twin_socket":{"supported":true}}})");
  read(0x100000, std::span(buffer).first(4));
  ASSERT_EQ(harness.channels.back(), Channel::command);
  std::vector<std::byte> payload = harness.sent[0].payload;
  payload.resize(20, std::byte{9});
  const auto reply = Harness::message(harness.sent[0].header.message_id, 11, payload, wire::type_reply);
  harness.feed(reply);
  EXPECT_EQ(harness.session.counters().unsolicited_replies, 1U) << "the main channel is the wrong one";
  harness.feed(reply, {}, false, Channel::command);
  EXPECT_EQ(outcome.ok, 1);
  EXPECT_EQ(buffer[3], std::byte{9});
  harness.feed(Harness::message(1, 13, {}), {}, false, Channel::command);
  EXPECT_EQ(harness.session.state(), Session::State::closed) << "a command there";
  EXPECT_EQ(harness.function.resets, 0U);
}

}  // namespace
}  // namespace orrery::bridge::test::dma_messages_test
