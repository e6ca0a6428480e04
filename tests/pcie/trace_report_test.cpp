// What is made of a trace: transactions, summary, Chrome JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <cmath>
#include <nlohmann/json.hpp>

#include "pcie/tlp_trace.h"
#include "pcie/trace_export.h"
#include "pcie/trace_summary.h"
#include "tests/common/temporary_file.h"

namespace orrery::pcie::trace_report_test {
namespace {

using test::TemporaryFile;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::uint16_t gpu = 0x0400;

TraceRecord request(std::uint16_t link, std::uint64_t start, std::uint16_t tag, std::uint16_t requester = gpu) {
  TraceRecord r;
  r.link = link;
  r.start = start;
  r.end = start + 10;
  r.tag = tag;
  r.requester = requester;
  r.length = 64;
  r.kind = static_cast<std::uint8_t>(TlpType::MRd);
  return r;
}

TraceRecord completion(std::uint16_t link, std::uint64_t end, std::uint16_t tag,
                       CompletionStatus status = CompletionStatus::success) {
  TraceRecord r = request(link, end - 10, tag);
  r.end = end;
  r.kind = static_cast<std::uint8_t>(status == CompletionStatus::success ? TlpType::CplD : TlpType::Cpl);
  r.qualifiers = static_cast<std::uint8_t>(status);
  return r;
}

std::vector<TraceTransaction> transactions(const std::vector<TraceRecord>& records,
                                           std::uint64_t* unmatched = nullptr) {
  std::vector<TraceTransaction> all;
  TransactionTracker tracker([&](const TraceTransaction& t) { all.push_back(t); });
  for (const TraceRecord& r : records) {
    tracker.add(r);
  }
  tracker.finish();
  if (unmatched != nullptr) {
    *unmatched = tracker.unmatched_completions();
  }
  return all;
}

TEST(Transactions, SpanFirstLinkToLastCompletionOnLastLink) {
  // Up over links 1 and 3, two completions down over 4 and 2.
  const auto all = transactions({request(1, 100, 5), request(3, 150, 5), completion(4, 400, 5), completion(2, 450, 5),
                                 completion(4, 410, 5), completion(2, 460, 5)});
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].start, 100U);
  EXPECT_EQ(all[0].end, 460U);
  EXPECT_EQ(all[0].latency(), 360U);
  EXPECT_EQ(all[0].first_link, 1);
}

TEST(Transactions, TagsAreReusedAndRequestersDiffer) {
  const auto all = transactions(
      {request(1, 0, 5), completion(2, 50, 5), request(1, 60, 5), completion(2, 200, 5), request(7, 70, 5, 0x0500)});
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].latency(), 50U);
  EXPECT_EQ(all[1].latency(), 140U);
  EXPECT_EQ(all[2].requester, 0x0500);
  EXPECT_FALSE(all[2].answered);
}

TEST(Transactions, KeepTheFirstFailureAndCountStrays) {
  std::uint64_t unmatched = 0;
  const auto all = transactions({completion(2, 50, 9), request(1, 60, 5),
                                 completion(2, 80, 5, CompletionStatus::completer_abort), completion(2, 90, 5)},
                                &unmatched);
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].status, CompletionStatus::completer_abort);
  EXPECT_EQ(unmatched, 1U);
}

TEST(Transactions, PostedRequestsAreNone) {
  TraceRecord write = request(1, 0, 0);
  write.kind = static_cast<std::uint8_t>(TlpType::MWr);
  TraceRecord message = request(1, 0, 0);
  message.kind = static_cast<std::uint8_t>(TlpType::Msg);
  EXPECT_TRUE(transactions({write, message}).empty());
}

