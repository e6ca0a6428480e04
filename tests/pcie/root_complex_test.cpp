// The root complex as devices see it: translation and faults TLP by TLP, interrupts, AT, peers, messages' memory.
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

namespace orrery::pcie::root_complex_test {
namespace {

using testing::Collector;
using testing::HostStub;
using testing::Interrupts;
using namespace testing::root_complex;  // NOLINT(google-build-using-namespace): the rig
using test::noise;

TEST(RootComplex, BusesBelongToOnePort) {
  Bench bench;
  EXPECT_THROW(bench.complex.add_port("p2", 0, {4, 5}, {}), Error);
  EXPECT_THROW(bench.complex.add_port("p3", 0, {250, 256}, {}), Error);
}

TEST(RootComplex, WritesAndReadsGoWhereTheIommuSays) {
  Bench bench;
  HostStub::Region& region = bench.memory.add(dram, 0x4000);
  bench.map(0x1000, dram + 0x2000, 0x1000);
  const auto bytes = noise(64, 1);
  bench.send(0, bench.write(0x1010, bytes));
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), region.bytes.begin() + 0x2010));
  EXPECT_EQ(region.bytes[0x200f], std::byte{0});
  EXPECT_EQ(region.bytes[0x2050], std::byte{0});
  EXPECT_EQ(bench.memory.written_bytes, 64U);
  bench.send(0, bench.read(0x1010, 64));
  ASSERT_EQ(bench.below[0].tlps.size(), 1U);
  EXPECT_EQ(bench.below[0].tlps[0]->type, TlpType::CplD);
  EXPECT_EQ(bench.below[0].tlps[0]->data, region.bytes.data() + 0x2010) << "borrowed, not copied";
  EXPECT_EQ(bench.complex.counters().memory_writes, 1U);
  EXPECT_EQ(bench.complex.counters().memory_reads, 1U);
  EXPECT_EQ(bench.iommu.fault_total(), 0U);
}

TEST(RootComplex, AFaultAnswersReadsWithUrAndDropsWrites) {
  Bench bench;
  HostStub::Region& region = bench.memory.add(dram, 0x1000);
  bench.map(0x1000, dram, 0x1000, {true, false});
  bench.send(0, bench.write(0x1000, noise(64, 2)));  // no right to write
  bench.send(0, bench.write(0x9000, noise(64, 2)));  // not mapped
  bench.send(0, bench.read(0x9000, 64));
  TlpPtr stranger = bench.read(0x1000, 64);
  stranger->requester = Bdf::of(2, 0, 0);  // of no domain
  bench.send(0, std::move(stranger));
  EXPECT_EQ(region.bytes, std::vector<std::byte>(0x1000)) << "not a byte";
  ASSERT_EQ(bench.below[0].tlps.size(), 2U);
  for (const TlpPtr& tlp : bench.below[0].tlps) {
    EXPECT_EQ(tlp->type, TlpType::Cpl);
    EXPECT_EQ(tlp->status, CompletionStatus::unsupported_request);
    EXPECT_EQ(tlp->byte_count, 64U);
  }
  EXPECT_EQ(bench.complex.counters().translation_faults, 4U);
  const std::array reasons = {IommuFaultReason::write_permission, IommuFaultReason::not_present,
                              IommuFaultReason::not_present, IommuFaultReason::no_domain};
  for (const IommuFaultReason reason : reasons) {
    EXPECT_EQ(bench.iommu.take_fault()->reason, reason);
  }
}

