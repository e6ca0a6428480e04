// The relay's core: what passes, and what is answered while there is no server.
#include "qemu_bridge/relay/relay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/qemu_bridge/relay_harness.h"

namespace orrery::bridge::test::relay_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

constexpr std::uint32_t eventfd_trigger = wire::irq_set_data_eventfd | wire::irq_set_action_trigger;
constexpr std::uint32_t all_ones = 0xffff'ffff;

TEST(Relay, PassesRequestsAndAnswersWithTheClientsIds) {
  RelayHarness relay;
  EXPECT_EQ(relay.relay.state(), Relay::State::live);
  EXPECT_THAT(relay.notes, ElementsAre("attached"));
  EXPECT_EQ(relay.read32(wire::region_config, 0), 0x0e101234U);
  EXPECT_EQ(relay.write32(0, 0x10, 0x12345678), 0);
  EXPECT_EQ(relay.read32(0, 0x10), 0x12345678U);
  EXPECT_EQ(relay.error_of(wire::Command::device_reset), 0);
  EXPECT_EQ(relay.function().resets, 1U);
}

TEST(Relay, GivesTheServersVersionReplyToTheClient) {
  RelayHarness relay(false);
  relay.start_server();
  Harness direct(relayed_function(), {}, false);
  const Reply expected = direct.call(wire::Command::version, version_payload(0, 0, qemu_capabilities));
  EXPECT_EQ(relay.negotiate().payload, expected.payload);
}

TEST(Relay, TakesTheTwinSocketOutOfTheProposal) {
  RelayHarness relay(false);
  relay.start_server();
  const Reply reply =
      relay.negotiate(R"({"capabilities":{"max_msg_fds":4,"twin_socket":{"supported":true},"write_multiple":true}})");
  EXPECT_EQ(reply.error(), 0);
  const std::string json(reinterpret_cast<const char*>(reply.payload.data()) + 4);
  EXPECT_THAT(json, testing::Not(HasSubstr("twin_socket")));
  EXPECT_THAT(json, HasSubstr("write_multiple"));
  EXPECT_FALSE(relay.server->twin);
}

TEST(Relay, OffersNoMapping) {
  const FileDescriptor memory = make_memfd(std::size_t{2} << 20);
  RelayHarness relay(false);
  relay.start_server(relayed_function(0x0e101234, 4, std::uint64_t{2} << 20, memory.get()));
  relay.negotiate();
  const Reply reply = relay.call(wire::Command::device_get_region_info,
                                 bytes_of(wire::RegionInfo{sizeof(wire::RegionInfo) + 32, 0, 2, 0, 0, 0}));
  EXPECT_THAT(reply.descriptors, IsEmpty());
  const auto info = value_of<wire::RegionInfo>(reply.payload);
  EXPECT_EQ(info.flags, wire::region_flag_read | wire::region_flag_write);
  EXPECT_EQ(info.size, std::uint64_t{2} << 20);
  EXPECT_EQ(info.cap_offset, 0U);
}

TEST(Relay, RefusesAClientWithoutAServer) {
  RelayHarness relay(false);
  EXPECT_EQ(relay.negotiate().error(), ENODEV);
  EXPECT_FALSE(relay.relay.client_wanted());
}

TEST(Relay, RefusesAClientThatDoesNotBeginWithVersion) {
  RelayHarness relay(false);
  relay.start_server();
  EXPECT_EQ(relay.error_of(wire::Command::device_get_info), EINVAL);
  EXPECT_FALSE(relay.relay.client_wanted());
}

