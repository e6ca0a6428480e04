// The root complex: translation and faults TLP by TLP, interrupts, AT, peers, messages' memory, the CPU.
#include "pcie/root_complex.h"

#include <array>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "common/error.h"
#include "pcie/completion.h"
#include "tests/pcie/fabric.h"

namespace orrery::pcie::root_complex_test {
namespace {

using testing::Collector;
using testing::HostStub;
using testing::Interrupts;

constexpr std::uint64_t dram = std::uint64_t{1} << 47;
constexpr std::uint64_t bar_a = 0x40'0000'0000;  // below port 0
constexpr std::uint64_t bar_b = 0x40'0001'0000;  // below port 1, right after it
constexpr std::uint64_t bar_bytes = 0x1'0000;
constexpr Bdf device_a = Bdf::of(1, 0, 0);
constexpr Bdf device_b = Bdf::of(9, 0, 0);

// Ports 0 (socket 0, buses 1-4) and 1 (socket 1, bus 9); a collector stands below each.
struct Bench {
  explicit Bench(bool timed = false, const RootComplexSettings& settings = {}, DomainMode mode = DomainMode::translated)
      : tables(Hpa{std::uint64_t{1} << 46}, 4096),
        iommu(tables),
        complex(simulation, "rc", settings, iommu, memory, interrupts),
        below{Collector(simulation), Collector(simulation)} {
    simulation.timed = timed;
    complex.add_port("p0", 0, {1, 4}, AcsControl::from_register(0x1d));
    complex.add_port("p1", 1, {9, 9}, AcsControl::from_register(0x1d));
    complex.connect(0, below[0]);
    complex.connect(1, below[1]);
    EXPECT_TRUE(complex.add_window(0, bar_a, bar_bytes));
    EXPECT_TRUE(complex.add_window(1, bar_b, bar_bytes));
    domain = *iommu.create_domain(mode);
    iommu.attach(device_a, domain);
    iommu.attach(device_b, domain);
  }
  ~Bench() {
    for (Collector& c : below) {
      c.tlps.clear();
    }
    EXPECT_EQ(simulation.tlps.outstanding(), 0U);
  }
  TlpPtr request(TlpType type, std::uint64_t address, std::span<const std::byte> bytes, std::uint32_t length,
                 std::uint32_t unit = 0) {
    TlpPtr tlp = simulation.tlps.make();
    tlp->type = type;
    tlp->requester = device_a;
    tlp->address = address;
    tlp->tag = 21;
    tlp->created = simulation.now();
    if (type == TlpType::MWr) {
      simulation.timed ? tlp->store(bytes) : tlp->borrow(bytes);
    } else {
      tlp->length = length;
    }
    if (unit != 0) {
      tlp->unit = unit;
      tlp->count = tlps_needed(address, tlp->length, unit);
    }
    return tlp;
  }
  TlpPtr write(std::uint64_t address, std::span<const std::byte> bytes, std::uint32_t unit = 0) {
    return request(TlpType::MWr, address, bytes, 0, unit);
  }
  TlpPtr read(std::uint64_t address, std::uint32_t length, std::uint32_t unit = 0) {
    return request(TlpType::MRd, address, {}, length, unit);
  }
  void send(unsigned port, TlpPtr tlp) {
    complex.ingress(port).receive(std::move(tlp), {});
    run();
  }
  void run() {
    while (simulation.events.run_one()) {
    }
  }
  void map(std::uint64_t iova, std::uint64_t hpa, std::uint64_t size, DmaAccess access = {true, true}) {
    ASSERT_EQ(iommu.map(domain, Iova{iova}, Hpa{hpa}, size, access), PageTableStatus::ok);
  }
  Simulation simulation;
  PageTablePool tables;
  Iommu iommu;
  HostStub memory;
  Interrupts interrupts;
  RootComplex complex;
  std::array<Collector, 2> below;
  DomainId domain;
};

std::vector<std::byte> noise(std::size_t size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& b : bytes) {
    b = static_cast<std::byte>(random());
  }
  return bytes;
}

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

// ---- The CPU ------------------------------------------------------------------------------------------------

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

using testing::Fabric;
using testing::FabricOptions;

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
}  // namespace orrery::pcie::root_complex_test
