// The relay's core: what is recorded of a client and told to the next server, and which server is taken.
#include "qemu_bridge/relay/relay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/qemu_bridge/relay_harness.h"

namespace orrery::bridge::test::relay_replay_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

constexpr std::uint32_t eventfd_trigger = wire::irq_set_data_eventfd | wire::irq_set_action_trigger;
constexpr std::uint32_t all_ones = 0xffff'ffff;

// Offsets of the configuration writes that a function has got, in order.
std::vector<std::uint32_t> config_writes(const FakeFunction& function) {
  std::vector<std::uint32_t> offsets;
  for (const Access& access : function.accesses) {
    if (access.write && access.config) {
      offsets.push_back(static_cast<std::uint32_t>(access.offset));
    }
  }
  return offsets;
}

TEST(Relay, RepeatsMapsLessUnmaps) {
  const FileDescriptor memory = make_memfd(0x100000);
  RelayHarness relay;
  const std::size_t before = open_descriptors();
  for (std::uint64_t i = 0; i < 64; ++i) {
    ASSERT_EQ(relay.map(i * 0x2000, 0x1000, std::array{memory.get()}, i * 0x1000), 0);
  }
  EXPECT_EQ(relay.map(0xf0000000, 0x2000), 0);
  EXPECT_EQ(relay.unmap(0, 0x4000), 0);  // two at once
  EXPECT_EQ(relay.unmap(0x4000, 0x1000), 0);
  EXPECT_NE(relay.unmap(0x6000, 0x800), 0);
  // One descriptor for the file, besides the server's 62.
  EXPECT_EQ(relay.relay.record().dma().files(), 1U);
  EXPECT_LE(open_descriptors() - before, 61U + 1U);
  // Made and taken away while nobody is there.
  relay.kill_server();
  EXPECT_EQ(relay.map(0x100000, 0x3000, std::array{memory.get()}, 0x8000), 0);
  EXPECT_EQ(relay.unmap(0x6000, 0x1000), 0);
  EXPECT_EQ(relay.map(0x8000, 0x1000), EEXIST);
  EXPECT_EQ(relay.map(0x7000, 0x3000), EEXIST);
  EXPECT_EQ(relay.unmap(0x100000, 0x1000), EINVAL);  // would cut it
  relay.start_server();
  EXPECT_EQ(relay.relay.state(), Relay::State::live);
  const auto& mappings = relay.function().mappings;
  EXPECT_EQ(mappings.size(), 60U + 1U + 1U);
  EXPECT_EQ(mappings.count(0x6000), 0U);
  EXPECT_EQ(mappings.at(0x8000).file_offset, 0x4000U);
  EXPECT_EQ(mappings.at(0x100000).size, 0x3000U);
  EXPECT_FALSE(mappings.at(0xf0000000).file_offset.has_value());
  EXPECT_TRUE(mappings.at(0xf0000000).access.write);
  // And once more, after all were taken away.
  EXPECT_EQ(relay.unmap(0, 0, wire::dma_unmap_all), 0);
  relay.kill_server();
  relay.start_server();
  EXPECT_THAT(relay.function().mappings, IsEmpty());
  EXPECT_EQ(relay.relay.record().dma().files(), 0U);
}

TEST(Relay, NotesNoMapThatTheServerRefused) {
  RelayHarness relay;
  EXPECT_EQ(relay.map(0x1000, 0x2000), 0);
  EXPECT_EQ(relay.map(0x2000, 0x1000), EEXIST);  // the server's word
  relay.function().next_map_result = pcie::MapResult::no_peer;
  EXPECT_EQ(relay.map(0x8000, 0x1000), ENXIO);
  relay.kill_server();
  relay.start_server();
  EXPECT_THAT(relay.function().mappings, testing::SizeIs(1));
}

