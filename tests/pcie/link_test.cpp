// Links against the closed formulas of the PCIe Base Specification: rate = GT/s x lanes x encoding, 8 bytes of
// framing, 12 or 16 of header (§2.2, §3.6, §4.2). No credits, DLLPs or SKP (they are not modelled).
#include "pcie/link.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "common/error.h"
#include "pcie/burst.h"
#include "tests/pcie/fabric.h"

namespace orrery::pcie::link_test {
namespace {

using testing::Collector;
using testing::Sniffer;
constexpr std::uint64_t above_4g = 0x10'0000'0000;

struct OneWay {
  explicit OneWay(const LinkSettings& settings, bool timed = true)
      : link(simulation, "link", settings), end(simulation) {
    simulation.timed = timed;
    link.connect(end);
  }
  TlpPtr make(TlpType type, std::uint64_t address, std::uint32_t length) {
    TlpPtr tlp = simulation.tlps.make();
    tlp->type = type;
    tlp->address = address;
    if (carries_payload(type)) {
      tlp->store(std::vector<std::byte>(length, std::byte{0x11}));
    } else {
      tlp->length = length;
    }
    return tlp;
  }
  Picoseconds write(std::uint32_t bytes, Picoseconds delay = {}) {
    return link.receive(make(TlpType::MWr, above_4g, bytes), delay);
  }
  void run() {
    while (simulation.events.run_one()) {
    }
  }
  Simulation simulation;
  LinkDirection link;
  Collector end;
};

TEST(Link, RawRates) {
  struct Row {
    unsigned generation;
    unsigned width;
    double gigabits;  // GT/s x lanes x encoding
  };
  const Row rows[] = {{1, 1, 2.0},         {1, 16, 32.0},       {2, 16, 64.0},
                      {3, 8, 63.0153846},  {3, 16, 126.030769}, {4, 16, 252.061538},
                      {5, 16, 504.123077}, {5, 12, 378.092308}, {5, 32, 1008.246154}};
  for (const Row& row : rows) {
    EXPECT_NEAR(raw_bytes_per_second(row.generation, row.width) * 8e-9, row.gigabits, row.gigabits * 1e-8);
  }
}

TEST(Link, WhatDoesNotExistIsRefused) {
  EXPECT_THROW(byte_time(0, 16), Error);
  EXPECT_THROW(byte_time(6, 16), Error);
  EXPECT_THROW(byte_time(4, 0), Error);
  EXPECT_THROW(byte_time(4, 3), Error);
  EXPECT_THROW(byte_time(4, 64), Error);
  Simulation simulation;
  EXPECT_THROW(LinkDirection(simulation, "x", {7, 16, {}}), Error);
}

// 280 bytes: a 256-byte write with a 64-bit address.
TEST(Link, SerialisationOfA280ByteTlp) {
  const std::array<std::pair<unsigned, std::uint64_t>, 2> rows = {{{4, 8887}, {5, 4444}}};  // ceil(280 x byte time)
  for (const auto& [generation, picoseconds] : rows) {
    OneWay way({generation, 16, {40'000}});
    EXPECT_EQ(way.write(256), Picoseconds{picoseconds});
    way.run();
    EXPECT_EQ(way.end.times, std::vector<Picoseconds>{Picoseconds{picoseconds + 40'000}});
    const auto hops = way.end.tlps[0]->latency.hops();
    ASSERT_EQ(hops.size(), 1U);
    EXPECT_EQ(hops[0].queue, 0U);
    EXPECT_EQ(hops[0].serialise, picoseconds);
    EXPECT_EQ(hops[0].propagate, 40'000U);
    EXPECT_EQ(hops[0].component, way.link.id());
  }
}

// A saturated stream of writes: raw x S / (S + 24 n).
TEST(Link, EfficiencyOfWriteStreams) {
  struct Row {
    unsigned generation;
    std::uint32_t payload;
    double gigabytes;
  };
  const Row rows[] = {{4, 64, 22.9147},  {5, 64, 45.8294},  {4, 128, 26.5329}, {5, 128, 53.0656},
                      {4, 256, 28.8070}, {5, 256, 57.6141}, {4, 512, 30.0969}, {5, 512, 60.1939}};
  for (const Row& row : rows) {
    OneWay way({row.generation, 16, {0}});
    constexpr std::uint64_t tlps = 10'000;
    Picoseconds end;
    for (std::uint64_t i = 0; i < tlps; ++i) {
      end = way.write(row.payload);
    }
    const double rate = static_cast<double>(tlps * row.payload) / static_cast<double>(end.count) * 1e3;
    EXPECT_NEAR(rate, row.gigabytes, row.gigabytes * 1e-3) << row.generation << " " << row.payload;
    const double formula = raw_bytes_per_second(row.generation, 16) * row.payload / (row.payload + 24) * 1e-9;
    EXPECT_NEAR(rate, formula, formula * 1e-7);
    EXPECT_EQ(way.link.counters().wire_bytes, tlps * (row.payload + 24));
    EXPECT_EQ(way.link.counters().payload_bytes, tlps * row.payload);
    EXPECT_EQ(way.link.counters().tlps, tlps);
    EXPECT_EQ(way.link.counters().busy, end);
    way.run();
  }
}

// The header's 3 or 4 DW: 64 / 84 and 64 / 88 of the raw rate.
TEST(Link, HeaderSizeDecidesEfficiency) {
  for (const auto& [address, wire] : {std::pair{std::uint64_t{0x1000}, 84U}, std::pair{above_4g, 88U}}) {
    OneWay way({4, 16, {0}});
    const Picoseconds end = way.link.receive(way.make(TlpType::MWr, address, 64), {});
    const ByteTime t = byte_time(4, 16);
    EXPECT_EQ(end.count, (wire * t.numerator + t.denominator - 1) / t.denominator);
    way.run();
  }
}

// Reads: completions load one direction (20 bytes each), requests the other (24 each).
TEST(Link, ReadsOf512BytesInCompletionsOf256) {
  for (const auto& [generation, gigabytes] : {std::pair{4U, 29.225}, std::pair{5U, 58.449}}) {
    OneWay data({generation, 16, {0}});
    OneWay requests({generation, 16, {0}});
    constexpr std::uint64_t reads = 5'000;
    Picoseconds data_end;
    Picoseconds request_end;
    for (std::uint64_t i = 0; i < reads; ++i) {
      request_end = requests.link.receive(requests.make(TlpType::MRd, above_4g, 512), {});
      data.link.receive(data.make(TlpType::CplD, above_4g, 256), {});
      data_end = data.link.receive(data.make(TlpType::CplD, above_4g, 256), {});
    }
    EXPECT_LT(request_end, data_end);
    const double rate = reads * 512.0 / static_cast<double>(data_end.count) * 1e3;
    EXPECT_NEAR(rate, gigabytes, gigabytes * 1e-3);
    data.run();
    requests.run();
  }
}

// 4 KiB reads that the completer cuts at an RCB of 64 bytes.
TEST(Link, CompletionsCutAtTheReadCompletionBoundary) {
  OneWay way({4, 16, {0}});
  Picoseconds end;
  for (int i = 0; i < 64 * 100; ++i) {
    end = way.link.receive(way.make(TlpType::CplD, above_4g, 64), {});
  }
  EXPECT_NEAR(64.0 * 64 * 100 / static_cast<double>(end.count) * 1e3, 24.006, 24.006 * 1e-3);
  way.run();
}

// No drift: after 10^7 TLPs of one busy period its length is ceil(bytes x byte time) to the picosecond.
TEST(Link, ABusyPeriodIsExactOverTenMillionTlps) {
  for (const LinkSettings& settings : {LinkSettings{5, 16, {0}}, LinkSettings{3, 12, {0}}, LinkSettings{1, 1, {0}}}) {
    OneWay way(settings);
    // At most a few TLPs in flight: the far end takes them as they come. Over 2^31 bytes in all.
    const std::vector<std::byte> data(512);
    const ByteTime t = byte_time(settings.generation, settings.width);
    std::uint64_t bytes = 0;  // times the numerator it stays far below 2^64
    std::mt19937 random(settings.width);
    for (int i = 0; i < 10'000'000; ++i) {
      const std::uint32_t payload = 1 + random() % 512;
      TlpPtr tlp = way.simulation.tlps.make();
      tlp->type = TlpType::MWr;
      tlp->address = above_4g;
      tlp->borrow(std::span(data).first(payload));
      bytes += payload + 24;
      const Picoseconds left = way.link.receive(std::move(tlp), {});
      if (i % 999'983 == 0 || i == 9'999'999) {
        const std::uint64_t exact = (bytes * t.numerator + t.denominator - 1) / t.denominator;
        ASSERT_EQ((way.simulation.now() + left).count, exact) << "after TLP " << i;
      }
      while (way.simulation.events.pending() > 2) {
        way.simulation.events.run_one();
        way.end.tlps.clear();
        way.end.times.clear();
      }
    }
    way.run();
  }
}

TEST(Link, GapsBeginNewBusyPeriods) {
  OneWay way({5, 16, {0}});
  const std::uint64_t one = way.write(256).count;  // 4444: rounded up from 4443.4
  const std::uint64_t two = way.write(256).count;  // of one busy period: 8887
  EXPECT_EQ(one, 4444U);
  EXPECT_EQ(two, 8887U);
  // Ready while the direction is busy: it queues. Ready after it: a gap, and rounding begins anew.
  const Picoseconds third = way.write(256, Picoseconds{8000});
  EXPECT_EQ(third.count, 13'331U);
  const Picoseconds fourth = way.write(256, Picoseconds{20'000});
  EXPECT_EQ(fourth.count, 20'000U + one);
  way.run();
  EXPECT_EQ(way.end.tlps[2]->latency.hops()[0].queue, 887U);
  EXPECT_EQ(way.end.tlps[3]->latency.hops()[0].queue, 0U);
  EXPECT_EQ(way.link.counters().busy.count, 13'331U + one);
}

TEST(Link, FirstComeFirstServed) {
  OneWay way({2, 1, {7'000}});
  std::mt19937 random(5);
  for (std::uint16_t i = 0; i < 500; ++i) {
    TlpPtr tlp = way.make(i % 3 == 0 ? TlpType::MRd : TlpType::MWr, above_4g, 1 + random() % 256);
    tlp->tag = i;
    way.link.receive(std::move(tlp), {});
  }
  way.run();
  ASSERT_EQ(way.end.tlps.size(), 500U);
  for (std::uint16_t i = 0; i < 500; ++i) {
    EXPECT_EQ(way.end.tlps[i]->tag, i);
    EXPECT_TRUE(i == 0 || way.end.times[i] > way.end.times[i - 1]);
  }
}

// Two directions do not disturb each other.
TEST(Link, DirectionsAreIndependent) {
  Simulation simulation;
  simulation.timed = true;
  Link link(simulation, "l", {4, 4, {100}});
  Collector upper(simulation);
  Collector lower(simulation);
  link.up.connect(upper);
  link.down.connect(lower);
  const auto send = [&](LinkDirection& way) {
    TlpPtr tlp = simulation.tlps.make();
    tlp->type = TlpType::MRd;
    return way.receive(std::move(tlp), {});
  };
  const Picoseconds alone = send(link.up);
  EXPECT_EQ(send(link.down), alone);
  EXPECT_EQ(simulation.names[link.up.id()], "l.up");
  EXPECT_EQ(simulation.names[link.down.id()], "l.down");
  while (simulation.events.run_one()) {
  }
}

// A wait longer than a hop's 32 bits of picoseconds is kept, in more entries.
TEST(Link, AQueueOfManyMillisecondsIsNotLost) {
  OneWay way({1, 1, {0}});
  std::uint64_t last = 0;
  for (int i = 0; i < 2600; ++i) {  // 4 KiB at 250 MB/s: 16.5 us each, 43 ms in all
    TlpPtr tlp = way.make(TlpType::MWr, above_4g, 4096);
    last = way.link.receive(std::move(tlp), {}).count;
  }
  ASSERT_GT(last, std::uint64_t{8} << 32);
  way.run();
  EXPECT_EQ(way.end.tlps.back()->latency.total().count, last);
}

// ---- Sharing ----------------------------------------------------------------------------------------------

// `flows` endpoints write as fast as their links allow, all through one uplink of the same rate. Returns the
// payload bytes of each that have come out within the time that the uplink needs for a half of all.
std::vector<std::uint64_t> share(const std::vector<std::uint32_t>& payloads, std::uint64_t bytes_each) {
  Simulation simulation;
  simulation.timed = true;
  Collector end(simulation);
  const LinkSettings settings{5, 16, {1'000}};
  LinkDirection uplink(simulation, "uplink", settings);
  uplink.connect(end);
  std::vector<std::unique_ptr<LinkDirection>> own;
  for (std::size_t flow = 0; flow < payloads.size(); ++flow) {
    own.push_back(std::make_unique<LinkDirection>(simulation, "own", settings));
    own.back()->connect(uplink);
    for (std::uint64_t sent = 0; sent < bytes_each; sent += payloads[flow]) {
      TlpPtr tlp = simulation.tlps.make();
      tlp->type = TlpType::MWr;
      tlp->address = above_4g;
      tlp->requester = Bdf::of(static_cast<unsigned>(flow), 0, 0);
      tlp->store(std::vector<std::byte>(payloads[flow]));
      own.back()->receive(std::move(tlp), {});
    }
  }
  const Picoseconds shortest = [&] {
    Picoseconds t = Picoseconds::max();
    for (const auto& link : own) {
      t = min(t, link->counters().busy);
    }
    return t;
  }();
  // While every flow still sends, up to the moment when the first has been offered in full.
  std::vector<std::uint64_t> got(payloads.size());
  while (simulation.events.run_one()) {
  }
  for (std::size_t i = 0; i < end.tlps.size(); ++i) {
    if (end.times[i] <= shortest) {
      got[end.tlps[i]->requester.bus()] += end.tlps[i]->length;
    }
  }
  return got;
}

TEST(LinkSharing, TwoEqualFlowsGetAHalfEach) {
  const auto got = share({256, 256}, 1 << 20);
  EXPECT_NEAR(static_cast<double>(got[0]), static_cast<double>(got[1]), 256.0);
  EXPECT_NEAR(static_cast<double>(got[0] + got[1]), (1 << 20), 4 * 256.0);  // and the uplink was full
}

TEST(LinkSharing, ThreeEqualFlowsGetAThirdEach) {
  const auto got = share({256, 256, 256}, 1 << 20);
  for (const std::uint64_t flow : got) {
    EXPECT_NEAR(static_cast<double>(flow), (1 << 20) / 3.0, 3 * 256.0);
  }
}

// First come, first served shares the wire in proportion to the wire bytes offered, not the payload: flows whose
// own links are equally fast offer equal wire bytes, so each gets a half of the wire, and of it its own efficiency
// (64 of 88 bytes against 512 of 536).
TEST(LinkSharing, UnequalSizesShareTheWireNotThePayload) {
  const auto got = share({64, 512}, 1 << 20);
  const double wire_small = static_cast<double>(got[0]) / 64 * 88;
  const double wire_large = static_cast<double>(got[1]) / 512 * 536;
  EXPECT_NEAR(wire_small / wire_large, 1.0, 0.01);
  EXPECT_NEAR(static_cast<double>(got[0]) / static_cast<double>(got[1]), (64.0 / 88) / (512.0 / 536), 0.01);
}

// ---- Bursts -----------------------------------------------------------------------------------------------

// A burst must be N single TLPs in every respect. Random geometry, both modes, every type that bursts.
TEST(Burst, EqualsItsSingleTlps) {
  std::mt19937_64 random(20240611);
  for (int round = 0; round < 3000; ++round) {
    const std::uint32_t unit = 64U << (random() % 7);
    const TlpType type = std::array{TlpType::MWr, TlpType::MRd, TlpType::CplD}[random() % 3];
    const std::uint64_t top = random() % 4 == 0 ? 0xffff'ffff : 0xff'ffff'ffff;
    std::uint64_t address = random() & top;
    const auto length = static_cast<std::uint32_t>(1 + random() % (8 * unit));
    if (random() % 16 == 0) {
      address = 0 - std::uint64_t{length};  // up to the very top
    }
    if (address >> 32 == 0 && (address + length - 1) >> 32 != 0) {
      continue;  // requesters cut at 4 GiB (and at every 64 KiB): such a burst doesn't exist
    }
    std::vector<std::byte> bytes(length);
    for (std::byte& b : bytes) {
      b = static_cast<std::byte>(random());
    }
    const auto before = static_cast<std::uint32_t>(random() % 1000);  // byte count beyond it
    const LinkSettings settings{1 + static_cast<unsigned>(random() % 5), 16, {random() % 1000}};

    // What a requester without bursts would have sent: written here anew.
    std::vector<std::pair<std::uint64_t, std::uint32_t>> pieces;
    for (std::uint64_t done = 0; done < length;) {
      const std::uint64_t room = unit - (address + done) % unit;
      const auto piece = static_cast<std::uint32_t>(std::min<std::uint64_t>(room, length - done));
      pieces.emplace_back(address + done, piece);
      done += piece;
    }

    for (const bool timed : {true, false}) {
      OneWay singles(settings, timed);
      OneWay burst(settings, timed);
      Sniffer single_log;
      Sniffer burst_log;
      singles.simulation.observer = &single_log;
      burst.simulation.observer = &burst_log;
      std::uint32_t done = 0;
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        TlpPtr tlp = singles.simulation.tlps.make();
        tlp->type = type;
        tlp->address = pieces[i].first;
        tlp->requester = Bdf::of(9, 1, 0);
        tlp->attributes.relaxed_ordering = true;
        if (type == TlpType::MRd) {
          tlp->length = pieces[i].second;
          tlp->tag = static_cast<std::uint16_t>(40 + i);
        } else {
          tlp->store(std::span(bytes).subspan(done, pieces[i].second));
          tlp->tag = 40;
        }
        if (type == TlpType::CplD) {
          tlp->byte_count = length - done + before;
        } else {
          const ByteEnables be = byte_enables(pieces[i].first, pieces[i].second);
          tlp->first_be = be.first;
          tlp->last_be = be.last;
        }
        done += pieces[i].second;
        singles.link.receive(std::move(tlp), {});
      }
      TlpPtr tlp = burst.simulation.tlps.make();
      tlp->type = type;
      tlp->address = address;
      tlp->requester = Bdf::of(9, 1, 0);
      tlp->attributes.relaxed_ordering = true;
      tlp->tag = 40;
      tlp->unit = unit;
      tlp->count = tlps_needed(address, length, unit);
      ASSERT_EQ(tlp->count, pieces.size());
      if (type == TlpType::MRd) {
        tlp->length = length;
      } else {
        tlp->store(bytes);
      }
      if (type == TlpType::CplD) {
        tlp->byte_count = length + before;
      } else {
        const ByteEnables be = byte_enables(address, length);
        tlp->first_be = be.first;
        tlp->last_be = be.last;
      }
      burst.link.receive(std::move(tlp), {});
      singles.run();
      burst.run();

      const LinkCounters& a = singles.link.counters();
      const LinkCounters& b = burst.link.counters();
      ASSERT_EQ(a.tlps, b.tlps);
      ASSERT_EQ(a.wire_bytes, b.wire_bytes);
      ASSERT_EQ(a.payload_bytes, b.payload_bytes);
      ASSERT_EQ(a.busy, b.busy);
      if (timed) {
        ASSERT_EQ(single_log.seen, burst_log.seen) << "round " << round;
        ASSERT_EQ(singles.end.times, burst.end.times);
        continue;
      }
      // Functional mode carries the burst as it is: take it apart and compare.
      ASSERT_EQ(burst.end.tlps.size(), 1U);
      Sniffer parts;
      for (std::uint32_t i = 0; i < burst.end.tlps[0]->count; ++i) {
        const TlpPtr part = burst.simulation.tlps.make();
        split_burst(*burst.end.tlps[0], i, *part);
        ASSERT_EQ(part->requester, Bdf::of(9, 1, 0));
        ASSERT_TRUE(part->attributes.relaxed_ordering);
        parts.on_link(burst.link.id(), *part, {}, {});
      }
      ASSERT_EQ(single_log.seen, parts.seen) << "round " << round;
    }
  }
}

TEST(Burst, PartsOfAReadKnowWhatFollowsThem) {
  Simulation simulation;
  const TlpPtr burst = simulation.tlps.make();
  burst->type = TlpType::MRd;
  burst->address = 0x1'0000'0100;
  burst->length = 2000;
  burst->tag = 5;
  burst->unit = 512;
  burst->count = tlps_needed(burst->address, 2000, 512);
  const TlpPtr part = request_part(simulation, *burst, 256, 1024);
  EXPECT_EQ(part->address, 0x1'0000'0200U);
  EXPECT_EQ(part->length, 1024U);
  EXPECT_EQ(part->byte_count, 2000U - 256 - 1024);
  EXPECT_EQ(part->tag, 5);
  EXPECT_EQ(part->count, 2U);
  const TlpPtr inner = request_part(simulation, *part, 512, 512);
  EXPECT_EQ(inner->address, 0x1'0000'0400U);
  EXPECT_EQ(inner->byte_count, 2000U - 256 - 1024);
  EXPECT_EQ(inner->count, 1U);
}

}  // namespace
}  // namespace orrery::pcie::link_test
