// Fuzz target: a trace file, through the summary, the JSON export and the text. Checksums are not looked
// at, so that damage behind them is reached.
#include <cstddef>
#include <cstdint>
#include <span>

#include "common/error.h"
#include "pcie/trace_export.h"
#include "pcie/trace_reader.h"
#include "pcie/trace_summary.h"
#include "tests/fuzz/require.h"

namespace {

struct Count final : orrery::pcie::TextSink {
  std::size_t bytes = 0;
  void write(std::string_view piece) override { bytes += piece.size(); }
};

template <class Use>
void attempt(std::span<const std::byte> bytes, Use use) {
  try {
    orrery::pcie::TraceReader reader(bytes, "fuzz", orrery::BlockFileReader::Checksums::ignore);
    use(reader);
  } catch (const orrery::Error& error) {
    orrery::fuzz::require(error.what()[0] != '\0' && !error.remedy().empty(), "an error says what and what to do");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace orrery::pcie;
  using orrery::fuzz::require;
  const auto bytes = std::as_bytes(std::span(data, size));
  std::uint64_t records = 0;
  attempt(bytes, [&](TraceReader& reader) {
    const TraceSummary summary = summarise(reader, 3);
    records = summary.records;
    require(summary.slowest.size() <= 3, "no more than asked for");
    for (std::size_t i = 1; i < summary.slowest.size(); ++i) {
      require(summary.slowest[i - 1].latency() >= summary.slowest[i].latency(), "slowest first");
    }
    std::uint64_t tlps = 0;
    for (const TraceSummary::LinkTraffic& link : summary.links) {
      tlps += link.tlps;
      require(link.last >= link.first, "time goes forward");
    }
    require(tlps >= summary.records, "every record is at least one TLP of a link");
  });
  attempt(bytes, [&](TraceReader& reader) {
    Count sink;
    require(export_chrome_json(reader, sink) == records, "export and summary see the same records");
    require(sink.bytes > 0, "the export is not empty");
  });
  attempt(bytes, [&](TraceReader& reader) {
    TraceRecord record;
    while (reader.next(record)) {
      require(record_text(reader, record).find('\n') == std::string::npos, "a record is one line");
    }
  });
  return 0;
}
