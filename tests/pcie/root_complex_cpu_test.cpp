// The root complex as the CPU uses it: its requests, their completions, and the time of the whole path.
#include "pcie/root_complex.h"

#include <array>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "common/error.h"
#include "pcie/completion.h"
#include "tests/noise.h"
#include "tests/pcie/root_complex_rig.h"

namespace orrery::pcie::root_complex_cpu_test {
namespace {

using namespace testing::root_complex;  // NOLINT(google-build-using-namespace): the rig
using test::noise;
using testing::Fabric;
using testing::FabricOptions;

TEST(RootComplexCpu, WhatGoesToNoDeviceEndsAtOnce) {
  Bench bench;
  std::array<std::byte, 8> buffer{};
  for (const std::uint64_t address : {std::uint64_t{0x1000}, bar_b + bar_bytes - 4, dram}) {
    HostRequest request;
    request.address = address;
    request.buffer = buffer;
    bench.complex.start(request);
    EXPECT_TRUE(request.done);
    EXPECT_EQ(request.status, CompletionStatus::unsupported_request);
  }
  HostRequest empty;
  empty.address = bar_a;
  bench.complex.start(empty);
  EXPECT_TRUE(empty.done) << "no bytes, no TLP, no waiting";
  HostRequest config;
  config.type = TlpType::CfgRd1;
  config.target = Bdf::of(100, 0, 0);
  config.buffer = std::span(buffer).first(4);
  bench.complex.start(config);
  EXPECT_TRUE(config.done);
  EXPECT_EQ(config.status, CompletionStatus::unsupported_request);
  EXPECT_TRUE(bench.below[0].tlps.empty());
  EXPECT_TRUE(bench.below[1].tlps.empty());
}

TEST(RootComplexCpu, WritesAreCutAtCacheLines) {
  Bench bench;
  auto bytes = noise(200, 8);
  HostRequest request;
  request.type = TlpType::MWr;
  request.address = bar_a + 0x30;
  request.buffer = bytes;
  bench.complex.start(request);
  EXPECT_TRUE(request.done);
  const std::array<std::pair<std::uint64_t, std::uint32_t>, 4> expected = {
      {{0x30, 16}, {0x40, 64}, {0x80, 64}, {0xc0, 56}}};
  ASSERT_EQ(bench.below[0].tlps.size(), expected.size());
  std::size_t done = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const Tlp& tlp = *bench.below[0].tlps[i];
    EXPECT_EQ(tlp.address, bar_a + expected[i].first);
    EXPECT_EQ(tlp.length, expected[i].second);
    EXPECT_EQ(tlp.requester, bench.complex.bdf());
    EXPECT_TRUE(std::equal(tlp.data, tlp.data + tlp.length, bytes.begin() + static_cast<std::ptrdiff_t>(done)));
    done += tlp.length;
  }
}

TEST(RootComplexCpu, ConfigurationRequestsHaveTheirTypeByBus) {
  Bench bench;
  std::array<std::byte, 4> buffer{};
  for (const auto& [bus, type] : {std::pair{1U, TlpType::CfgRd0}, std::pair{3U, TlpType::CfgRd1}}) {
    HostRequest request;
    request.type = TlpType::CfgRd1;
    request.target = Bdf::of(bus, 0, 0);
    request.address = 0x3c;
    request.byte_enables = 0x3;
    request.buffer = buffer;
    bench.complex.start(request);
    ASSERT_FALSE(bench.below[0].tlps.empty());
    const Tlp& tlp = *bench.below[0].tlps.back();
    EXPECT_EQ(tlp.type, type);
    EXPECT_EQ(tlp.first_be, 0x3);
    EXPECT_EQ(tlp.last_be, 0);
    EXPECT_EQ(tlp.completer, Bdf::of(bus, 0, 0));
    bench.complex.cancel(request);
  }
}

// Answers a read that the CPU sent, with bytes that tell their address.
TlpPtr answer(Bench& bench, const Tlp& read) {
  TlpPtr completion = make_data_completion(bench.simulation, read, device_a, 0, read.length, 256);
  std::vector<std::byte> data(read.length);
  for (std::uint32_t i = 0; i < read.length; ++i) {
    data[i] = static_cast<std::byte>((read.address + i) * 11);
  }
  completion->store(data);
  return completion;
}

TEST(RootComplexCpu, MoreThan64TlpsWaitForTags) {
  Bench bench(true);
  std::vector<std::byte> buffer(64 * 200 + 10);
  HostRequest first;
  first.address = bar_a + 5;
  first.buffer = buffer;
  bench.complex.start(first);
  std::array<std::byte, 4> other{};
  HostRequest second;
  second.address = bar_a + 0x8000;
  second.buffer = other;
  bench.complex.start(second);
  bench.run();
  EXPECT_EQ(bench.below[0].tlps.size(), 64U);
  std::size_t tlps = 0;
  while (!bench.below[0].tlps.empty()) {
    std::vector<TlpPtr> reads = std::move(bench.below[0].tlps);
    bench.below[0].tlps.clear();
    std::vector<bool> used(64);
    for (const TlpPtr& read : reads) {
      ASSERT_LT(read->tag, 64);
      ASSERT_FALSE(used[read->tag]) << "a tag twice at a time";
      used[read->tag] = true;
    }
    tlps += reads.size();
    for (const TlpPtr& read : reads) {
      EXPECT_FALSE(second.done);
      bench.complex.ingress(0).receive(answer(bench, *read), {});
    }
    bench.run();
  }
  EXPECT_EQ(tlps, 202U);
  EXPECT_TRUE(first.done);
  EXPECT_TRUE(second.done);
  EXPECT_EQ(first.status, CompletionStatus::success);
  for (std::size_t i = 0; i < buffer.size(); ++i) {
    ASSERT_EQ(buffer[i], static_cast<std::byte>((bar_a + 5 + i) * 11)) << i;
  }
}

TEST(RootComplexCpu, CancelledRequestsAreForgottenWhereverTheyAre) {
  Bench bench;  // functional mode, but nobody answers: as a device that hangs
  std::vector<std::byte> buffer(64 * 65);
  std::vector<HostRequest> requests(3);
  for (HostRequest& request : requests) {
    request.address = bar_a;
    request.buffer = buffer;
    bench.complex.start(request);
    EXPECT_FALSE(request.done);
  }
  ASSERT_EQ(bench.below[0].tlps.size(), 64U);
  bench.complex.cancel(requests[2]);  // the last that waits
  bench.complex.cancel(requests[0]);  // has all the tags
  std::vector<TlpPtr> reads = std::move(bench.below[0].tlps);
  bench.below[0].tlps.clear();
  buffer.assign(buffer.size(), std::byte{0});
  for (const TlpPtr& read : reads) {
    bench.complex.ingress(0).receive(answer(bench, *read), {});
  }
  EXPECT_EQ(bench.complex.counters().unexpected_completions, 64U);
  EXPECT_EQ(buffer, std::vector<std::byte>(buffer.size())) << "late completions write nothing";
  EXPECT_EQ(bench.below[0].tlps.size(), 64U) << "the tags serve the one that is left";
  bench.complex.cancel(requests[1]);
}

TEST(RootComplexCpu, UnexpectedCompletions) {
  Bench bench;
  for (const std::uint16_t tag : {0, 63, 64, 65535}) {
    TlpPtr tlp = bench.simulation.tlps.make();
    tlp->type = TlpType::CplD;
    tlp->requester = bench.complex.bdf();
    tlp->tag = tag;
    tlp->byte_count = 64;
    tlp->store(noise(64, 1));
    bench.send(0, std::move(tlp));
  }
  EXPECT_EQ(bench.complex.counters().unexpected_completions, 4U);
}

TEST(RootComplexCpu, HostileCompletionsWriteNoByteTooMuch) {
  Bench bench;
  std::vector<std::byte> guarded(8 + 8 + 8, std::byte{0xcc});
  HostRequest request;
  request.address = bar_a;
  request.buffer = std::span(guarded).subspan(8, 8);
  bench.complex.start(request);
  const std::uint16_t tag = bench.below[0].tlps[0]->tag;
  TlpPtr tlp = bench.simulation.tlps.make();
  tlp->type = TlpType::CplD;
  tlp->requester = bench.complex.bdf();
  tlp->tag = tag;
  tlp->byte_count = 5000;  // more than was asked for
  tlp->store(noise(4096, 1));
  bench.send(0, std::move(tlp));
  EXPECT_TRUE(request.done);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(guarded[i], std::byte{0xcc});
    EXPECT_EQ(guarded[16 + i], std::byte{0xcc});
  }
}

