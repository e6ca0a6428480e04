#include "cli/trace_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "pcie/tlp_trace.h"
#include "tests/cli/commands_test.h"
#include "tests/common/temporary_file.h"

namespace orrery::cli::trace_command_test {
namespace {

using orrery::test::TemporaryFile;
using ::testing::HasSubstr;

test::Outcome trace(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "trace");
  return test::run(add_trace_command, std::move(arguments));
}

class TraceCommand : public ::testing::Test {
 protected:
  TraceCommand() {
    pcie::Simulation simulation;
    simulation.timed = true;
    const pcie::ComponentId up = simulation.names.add("gpu0.up");
    const pcie::ComponentId down = simulation.names.add("gpu0.down");
    pcie::TlpTrace log(simulation, "server0");
    log.set_link(up, {4, 16, {40'000}});
    log.set_link(down, {4, 16, {40'000}});
    log.set_function(pcie::Bdf::of(4, 0, 0), "gpu0");
    log.open(file_.path());
    const pcie::TlpPtr tlp = simulation.tlps.make();
    for (std::uint64_t i = 0; i < 10; ++i) {
      tlp->reset();
      tlp->requester = pcie::Bdf::of(4, 0, 0);
      tlp->tag = static_cast<std::uint16_t>(i);
      tlp->address = 0x1000 * i;
      tlp->length = 64;
      log.on_link(up, *tlp, {i * 1'000'000}, {i * 1'000'000 + 40'700});
      tlp->reset();
      tlp->type = pcie::TlpType::CplD;
      tlp->requester = pcie::Bdf::of(4, 0, 0);
      tlp->tag = static_cast<std::uint16_t>(i);
      tlp->store(std::vector<std::byte>(64));
      log.on_link(down, *tlp, {i * 1'000'000 + 400'000}, {i * 1'000'000 + 440'000 + i * 1000});
    }
    hash_ = log.hash();
    log.close();
  }
  [[nodiscard]] std::string hash() const { return fmt::format("{:016x}", hash_); }

  TemporaryFile file_;
  std::uint64_t hash_ = 0;
};

TEST_F(TraceCommand, SummaryShowsLinksLatenciesAndHash) {
  const test::Outcome outcome = trace({"summary", file_.path(), "--top", "3"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out, HasSubstr("trace hash " + hash()));
  EXPECT_THAT(outcome.out, HasSubstr("gpu0.up"));
  EXPECT_THAT(outcome.out, HasSubstr("Gen4 x16"));
  EXPECT_THAT(outcome.out, HasSubstr("449 ns"));
  EXPECT_THAT(outcome.out, HasSubstr("gpu0 (04:00.0)"));
}

TEST_F(TraceCommand, SummaryAsJson) {
  const auto json = nlohmann::json::parse(trace({"summary", file_.path(), "--json", "--top", "2"}).out);
  EXPECT_EQ(json["trace_hash"], hash());
  EXPECT_EQ(json["records"], 20);
  EXPECT_EQ(json["complete"], true);
  EXPECT_EQ(json["links"][0]["tlps"], 10);
  EXPECT_EQ(json["links"][1]["payload_bytes"], 640);
  EXPECT_EQ(json["latencies"]["MRd"]["count"], 10);
  EXPECT_EQ(json["latencies"]["MRd"]["min_ps"], 440'000);
  EXPECT_EQ(json["latencies"]["MRd"]["max_ps"], 449'000);
  ASSERT_EQ(json["slowest"].size(), 2U);
  EXPECT_EQ(json["slowest"][0]["latency_ps"], 449'000);
  EXPECT_EQ(json["slowest"][0]["address"], "0x9000");
}

TEST_F(TraceCommand, ShowFilters) {
  const auto lines = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"show", file_.path()});
    const test::Outcome outcome = trace(more);
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    return std::count(outcome.out.begin(), outcome.out.end(), '\n');
  };
  EXPECT_EQ(lines({}), 20);
  EXPECT_EQ(lines({"--type", "CplD"}), 10);
  EXPECT_EQ(lines({"--type", "MRd,CplD"}), 20);
  EXPECT_EQ(lines({"--type", "MWr"}), 0);
  EXPECT_EQ(lines({"--link", ".down"}), 10);
  EXPECT_EQ(lines({"--function", "gpu0"}), 20);
  EXPECT_EQ(lines({"--function", "gpu0", "--type", "MWr"}), 0);
  EXPECT_EQ(lines({"--from-us", "5", "--to-us", "5.5"}), 2);
  EXPECT_EQ(lines({"--limit", "3"}), 3);
  EXPECT_THAT(trace({"show", file_.path(), "--limit", "1"}).out, HasSubstr("MRd    gpu0 (04:00.0)   tag 0"));
}

TEST_F(TraceCommand, ShowSaysWhichNameIsUnknown) {
  const auto error = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"show", file_.path()});
    const test::Outcome outcome = trace(more);
    EXPECT_EQ(outcome.status, 1);
    return outcome.error + " | " + outcome.remedy;
  };
  EXPECT_THAT(error({"--function", "gpu1"}), HasSubstr("no function's name or number contains \"gpu1\""));
  EXPECT_THAT(error({"--link", "gpu9"}), HasSubstr("no link's name contains \"gpu9\" | `orrery trace summary`"));
  EXPECT_THAT(error({"--from-us", "2", "--to-us", "1"}), HasSubstr("--to-us 1 is before --from-us 2"));
}

TEST_F(TraceCommand, ExportsJson) {
  const TemporaryFile out;
  const test::Outcome outcome = trace({"export", file_.path(), "-o", out.path(), "--json"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["records"], 20);
  EXPECT_EQ(nlohmann::json::parse(out.text())["otherData"]["trace_hash"], hash());
  EXPECT_EQ(nlohmann::json::parse(trace({"export", file_.path(), "-o", "-"}).out), nlohmann::json::parse(out.text()));
}

TEST_F(TraceCommand, AKilledRunIsShownAndFails) {
  const std::vector<std::byte> whole = file_.read();
  // Without the summary (32 bytes) and the end block (16).
  file_.write(std::span(whole).first(whole.size() - 48));
  test::Outcome outcome = trace({"summary", file_.path(), "--json"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["complete"], false);
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["records"], 20);
  EXPECT_EQ(outcome.error, file_.path() + ": the trace stops after 20 records, before its end");
  EXPECT_EQ(trace({"show", file_.path()}).status, 1);
  const TemporaryFile out;
  EXPECT_EQ(trace({"export", file_.path(), "-o", out.path()}).status, 1);
  EXPECT_EQ(nlohmann::json::parse(out.text())["otherData"]["complete"], "no");
}

TEST_F(TraceCommand, DamageAndForeignFilesAreNamed) {
  std::vector<std::byte> bytes = file_.read();
  bytes[bytes.size() / 2] ^= std::byte{1};
  file_.write(bytes);
  const test::Outcome damaged = trace({"summary", file_.path()});
  EXPECT_EQ(damaged.status, 1);
  EXPECT_THAT(damaged.error, HasSubstr("wrong checksum at byte"));
  file_.write("{\"traceEvents\":[]}");
  EXPECT_EQ(trace({"summary", file_.path()}).error, file_.path() + ": not an Orrery trace");
  EXPECT_EQ(trace({"summary", "/nonexistent"}).status, 1);
  EXPECT_EQ(trace({"summary", "/"}).status, 1);
}

TEST_F(TraceCommand, UnwritableOutputFails) {
  EXPECT_EQ(trace({"export", file_.path(), "-o", "/dev/full"}).error,
            "/dev/full: cannot write the trace: No space left on device");
  EXPECT_EQ(trace({"export", file_.path(), "-o", "/nonexistent/x"}).status, 1);
}

TEST_F(TraceCommand, WrongUsageIsRefused) {
  EXPECT_EQ(trace({"summary"}).status, 2);
  EXPECT_EQ(trace({"export", file_.path()}).status, 2);
  EXPECT_EQ(trace({"show", file_.path(), "--type", "Read"}).status, 2);
  EXPECT_EQ(trace({"show", file_.path(), "--limit", "-1"}).status, 2);
}

}  // namespace
}  // namespace orrery::cli::trace_command_test
