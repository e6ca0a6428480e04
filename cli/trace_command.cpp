#include "cli/trace_command.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/output.h"
#include "common/error.h"
#include "common/text.h"
#include "common/units.h"
#include "pcie/trace_export.h"
#include "pcie/trace_reader.h"
#include "pcie/trace_summary.h"

namespace orrery::cli {
namespace {

using pcie::TraceReader;
using pcie::TraceRecord;
using pcie::TraceSummary;
using pcie::TraceTransaction;

struct TraceCommandOptions {
  std::string file;
  bool json = false;
  std::size_t top = 10;
  std::string output;
  // show
  std::vector<std::string> types;
  std::string link;
  std::string function;
  double from_us = 0;
  double to_us = -1;
  std::uint64_t limit = 0;
};

// What could be read has been printed; the exit code must still say that it was not all.
void complain_if_truncated(bool truncated, const std::string& file, std::uint64_t records) {
  if (truncated) {
    std::fflush(stdout);
    throw Error(fmt::format("{}: the trace stops after {} records, before its end", file, records),
                "its run was killed or its disk was full; what it holds has been shown");
  }
}

std::string percent(double fraction) {
  return fraction < 0 ? "-" : fmt::format("{:.2f} %", fraction * 100);
}

void print_text(const TraceSummary& s, const TraceReader& reader) {
  fmt::print("{}: {} records, {}, trace hash {:016x}\n", printable(s.title.empty() ? reader.name() : s.title),
             s.records,
             s.timed ? fmt::format("{} simulated (from {} us to {} us)", format_time({s.last - s.first}),
                                   pcie::microseconds(s.first), pcie::microseconds(s.last))
                     : std::string("functional mode: no latencies"),
             s.hash);
  fmt::print("\n{:<32} {:>12} {:>12} {:>12} {:>9} {:>12} {:>12}\n", "link", "TLPs", "payload", "on the wire", "rate",
             "utilisation", "while active");
  for (const TraceSummary::LinkTraffic& link : s.links) {
    fmt::print("{:<32} {:>12} {:>12} {:>12} {:>9} {:>12} {:>12}\n", printable(link.name, 60), link.tlps,
               format_bytes(link.payload_bytes), format_bytes(link.wire_bytes),
               link.generation == 0 ? "-" : fmt::format("Gen{} x{}", link.generation, link.width),
               percent(link.utilisation), percent(link.utilisation_active));
  }
  if (!s.latencies.empty()) {
    fmt::print("\n{:<10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}\n", "request", "count", "min", "mean", "p50", "p99",
               "max");
    for (const auto& [type, h] : s.latencies) {
      fmt::print("{:<10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}\n", pcie::name(type), h.count(),
                 format_time({h.minimum()}), format_time({static_cast<std::uint64_t>(std::llround(h.mean()))}),
                 format_time({h.quantile(0.5)}), format_time({h.quantile(0.99)}), format_time({h.maximum()}));
    }
  }
  if (!s.slowest.empty()) {
    fmt::print("\nslowest transactions\n{:>10} {:>16} {:<7} {:<24} {:>5} {:>18} {:>7}  {}\n", "latency", "start us",
               "type", "requester", "tag", "address", "bytes", "status");
    for (const TraceTransaction& t : s.slowest) {
      fmt::print("{:>10} {:>16} {:<7} {:<24} {:>5} {:>#18x} {:>7}  {}\n", format_time({t.latency()}),
                 pcie::microseconds(t.start), pcie::name(t.type), printable(reader.function_name(t.requester), 40),
                 t.tag, t.address, t.length, pcie::name(t.status));
    }
  }
  if (s.failed + s.unanswered + s.unmatched_completions != 0) {
    fmt::print("\n{} transactions failed, {} unanswered, {} completions without request\n", s.failed, s.unanswered,
               s.unmatched_completions);
  }
}

void print_json(const TraceSummary& s, const TraceReader& reader) {
  using Json = nlohmann::ordered_json;
  const auto fraction = [](double value) { return value < 0 ? Json() : Json(value); };
  Json links = Json::array();
  for (const TraceSummary::LinkTraffic& link : s.links) {
    links.push_back({{"link", link.name},
                     {"tlps", link.tlps},
                     {"payload_bytes", link.payload_bytes},
                     {"wire_bytes", link.wire_bytes},
                     {"generation", link.generation == 0 ? Json() : Json(link.generation)},
                     {"width", link.width == 0 ? Json() : Json(link.width)},
                     {"utilisation", fraction(link.utilisation)},
                     {"utilisation_active", fraction(link.utilisation_active)}});
  }
  Json latencies = Json::object();
  for (const auto& [type, h] : s.latencies) {
    latencies[pcie::name(type)] = {{"count", h.count()},        {"min_ps", h.minimum()},      {"mean_ps", h.mean()},
                                   {"p50_ps", h.quantile(0.5)}, {"p99_ps", h.quantile(0.99)}, {"max_ps", h.maximum()}};
  }
  Json slowest = Json::array();
  for (const TraceTransaction& t : s.slowest) {
    slowest.push_back({{"latency_ps", t.latency()},
                       {"start_ps", t.start},
                       {"type", pcie::name(t.type)},
                       {"requester", reader.function_name(t.requester)},
                       {"tag", t.tag},
                       {"address", fmt::format("{:#x}", t.address)},
                       {"length", t.length},
                       {"status", pcie::name(t.status)}});
  }
  const Json all{{"title", s.title},
                 {"complete", !s.truncated},
                 {"timed", s.timed},
                 {"records", s.records},
                 {"trace_hash", fmt::format("{:016x}", s.hash)},
                 {"first_ps", s.first},
                 {"last_ps", s.last},
                 {"links", std::move(links)},
                 {"latencies", std::move(latencies)},
                 {"slowest", std::move(slowest)},
                 {"failed", s.failed},
                 {"unanswered", s.unanswered},
                 {"unmatched_completions", s.unmatched_completions}};
  fmt::print("{}\n", all.dump(2, ' ', false, Json::error_handler_t::replace));
}

void summary(const TraceCommandOptions& options) {
  TraceReader reader(options.file);
  const TraceSummary s = pcie::summarise(reader, options.top);
  if (options.json) {
    print_json(s, reader);
  } else {
    print_text(s, reader);
  }
  complain_if_truncated(s.truncated, options.file, s.records);
}

// Which of the asked-for names the trace has at all: a misspelt one would show nothing, without a word.
struct NamesSeen {
  bool link = false;
  bool function = false;
};

bool wanted(const TraceCommandOptions& options, const TraceReader& reader, const TraceRecord& record, NamesSeen& seen) {
  const auto has = [](const std::string& name, const std::string& piece) {
    return name.find(piece) != std::string::npos;
  };
  const bool on_link = options.link.empty() || has(reader.link_name(record), options.link);
  const bool of_function = options.function.empty() || has(reader.function_name(record.requester), options.function) ||
                           has(reader.function_name(record.completer), options.function);
  seen.link = seen.link || on_link;
  seen.function = seen.function || of_function;
  if (!on_link || !of_function) {
    return false;
  }
  if (!options.types.empty()) {
    bool found = false;
    for (const std::string& type : options.types) {
      found = found || type == pcie::name(record.type());
    }
    if (!found) {
      return false;
    }
  }
  const double start_us = static_cast<double>(record.start) / 1e6;
  return start_us >= options.from_us && (options.to_us < 0 || start_us <= options.to_us);
}

void show(const TraceCommandOptions& options) {
  TraceReader reader(options.file);
  TraceRecord record;
  std::uint64_t shown = 0;
  NamesSeen seen;
  if (options.to_us >= 0 && options.to_us < options.from_us) {
    throw Error(fmt::format("--to-us {} is before --from-us {}", options.to_us, options.from_us), "exchange them");
  }
  while (reader.next(record)) {
    if (!wanted(options, reader, record, seen)) {
      continue;
    }
    if (options.limit != 0 && shown == options.limit) {
      return;
    }
    ++shown;
    fmt::print("{}\n", pcie::record_text(reader, record));
  }
  complain_if_truncated(reader.truncated(), options.file, reader.count());
  if (!seen.link && reader.count() != 0) {
    throw Error(fmt::format("{}: no link's name contains \"{}\"", options.file, options.link),
                "`orrery trace summary` lists the links");
  }
  if (!seen.function && reader.count() != 0) {
    throw Error(fmt::format("{}: no function's name or number contains \"{}\"", options.file, options.function),
                "names are as `orrery topo` prints them");
  }
}

// A file, or stdout for "-". The first error is kept.
class FileSink final : public pcie::TextSink {
 public:
  explicit FileSink(std::string path) : path_(std::move(path)), file_(path_ == "-" ? stdout : nullptr) {
    if (file_ == nullptr) {
      file_ = std::fopen(path_.c_str(), "wb");
      owned_ = true;
    }
    if (file_ == nullptr) {
      fail(errno);
    }
  }
  ~FileSink() {
    if (owned_ && file_ != nullptr) {
      std::fclose(file_);
    }
  }
  FileSink(const FileSink&) = delete;
  FileSink& operator=(const FileSink&) = delete;