// A 64-byte DRAM read of a Gen3 x8 device at a root port: measured 480 to 495 ns (pcie-bench, Xeon E5 v1 to v4).
TEST(RootComplexLatency, ADeviceReadsDram) {
  testing::FabricOptions options;
  options.timed = true;
  options.device_link = {3, 8, {40'000}};
  testing::Fabric fabric(options);
  fabric.memory.add(dram, 4096, 1);
  std::array<std::byte, 64> buffer{};
  DmaTransfer read = testing::Fabric::transfer(DmaTransfer::Kind::read, dram, buffer);
  fabric.start(3, read);  // the one that hangs at a root port of its own, on socket 1
  fabric.run();
  const Picoseconds time = read.finished - read.started;
  // 24 bytes up, 84 down at 63.015 Gb/s; flight and the root complex both ways; DRAM.
  EXPECT_NEAR(static_cast<double>(time.count), (24 + 84) * 8 / 63.0153846 * 1e3 + 2 * 40e3 + 2 * 150e3 + 90e3, 2.0);
  EXPECT_GE(time.count, 480'000U);
  EXPECT_LE(time.count, 495'000U);
  EXPECT_EQ(read.latency.total(), time);
  // The same from the other socket's memory: +100 to +115 measured, +108 here.
  fabric.memory.add(dram + 0x10'0000, 4096, 0);
  DmaTransfer remote = testing::Fabric::transfer(DmaTransfer::Kind::read, dram + 0x10'0000, buffer);
  fabric.start(3, remote);
  fabric.run();
  EXPECT_EQ(remote.finished - remote.started - time, Picoseconds{108'000});
}

// ---- The whole path -----------------------------------------------------------------------------------------

class CpuPath : public ::testing::TestWithParam<std::tuple<unsigned, unsigned, std::uint32_t>> {};

TEST_P(CpuPath, BreakdownSumsToTheTime) {
  const auto& [target, socket, size] = GetParam();
  FabricOptions options;
  options.timed = true;
  Fabric fabric(options);
  std::vector<std::byte> buffer(size);
  for (const std::uint64_t bar : {fabric[target].bar0, fabric[target].bar2}) {
    HostRequest request;
    request.address = bar;
    request.buffer = buffer;
    request.socket = socket;
    fabric.complex.start(request);
    fabric.run();
    ASSERT_TRUE(request.done);
    EXPECT_EQ(request.status, CompletionStatus::success);
    EXPECT_EQ(request.latency.total(), request.finished - request.started);
  }
  HostRequest config;
  config.type = TlpType::CfgRd1;
  config.target = fabric[target].endpoint->bdf();
  config.buffer = std::span(buffer).first(4);
  config.socket = socket;
  fabric.complex.start(config);
  fabric.run();
  EXPECT_EQ(static_cast<unsigned>(buffer[0]) | static_cast<unsigned>(buffer[1]) << 8, 0x1234U);
  EXPECT_EQ(config.latency.total(), config.finished - config.started);
  EXPECT_EQ(fabric.simulation.tlps.outstanding(), 0U);
}
INSTANTIATE_TEST_SUITE_P(TargetsSocketsSizes, CpuPath,
                         ::testing::Combine(::testing::Values(0U, 2U, 3U), ::testing::Values(0U, 1U),
                                            ::testing::Values(4U, 8U, 64U)));

// A register read below a switch, added up by hand from the settings.
TEST(CpuPath, ARegisterReadTakesExactlyTheSumOfItsParts) {
  FabricOptions options;
  options.timed = true;
  Fabric fabric(options);
  std::array<std::byte, 4> buffer{};
  HostRequest request;
  request.address = fabric[1].bar0 + 0x10;
  request.buffer = buffer;
  fabric.complex.start(request);
  fabric.run();
  const ByteTime t = byte_time(5, 16);
  const auto wire = [&](std::uint64_t bytes) { return (bytes * t.numerator + t.denominator - 1) / t.denominator; };
  // Request: 12 bytes of header (32-bit BAR) and 8 of framing; completion: 4 more of data. Twice over links.
  const std::uint64_t expected = 2 * 150'000 + 2 * fabric.options.switch_settings.latency.count + 4 * 40'000 +
                                 2 * wire(20) + 2 * wire(24) + 40'000;
  EXPECT_EQ((request.finished - request.started).count, expected);
  EXPECT_EQ(buffer[0], testing::MemoryDevice::register_byte(0x10));
}

// While a device's own DMA fills its link, completions wait for it: that wait is in the breakdown.
TEST(CpuPath, BreakdownSumsUnderLoad) {
  FabricOptions options;
  options.timed = true;
  Fabric fabric(options);
  fabric.memory.add(Fabric::dram, 1U << 20);
  std::vector<std::byte> bytes(1U << 18);
  DmaTransfer transfer = Fabric::transfer(DmaTransfer::Kind::write, Fabric::dram, bytes);
  fabric.start(0, transfer);
  fabric.simulation.events.run_until(Picoseconds{300'000});
  std::array<std::byte, 4> buffer{};
  std::uint64_t queued = 0;
  for (int i = 0; i < 20; ++i) {
    HostRequest request;
    request.address = fabric[0].bar0;
    request.buffer = buffer;
    fabric.complex.start(request);
    while (!request.done && fabric.simulation.events.run_one()) {
    }
    ASSERT_TRUE(request.done);
    ASSERT_EQ(request.latency.total(), request.finished - request.started);
    for (const HopCost& hop : request.latency.hops()) {
      queued += hop.queue;
    }
  }
  EXPECT_GT(queued, 0U) << "the link was to be busy";
  fabric.run();
  EXPECT_EQ(fabric.simulation.tlps.outstanding(), 0U);
}

}  // namespace
}  // namespace orrery::pcie::root_complex_cpu_test
