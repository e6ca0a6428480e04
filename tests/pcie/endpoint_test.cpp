// The endpoint as requester: DMA, its cuts, tags, confirmations and errors, resets, interrupts.
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

namespace orrery::pcie::endpoint_test {
namespace {

using testing::Fabric;
using namespace testing::endpoint;  // NOLINT(google-build-using-namespace): the rig
using test::noise;
using testing::Collector;
using testing::DmaLog;
using testing::FabricOptions;
using testing::Function;
using testing::MemoryDevice;
using testing::Seen;
using testing::Sniffer;
using Kind = DmaTransfer::Kind;

class EndpointModes : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(FunctionalAndTimed, EndpointModes, ::testing::Bool(),
                         [](const auto& instance) { return instance.param ? "Timed" : "Functional"; });

TEST(Endpoint, SettingsAreChecked) {
  Simulation simulation;
  ConfigSpace config(HeaderType::endpoint, {});
  MemoryDevice model(4096);
  for (const unsigned tags : {0U, 1025U}) {
    EndpointSettings settings;
    settings.tags = tags;
    EXPECT_THROW(Endpoint(simulation, "e", settings, config, {}, model), Error);
  }
}

TEST_P(EndpointModes, RandomTransfersMoveExactlyTheirBytes) {
  std::mt19937_64 random(11);
  Host host(mode(GetParam()));
  DmaLog log;
  std::vector<std::byte> model(1U << 20);
  for (int round = 0; round < 60; ++round) {
    const std::uint64_t offset = random() % (1U << 19);
    auto bytes = noise(1 + random() % (random() % 4 == 0 ? 200'000 : 3000), random());
    DmaTransfer write = Fabric::transfer(Kind::write, iova + offset, bytes, round % 2 == 0);
    host.start(round % 3, write, &log);
    host.run();
    std::copy(bytes.begin(), bytes.end(), model.begin() + static_cast<std::ptrdiff_t>(offset));
    ASSERT_EQ(host.region.bytes, model);
    std::vector<std::byte> back(bytes.size());
    DmaTransfer read = Fabric::transfer(Kind::read, iova + offset, back);
    host.start((round + 1) % 3, read, &log);
    host.run();
    ASSERT_EQ(back, bytes);
    ASSERT_EQ(log.done.size(), 2U * static_cast<unsigned>(round + 1));
    ASSERT_EQ(write.status, CompletionStatus::success);
    ASSERT_EQ(read.status, CompletionStatus::success);
  }
}

// Odd addresses: no TLP crosses a multiple of MPS (writes) or MRRS (reads), byte enables are those of the range.
TEST(Endpoint, CutsAtMpsAndMrrs) {
  for (const std::uint32_t mps : {128U, 256U, 512U}) {
    FabricOptions options = mode(true);
    options.endpoint.max_payload = mps;
    options.endpoint.max_read_request = 2 * mps;
    Host host(options);
    Sniffer sniffer;
    host.simulation.observer = &sniffer;
    auto bytes = noise(3000, 1);
    const std::uint64_t address = iova + 0xf3;
    DmaTransfer write = Fabric::transfer(Kind::write, address, bytes);
    DmaTransfer read = Fabric::transfer(Kind::read, address, bytes);
    host.start(0, write);
    host.run();
    host.start(0, read);
    host.run();
    const ComponentId up = host.device_links[0]->up.id();
    for (const auto& [type, unit] : {std::pair{TlpType::MWr, mps}, std::pair{TlpType::MRd, 2 * mps}}) {
      std::uint64_t at = address;
      std::size_t tlps = 0;
      for (const Seen& seen : sniffer.seen) {
        if (seen.link != up || seen.type != type) {
          continue;
        }
        ++tlps;
        EXPECT_EQ(seen.address, at);
        EXPECT_EQ(seen.address / unit, (seen.address + seen.length - 1) / unit);
        EXPECT_EQ(seen.first_be, byte_enables(seen.address, seen.length).first);
        EXPECT_EQ(seen.last_be, byte_enables(seen.address, seen.length).last);
        at += seen.length;
      }
      EXPECT_EQ(at, address + 3000);
      EXPECT_EQ(tlps, (address % unit + 3000 + unit - 1) / unit);
    }
  }
}

// Byte counters of links and ports are those of single TLPs in both modes.
TEST(Endpoint, FunctionalModeCountsWhatTimedModeSends) {
  std::array<std::vector<std::uint64_t>, 2> counted;
  for (const bool timed : {false, true}) {
    FabricOptions options = mode(timed);
    options.endpoint.max_payload = 512;
    options.endpoint.max_read_request = 128;  // completions then hold at most 128 bytes, not 512
    options.endpoint.completion_unit = 512;
    options.root_complex.completion_unit = 512;
    Host host(options);
    auto bytes = noise(100'003, 2);
    DmaTransfer write = Fabric::transfer(Kind::write, iova + 77, bytes, true);
    host.start(0, write);
    host.run();
    DmaTransfer read = Fabric::transfer(Kind::read, iova + 77, bytes);
    host.start(1, read);
    host.run();
    DmaTransfer peer = Fabric::transfer(Kind::read, host[2].bar2 + 5, bytes);
    for (const DomainId domain : host.domains) {
      ASSERT_EQ(host.iommu.map(domain, Iova{Fabric::memory_base}, Hpa{Fabric::memory_base}, 4U << 20, {true, true}),
                PageTableStatus::ok);
    }
    host.start(0, peer);  // redirected by ACS: through the root complex
    host.run();
    ASSERT_EQ(peer.status, CompletionStatus::success);
    auto& out = counted[timed ? 1 : 0];
    const auto add = [&](const Link& link) {
      for (const LinkDirection* way : {&link.up, &link.down}) {
        out.insert(out.end(), {way->counters().tlps, way->counters().wire_bytes, way->counters().payload_bytes});
      }
    };
    add(host.root_link);
    for (const auto& link : host.device_links) {
      add(*link);
    }
    const PortCounters& port = host[0].endpoint->counters();
    out.insert(out.end(), {port.write_bytes_sent, port.read_bytes_requested, port.completion_bytes_received,
                           host[2].endpoint->counters().completion_bytes_sent, host.fabric_switch.counters().redirected,
                           host.complex.counters().memory_reads, host.complex.counters().memory_writes,
                           host.complex.counters().peer_to_peer});
    EXPECT_EQ(port.write_bytes_sent, 100'003U);
    EXPECT_EQ(port.completion_bytes_received, 100'003U) << "flushes move no data";
  }
  EXPECT_EQ(counted[0], counted[1]);
}

TEST_P(EndpointModes, FewTagsServeManyReads) {
  FabricOptions options = mode(GetParam());
  options.endpoint.tags = 2;
  Host host(options);
  host.region.bytes = noise(1U << 20, 3);
  std::vector<std::vector<std::byte>> buffers(10, std::vector<std::byte>(10'000));
  std::vector<DmaTransfer> reads;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    reads.push_back(Fabric::transfer(Kind::read, iova + i * 10'000, buffers[i]));
  }
  DmaLog log;
  Sniffer sniffer;
  host.simulation.observer = &sniffer;
  for (DmaTransfer& read : reads) {
    host.start(0, read, &log);
  }
  host.run();
  EXPECT_EQ(log.done.size(), 10U);
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    EXPECT_TRUE(std::equal(buffers[i].begin(), buffers[i].end(),
                           host.region.bytes.begin() + static_cast<std::ptrdiff_t>(i * 10'000)));
  }
  for (const Seen& seen : sniffer.seen) {
    ASSERT_LT(seen.tag, 2);
  }
}

// Reads that wait for a tag hold up neither writes nor each other; one that fails frees the others.
TEST(Endpoint, WritesPassReadsThatWaitForATag) {
  FabricOptions options = mode(true);
  options.endpoint.tags = 1;
  Host host(options);
  std::vector<std::byte> a(100'000);
  auto b = noise(4096, 4);
  DmaTransfer read = Fabric::transfer(Kind::read, iova, a);
  DmaTransfer write = Fabric::transfer(Kind::write, iova + 0x8'0000, b);
  DmaLog log;
  host.start(0, read, &log);
  host.start(0, write, &log);
  host.run();
  ASSERT_EQ(log.done.size(), 2U);
  EXPECT_EQ(log.done[0], &write);
  EXPECT_LT(write.finished, Picoseconds{1'000'000});
}

TEST_P(EndpointModes, AFailedReadLeavesItsTagToTheNext) {
  FabricOptions options = mode(GetParam());
  options.endpoint.tags = 1;
  Host host(options);
  host.unmap(0, 0);
  std::vector<std::byte> a(100'000);
  std::vector<std::byte> b(600);
  std::vector<std::byte> c(600);
  DmaTransfer bad = Fabric::transfer(Kind::read, iova, a);
  DmaTransfer good = Fabric::transfer(Kind::read, iova + 0x8000, b);
  DmaTransfer other = Fabric::transfer(Kind::read, iova + 0x9000, c);
  DmaLog log;
  for (DmaTransfer* transfer : {&bad, &good, &other}) {
    host.start(0, *transfer, &log);
  }
  host.run();
  EXPECT_EQ(log.done.size(), 3U);
  EXPECT_EQ(bad.status, CompletionStatus::unsupported_request);
  EXPECT_EQ(bad.failed_address, iova);
  EXPECT_EQ(good.status, CompletionStatus::success);
  EXPECT_EQ(other.status, CompletionStatus::success);
}

// Round robin: two long writes progress together, TLP by TLP.
TEST(Endpoint, TransfersInterleaveRoundRobin) {
  Host host(mode(true));
  Sniffer sniffer;
  host.simulation.observer = &sniffer;
  auto a = noise(64 * 256, 5);
  auto b = noise(64 * 256, 6);
  DmaTransfer first = Fabric::transfer(Kind::write, iova, a);
  DmaTransfer second = Fabric::transfer(Kind::write, iova + 0x8'0000, b);
  host.start(0, first);
  host.start(0, second);
  host.run();
  int turn = 0;
  int out_of_turn = 0;
  for (const Seen& seen : sniffer.seen) {
    if (seen.link == host.device_links[0]->up.id()) {
      out_of_turn += (seen.address >= iova + 0x8'0000 ? 1 : 0) != turn % 2 ? 1 : 0;
      ++turn;
    }
  }
  EXPECT_EQ(turn, 128);
  EXPECT_EQ(out_of_turn, 0);
}

// The link is filled without a gap and without drift: N TLPs of 280 bytes take ceil(N x 280 x byte time).
TEST(Endpoint, KeepsItsLinkBusy) {
  Host host(mode(true));
  std::vector<std::byte> bytes(1U << 20);
  DmaTransfer write = Fabric::transfer(Kind::write, iova, bytes);
  DmaLog log;
  Picoseconds told;
  log.then = [&](DmaTransfer&) { told = host.simulation.now(); };
  host.start(0, write, &log);
  host.run();
  const ByteTime t = byte_time(5, 16);
  const std::uint64_t wire = 4096ULL * (256 + 20);  // IOVA below 4 GiB: 3 DW
  EXPECT_EQ((write.finished - write.started).count, (wire * t.numerator + t.denominator - 1) / t.denominator);
  EXPECT_EQ(told, write.finished) << "a write ends when its last TLP has left, not when it was handed over";
}

// Reads with ample tags fill the other direction with completions (row 7: 58.449 GB/s).
TEST(Endpoint, ReadsRunAtLinkRateWithAmpleTags) {
  FabricOptions options = mode(true);
  options.endpoint.tags = 1024;
  options.root_complex.latency = {1'000};
  options.switch_settings.latency = {1'000};
  Host host(options);
  std::vector<std::byte> bytes(1U << 20);
  DmaTransfer read = Fabric::transfer(Kind::read, iova, bytes);
  host.start(0, read);
  host.run();
  const LinkCounters& down = host.device_links[0]->down.counters();
  EXPECT_EQ(down.wire_bytes, (1U << 20) + 4096U * 20);
  const double busy_rate = static_cast<double>(down.payload_bytes) / static_cast<double>(down.busy.count) * 1e3;
  EXPECT_NEAR(busy_rate, 58.449, 58.449e-3);
  // And it was busy nearly all the time: what is missing is the latency of the first read.
  EXPECT_LT((read.finished - read.started).count - down.busy.count, 1'000'000U);
}

// Little's law (row 11): 32 tags of 256 bytes at a round trip that is measured, not assumed.
TEST(Endpoint, TagsBoundBandwidth) {
  FabricOptions options = mode(true);
  options.endpoint.tags = 32;
  options.endpoint.max_read_request = 256;
  options.endpoint.completion_unit = 256;
  options.root_complex.latency = {330'000};
  Host host(options);
  std::vector<std::byte> bytes(1U << 20);
  DmaTransfer one = Fabric::transfer(Kind::read, iova, std::span(bytes).first(256));
  host.start(0, one);
  host.run();
  const double round_trip = static_cast<double>((one.finished - one.started).count);
  EXPECT_GT(round_trip, 1'000'000.0);
  DmaTransfer all = Fabric::transfer(Kind::read, iova, bytes);
  host.start(0, all);
  host.run();
  const double rate = static_cast<double>(bytes.size()) / static_cast<double>((all.finished - all.started).count);
  EXPECT_NEAR(rate, 32 * 256 / round_trip, 0.01 * rate);
}

TEST_P(EndpointModes, OneConfirmationAPageWritten) {
  Host host(mode(GetParam()));
  Sniffer sniffer;
  host.simulation.observer = &sniffer;
  auto bytes = noise(3 * 4096, 7);
  DmaTransfer write = Fabric::transfer(Kind::write, iova + 4000, bytes, true);  // touches four pages
  DmaLog log;
  host.start(0, write, &log);
  host.run();
  std::vector<std::uint64_t> flushed;
  for (const Seen& seen : sniffer.seen) {
    if (seen.link == host.device_links[0]->up.id() && seen.type == TlpType::MRd) {
      EXPECT_EQ(seen.first_be, 0);
      EXPECT_EQ(seen.length, 4U);
      flushed.push_back(seen.address);
    }
  }
  EXPECT_EQ(flushed, (std::vector<std::uint64_t>{iova + 4000, iova + 4096, iova + 8192, iova + 12288}));
  EXPECT_EQ(write.status, CompletionStatus::success);
  EXPECT_EQ(log.done.size(), 1U);
}

TEST_P(EndpointModes, AFailedPageIsReportedAndNothingStrays) {
  for (std::uint64_t bad = 0; bad < 4; ++bad) {
    Host host(mode(GetParam()));
    host.unmap(0, bad);
    auto bytes = noise(4 * 4096 - 100, 8);
    DmaTransfer write = Fabric::transfer(Kind::write, iova + 50, bytes, true);
    DmaLog log;
    host.start(0, write, &log);
    host.run();
    ASSERT_EQ(log.done.size(), 1U);
    EXPECT_EQ(write.status, CompletionStatus::unsupported_request);
    EXPECT_EQ(write.failed_address, bad == 0 ? ((iova + 50) & ~3ULL) : iova + bad * 4096);
    EXPECT_GE(host.iommu.fault_total(), 1U);
    // The bad page, what lies before and behind: untouched. What was written elsewhere is what was sent.
    for (std::size_t i = 0; i < host.region.bytes.size(); ++i) {
      const bool inside = i >= 50 && i < 50 + bytes.size();
      if (!inside || i / 4096 == bad) {
        ASSERT_EQ(host.region.bytes[i], std::byte{0}) << i;
      } else if (host.region.bytes[i] != std::byte{0}) {
        ASSERT_EQ(host.region.bytes[i], bytes[i - 50]);
      }
    }
  }
}

TEST_P(EndpointModes, AReadFailsAtItsFirstBadTlp) {
  Host host(mode(GetParam()));
  host.region.bytes = noise(1U << 20, 9);
  host.unmap(0, 2);
  std::vector<std::byte> bytes(4 * 4096, std::byte{0});
  DmaTransfer read = Fabric::transfer(Kind::read, iova, bytes);
  DmaLog log;
  host.start(0, read, &log);
  host.run();
  EXPECT_EQ(log.done.size(), 1U);
  EXPECT_EQ(read.status, CompletionStatus::unsupported_request);
  EXPECT_EQ(read.failed_address, iova + 2 * 4096);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.begin() + 8192, host.region.bytes.begin()));
  EXPECT_TRUE(std::all_of(bytes.begin() + 8192, bytes.begin() + 12288, [](std::byte b) { return b == std::byte{0}; }));
  // Eight reads of 512 bytes: each has a fault and an error of its own.
  EXPECT_EQ(host.iommu.fault_total(), 8U);
  EXPECT_EQ(host[0].endpoint->counters().errors, 8U);
  EXPECT_EQ(host[0].endpoint->counters().unexpected_completions, 0U);
}

TEST_P(EndpointModes, CompleterAbortIsReported) {
  FabricOptions options = mode(GetParam());
  options.acs = 0x22;  // translation blocking, egress control
  Host host(options);
  std::vector<std::byte> bytes(2000);
  DmaTransfer read = Fabric::transfer(Kind::read, host[1].bar2, bytes);
  read.at = AddressType::translated;
  host.start(0, read);
  host.run();
  EXPECT_EQ(read.status, CompletionStatus::completer_abort);
  EXPECT_EQ(read.failed_address, host[1].bar2);
  DmaTransfer write = Fabric::transfer(Kind::write, host[1].bar2, bytes, true);
  write.at = AddressType::translated;
  host.start(0, write);
  host.run();
  EXPECT_EQ(write.status, CompletionStatus::completer_abort);
  EXPECT_EQ(host.fabric_switch.counters().acs_violations > 0, true);
  EXPECT_TRUE(std::all_of(host[1].model.memory.begin(), host[1].model.memory.end(),
                          [](std::byte b) { return b == std::byte{0}; }));
}

TEST_P(EndpointModes, WithoutBusMasterNothingLeaves) {
  Host host(mode(GetParam()));
  host[0].set_command(command_bit::memory_space);
  auto bytes = noise(1000, 1);
  DmaTransfer write = Fabric::transfer(Kind::write, iova + 8, bytes);
  DmaTransfer read = Fabric::transfer(Kind::read, iova + 16, bytes);
  DmaLog log;
  host.start(0, write, &log);
  host.start(0, read, &log);
  host[0].endpoint->msix(0);
  host.run();
  EXPECT_EQ(log.done.size(), 2U);
  EXPECT_EQ(write.status, CompletionStatus::unsupported_request);
  EXPECT_EQ(write.failed_address, iova + 8);
  EXPECT_EQ(read.status, CompletionStatus::unsupported_request);
  EXPECT_EQ(host.device_links[0]->up.counters().tlps, 0U);
  EXPECT_TRUE(host.interrupts.messages.empty());
}

TEST(Endpoint, BusMasterTakenAwayInTheMiddle) {
  Host host(mode(true));
  std::vector<std::byte> bytes(1U << 18, std::byte{1});
  DmaTransfer write = Fabric::transfer(Kind::write, iova, bytes, true);
  host.start(0, write);
  host.simulation.events.run_until(Picoseconds{500'000});
  host[0].set_command(command_bit::memory_space);
  host.run();
  EXPECT_EQ(write.status, CompletionStatus::unsupported_request);
  EXPECT_GT(write.failed_address, iova);
  EXPECT_LT(write.failed_address, iova + bytes.size());
}

TEST_P(EndpointModes, ImpossibleTransfersEndWithAnError) {
  Host host(mode(GetParam()));
  std::vector<std::byte> bytes(64);
  DmaLog log;
  DmaTransfer empty = Fabric::transfer(Kind::write, iova, std::span(bytes).first(0));
  DmaTransfer wrapping = Fabric::transfer(Kind::read, ~std::uint64_t{0} - 10, bytes);
  host.start(0, empty, &log);
  host.start(0, wrapping, &log);
  EXPECT_TRUE(log.done.empty()) << "never from inside start()";
  host.run();
  EXPECT_EQ(log.done.size(), 2U);
  EXPECT_EQ(empty.status, CompletionStatus::unsupported_request);
  EXPECT_EQ(wrapping.status, CompletionStatus::unsupported_request);
  // The last bytes of the address space are a legal, if unmapped, target.
  DmaTransfer top = Fabric::transfer(Kind::write, 0 - std::uint64_t{64}, bytes, true);
  host.start(0, top, &log);
  host.run();
  EXPECT_EQ(top.status, CompletionStatus::unsupported_request);
  EXPECT_EQ(top.failed_address, 0 - std::uint64_t{64});
}

TEST(Endpoint, CancelledTransfersAreForgotten) {
  Host host(mode(true));
  host.region.bytes = noise(1U << 20, 10);
  std::vector<std::byte> bytes(100'000);
  DmaLog log;
  DmaTransfer read = Fabric::transfer(Kind::read, iova, bytes);
  DmaTransfer write = Fabric::transfer(Kind::write, iova, bytes);
  host.start(0, read, &log);
  host.simulation.events.run_until(Picoseconds{300'000});
  EXPECT_EQ(host[0].endpoint->transfers(), 1U);
  host[0].endpoint->cancel_all();
  EXPECT_EQ(host[0].endpoint->transfers(), 0U);
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  host.run();
  EXPECT_TRUE(log.done.empty());
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), std::byte{0}), 100'000) << "late completions are dropped";
  EXPECT_GT(host[0].endpoint->counters().unexpected_completions, 0U);
  // All tags are there again; a write that is about to end is forgotten as well.
  DmaTransfer again = Fabric::transfer(Kind::read, iova, bytes);
  host.start(0, again, &log);
  host.run();
  EXPECT_EQ(log.done, std::vector<DmaTransfer*>{&again});
  host.start(0, write, &log);
  while (host[0].endpoint->transfers() != 0 && write.issued < write.length) {
    host.simulation.events.run_one();
  }
  host[0].endpoint->cancel_all();
  host.run();
  EXPECT_EQ(log.done.size(), 1U);
}

TEST_P(EndpointModes, FunctionLevelResetCancelsAndResets) {
  Host host(mode(GetParam()));
  std::vector<std::byte> bytes(3U << 20 >> 2);
  DmaLog log;
  DmaTransfer read = Fabric::transfer(Kind::read, iova, bytes);
  host.start(0, read, &log);
  host.simulation.events.run_one();
  host[0].function_level_reset();
  EXPECT_EQ(host[0].model.resets, 1U);
  EXPECT_EQ(host[0].endpoint->transfers(), 0U);
  host.run();
  EXPECT_TRUE(log.done.empty() || log.done.size() == 1U);
  EXPECT_FALSE(host[0].config.bus_master_enabled());
  // The BARs have gone with it.
  std::array<std::byte, 4> buffer{};
  HostRequest request;
  request.address = host[0].bar0;
  request.buffer = buffer;
  host.complex.start(request);
  host.run();
  EXPECT_EQ(request.status, CompletionStatus::unsupported_request);
}

// A listener may do anything: start, cancel, reset.
TEST_P(EndpointModes, ListenersMayStartCancelAndReset) {
  Host host(mode(GetParam()));
  std::vector<std::byte> bytes(1000);
  DmaTransfer a = Fabric::transfer(Kind::write, iova, bytes, true);
  DmaTransfer b = Fabric::transfer(Kind::read, iova, bytes);
  int rounds = 0;
  DmaLog log;
  log.then = [&](DmaTransfer& transfer) {
    if (++rounds < 100) {
      host.start(0, &transfer == &a ? b : a, &log);
    } else if (rounds == 100) {
      host.start(0, a, &log);
      host[0].endpoint->cancel_all();
    }
  };
  host.start(0, a, &log);
  host.run();
  EXPECT_EQ(rounds, 100);
  log.then = [&](DmaTransfer&) { host[0].function_level_reset(); };
  DmaTransfer c = Fabric::transfer(Kind::write, iova, bytes);
  host.start(0, b, &log);
  host.start(0, c, &log);
  host.run();
  EXPECT_EQ(host[0].model.resets, 1U);
}

TEST_P(EndpointModes, MsixFollowsEarlierWrites) {
  Host host(mode(GetParam()));
  auto bytes = noise(64 * 1024, 3);
  DmaTransfer write = Fabric::transfer(Kind::write, iova, bytes);
  DmaLog log;
  log.then = [&](DmaTransfer&) { host[0].endpoint->msix(5); };
  host.start(0, write, &log);
  bool arrived_before = false;
  while (host.simulation.events.run_one()) {
    if (!host.interrupts.messages.empty() && !arrived_before) {
      arrived_before = true;
      EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), host.region.bytes.begin())) << "at the interrupt all is there";
    }
  }
  ASSERT_EQ(host.interrupts.messages.size(), 1U);
  EXPECT_EQ(host.interrupts.messages[0].requester, host[0].endpoint->bdf());
  EXPECT_EQ(host.interrupts.messages[0].data, 5U);
  EXPECT_EQ(host[0].endpoint->counters().msix_sent, 1U);
  EXPECT_EQ(host[0].endpoint->counters().write_bytes_sent, bytes.size() + 4);
}

// Functional mode: what one event moves is bounded.
TEST(Endpoint, AnEventMovesAtMostAMebibyte) {
  FabricOptions options;
  options.memory_bytes = 16U << 20;
  options.acs = 0;
  Host host(options);
  std::vector<std::byte> bytes(16U << 20);
  std::vector<DmaTransfer> transfers;
  for (std::size_t i = 0; i < 4; ++i) {
    transfers.push_back(Fabric::transfer(i % 2 == 0 ? Kind::write : Kind::read, host[1].bar2 + i * (4U << 20),
                                         std::span(bytes).subspan(i * (4U << 20), 4U << 20)));
  }
  for (DmaTransfer& transfer : transfers) {
    host.start(0, transfer);
  }
  const auto moved = [&] {
    return host.device_links[0]->up.counters().payload_bytes + host.device_links[0]->down.counters().payload_bytes;
  };
  std::uint64_t before = 0;
  std::uint64_t events = 0;
  while (host.simulation.events.run_one()) {
    EXPECT_LE(moved() - before, 1U << 20);
    before = moved();
    ++events;
  }
  EXPECT_EQ(before, 16U << 20);
  EXPECT_GE(events, 16U);
}

// Late or forged completions.
TEST(Endpoint, StrangeCompletions) {
  Host host;
  Endpoint& endpoint = *host[0].endpoint;
  const auto completion = [&](Bdf requester, std::uint16_t tag) {
    TlpPtr tlp = host.simulation.tlps.make();
    tlp->type = TlpType::CplD;
    tlp->requester = requester;
    tlp->tag = tag;
    tlp->byte_count = 64;
    tlp->store(noise(64, 1));
    return tlp;
  };
  endpoint.receive(completion(endpoint.bdf(), 0), {});
  endpoint.receive(completion(endpoint.bdf(), 1023), {});
  endpoint.receive(completion(Bdf::of(7, 7, 7), 0), {});
  EXPECT_EQ(endpoint.counters().unexpected_completions, 3U);
}

TEST(Endpoint, ACompletionWithoutDataIsNoAnswerToARead) {
  Simulation simulation;
  Function function(simulation, "f", {}, 1U << 16, Bdf::of(3, 0, 0));
  function.enable(0xc000'0000, 0x20'0000'0000);
  Collector up(simulation);
  function.endpoint->connect(up);
  std::vector<std::byte> guarded(64 + 128, std::byte{0xcc});
  for (const int strange : {0, 1, 2}) {
    up.tlps.clear();
    DmaTransfer read = Fabric::transfer(Kind::read, 0x1000, std::span(guarded).subspan(64, 64));
    function.endpoint->start(read);
    while (simulation.events.run_one()) {
    }
    ASSERT_EQ(up.tlps.size(), 1U);
    TlpPtr tlp = make_completion(simulation, *up.tlps[0], Bdf{}, CompletionStatus::success);
    if (strange != 0) {
      tlp->type = TlpType::CplD;
      tlp->byte_count = strange == 1 ? 100'000 : 64;
      strange == 1 ? tlp->store(noise(4096, 2)) : static_cast<void>(tlp->length = 64);  // too much; no data at all
    }
    function.endpoint->receive(std::move(tlp), {});
    EXPECT_EQ(read.status, strange == 0 ? CompletionStatus::unsupported_request : CompletionStatus::success);
    EXPECT_EQ(function.endpoint->transfers(), 0U);
    for (std::size_t i = 0; i < 64; ++i) {
      EXPECT_EQ(guarded[i], std::byte{0xcc});
      EXPECT_EQ(guarded[128 + i], std::byte{0xcc});
    }
  }
}

}  // namespace
}  // namespace orrery::pcie::endpoint_test
