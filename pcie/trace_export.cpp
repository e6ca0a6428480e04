#include "pcie/trace_export.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>

#include <fmt/format.h>

#include "common/text.h"
#include "pcie/trace_transactions.h"

namespace orrery::pcie {

std::string microseconds(std::uint64_t ps) {
  return fmt::format("{}.{:06}", ps / 1'000'000, ps % 1'000'000);
}

const char* at_text(AddressType at) {
  switch (at) {
    case AddressType::untranslated:
      return "00b";
    case AddressType::translation_request:
      return "01b";
    case AddressType::translated:
      return "10b";
  }
  return "?";
}

namespace {

constexpr unsigned links_process = 1;
constexpr unsigned first_requester_process = 0x1'0000;  // plus the BDF

class JsonExporter {
 public:
  JsonExporter(TraceReader& reader, TextSink& sink)
      : reader_(reader), sink_(sink), transactions_([this](const TraceTransaction& t) { transaction(t); }) {}

  std::uint64_t run() {
    text_ = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
    TraceRecord record;
    while (reader_.next(record)) {
      transactions_.add(record);
      slice(record);
    }
    transactions_.finish();
    event("{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{},\"args\":{{\"name\":\"{} links\"}}}}", links_process,
          escape_json(reader_.info().title));
    text_ +=
        fmt::format("\n],\"otherData\":{{\"tlp_records\":\"{}\",\"trace_hash\":\"{:016x}\",\"complete\":\"{}\"}}}}\n",
                    reader_.count(), reader_.hash(), reader_.truncated() ? "no" : "yes");
    sink_.write(text_);
    return reader_.count();
  }

 private:
  template <class... Args>
  void event(fmt::format_string<Args...> format, Args&&... args) {
    text_ += first_ ? "\n" : ",\n";
    first_ = false;
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    if (text_.size() > (64U << 10)) {
      sink_.write(text_);
      text_.clear();
    }
  }

  void slice(const TraceRecord& r) {
    if (links_.insert(r.link).second) {
      event("{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":\"{}\"}}}}",
            links_process, r.link, escape_json(reader_.link_name(r)));
      event("{{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":{},\"tid\":{},\"args\":{{\"sort_index\":{}}}}}",
            links_process, r.link, r.link);
    }
    std::uint64_t flight = 0;
    if (const auto link = reader_.info().links.find(r.link); link != reader_.info().links.end()) {
      flight = std::min(link->second.propagation.count, r.end - r.start);
    }
    const TlpType type = r.type();
    std::string more;
    if (is_completion(type)) {
      more = fmt::format(",\"status\":\"{}\",\"completer\":\"{}\",\"byte_count\":{}", name(r.status()),
                         escape_json(reader_.function_name(r.completer)), r.byte_count);
    } else if (is_message(type)) {
      more = fmt::format(",\"message_code\":\"{:#04x}\"", r.enables);
    } else if (is_config(type)) {
      more = fmt::format(",\"target\":\"{}\"", escape_json(reader_.function_name(r.completer)));
    }
    if (r.count > 1) {
      more += fmt::format(",\"tlps\":{}", r.count);
    }
    if (r.poisoned()) {
      more += ",\"poisoned\":true";
    }
    event(
        "{{\"ph\":\"X\",\"name\":\"{}\",\"cat\":\"tlp\",\"pid\":{},\"tid\":{},\"ts\":{},\"dur\":{},\"args\":{{\"type\":"
        "\"{}\",\"requester\":\"{}\",\"tag\":{},\"address\":\"{:#x}\",\"at\":\"{}\",\"length\":{},\"arrives_us\":{}{}}}"
        "}}",
        name(type), links_process, r.link, microseconds(r.start), microseconds(r.end - r.start - flight), name(type),
        escape_json(reader_.function_name(r.requester)), r.tag, r.address, at_text(r.at()), r.length,
        microseconds(r.end), more);
  }

  void transaction(const TraceTransaction& t) {
    const unsigned process = first_requester_process + t.requester;
    if (requesters_.insert(t.requester).second) {
      event("{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{},\"args\":{{\"name\":\"{} transactions\"}}}}", process,
            escape_json(reader_.function_name(t.requester)));
    }
    const std::string args = fmt::format(
        "\"type\":\"{}\",\"tag\":{},\"address\":\"{:#x}\",\"at\":\"{}\",\"length\":{},\"status\":\"{}\"", name(t.type),
        t.tag, t.address, at_text(t.at), t.length, t.answered ? name(t.status) : "unanswered");
    if (!t.answered) {
      event(
          "{{\"ph\":\"n\",\"name\":\"{} unanswered\",\"cat\":\"transaction\",\"id\":\"{:#x}\",\"pid\":{},\"tid\":0,"
          "\"ts\":{},\"args\":{{{}}}}}",
          name(t.type), next_id_++, process, microseconds(t.start), args);
      return;
    }
    event(
        "{{\"ph\":\"b\",\"name\":\"{}\",\"cat\":\"transaction\",\"id\":\"{:#x}\",\"pid\":{},\"tid\":0,\"ts\":{},"
        "\"args\":{{{},\"latency_ns\":{}.{:03}}}}}",
        name(t.type), next_id_, process, microseconds(t.start), args, t.latency() / 1000, t.latency() % 1000);
    event("{{\"ph\":\"e\",\"name\":\"{}\",\"cat\":\"transaction\",\"id\":\"{:#x}\",\"pid\":{},\"tid\":0,\"ts\":{}}}",
          name(t.type), next_id_, process, microseconds(t.end));
    ++next_id_;
  }

  TraceReader& reader_;
  TextSink& sink_;
  TransactionTracker transactions_;
  std::string text_;
  bool first_ = true;
  std::set<std::uint16_t> links_;
  std::set<std::uint16_t> requesters_;
  std::uint64_t next_id_ = 1;
};

}  // namespace

std::uint64_t export_chrome_json(TraceReader& reader, TextSink& sink) {
  return JsonExporter(reader, sink).run();
}

std::string record_text(const TraceReader& reader, const TraceRecord& r) {
  const TlpType type = r.type();
  std::string text =
      fmt::format("{:>16} us  {:<24} {:<6} {:<16} tag {:<5}", microseconds(r.start), printable(reader.link_name(r), 60),
                  name(type), printable(reader.function_name(r.requester), 40), r.tag);
  if (is_completion(type)) {
    text += fmt::format(" {} from {}, {} B of {} left", name(r.status()),
                        printable(reader.function_name(r.completer), 40), r.length, r.byte_count);
  } else if (is_message(type)) {
    text += fmt::format(" code {:#04x} to {}", r.enables, printable(reader.function_name(r.completer), 40));
  } else if (is_config(type)) {
    text += fmt::format(" {} register {:#x}", printable(reader.function_name(r.completer), 40), r.address);
  } else {
    text += fmt::format(" AT {} {:#014x} {} B", at_text(r.at()), r.address, r.length);
  }
  if (r.count > 1) {
    text += fmt::format(" ({} TLPs)", r.count);
  }
  if (r.poisoned()) {
    text += " poisoned";
  }
  if (r.end != r.start) {
    text += fmt::format("  arrives {}", microseconds(r.end));
  }
  return text;
}

}  // namespace orrery::pcie
