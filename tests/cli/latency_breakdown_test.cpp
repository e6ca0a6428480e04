// Where a READ's time went: a trace made by hand, link by link.
#include "cli/latency_breakdown.h"

#include <gtest/gtest.h>

#include <numeric>

namespace orrery::cli::latency_breakdown_test {
namespace {

using pcie::TlpType;
using pcie::TraceRecord;

class Trace {
 public:
  Trace() {
    for (const char* name :
         {"link_switch0.down", "link_switch0.up", "link_a.down", "link_a.up", "link_b.down", "link_b.up"}) {
      ids.push_back(names.add(name));
    }
  }
  void add(unsigned link, TlpType type, std::uint16_t requester, std::uint64_t address, std::uint32_t length,
           std::uint64_t start, std::uint64_t end, std::uint16_t tag = 0) {
    TraceRecord record;
    record.tag = tag;
    record.link = ids[link];
    record.kind = static_cast<std::uint8_t>(type);
    record.requester = requester;
    record.address = address;
    record.length = length;
    record.start = start;
    record.end = end;
    records.push_back(record);
  }
  // The READ of 256 bytes whose doorbell leaves the root complex at `t`; RNIC a is below a switch, b at a root port.
  void add_read(std::uint64_t t) {
    add(0, TlpType::MWr, 1, 0xd000, 8, t, t + 40);  // doorbell
    add(2, TlpType::MWr, 1, 0xd000, 8, t + 155, t + 195);
    add(3, TlpType::MRd, 2, 0x1000, 64, t + 200, t + 240);  // WQE
    add(1, TlpType::MRd, 2, 0x1000, 64, t + 355, t + 395);
    add(0, TlpType::CplD, 2, 0x00, 64, t + 800, t + 840);
    add(2, TlpType::CplD, 2, 0x00, 64, t + 955, t + 1000);
    add(5, TlpType::MRd, 3, 0x2000, 256, t + 2300, t + 2340);  // responder's memory
    add(4, TlpType::CplD, 3, 0x00, 256, t + 2900, t + 2950);
    add(3, TlpType::MWr, 2, 0x3000, 256, t + 4250, t + 4300);  // payload
    add(1, TlpType::MWr, 2, 0x3000, 256, t + 4415, t + 4465);
    add(3, TlpType::MWr, 2, 0x4000, 64, t + 5000, t + 5040);  // CQE
    add(1, TlpType::MWr, 2, 0x4000, 64, t + 5155, t + 5195);
  }
  [[nodiscard]] std::optional<LatencyBreakdown> read() const {
    return read_breakdown(records, {ids[3], ids[2]}, {ids[5], ids[4]}, names);
  }
  pcie::ComponentNames names;
  std::vector<pcie::ComponentId> ids;
  std::vector<TraceRecord> records;
};

TEST(LatencyBreakdown, StepsAndHopsAddUp) {
  Trace trace;
  trace.add_read(1000);
  trace.add_read(100'000);
  trace.add(2, TlpType::MWr, 1, 0xd000, 8, 200'000, 200'040);  // a doorbell without an end
  const auto result = trace.read();
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->total, Picoseconds{5195});
  ASSERT_EQ(result->steps.size(), 7U);
  const std::uint64_t expected[] = {195, 805, 1300, 650, 1300, 750, 195};
  Picoseconds sum;
  for (std::size_t i = 0; i < 7; ++i) {
    const LatencyStep& step = result->steps[i];
    EXPECT_EQ(step.time, Picoseconds{expected[i]}) << step.what;
    sum += step.time;
    EXPECT_EQ(step.wire, i == 2 || i == 4);
    Picoseconds hops;
    for (const auto& [name, time] : step.hops) {
      hops += time;
    }
    EXPECT_EQ(hops, step.wire ? Picoseconds{} : step.time) << step.what;
  }
  EXPECT_EQ(sum, result->total);
  using Hops = std::vector<std::pair<std::string, Picoseconds>>;
  EXPECT_EQ(result->steps[0].hops, Hops({{"link_switch0", {40}}, {"switch", {115}}, {"link_a", {40}}}));
  EXPECT_EQ(result->steps[1].hops, Hops({{"in the RNIC", {5}},
                                         {"link_a", {85}},
                                         {"switch", {230}},
                                         {"link_switch0", {80}},
                                         {"root complex and memory", {405}}}));
  EXPECT_EQ(result->steps[3].hops, Hops({{"link_b", {90}}, {"root complex and memory", {560}}}));
}

// Both RNICs do other things meanwhile: a descriptor fetched by the responder, another queue's CQE at the requester.
TEST(LatencyBreakdown, OtherTrafficDoesNotCount) {
  Trace plain;
  plain.add_read(1000);
  Trace busy;
  for (const TraceRecord& record : plain.records) {
    if (record.link == busy.ids[5]) {
      busy.add(5, TlpType::MRd, 3, 0x8000, 64, 2200, 2240, 7);
      busy.add(4, TlpType::CplD, 3, 0x00, 64, 2900, 2940, 7);
    }
    busy.records.push_back(record);
    if (record.link == busy.ids[4] && record.length == 256) {
      busy.add(3, TlpType::MWr, 2, 0x5000, 32, 4000, 4030);
    }
  }
  const auto expected = plain.read();
  const auto result = busy.read();
  ASSERT_TRUE(expected.has_value() && result.has_value());
  ASSERT_EQ(result->steps.size(), expected->steps.size());
  for (std::size_t i = 0; i < result->steps.size(); ++i) {
    EXPECT_EQ(result->steps[i].time, expected->steps[i].time) << result->steps[i].what;
  }
}

TEST(LatencyBreakdown, WithoutAWholeReadThereIsNone) {
  EXPECT_FALSE(Trace().read().has_value());
  Trace whole;
  whole.add_read(1000);
  for (std::size_t without = 0; without < whole.records.size(); ++without) {
    Trace trace = whole;
    trace.records.resize(without);  // cut off there
    EXPECT_FALSE(trace.read().has_value() && trace.read()->total != Picoseconds{5040}) << without;
  }
  Trace other;  // the other way round
  other.add_read(1000);
  EXPECT_FALSE(read_breakdown(other.records, {other.ids[5], other.ids[4]}, {other.ids[3], other.ids[2]}, other.names));
}

}  // namespace
}  // namespace orrery::cli::latency_breakdown_test