TEST(Relay, AnswersInPlaceOfALostServer) {
  RelayHarness relay;
  relay.kill_server();
  EXPECT_THAT(relay.notes, ElementsAre("attached", "lost: it was killed"));
  EXPECT_EQ(relay.relay.state(), Relay::State::absent);
  EXPECT_EQ(relay.read32(0, 0), all_ones);
  EXPECT_EQ(relay.read32(wire::region_config, 0), all_ones);
  EXPECT_EQ(relay.write32(0, 0, 1), 0);
  EXPECT_EQ(relay.map(0x1000, 0x1000), 0);
  EXPECT_EQ(relay.unmap(0x1000, 0x1000), 0);
  EXPECT_EQ(relay.set_irqs(wire::irq_set_data_none | wire::irq_set_action_trigger, 0, 0), 0);
  EXPECT_EQ(relay.error_of(wire::Command::device_reset), 0);
  // A whole page of configuration space, as QEMU reads it, and what doesn't exist.
  const Reply page = relay.call(wire::Command::region_read, RelayHarness::access(wire::region_config, 0, 4096));
  ASSERT_EQ(page.payload.size(), 16U + 4096U);
  EXPECT_TRUE(
      std::all_of(page.payload.begin() + 16, page.payload.end(), [](std::byte b) { return b == std::byte{0xff}; }));
  EXPECT_EQ(relay.error_of(wire::Command::region_read, RelayHarness::access(1, 0, 4)), EINVAL);
  EXPECT_EQ(relay.error_of(wire::Command::region_read, RelayHarness::access(0, 4094, 4)), EINVAL);
  EXPECT_EQ(relay.error_of(wire::Command::device_feature, bytes_of(wire::DeviceFeature{8, wire::feature_get})), ENOTTY);
  EXPECT_EQ(relay.error_of(static_cast<wire::Command>(77)), ENOSYS);
  // The device is still what it was.
  const Reply info = relay.call(wire::Command::device_get_irq_info,
                                bytes_of(wire::IrqInfo{sizeof(wire::IrqInfo), 0, wire::irq_msix, 0}));
  EXPECT_EQ(value_of<wire::IrqInfo>(info.payload).count, 4U);
}

TEST(Relay, AnswersWhatTheServerLeftUnanswered) {
  RelayHarness relay;
  const std::uint16_t read =
      relay.send(wire::Command::region_read, RelayHarness::access(0, 0, 4), {}, wire::type_command, true);
  const std::uint16_t map =
      relay.send(wire::Command::dma_map, RelayHarness::map_payload(0x4000, 0x1000), {}, wire::type_command, true);
  const std::uint16_t bad =
      relay.send(wire::Command::region_read, RelayHarness::access(1, 0, 4), {}, wire::type_command, true);
  EXPECT_EQ(relay.relay.outstanding(), 3U);
  relay.kill_server();
  EXPECT_EQ(relay.relay.outstanding(), 0U);
  ASSERT_EQ(relay.to_client.size(), 3U);
  EXPECT_EQ(relay.to_client.front().header.message_id, read);  // in the order of the requests
  const Reply answer = relay.take_reply(read);
  ASSERT_EQ(answer.payload.size(), 20U);
  EXPECT_EQ(value_of<std::uint32_t>(std::span(answer.payload).subspan(16)), all_ones);
  EXPECT_EQ(relay.take_reply(map).error(), 0);
  EXPECT_EQ(relay.take_reply(bad).error(), EINVAL);
  relay.start_server();
  EXPECT_THAT(relay.function().mappings, testing::SizeIs(1));
}

TEST(Relay, PostedWritesAndWriteMultiPass) {
  RelayHarness relay;
  const std::uint32_t value = 0x55aa55aa;
  relay.send(wire::Command::region_write, RelayHarness::access(0, 0x20, 4, std::as_bytes(std::span(&value, 1))), {},
             wire::flag_no_reply);
  std::vector<std::byte> multi = bytes_of(std::uint64_t{2});
  append(multi, wire::WriteMultiEntry{0x30, 0, 4, {1, 2, 3, 4}});
  append(multi, wire::WriteMultiEntry{0x10, wire::region_config, 4, {0, 0, 0, 0xe0}});
  relay.send(wire::Command::region_write_multi, multi, {}, wire::flag_no_reply);
  EXPECT_THAT(relay.to_client, IsEmpty());
  EXPECT_EQ(relay.relay.outstanding(), 0U);
  EXPECT_EQ(relay.read32(0, 0x20), value);
  EXPECT_EQ(relay.read32(0, 0x30), 0x04030201U);
  relay.kill_server();
  relay.send(wire::Command::region_write_multi, multi, {}, wire::flag_no_reply);
  EXPECT_THAT(relay.to_client, IsEmpty());
  const Reply reply = relay.call(wire::Command::region_write_multi, multi);
  EXPECT_EQ(value_of<std::uint64_t>(reply.payload), 2U);
  relay.start_server();
  EXPECT_EQ(relay.read32(wire::region_config, 0x10), 0xe0000000U);
}