TEST(Relay, RepeatsInterrupts) {
  const std::array<FileDescriptor, 4> events{make_eventfd(), make_eventfd(), make_eventfd(), make_eventfd()};
  RelayHarness relay;
  EXPECT_EQ(relay.set_irqs(eventfd_trigger, 0, 3, std::array{events[0].get(), events[1].get(), events[2].get()}), 0);
  EXPECT_EQ(relay.set_irqs(eventfd_trigger, 1, 1), 0);  // takes one back
  EXPECT_EQ(relay.set_irqs(wire::irq_set_data_none | wire::irq_set_action_mask, 2, 1), 0);
  relay.kill_server();
  EXPECT_EQ(relay.set_irqs(eventfd_trigger, 3, 1, std::array{events[3].get()}), 0);
  EXPECT_EQ(relay.set_irqs(eventfd_trigger, 4, 1, std::array{events[3].get()}), EINVAL);  // there are four
  EXPECT_EQ(relay.set_irqs(eventfd_trigger, 0, 1, std::array{STDERR_FILENO}), EINVAL);    // no eventfd
  relay.start_server();
  ASSERT_EQ(relay.relay.state(), Relay::State::live);
  for (unsigned vector = 0; vector < 4; ++vector) {
    relay.function().sink->msix(vector);
  }
  EXPECT_EQ(take_events(events[0].get()), 1U);
  EXPECT_EQ(take_events(events[1].get()), 0U);
  EXPECT_EQ(take_events(events[2].get()), 0U);  // masked
  EXPECT_EQ(take_events(events[3].get()), 1U);
  EXPECT_EQ(relay.set_irqs(wire::irq_set_data_none | wire::irq_set_action_unmask, 2, 1), 0);
  EXPECT_EQ(take_events(events[2].get()), 1U);
  // Disabled for good.
  EXPECT_EQ(relay.set_irqs(wire::irq_set_data_none | wire::irq_set_action_trigger, 0, 0), 0);
  relay.kill_server();
  relay.start_server();
  relay.function().sink->msix(0);
  EXPECT_EQ(take_events(events[0].get()), 0U);
}

TEST(Relay, RepeatsConfigurationSpaceWithTheCommandRegisterLast) {
  RelayHarness relay;
  EXPECT_EQ(relay.write32(wire::region_config, 0x04, 0x6), 0);
  EXPECT_EQ(relay.write32(wire::region_config, 0x10, all_ones), 0);  // sizing
  EXPECT_EQ(relay.write32(wire::region_config, 0x10, 0xe0000000), 0);
  EXPECT_EQ(relay.write32(wire::region_config, 0x1c, 0x1f), 0);
  const std::byte enable{0x80};
  EXPECT_EQ(relay.error_of(wire::Command::region_write,
                           RelayHarness::access(wire::region_config, 0x43, 1, std::span(&enable, 1))),
            0);
  relay.kill_server();
  relay.start_server();
  EXPECT_THAT(config_writes(relay.function()), ElementsAre(0x06U, 0x10U, 0x1cU, 0x43U, 0x04U));
  EXPECT_EQ(relay.read32(wire::region_config, 0x10), 0xe0000000U);
  EXPECT_EQ(relay.read32(wire::region_config, 0x04) & 0xffffU, 0x6U);
  EXPECT_EQ(relay.function().config()[0x43], std::byte{0x80});
}

TEST(Relay, AFunctionLevelResetLeavesTheBars) {
  RelayHarness relay;
  EXPECT_EQ(relay.write32(wire::region_config, 0x10, 0xe0000000), 0);
  EXPECT_EQ(relay.write32(wire::region_config, 0x04, 0x6), 0);
  EXPECT_EQ(relay.write32(wire::region_config, 0x68, 0x8000), 0);  // Initiate Function Level Reset
  relay.kill_server();
  relay.start_server();
  EXPECT_THAT(config_writes(relay.function()), ElementsAre(0x10U));
}