  void write(std::string_view piece) override {
    if (std::fwrite(piece.data(), 1, piece.size(), file_) != piece.size()) {
      fail(errno);
    }
  }
  void close() {
    if (std::fflush(file_) != 0) {
      fail(errno);
    }
    if (owned_ && std::fclose(std::exchange(file_, nullptr)) != 0) {
      fail(errno);
    }
  }

 private:
  [[noreturn]] void fail(int error) const {
    if (file_ != nullptr && owned_) {
      discard_file(path_);
    }
    throw Error(fmt::format("{}: cannot write the trace: {}", path_, std::strerror(error)),
                "check the path, its permissions and free space");
  }
  std::string path_;
  std::FILE* file_;
  bool owned_ = false;
};

void run_export(const TraceCommandOptions& options) {
  const std::uint64_t records = export_trace(options.file, options.output);
  if (options.output == "-") {
    return;
  }
  if (options.json) {
    fmt::print("{{\"file\":\"{}\",\"records\":{}}}\n", escape_json(options.output), records);
  } else {
    fmt::print("{}: {} records; open it at https://ui.perfetto.dev or in chrome://tracing\n", options.output, records);
  }
}

}  // namespace

std::uint64_t export_trace(const std::string& trace_file, const std::string& json_file) {
  require_other_file(json_file, trace_file);
  TraceReader reader(trace_file);
  FileSink sink(json_file);
  const std::uint64_t records = pcie::export_chrome_json(reader, sink);
  sink.close();
  complain_if_truncated(reader.truncated(), trace_file, records);
  return records;
}

void add_trace_command(CLI::App& app) {
  CLI::App* trace = app.add_subcommand("trace", "read a trace of TLPs");
  trace->require_subcommand(1);
  const auto options = std::make_shared<TraceCommandOptions>();
  const auto add_file = [&](CLI::App* command) {
    command->add_option("FILE", options->file, "trace file, as trace.file of a configuration names it")->required();
  };

  CLI::App* summary_command =
      trace->add_subcommand("summary", "traffic and utilisation of each link, latencies, trace hash");
  add_file(summary_command);
  summary_command->add_flag("--json", options->json, "as JSON");
  summary_command->add_option("--top", options->top, "how many slow transactions to list")->check(CLI::Range(0, 1000));
  summary_command->callback([options] { summary(*options); });

  CLI::App* show_command = trace->add_subcommand("show", "print the TLPs, one a line and link");
  add_file(show_command);
  show_command->add_option("--type", options->types, "only these types")
      ->delimiter(',')
      ->check(CLI::IsMember({"MRd", "MWr", "CfgRd0", "CfgWr0", "CfgRd1", "CfgWr1", "Cpl", "CplD", "Msg", "MsgD"}));
  show_command->add_option("--link", options->link, "only links whose name contains this");
  show_command->add_option("--function", options->function,
                           "only TLPs of a requester or completer whose name or number contains this");
  show_command->add_option("--from-us", options->from_us, "only from this simulated time on, microseconds");
  show_command->add_option("--to-us", options->to_us, "only up to this simulated time, microseconds");
  show_command->add_option("--limit", options->limit, "stop after this many; 0: all")
      ->check(CLI::Range(std::int64_t{0}, std::numeric_limits<std::int64_t>::max()));
  show_command->callback([options] { show(*options); });

  CLI::App* export_command = trace->add_subcommand("export", "write it as Chrome JSON for Perfetto");
  add_file(export_command);
  export_command->add_option("-o,--output", options->output, "file to write; - for the terminal")->required();
  export_command->add_flag("--json", options->json, "report the result as JSON");
  export_command->callback([options] { run_export(*options); });
}

}  // namespace orrery::cli
