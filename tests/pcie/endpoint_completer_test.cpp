// The endpoint as completer: registers, memory and configuration space, for CPU and peers.
#include "pcie/endpoint.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "common/error.h"
#include "pcie/completion.h"
#include "tests/noise.h"
#include "tests/pcie/endpoint_rig.h"

namespace orrery::pcie::endpoint_completer_test {
namespace {

using testing::Fabric;
using namespace testing::endpoint;  // NOLINT(google-build-using-namespace): the rig
using test::noise;
using testing::DmaLog;
using testing::FabricOptions;
using testing::HostStub;
using testing::MemoryDevice;
using Kind = DmaTransfer::Kind;

class EndpointCompleterModes : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(FunctionalAndTimed, EndpointCompleterModes, ::testing::Bool(),
                         [](const auto& instance) { return instance.param ? "Timed" : "Functional"; });

TEST_P(EndpointCompleterModes, RegistersAndMemoryByTheCpu) {
  Host host(mode(GetParam()));
  std::mt19937_64 random(12);
  std::vector<std::byte> model(host[1].model.memory.size());
  for (int i = 0; i < 200; ++i) {
    const std::uint64_t offset = random() % (model.size() - 300);
    auto bytes = noise(1 + random() % 300, random());
    HostRequest write;
    write.type = TlpType::MWr;
    write.address = host[1].bar2 + offset;
    write.buffer = bytes;
    host.complex.start(write);
    host.run();
    std::copy(bytes.begin(), bytes.end(), model.begin() + static_cast<std::ptrdiff_t>(offset));
    std::vector<std::byte> back(bytes.size());
    HostRequest read;
    read.address = write.address;
    read.buffer = back;
    host.complex.start(read);
    host.run();
    ASSERT_EQ(back, bytes);
  }
  EXPECT_EQ(host[1].model.memory, model);
  EXPECT_TRUE(host[1].model.writes.empty()) << "memory is not registers";
  for (const std::uint32_t size : {1U, 2U, 4U, 8U, 64U}) {
    auto bytes = noise(size, size);
    HostRequest write;
    write.type = TlpType::MWr;
    write.address = host[1].bar0 + 0x40;
    write.buffer = bytes;
    host.complex.start(write);
    host.run();
    EXPECT_EQ(host[1].model.writes.back().offset, 0x40U);
    EXPECT_EQ(host[1].model.writes.back().bytes, bytes);
    HostRequest read;
    read.address = host[1].bar0 + 0x40;
    read.buffer = bytes;
    host.complex.start(read);
    host.run();
    for (std::uint32_t i = 0; i < size; ++i) {
      EXPECT_EQ(bytes[i], MemoryDevice::register_byte(0x40 + i));
    }
  }
  const PortCounters& port = host[1].endpoint->counters();
  EXPECT_EQ(port.completion_bytes_sent, port.write_bytes_received);
}

TEST_P(EndpointCompleterModes, WithoutMemoryDecodeEverythingIsUnsupported) {
  Host host(mode(GetParam()));
  host[1].set_command(command_bit::bus_master);
  std::array<std::byte, 4> buffer{};
  HostRequest read;
  read.address = host[1].bar0;
  read.buffer = buffer;
  host.complex.start(read);
  host.run();
  EXPECT_TRUE(read.done);
  EXPECT_EQ(read.status, CompletionStatus::unsupported_request);
  HostRequest write;
  write.type = TlpType::MWr;
  write.address = host[1].bar0;
  write.buffer = buffer;
  host.complex.start(write);
  host.run();
  EXPECT_TRUE(host[1].model.writes.empty());
  EXPECT_EQ(host[1].endpoint->counters().errors, 2U);
  host[1].set_command(command_bit::memory_space);
  host.complex.start(read);
  host.run();
  EXPECT_EQ(read.status, CompletionStatus::success);
}

TEST_P(EndpointCompleterModes, ConfigurationRequests) {
  Host host(mode(GetParam()));
  const auto config = [&](TlpType type, std::uint32_t offset, std::uint32_t value, Bdf target) {
    std::array<std::byte, 4> buffer{};
    std::memcpy(buffer.data(), &value, 4);
    HostRequest request;
    request.type = type;
    request.address = offset;
    request.target = target;
    request.buffer = buffer;
    host.complex.start(request);
    host.run();
    EXPECT_TRUE(request.done);
    std::memcpy(&value, buffer.data(), 4);
    return std::pair{request.status, value};
  };
  const Bdf bdf = host[2].endpoint->bdf();
  EXPECT_EQ(config(TlpType::CfgRd1, 0, 0, bdf).second, 0x5678'1234U);
  EXPECT_EQ(config(TlpType::CfgWr1, 0x3c, 0x55, bdf).first, CompletionStatus::success);
  EXPECT_EQ(config(TlpType::CfgRd1, 0x3c, 0, bdf).second, 0x55U);
  // The device's bus has one function: any other device or function number is UR (a scan finds nobody).
  EXPECT_EQ(config(TlpType::CfgRd1, 0, 0, Bdf::of(bdf.bus(), 1, 0)).first, CompletionStatus::unsupported_request);
  EXPECT_EQ(config(TlpType::CfgRd1, 0, 0, Bdf::of(bdf.bus(), 0, 1)).first, CompletionStatus::unsupported_request);
}

// Random parts of a peer's memory, direct and redirected, over BAR ends.
TEST_P(EndpointCompleterModes, PeersReadAndWriteEachOther) {
  for (const std::uint16_t acs : {0x00, 0x1d, 0x5d}) {
    FabricOptions options = mode(GetParam());
    options.acs = acs;
    Host host(options);
    for (const DomainId domain : host.domains) {
      ASSERT_EQ(host.iommu.map(domain, Iova{Fabric::memory_base}, Hpa{Fabric::memory_base}, 4U << 20, {true, true}),
                PageTableStatus::ok);
    }
    host[1].model.memory = noise(1U << 20, 20);
    host[2].model.memory = noise(1U << 20, 21);
    host[3].model.memory = noise(1U << 20, 22);
    // From 1's last KiB over the whole of 2 into 3, which hangs at another root port.
    std::vector<std::byte> bytes((1U << 20) + 2048);
    DmaTransfer read = Fabric::transfer(Kind::read, host[2].bar2 - 1000, bytes);
    host.start(0, read);
    host.run();
    ASSERT_EQ(read.status, CompletionStatus::success) << acs;
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.begin() + 1000, host[1].model.memory.end() - 1000));
    EXPECT_TRUE(std::equal(bytes.begin() + 1000, bytes.end() - 1048, host[2].model.memory.begin()));
    EXPECT_TRUE(std::equal(bytes.end() - 1048, bytes.end(), host[3].model.memory.begin()));
    auto data = noise(bytes.size(), 23);
    DmaTransfer write = Fabric::transfer(Kind::write, host[2].bar2 - 1000, data, true);
    host.start(0, write);
    host.run();
    ASSERT_EQ(write.status, CompletionStatus::success);
    EXPECT_TRUE(std::equal(data.begin() + 1000, data.end() - 1048, host[2].model.memory.begin()));
    EXPECT_TRUE(std::equal(data.end() - 1048, data.end(), host[3].model.memory.begin()));
    const bool direct = acs == 0;
    EXPECT_EQ(host.fabric_switch.counters().peer_to_peer > 0, direct) << acs;
    EXPECT_EQ(host.fabric_switch.counters().redirected > 0, !direct) << acs;
  }
}

// A BAR that ends in the middle of a burst: its TLPs are served, the others are not.
TEST(EndpointCompleter, ABurstOverTheEndOfABar) {
  FabricOptions options;
  options.acs = 0;
  Host host(options);
  host.fabric_switch.clear_windows();
  host.add_window(1, host[1].bar2, 2U << 20);  // wider than the BAR
  std::vector<std::byte> data(4096, std::byte{9});
  DmaTransfer write = Fabric::transfer(Kind::write, host[2].bar2 - 2048, data, true);
  host.start(0, write);
  host.run();
  EXPECT_TRUE(std::all_of(host[1].model.memory.end() - 2048, host[1].model.memory.end(),
                          [](std::byte b) { return b == std::byte{9}; }));
  EXPECT_EQ(host[1].endpoint->counters().write_bytes_received, 2048U);
  DmaTransfer read = Fabric::transfer(Kind::read, host[2].bar2 - 2048, data);
  host.start(0, read);
  host.run();
  EXPECT_EQ(read.status, CompletionStatus::unsupported_request);
  EXPECT_EQ(read.failed_address, host[2].bar2);
  host.add_window(2, host[2].bar0 + 0x10'0000, 16);
}

TEST(EndpointCompleter, ADelayedDeliveryIsHonoured) {
  Host host(mode(true));
  TlpPtr tlp = host.simulation.tlps.make();
  tlp->type = TlpType::MWr;
  tlp->address = host[0].bar2;
  tlp->store(noise(8, 1));
  host[0].endpoint->receive(std::move(tlp), Picoseconds{777});
  EXPECT_EQ(host[0].model.memory[0], std::byte{0});
  host.run();
  EXPECT_EQ(host.simulation.now(), Picoseconds{777});
  EXPECT_NE(host[0].endpoint->counters().write_bytes_received, 0U);
}

// Messages' memory answers late: transfers wait without a timeout, tags are kept, others go on.
TEST(EndpointCompleter, MemoryBehindMessagesAnswersLate) {
  Host host;
  HostStub::Region& remote = host.memory.add(0x7000'0000, 1U << 17, 0, HostMemory::Kind::remote);
  remote.bytes = noise(1U << 17, 30);
  ASSERT_EQ(host.iommu.map(host.domains[0], Iova{0x7000'0000}, Hpa{0x7000'0000}, 1U << 17, {true, true}),
            PageTableStatus::ok);
  std::vector<std::byte> late(1U << 17);
  std::vector<std::byte> soon(5000);
  DmaTransfer a = Fabric::transfer(Kind::read, 0x7000'0000, late);
  DmaTransfer b = Fabric::transfer(Kind::read, iova, soon);
  DmaLog log;
  host.start(0, a, &log);
  host.start(0, b, &log);
  host.run();
  EXPECT_EQ(log.done, std::vector<DmaTransfer*>{&b});
  while (!host.memory.pending.empty()) {
    host.memory.answer(true);
    host.run();
  }
  EXPECT_EQ(log.done.size(), 2U);
  EXPECT_EQ(late, remote.bytes);
  auto data = noise(9000, 31);
  const auto copy = data;
  DmaTransfer c = Fabric::transfer(Kind::write, 0x7000'0100, data, true);
  host.start(0, c, &log);
  host.run();
  EXPECT_EQ(log.done.size(), 2U) << "a confirmed write waits for the messages";
  while (!host.memory.pending.empty()) {
    host.memory.answer(true);
    host.run();
  }
  EXPECT_EQ(log.done.size(), 3U);
  EXPECT_TRUE(std::equal(copy.begin(), copy.end(), remote.bytes.begin() + 0x100));
}

}  // namespace
}  // namespace orrery::pcie::endpoint_completer_test