TEST(Relay, KeepsTheIdsOfBothDirectionsApart) {
  RelayHarness relay;
  ASSERT_EQ(relay.map(0x1000, 0x1000), 0);
  // Two requests of one id: ids are the sender's, and may be used again at once.
  relay.next_id = 7;
  relay.send(wire::Command::region_read, RelayHarness::access(0, 0, 4), {}, wire::type_command, true);
  relay.next_id = 7;
  relay.send(wire::Command::region_read, RelayHarness::access(wire::region_config, 0, 4), {}, wire::type_command, true);
  // The server's command has an id that is in use in the other direction.
  std::array<std::byte, 4> bytes{};
  const auto done = [](void* context, bool ok) { *static_cast<int*>(context) = ok ? 1 : -1; };
  int outcome = 0;
  relay.function().mappings.at(0x1000).messages->read(Iova{0x1000}, bytes, done, &outcome);
  relay.server->run_soon();
  relay.pump();
  ASSERT_EQ(relay.to_client.size(), 3U);
  std::uint16_t command_id = 0;
  for (const Reply& message : relay.to_client) {
    if ((message.header.flags & wire::type_mask) == wire::type_command) {
      EXPECT_EQ(message.header.command, static_cast<std::uint16_t>(wire::Command::dma_read));
      command_id = message.header.message_id;
    }
  }
  std::vector<std::byte> data = bytes_of(wire::DmaAccess{0x1000, 4});
  append(data, std::uint32_t{0x01020304});
  relay.feed(RelaySide::client,
             Harness::message(command_id, static_cast<std::uint16_t>(wire::Command::dma_read), data, wire::type_reply));
  relay.pump();
  EXPECT_EQ(outcome, 1);
  EXPECT_EQ(value_of<std::uint32_t>(bytes), 0x01020304U);
  const Reply first = relay.take_reply(7);
  const Reply second = relay.take_reply(7);
  EXPECT_EQ(value_of<std::uint32_t>(std::span(first.payload).subspan(16)), 0U);
  EXPECT_EQ(value_of<std::uint32_t>(std::span(second.payload).subspan(16)), 0x0e101234U);
}

TEST(Relay, DropsAnswersToALostServersCommands) {
  RelayHarness relay;
  ASSERT_EQ(relay.map(0x1000, 0x1000), 0);
  std::array<std::byte, 4> bytes{};
  int outcome = 0;
  const auto done = [](void* context, bool ok) { *static_cast<int*>(context) = ok ? 1 : -1; };
  relay.function().mappings.at(0x1000).messages->read(Iova{0x1000}, bytes, done, &outcome);
  relay.server->run_soon();
  relay.pump();
  ASSERT_EQ(relay.to_client.size(), 1U);
  const std::uint16_t id = relay.to_client.front().header.message_id;
  relay.kill_server();
  EXPECT_EQ(outcome, -1);
  relay.start_server();
  const std::size_t before = relay.server->session.counters().unsolicited_replies;
  relay.feed(RelaySide::client, Harness::message(id, static_cast<std::uint16_t>(wire::Command::dma_read),
                                                 bytes_of(wire::DmaAccess{0x1000, 4}), wire::type_reply));
  relay.pump();
  EXPECT_EQ(relay.server->session.counters().unsolicited_replies, before);
  EXPECT_EQ(relay.relay.state(), Relay::State::live);
}

TEST(Relay, TakesNoMoreRequestsThanItHasRoomFor) {
  RelayHarness relay;
  const std::vector<std::byte> access = RelayHarness::access(0, 0, 4);
  std::vector<std::byte> bytes;
  for (std::uint16_t i = 0; i < 2 * Relay::max_outstanding; ++i) {
    append_bytes(bytes, Harness::message(i, static_cast<std::uint16_t>(wire::Command::region_read), access));
  }
  relay.feed(RelaySide::client, bytes);  // 16 KiB: one read
  EXPECT_EQ(relay.relay.outstanding(), Relay::max_outstanding);
  EXPECT_FALSE(relay.relay.wants_client_input());
  relay.pump();
  EXPECT_EQ(relay.relay.outstanding(), 0U);
  EXPECT_EQ(relay.to_client.size(), 2 * Relay::max_outstanding);
  EXPECT_TRUE(relay.relay.wants_client_input());
}