TEST(LatencyHistogram, ExactEndsAndBoundedQuantiles) {
  LatencyHistogram h;
  for (std::uint64_t i = 1; i <= 10'000; ++i) {
    h.add(i * 977);
  }
  EXPECT_EQ(h.count(), 10'000U);
  EXPECT_EQ(h.minimum(), 977U);
  EXPECT_EQ(h.maximum(), 9'770'000U);
  EXPECT_DOUBLE_EQ(h.mean(), 977 * 5000.5);
  for (const double q : {0.01, 0.5, 0.9, 0.99, 0.999}) {
    const double exact = std::ceil(q * 10'000) * 977;
    EXPECT_GE(static_cast<double>(h.quantile(q)), exact);
    EXPECT_LE(static_cast<double>(h.quantile(q)), exact * (1 + 1.0 / 64)) << q;
  }
  EXPECT_EQ(h.quantile(0), 977U);
  EXPECT_EQ(h.quantile(1), 9'770'000U);
}

TEST(LatencyHistogram, SmallAndLargestValues) {
  LatencyHistogram h;
  h.add(0);
  h.add(63);
  h.add(64);
  h.add(127);
  h.add(128);
  EXPECT_EQ(h.quantile(0.2), 0U);
  EXPECT_EQ(h.quantile(0.4), 63U);
  EXPECT_EQ(h.quantile(0.6), 64U);
  EXPECT_EQ(h.quantile(0.8), 127U);
  h.add(~std::uint64_t{0});
  EXPECT_EQ(h.quantile(1), ~std::uint64_t{0});
}

class TraceReportTest : public ::testing::Test {
 protected:
  // A trace of a 64 B read by gpu0 (24 B request, 84 B completion, Gen4 x16) and a write.
  void record(bool timed) {
    simulation_.timed = timed;
    const ComponentId up = simulation_.names.add("gpu0 \"up\"");
    const ComponentId down = simulation_.names.add("gpu0.down");
    TlpTrace trace(simulation_, "server0");
    trace.set_link(up, {4, 16, {40'000}});
    trace.set_link(down, {4, 16, {40'000}});
    trace.set_function(Bdf{gpu}, "gpu0");
    trace.open(file_.path());
    const TlpPtr tlp = simulation_.tlps.make();
    tlp->requester = Bdf{gpu};
    tlp->address = 0x1'0000'0000;
    tlp->length = 64;
    tlp->tag = 3;
    const auto at = [timed](std::uint64_t ps) { return Picoseconds{timed ? ps : 0}; };
    trace.on_link(up, *tlp, at(1'000'000), at(1'040'762));
    tlp->reset();
    tlp->type = TlpType::CplD;
    tlp->requester = Bdf{gpu};
    tlp->tag = 3;
    tlp->byte_count = 64;
    tlp->store(std::vector<std::byte>(64));
    trace.on_link(down, *tlp, at(1'400'000), at(1'442'666));
    tlp->reset();
    tlp->type = TlpType::MWr;
    tlp->requester = Bdf{gpu};
    tlp->address = 0x1'0000'0000;
    tlp->store(std::vector<std::byte>(256));
    trace.on_link(up, *tlp, at(2'000'000), at(2'048'886));
    hash_ = trace.hash();
    trace.close();
  }

  struct Text final : TextSink {
    std::string text;
    void write(std::string_view piece) override { text += piece; }
  };
  nlohmann::json exported() {
    TraceReader reader(file_.path());
    Text sink;
    records_ = export_chrome_json(reader, sink);
    return nlohmann::json::parse(sink.text);
  }

  Simulation simulation_;
  TemporaryFile file_;
  std::uint64_t hash_ = 0;
  std::uint64_t records_ = 0;
};

TEST_F(TraceReportTest, SummaryCountsAndUtilisation) {
  record(true);
  TraceReader reader(file_.path());
  const TraceSummary s = summarise(reader, 10);
  EXPECT_EQ(s.records, 3U);
  EXPECT_EQ(s.hash, hash_);
  EXPECT_EQ(s.first, 1'000'000U);
  EXPECT_EQ(s.last, 2'048'886U);
  ASSERT_EQ(s.links.size(), 2U);
  EXPECT_EQ(s.links[0].name, "gpu0 \"up\"");
  EXPECT_EQ(s.links[0].tlps, 2U);
  EXPECT_EQ(s.links[0].wire_bytes, 24U + 280);
  EXPECT_EQ(s.links[0].payload_bytes, 256U);
  EXPECT_EQ(s.links[1].wire_bytes, 84U);
  EXPECT_EQ(s.links[1].payload_bytes, 64U);
  // Gen4 x16: 16 GT/s * 16 * 128/130 / 8 bytes per second.
  const double rate = 16e9 * 16 * 128 / 130 / 8;
  EXPECT_NEAR(s.links[0].utilisation, 304 / (rate * 1.048886e-6), 1e-9);
  EXPECT_NEAR(s.links[0].utilisation_active, 304 / (rate * 1.008886e-6), 1e-9);
  EXPECT_NEAR(s.links[1].utilisation_active, 84 / (rate * 2.666e-9), 1e-9);  // one TLP: all of its time
  ASSERT_EQ(s.slowest.size(), 1U);
  EXPECT_EQ(s.slowest[0].latency(), 442'666U);
  EXPECT_EQ(s.latencies.at(TlpType::MRd).count(), 1U);
  EXPECT_EQ(s.unanswered + s.failed + s.unmatched_completions, 0U);
}

TEST_F(TraceReportTest, FunctionalTracesClaimNoLatency) {
  record(false);
  TraceReader reader(file_.path());
  const TraceSummary s = summarise(reader, 10);
  EXPECT_TRUE(s.latencies.empty());
  EXPECT_TRUE(s.slowest.empty());
  EXPECT_LT(s.links[0].utilisation, 0);
  EXPECT_EQ(s.links[0].wire_bytes, 304U);
}

TEST_F(TraceReportTest, SlowestAreTheSlowestInOrder) {
  TlpTrace trace(simulation_, "t");
  simulation_.timed = true;
  const ComponentId link = simulation_.names.add("l");
  trace.open(file_.path());
  const TlpPtr tlp = simulation_.tlps.make();
  for (std::uint64_t i = 0; i < 50; ++i) {
    const std::uint64_t latency = (i * 37) % 50 + 100;  // a permutation of 100 … 149
    tlp->reset();
    tlp->tag = static_cast<std::uint16_t>(i);
    trace.on_link(link, *tlp, {i * 1000}, {i * 1000});
    tlp->type = TlpType::Cpl;
    trace.on_link(link, *tlp, {i * 1000}, {i * 1000 + latency});
  }
  trace.close();
  TraceReader reader(file_.path());
  const TraceSummary s = summarise(reader, 4);
  ASSERT_EQ(s.slowest.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(s.slowest[i].latency(), 149 - i);
  }
  TraceReader again(file_.path());
  EXPECT_TRUE(summarise(again, 0).slowest.empty());
}

TEST_F(TraceReportTest, ChromeJsonHasExactTimesAndEveryTlp) {
  record(true);
  const nlohmann::json all = exported();
  EXPECT_EQ(records_, 3U);
  EXPECT_EQ(all["displayTimeUnit"], "ns");
  EXPECT_EQ(all["otherData"]["trace_hash"], fmt::format("{:016x}", hash_));
  std::vector<nlohmann::json> slices;
  std::map<std::string, nlohmann::json> by_phase;
  for (const nlohmann::json& event : all["traceEvents"]) {
    if (event["ph"] == "X") {
      slices.push_back(event);
    } else {
      by_phase[event["ph"]] = event;
    }
  }
  ASSERT_EQ(slices.size(), 3U);
  EXPECT_EQ(slices[0]["name"], "MRd");
  EXPECT_DOUBLE_EQ(slices[0]["ts"], 1.0);
  EXPECT_DOUBLE_EQ(slices[0]["dur"], 0.000762);  // without the flight of 40 ns
  EXPECT_EQ(slices[0]["args"]["requester"], "gpu0 (04:00.0)");
  EXPECT_EQ(slices[0]["args"]["address"], "0x100000000");
  EXPECT_EQ(slices[0]["args"]["at"], "00b");
  EXPECT_EQ(slices[0]["args"]["tag"], 3);
  EXPECT_EQ(slices[0]["args"]["length"], 64);
  EXPECT_DOUBLE_EQ(slices[0]["args"]["arrives_us"], 1.040762);
  EXPECT_EQ(slices[1]["args"]["status"], "SC");
  EXPECT_NE(slices[0]["tid"], slices[1]["tid"]);
  EXPECT_EQ(slices[0]["tid"], slices[2]["tid"]);
  EXPECT_DOUBLE_EQ(by_phase["b"]["ts"], 1.0);
  EXPECT_DOUBLE_EQ(by_phase["e"]["ts"], 1.442666);
  EXPECT_DOUBLE_EQ(by_phase["b"]["args"]["latency_ns"], 442.666);
  EXPECT_EQ(by_phase["b"]["id"], by_phase["e"]["id"]);
}

// A track must not hold slices that overlap without nesting: viewers drop them.
TEST_F(TraceReportTest, SlicesOfALinkDoNotOverlap) {
  simulation_.timed = true;
  LinkDirection link(simulation_, "l", {4, 16, {40'000}});
  struct Drop final : TlpSink {
    Picoseconds receive(TlpPtr /*tlp*/, Picoseconds /*delay*/) override { return {}; }
  } drop;
  link.connect(drop);
  TlpTrace trace(simulation_);
  trace.set_link(link.id(), link.settings());
  trace.open(file_.path());
  simulation_.observer = &trace;
  for (int i = 0; i < 20; ++i) {
    TlpPtr tlp = simulation_.tlps.make();
    tlp->type = TlpType::MWr;
    tlp->store(std::vector<std::byte>(256));
    link.receive(std::move(tlp), {});
  }
  simulation_.events.run_until({1'000'000});
  trace.close();
  double end = 0;
  int slices = 0;
  const nlohmann::json all = exported();
  for (const nlohmann::json& event : all["traceEvents"]) {
    if (event["ph"] == "X") {
      EXPECT_GE(event["ts"].get<double>(), end - 1e-9);
      end = event["ts"].get<double>() + event["dur"].get<double>();
      ++slices;
    }
  }
  EXPECT_EQ(slices, 20);
}

TEST_F(TraceReportTest, HostileNamesStayInsideTheirStrings) {
  const ComponentId link = simulation_.names.add("a\",\"ph\":\"Z\n\xff</script>");
  TlpTrace trace(simulation_, "ti\"tle");
  trace.open(file_.path());
  trace.on_link(link, *simulation_.tlps.make(), {}, {});
  trace.close();
  const nlohmann::json all = exported();  // parses
  for (const nlohmann::json& event : all["traceEvents"]) {
    EXPECT_NE(event["ph"], "Z");
  }
  TraceReader reader(file_.path());
  TraceRecord record;
  ASSERT_TRUE(reader.next(record));
  EXPECT_THAT(record_text(reader, record), Not(HasSubstr("\n")));
}

TEST(Microseconds, AreExact) {
  EXPECT_EQ(microseconds(0), "0.000000");
  EXPECT_EQ(microseconds(1), "0.000001");
  EXPECT_EQ(microseconds(~std::uint64_t{0}), "18446744073709.551615");
}

}  // namespace
}  // namespace orrery::pcie::trace_report_test