TEST(Relay, KeepsOnlyBarsOfWhatIsWrittenWithoutAServer) {
  RelayHarness relay;
  relay.kill_server();
  EXPECT_EQ(relay.write32(wire::region_config, 0x04, 0xffff'fffe), 0);  // made of all ones
  EXPECT_EQ(relay.write32(wire::region_config, 0x10, 0xd0000000), 0);
  relay.start_server();
  EXPECT_THAT(config_writes(relay.function()), ElementsAre(0x10U));
}

TEST(Relay, RefusesAnotherDevice) {
  RelayHarness relay;
  relay.kill_server();
  relay.notes.clear();
  relay.start_server(relayed_function(0x0e201234));
  EXPECT_EQ(relay.relay.state(), Relay::State::refused);
  EXPECT_THAT(relay.notes, ElementsAre(HasSubstr("vendor and device ID")));
  EXPECT_EQ(relay.read32(0, 0), all_ones);
  EXPECT_THAT(config_writes(relay.function()), IsEmpty());  // it wasn't touched
  relay.kill_server();
  relay.start_server(relayed_function(0x0e101234, 5));
  EXPECT_THAT(relay.notes.back(), StartsWith("refused: interrupt index 2"));
  relay.kill_server();
  relay.start_server(relayed_function(0x0e101234, 4, std::uint64_t{4} << 20));
  EXPECT_THAT(relay.notes.back(), StartsWith("refused: region 2"));
  relay.kill_server();
  SessionOptions fewer_maps;
  fewer_maps.max_dma_maps = 10;
  relay.start_server(relayed_function(), fewer_maps);
  EXPECT_THAT(relay.notes.back(), HasSubstr("capabilities"));
  relay.kill_server();
  relay.start_server();
  EXPECT_EQ(relay.notes.back(), "attached again");
  EXPECT_EQ(relay.read32(wire::region_config, 0), 0x0e101234U);
}

TEST(Relay, RefusesAServerThatDoesNotTakeTheReplay) {
  RelayHarness relay;
  ASSERT_EQ(relay.map(0x1000, 0x1000), 0);
  relay.kill_server();
  FakeFunction function = relayed_function();
  function.next_map_result = pcie::MapResult::io_error;
  relay.start_server(std::move(function));
  EXPECT_THAT(relay.notes.back(), HasSubstr("command 2"));
  EXPECT_EQ(relay.read32(0, 0), all_ones);
}

TEST(Relay, TellsAServerInReplayWhatComesMeanwhile) {
  RelayHarness relay;
  for (std::uint64_t i = 0; i < 100; ++i) {
    ASSERT_EQ(relay.map(i * 0x2000, 0x1000), 0);
  }
  relay.kill_server();
  relay.server = std::make_unique<Harness>(relayed_function(), SessionOptions{}, false);
  relay.seen = 0;
  relay.relay.server_connected();
  while (relay.relay.state() != Relay::State::replaying) {  // one message at a time
    Reply message = std::move(relay.to_server.front());
    relay.to_server.pop_front();
    std::vector<std::byte> bytes = bytes_of(message.header);
    append_bytes(bytes, message.payload);
    relay.server->feed(bytes);
    const Reply& answer = relay.server->sent[relay.seen++];
    bytes = bytes_of(answer.header);
    append_bytes(bytes, answer.payload);
    relay.feed(RelaySide::server, bytes);
  }
  const std::uint16_t unmap =
      relay.send(wire::Command::dma_unmap, bytes_of(wire::DmaUnmap{sizeof(wire::DmaUnmap), 0, 0, 0x1000}), {},
                 wire::type_command, true);
  const std::uint16_t map =
      relay.send(wire::Command::dma_map, RelayHarness::map_payload(0x1000000, 0x1000), {}, wire::type_command, true);
  const std::uint16_t read =
      relay.send(wire::Command::region_read, RelayHarness::access(0, 0, 4), {}, wire::type_command, true);
  EXPECT_EQ(relay.take_reply(unmap).error(), 0);  // at once, and not behind a hundred maps
  EXPECT_EQ(relay.take_reply(map).error(), 0);
  EXPECT_EQ(relay.take_reply(read).payload.back(), std::byte{0xff});
  relay.pump();
  EXPECT_EQ(relay.relay.state(), Relay::State::live);
  EXPECT_EQ(relay.function().mappings.size(), 100U);
  EXPECT_EQ(relay.function().mappings.count(0), 0U);
  EXPECT_EQ(relay.function().mappings.count(0x1000000), 1U);
}

TEST(Relay, ALostServerDuringTheReplayIsNoHarm) {
  RelayHarness relay;
  ASSERT_EQ(relay.map(0x1000, 0x1000), 0);
  relay.kill_server();
  relay.relay.server_connected();  // one that never answers
  EXPECT_EQ(relay.relay.state(), Relay::State::attaching);
  EXPECT_EQ(relay.read32(0, 0), all_ones);
  relay.kill_server();
  relay.start_server();
  EXPECT_EQ(relay.relay.state(), Relay::State::live);
  EXPECT_EQ(relay.function().mappings.size(), 1U);
}

TEST(DmaRecord, FollowsAServerThatCutsMappings) {
  DmaRecord record;
  const FileDescriptor memory = make_memfd(0x100000);
  const auto file = [&] { return record.share(FileDescriptor(::fcntl(memory.get(), F_DUPFD_CLOEXEC, 0))); };
  const auto map = [](std::uint64_t address, std::uint64_t size, std::uint64_t offset) {
    return wire::DmaMap{sizeof(wire::DmaMap), 3, offset, address, size};
  };
  ASSERT_TRUE(record.add(map(0x10000, 0x10000, 0x20000), file()));
  record.remove({sizeof(wire::DmaUnmap), 0, 0x14000, 0x4000});
  std::vector<RelayRequest> replay;
  record.replay(replay);
  ASSERT_EQ(replay.size(), 2U);
  const auto low = value_of<wire::DmaMap>(replay[0].payload);
  const auto high = value_of<wire::DmaMap>(replay[1].payload);
  EXPECT_EQ(low.address, 0x10000U);
  EXPECT_EQ(low.size, 0x4000U);
  EXPECT_EQ(low.offset, 0x20000U);
  EXPECT_EQ(high.address, 0x18000U);
  EXPECT_EQ(high.size, 0x8000U);
  EXPECT_EQ(high.offset, 0x28000U);
  // Over what is there: the latest word counts.
  ASSERT_TRUE(record.add(map(0x12000, 0x8000, 0), nullptr));
  EXPECT_EQ(record.size(), 3U);
  record.remove({sizeof(wire::DmaUnmap), 0, 0, 0x100000});
  EXPECT_EQ(record.size(), 0U);
  EXPECT_EQ(record.files(), 0U);
  // Up to the last page that there is.
  ASSERT_TRUE(record.add(map(0xffff'ffff'ffff'f000, 0x1000, 0), nullptr));
  EXPECT_EQ(record.check(map(0xffff'ffff'ffff'f000, 0x1000, 0), nullptr), EEXIST);
  EXPECT_EQ(record.check(wire::DmaUnmap{sizeof(wire::DmaUnmap), 0, 0xffff'ffff'ffff'f000, 0x1000}), 0);
  record.remove({sizeof(wire::DmaUnmap), 0, 0xffff'ffff'ffff'f000, 0x1000});
  EXPECT_EQ(record.size(), 0U);
}

TEST(DmaRecord, HoldsSoManyMapsAndFiles) {
  DmaRecord record;
  std::vector<wire::DmaMap> maps;
  for (std::uint64_t i = 0; i < DmaRecord::max_files; ++i) {
    const wire::DmaMap map{sizeof(wire::DmaMap), 3, 0, i << 12U, 4096};
    ASSERT_TRUE(record.add(map, record.share(make_memfd(4096))));
  }
  const wire::DmaMap more{sizeof(wire::DmaMap), 3, 0, std::uint64_t{1} << 40U, 4096};
  EXPECT_EQ(record.check(more, record.share(make_memfd(4096))), ENOSPC);
  EXPECT_EQ(record.check(more, nullptr), 0);
  for (std::uint64_t i = DmaRecord::max_files; i < DmaRecord::max_maps; ++i) {
    ASSERT_TRUE(record.add({sizeof(wire::DmaMap), 3, 0, i << 12U, 4096}, nullptr));
  }
  EXPECT_EQ(record.check(more, nullptr), ENOSPC);
  EXPECT_FALSE(record.add(more, nullptr));
}

}  // namespace
}  // namespace orrery::bridge::test::relay_replay_test