TEST(Relay, AServerThatBreaksTheProtocolIsLost) {
  const auto broken = [](std::span<const std::byte> bytes) {
    RelayHarness relay;
    const std::uint16_t id =
        relay.send(wire::Command::region_read, RelayHarness::access(0, 0, 4), {}, wire::type_command, true);
    relay.feed(RelaySide::server, bytes);
    EXPECT_FALSE(relay.relay.server_wanted());
    EXPECT_EQ(relay.relay.state(), Relay::State::absent);
    EXPECT_TRUE(relay.relay.client_wanted());
    const Reply reply = relay.take_reply(id);
    EXPECT_EQ(reply.payload.size(), 20U);
    EXPECT_EQ(reply.payload.back(), std::byte{0xff});
  };
  RelayHarness probe;
  probe.send(wire::Command::region_read, RelayHarness::access(0, 0, 4), {}, wire::type_command, true);
  const std::uint16_t id = probe.to_server.front().header.message_id;
  const auto read = static_cast<std::uint16_t>(wire::Command::region_read);
  // Too long for the client's buffer; too short; of another count; of another command; not asked for.
  broken(Harness::message(id, read, std::vector<std::byte>(16 + 8), wire::type_reply));
  broken(Harness::message(id, read, std::vector<std::byte>(8), wire::type_reply));
  broken(Harness::message(id, read, RelayHarness::access(0, 0, 3, std::vector<std::byte>(4)), wire::type_reply));
  broken(Harness::message(id, 10, RelayHarness::access(0, 0, 4, std::vector<std::byte>(4)), wire::type_reply));
  broken(Harness::message(id + 1, read, RelayHarness::access(0, 0, 4, std::vector<std::byte>(4)), wire::type_reply));
  broken(Harness::message(1, read, RelayHarness::access(0, 0, 4)));
  broken(Harness::message(1, static_cast<std::uint16_t>(wire::Command::dma_read), {}));
  broken(bytes_of(wire::Header{1, 9, 8, 0, 0}));
  broken(bytes_of(wire::Header{1, 9, 16, 2, 0}));
}

TEST(Relay, AServerThatDoesNotReadIsLost) {
  RelayHarness relay;
  relay.server_accepts = false;
  EXPECT_EQ(relay.read32(0, 0), all_ones);
  EXPECT_FALSE(relay.relay.server_wanted());
  EXPECT_THAT(relay.notes.back(), StartsWith("lost: "));
}

TEST(Relay, MalformedRequestsChangeNothing) {
  RelayHarness relay;
  const FileDescriptor memory = make_memfd(0x1000);
  const auto with_descriptor = std::array{memory.get()};
  for (const bool present : {true, false}) {
    if (!present) {
      relay.kill_server();
    }
    for (std::uint16_t command = 0; command < 24; ++command) {
      EXPECT_NE(relay.error_of(static_cast<wire::Command>(command), bytes_of(std::uint8_t{1})), 0) << command;
      if (command != 2 && command != 8) {
        EXPECT_NE(relay.error_of(static_cast<wire::Command>(command), {}, with_descriptor), 0) << command;
      }
    }
    EXPECT_EQ(relay.map(0x1800, 0x1000), EINVAL);
    EXPECT_EQ(relay.map(0xffff'ffff'ffff'f000, 0x2000), EINVAL);
    EXPECT_EQ(relay.map(0x1000, 0x1000, std::array{memory.get(), memory.get()}), EINVAL);
    EXPECT_EQ(relay.map(0x1000, 0x1000, {}, 0x1000), EINVAL);
  }
  EXPECT_EQ(relay.relay.record().dma().size(), 0U);
}

TEST(Relay, LeavesNoDescriptorOpen) {
  const std::size_t before = open_descriptors();
  {
    const FileDescriptor memory = make_memfd(0x10000);
    const FileDescriptor event = make_eventfd();
    RelayHarness relay;
    EXPECT_EQ(relay.map(0, 0x1000, std::array{memory.get()}), 0);
    EXPECT_EQ(relay.set_irqs(eventfd_trigger, 0, 1, std::array{event.get()}), 0);
    relay.send(wire::Command::dma_map, RelayHarness::map_payload(0x8000, 0x1000), std::array{memory.get()},
               wire::type_command, true);
    relay.kill_server();
    relay.start_server();
    relay.kill_server();
  }
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace orrery::bridge::test::relay_test