TEST(RootComplex, TranslatedToWhatIsNoMemory) {
  Bench bench;
  bench.map(0x1000, 0x7777'0000, 0x1000);
  bench.send(0, bench.write(0x1000, noise(64, 2)));
  bench.send(0, bench.read(0x1000, 64));
  ASSERT_EQ(bench.below[0].tlps.size(), 1U);
  EXPECT_EQ(bench.below[0].tlps[0]->status, CompletionStatus::unsupported_request);
  EXPECT_EQ(bench.complex.counters().unsupported, 2U);
  EXPECT_EQ(bench.iommu.fault_total(), 0U);
}

// A burst against the same as single TLPs, over pages of every fate: mapped, unmapped, read-only, a peer's BAR,
// no memory, messages. Bytes, faults, counters, and what each byte of a read is answered with must be equal.
struct Outcome {
  std::vector<std::byte> memory;
  RootComplexCounters counters;
  std::uint64_t faults = 0;
  std::vector<std::uint64_t> fault_addresses;
  std::vector<int> answer;             // by byte of the read: -1 none, else data or 0x100 + status
  std::vector<std::uint64_t> to_peer;  // addresses of bytes written to the peer
  std::uint64_t completions = 0;
};

Outcome through(const std::vector<int>& pages, TlpType type, std::uint32_t start, const std::vector<std::byte>& bytes,
                std::uint32_t unit, bool as_burst) {
  Bench bench;
  HostStub::Region& region = bench.memory.add(dram, 0x10000);
  for (std::size_t i = 0; i < region.bytes.size(); ++i) {
    region.bytes[i] = static_cast<std::byte>(i * 13 >> 3);
  }
  HostStub::Region& remote = bench.memory.add(dram + 0x100'0000, 0x10000, 0, HostMemory::Kind::remote);
  remote.bytes = region.bytes;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const std::uint64_t iova = 0x10'0000 + i * 0x1000;
    switch (pages[i]) {
      case 0:
        bench.map(iova, dram + i * 0x1000, 0x1000);
        break;
      case 1:
        break;  // not mapped
      case 2:
        bench.map(iova, dram + i * 0x1000, 0x1000, {true, false});
        break;
      case 3:
        bench.map(iova, dram + i * 0x1000, 0x1000, {false, true});
        break;
      case 4:
        bench.map(iova, bar_b + i * 0x1000, 0x1000);
        break;
      case 5:
        bench.map(iova, 0x7777'0000 + i * 0x1000, 0x1000);
        break;
      default:
        bench.map(iova, dram + 0x100'0000 + i * 0x1000, 0x1000);
        break;
    }
  }
  const std::uint64_t address = 0x10'0000 + start;
  const auto length = static_cast<std::uint32_t>(bytes.size());
  Outcome outcome;
  outcome.answer.assign(length, -1);
  const auto take_completions = [&](std::uint32_t from, std::uint32_t request_length) {
    for (const TlpPtr& tlp : bench.below[0].tlps) {
      const std::uint32_t position = request_length - tlp->byte_count;
      outcome.completions += tlp->count;
      if (tlp->type == TlpType::CplD) {
        for (std::uint32_t i = 0; i < tlp->length; ++i) {
          EXPECT_EQ(outcome.answer[from + position + i], -1) << "answered twice";
          outcome.answer[from + position + i] = static_cast<int>(tlp->data[i]);
        }
      } else {
        const std::uint32_t end = std::min<std::uint32_t>(
            request_length, tlp->count * unit - ((address + from + position) & (unit - 1)) + position);
        for (std::uint32_t i = position; i < end; ++i) {
          EXPECT_EQ(outcome.answer[from + i], -1) << "answered twice";
          outcome.answer[from + i] = 0x100 + static_cast<int>(tlp->status);
        }
      }
    }
    bench.below[0].tlps.clear();
  };
  const auto drain = [&](std::uint32_t from, std::uint32_t request_length) {
    while (!bench.memory.pending.empty()) {
      bench.memory.answer(true);
    }
    // The peer answers reads with bytes of its own, as an endpoint would.
    std::vector<TlpPtr> peers = std::move(bench.below[1].tlps);
    bench.below[1].tlps.clear();
    for (const TlpPtr& tlp : peers) {
      if (tlp->type == TlpType::MWr) {
        for (std::uint32_t i = 0; i < tlp->length; ++i) {
          outcome.to_peer.push_back(tlp->address + i);
          EXPECT_EQ(tlp->data[i], bytes[tlp->address + i - bar_b - start]);
        }
        continue;
      }
      TlpPtr completion = make_data_completion(bench.simulation, *tlp, device_b, 0, tlp->length, 256);
      std::vector<std::byte> data(tlp->length);
      for (std::uint32_t i = 0; i < tlp->length; ++i) {
        data[i] = static_cast<std::byte>((tlp->address + i) * 31);
      }
      completion->store(data);
      bench.send(1, std::move(completion));
    }
    take_completions(from, request_length);
  };
  if (as_burst) {
    bench.complex.ingress(0).receive(bench.request(type, address, bytes, length, unit), {});
    drain(0, length);
  } else {
    for (std::uint32_t done = 0; done < length;) {
      const std::uint32_t one = completion_chunk(address + done, length - done, unit);
      bench.complex.ingress(0).receive(bench.request(type, address + done, std::span(bytes).subspan(done, one), one),
                                       {});
      drain(done, one);
      done += one;
    }
  }
  outcome.memory = region.bytes;
  outcome.memory.insert(outcome.memory.end(), remote.bytes.begin(), remote.bytes.end());
  outcome.counters = bench.complex.counters();
  outcome.faults = bench.iommu.fault_total();
  while (const auto fault = bench.iommu.take_fault()) {
    outcome.fault_addresses.push_back(fault->address.value);
  }
  return outcome;
}

TEST(RootComplexBurst, MeetsTheFateOfItsSingleTlps) {
  std::mt19937_64 random(99);
  for (int round = 0; round < 400 && !::testing::Test::HasFailure(); ++round) {
    std::vector<int> pages(9);
    for (int& page : pages) {
      page = static_cast<int>(random() % 7);
    }
    const std::uint32_t unit = 128U << (random() % 6);
    const auto start = static_cast<std::uint32_t>(random() % 4096);
    const auto bytes = noise(1 + random() % (32768 - start), random());
    for (const TlpType type : {TlpType::MWr, TlpType::MRd}) {
      const Outcome burst = through(pages, type, start, bytes, unit, true);
      const Outcome singles = through(pages, type, start, bytes, unit, false);
      ASSERT_EQ(burst.memory, singles.memory) << round;
      ASSERT_EQ(burst.fault_addresses, singles.fault_addresses) << round;
      ASSERT_EQ(burst.faults, singles.faults);
      ASSERT_EQ(burst.answer, singles.answer) << round;
      ASSERT_EQ(burst.to_peer, singles.to_peer);
      ASSERT_EQ(burst.completions, singles.completions) << round << " unit " << unit;
      ASSERT_EQ(burst.counters.memory_reads, singles.counters.memory_reads);
      ASSERT_EQ(burst.counters.memory_writes, singles.counters.memory_writes);
      ASSERT_EQ(burst.counters.peer_to_peer, singles.counters.peer_to_peer);
      ASSERT_EQ(burst.counters.peer_to_peer_bytes, singles.counters.peer_to_peer_bytes);
      ASSERT_EQ(burst.counters.translation_faults, singles.counters.translation_faults);
      ASSERT_EQ(burst.counters.unsupported, singles.counters.unsupported);
      if (type == TlpType::MRd) {
        for (const int answer : burst.answer) {
          ASSERT_NE(answer, -1) << "a byte of a read without an answer";
        }
      }
    }
  }
}

TEST(RootComplex, ZeroLengthReads) {
  Bench bench;
  bench.memory.add(dram, 0x3000);
  bench.map(0x1000, dram, 0x1000, {true, false});
  bench.map(0x2000, dram + 0x1000, 0x1000, {false, true});
  const auto flush = [&](std::uint64_t address) {
    bench.below[0].tlps.clear();
    TlpPtr tlp = bench.read(address, 4);
    tlp->first_be = tlp->last_be = 0;
    bench.send(0, std::move(tlp));
    EXPECT_EQ(bench.below[0].tlps.size(), 1U);
    return bench.below[0].tlps[0]->status;
  };
  EXPECT_EQ(flush(0x1000), CompletionStatus::success);
  EXPECT_EQ(flush(0x2000), CompletionStatus::success) << "a write-only page can be flushed";
  EXPECT_EQ(bench.iommu.fault_total(), 0U);
  EXPECT_EQ(flush(0x3000), CompletionStatus::unsupported_request);
  EXPECT_EQ(bench.iommu.fault_total(), 1U);
  EXPECT_EQ(bench.memory.read_bytes, 0U) << "no byte is read";
  EXPECT_EQ(bench.complex.counters().memory_reads, 2U);
}

TEST(RootComplex, InterruptWindow) {
  Bench bench;
  bench.map(0xfee0'0000, dram, 0x1000);  // a mapping there has no effect on writes
  HostStub::Region& region = bench.memory.add(dram, 0x1000);
  const std::array<std::byte, 4> data = {std::byte{0x21}, std::byte{0x43}, std::byte{0}, std::byte{0}};
  for (const std::uint64_t address : {0xfee0'0000ULL, 0xfeef'fffcULL}) {
    bench.send(0, bench.write(address, data));
  }
  ASSERT_EQ(bench.interrupts.messages.size(), 2U);
  EXPECT_EQ(bench.interrupts.messages[0].requester, device_a);
  EXPECT_EQ(bench.interrupts.messages[0].data, 0x4321U);
  EXPECT_EQ(bench.interrupts.messages[1].address, 0xfeef'fffcU);
  EXPECT_EQ(bench.complex.counters().interrupts, 2U);
  // Not one aligned DW: no interrupt, no memory.
  bench.send(0, bench.write(0xfee0'0000, noise(8, 1)));
  bench.send(0, bench.write(0xfee0'0002, data));
  bench.send(0, bench.write(0xfee0'0000, noise(1, 1)));
  bench.send(0, bench.write(0xfee0'0000, noise(1024, 1), 256));
  EXPECT_EQ(bench.interrupts.messages.size(), 2U);
  EXPECT_EQ(bench.complex.counters().unsupported, 7U);
  // Just outside, on either side.
  bench.send(0, bench.write(0xfedf'fffc, data));
  bench.send(0, bench.write(0xfef0'0000, data));
  EXPECT_EQ(bench.iommu.fault_total(), 2U);
  // A read of it is a memory read like any other.
  bench.send(0, bench.read(0xfee0'0000, 4));
  ASSERT_EQ(bench.below[0].tlps.size(), 1U);
  EXPECT_EQ(bench.below[0].tlps[0]->type, TlpType::CplD);
  EXPECT_EQ(region.bytes, std::vector<std::byte>(0x1000));
}

TEST(RootComplex, TranslatedRequestsNeedPermission) {
  Bench bench;
  HostStub::Region& region = bench.memory.add(dram, 0x1000);
  const auto bytes = noise(64, 3);
  const auto attempt = [&] {
    TlpPtr write = bench.write(dram, bytes);
    write->at = AddressType::translated;
    bench.send(0, std::move(write));
    TlpPtr read = bench.read(dram, 64);
    read->at = AddressType::translated;
    bench.send(0, std::move(read));
  };
  attempt();
  EXPECT_EQ(region.bytes, std::vector<std::byte>(0x1000));
  ASSERT_EQ(bench.below[0].tlps.size(), 1U);
  EXPECT_EQ(bench.below[0].tlps[0]->status, CompletionStatus::completer_abort);
  EXPECT_EQ(bench.complex.counters().translated_blocked, 2U);
  bench.complex.allow_translated(device_b, true);  // another one's permission
  attempt();
  EXPECT_EQ(bench.complex.counters().translated_blocked, 4U);
  bench.complex.allow_translated(device_a, true);
  attempt();
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), region.bytes.begin()));
  EXPECT_EQ(bench.below[0].tlps.back()->type, TlpType::CplD);
  bench.complex.allow_translated(device_a, false);
  attempt();
  EXPECT_EQ(bench.complex.counters().translated_blocked, 6U);
  EXPECT_EQ(bench.iommu.fault_total(), 0U) << "the IOMMU was never asked";
}

TEST(RootComplex, TranslationRequestsAreUnsupported) {
  Bench bench;
  bench.memory.add(dram, 0x1000);
  bench.map(0x1000, dram, 0x1000);
  TlpPtr tlp = bench.read(0x1000, 8);
  tlp->at = AddressType::translation_request;
  bench.send(0, std::move(tlp));
  ASSERT_EQ(bench.below[0].tlps.size(), 1U);
  EXPECT_EQ(bench.below[0].tlps[0]->status, CompletionStatus::unsupported_request);
  EXPECT_EQ(bench.complex.counters().unsupported, 1U);
}

TEST(RootComplex, WhatNoDeviceMaySend) {
  Bench bench;
  TlpPtr config = bench.read(0, 4);
  config->type = TlpType::CfgRd1;
  config->completer = device_b;
  bench.send(0, std::move(config));
  ASSERT_EQ(bench.below[0].tlps.size(), 1U);
  EXPECT_EQ(bench.below[0].tlps[0]->status, CompletionStatus::unsupported_request);
  // Nothing to write, nothing to read, nobody's completion, a message: gone without a trace or a crash.
  TlpPtr empty = bench.simulation.tlps.make();
  empty->type = TlpType::MWr;
  empty->length = 64;
  bench.send(0, std::move(empty));
  bench.send(0, bench.read(0x1000, 0));
  TlpPtr lost = bench.simulation.tlps.make();
  lost->type = TlpType::CplD;
  lost->requester = Bdf::of(200, 0, 0);
  bench.send(0, std::move(lost));
  TlpPtr message = bench.simulation.tlps.make();
  message->type = TlpType::Msg;
  bench.send(0, std::move(message));
  EXPECT_EQ(bench.complex.counters().unexpected_completions, 1U);
  EXPECT_EQ(bench.below[1].tlps.size(), 0U);
}

// ---- Peers ------------------------------------------------------------------------------------------------

TEST(RootComplexPeers, OtherSocketAndHairpin) {
  Bench bench(true);
  bench.map(0x10'0000, bar_a, 0x1000);
  bench.map(0x20'0000, bar_b, 0x1000);
  const auto bytes = noise(64, 4);
  bench.send(0, bench.write(0x10'0040, bytes));  // back down the port that it came by
  ASSERT_EQ(bench.below[0].tlps.size(), 1U);
  EXPECT_EQ(bench.below[0].tlps[0]->address, bar_a + 0x40);
  EXPECT_EQ(bench.below[0].times[0], Picoseconds{150'000});
  EXPECT_EQ(bench.below[0].tlps[0]->latency.total(), Picoseconds{150'000});
  const Picoseconds start = bench.simulation.now();
  bench.send(0, bench.write(0x20'0040, bytes));
  ASSERT_EQ(bench.below[1].tlps.size(), 1U);
  EXPECT_EQ(bench.below[1].tlps[0]->address, bar_b + 0x40);
  EXPECT_EQ(bench.below[1].times[0] - start, Picoseconds{260'000}) << "and the link between the sockets";
  EXPECT_EQ(bench.below[1].tlps[0]->latency.total(), Picoseconds{260'000});
  EXPECT_EQ(bench.complex.counters().peer_to_peer, 2U);
  EXPECT_EQ(bench.complex.counters().peer_to_peer_bytes, 128U);
}

TEST(RootComplexPeers, CanBeForbidden) {
  RootComplexSettings settings;
  settings.peer_to_peer = false;
  Bench bench(false, settings);
  bench.map(0x20'0000, bar_b, 0x1000);
  bench.send(0, bench.write(0x20'0000, noise(64, 4)));
  bench.send(0, bench.read(0x20'0000, 1024, 512));
  EXPECT_TRUE(bench.below[1].tlps.empty());
  ASSERT_EQ(bench.below[0].tlps.size(), 1U);
  EXPECT_EQ(bench.below[0].tlps[0]->status, CompletionStatus::unsupported_request);
  EXPECT_EQ(bench.below[0].tlps[0]->count, 2U);
  EXPECT_EQ(bench.complex.counters().unsupported, 3U);
}

TEST(RootComplexPeers, AReadBelowAnEmptyPortIsAnsweredToTheRequester) {
  Simulation simulation;
  PageTablePool tables(Hpa{std::uint64_t{1} << 46}, 16);
  Iommu iommu(tables);
  HostStub memory;
  Interrupts interrupts;
  RootComplex complex(simulation, "rc", {}, iommu, memory, interrupts);
  Collector below(simulation);
  complex.add_port("p0", 0, {1, 1}, {});
  complex.add_port("p1", 0, {9, 9}, {});
  complex.connect(0, below);
  complex.add_window(1, bar_b, bar_bytes);
  iommu.attach(device_a, *iommu.create_domain(DomainMode::passthrough));
  TlpPtr read = simulation.tlps.make();
  read->requester = device_a;
  read->address = bar_b;
  read->length = 4;
  complex.ingress(0).receive(std::move(read), {});
  ASSERT_EQ(below.tlps.size(), 1U);
  EXPECT_EQ(below.tlps[0]->status, CompletionStatus::unsupported_request);
  below.tlps.clear();
}

// A completion of a device must not pass a write that it sent before to the same place (table 2-42).
TEST(RootComplexPeers, CompletionsStayBehindPostedRequests) {
  Bench bench(true);
  bench.map(0x20'0000, bar_b, 0x1000);
  bench.complex.ingress(0).receive(bench.write(0x20'0000, noise(64, 4)), {});
  TlpPtr completion = bench.simulation.tlps.make();
  completion->type = TlpType::CplD;
  completion->requester = device_b;
  completion->completer = device_a;
  completion->store(noise(4, 1));
  bench.complex.ingress(0).receive(std::move(completion), {});
  bench.run();
  ASSERT_EQ(bench.below[1].tlps.size(), 2U);
  EXPECT_EQ(bench.below[1].tlps[0]->type, TlpType::MWr);
  EXPECT_EQ(bench.below[1].tlps[1]->type, TlpType::CplD);
}

// The CPU rings a doorbell, then a device reads memory: the answer follows the doorbell.
TEST(RootComplexPeers, CompletionsFromMemoryStayBehindTheCpusWrites) {
  Bench bench(true);
  bench.memory.add(dram, 0x1000);
  bench.map(0x1000, dram, 0x1000);
  bench.complex.ingress(0).receive(bench.read(0x1000, 64), {});
  while (bench.simulation.now() < Picoseconds{150'000} && bench.simulation.events.next_time() < Picoseconds{150'000}) {
    bench.simulation.events.run_one();
  }
  bench.simulation.events.advance_to(Picoseconds{149'999});
  std::array<std::byte, 4> doorbell{};
  HostRequest request;
  request.type = TlpType::MWr;
  request.address = bar_a;
  request.buffer = doorbell;
  request.socket = 1;
  bench.complex.start(request);  // leaves at 409 999 ps; the completion would at 390 000
  bench.run();
  ASSERT_EQ(bench.below[0].tlps.size(), 2U);
  EXPECT_EQ(bench.below[0].tlps[0]->type, TlpType::MWr);
  EXPECT_EQ(bench.below[0].times[0], Picoseconds{409'999});
  EXPECT_EQ(bench.below[0].times[1], Picoseconds{409'999});
  EXPECT_EQ(bench.below[0].tlps[1]->type, TlpType::CplD);
  // Its wait is on record.
  EXPECT_EQ(bench.below[0].tlps[1]->latency.total(), bench.below[0].times[1]);
}

// ---- Memory behind messages ---------------------------------------------------------------------------------

TEST(RootComplexRemote, ReadsAreAnsweredWhenTheMessageIs) {
  for (const bool timed : {false, true}) {
    Bench bench(timed);
    HostStub::Region& remote = bench.memory.add(dram, 0x2000, 0, HostMemory::Kind::remote);
    remote.bytes = noise(0x2000, 5);
    bench.map(0x1000, dram, 0x2000);
    bench.send(0, bench.read(0x1100, 512));
    EXPECT_TRUE(bench.below[0].tlps.empty());
    ASSERT_EQ(bench.memory.pending.size(), 1U);
    bench.memory.answer(true);
    bench.run();
    std::vector<std::byte> got;
    for (const TlpPtr& tlp : bench.below[0].tlps) {
      EXPECT_EQ(tlp->byte_count, 512 - got.size());
      got.insert(got.end(), tlp->data, tlp->data + tlp->length);
    }
    EXPECT_EQ(bench.below[0].tlps.size(), timed ? 2U : 1U);
    EXPECT_TRUE(std::equal(got.begin(), got.end(), remote.bytes.begin() + 0x100));
    EXPECT_EQ(got.size(), 512U);
  }
}

TEST(RootComplexRemote, AFailedMessageAbortsTheRead) {
  Bench bench;
  bench.memory.add(dram, 0x2000, 0, HostMemory::Kind::remote);
  bench.map(0x1000, dram, 0x2000);
  bench.send(0, bench.read(0x1000, 64));
  bench.memory.answer(false);
  ASSERT_EQ(bench.below[0].tlps.size(), 1U);
  EXPECT_EQ(bench.below[0].tlps[0]->type, TlpType::Cpl);
  EXPECT_EQ(bench.below[0].tlps[0]->status, CompletionStatus::completer_abort);
}

TEST(RootComplexRemote, WritesKeepTheirBytesUntilTheyAreTaken) {
  Bench bench;
  HostStub::Region& remote = bench.memory.add(dram, 0x2000, 0, HostMemory::Kind::remote);
  bench.map(0x1000, dram, 0x2000);
  auto bytes = noise(100, 6);
  const auto original = bytes;
  bench.send(0, bench.write(0x1234, bytes));
  std::fill(bytes.begin(), bytes.end(), std::byte{0xee});  // the sender's again
  bench.memory.answer(true);
  EXPECT_TRUE(std::equal(original.begin(), original.end(), remote.bytes.begin() + 0x234));
  bench.send(0, bench.write(0x1234, bytes));
  bench.memory.answer(false);  // a posted write that fails is lost
  EXPECT_TRUE(bench.below[0].tlps.empty());
}

TEST(RootComplexRemote, ManyAtOnceAndSlotsAreUsedAgain) {
  Bench bench;
  HostStub::Region& remote = bench.memory.add(dram, 0x4000, 0, HostMemory::Kind::remote);
  remote.bytes = noise(0x4000, 7);
  bench.map(0x1000, dram, 0x4000);
  for (int round = 0; round < 3; ++round) {
    bench.below[0].tlps.clear();
    for (std::uint32_t i = 0; i < 100; ++i) {
      TlpPtr read = bench.read(0x1000 + i * 100, 100);
      read->tag = static_cast<std::uint16_t>(i);
      bench.send(0, std::move(read));
    }
    while (!bench.memory.pending.empty()) {
      bench.memory.answer(true);
    }
    ASSERT_EQ(bench.below[0].tlps.size(), 100U);
    for (std::uint32_t i = 0; i < 100; ++i) {
      EXPECT_EQ(bench.below[0].tlps[i]->tag, i);
      EXPECT_TRUE(std::equal(remote.bytes.begin() + i * 100, remote.bytes.begin() + (i + 1) * 100,
                             bench.below[0].tlps[i]->data));
    }
  }
}

}  // namespace
}  // namespace orrery::pcie::root_complex_test
