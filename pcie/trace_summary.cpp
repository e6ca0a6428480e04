#include "pcie/trace_summary.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <tuple>

namespace orrery::pcie {

void LatencyHistogram::add(std::uint64_t ps) {
  std::size_t bucket = ps;
  if (ps >= (std::uint64_t{1} << sub_bits)) {
    const unsigned exponent = static_cast<unsigned>(std::bit_width(ps)) - sub_bits - 1;  // bits dropped
    bucket = (static_cast<std::size_t>(exponent) << sub_bits) + static_cast<std::size_t>(ps >> exponent);
  }
  ++buckets_[bucket];
  minimum_ = count_ == 0 ? ps : std::min(minimum_, ps);
  maximum_ = std::max(maximum_, ps);
  sum_ += static_cast<long double>(ps);
  ++count_;
}

double LatencyHistogram::mean() const {
  return static_cast<double>(sum_ / static_cast<long double>(count_));
}

std::uint64_t LatencyHistogram::quantile(double q) const {
  const double wanted = std::ceil(q * static_cast<double>(count_));
  if (wanted <= 1) {
    return minimum_;
  }
  const auto rank = static_cast<std::uint64_t>(wanted);
  std::uint64_t seen = 0;
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    seen += buckets_[bucket];
    if (seen < rank) {
      continue;
    }
    std::uint64_t highest = bucket;
    if (bucket >= (std::size_t{2} << sub_bits)) {
      const std::size_t exponent = (bucket >> sub_bits) - 1;
      const std::uint64_t mantissa = bucket - (exponent << sub_bits);
      highest = ((mantissa + 1) << exponent) - 1;
    }
    return std::clamp(highest, minimum_, maximum_);
  }
  return maximum_;
}

namespace {

// Slowest first; equals in order of start, requester and tag.
bool slower(const TraceTransaction& a, const TraceTransaction& b) {
  const std::uint64_t a_latency = a.latency();
  const std::uint64_t b_latency = b.latency();
  return std::tie(b_latency, a.start, a.requester, a.tag) < std::tie(a_latency, b.start, b.requester, b.tag);
}

double fraction(std::uint64_t wire_bytes, double bytes_per_second, std::uint64_t picoseconds) {
  return picoseconds == 0
             ? -1
             : static_cast<double>(wire_bytes) / (bytes_per_second * static_cast<double>(picoseconds) / 1e12);
}

}  // namespace

TraceSummary summarise(TraceReader& reader, std::size_t top) {
  TraceSummary summary;
  std::map<ComponentId, TraceSummary::LinkTraffic> links;
  TransactionTracker transactions([&](const TraceTransaction& t) {
    if (!t.answered) {
      ++summary.unanswered;
      return;
    }
    summary.failed += t.status == CompletionStatus::success ? 0 : 1;
    if (!reader.info().timed) {
      return;
    }
    summary.latencies[t.type].add(t.latency());
    std::vector<TraceTransaction>& slowest = summary.slowest;
    if (top != 0 && (slowest.size() < top || slower(t, slowest.back()))) {
      slowest.insert(std::upper_bound(slowest.begin(), slowest.end(), t, slower), t);
      if (slowest.size() > top) {
        slowest.pop_back();
      }
    }
  });

  TraceRecord record;
  while (reader.next(record)) {
    transactions.add(record);
    TraceSummary::LinkTraffic& link = links[record.link];
    link.first = link.tlps == 0 ? record.start : std::min(link.first, record.start);
    link.last = std::max(link.last, record.end);
    link.tlps += record.count;
    link.payload_bytes += carries_payload(record.type()) ? record.length : 0;
    link.wire_bytes += record.wire_bytes;
    summary.first = summary.records == 0 ? record.start : std::min(summary.first, record.start);
    summary.last = std::max(summary.last, record.end);
    ++summary.records;
  }
  transactions.finish();

  const TraceInfo& info = reader.info();
  summary.title = info.title;
  summary.timed = info.timed;
  summary.truncated = reader.truncated();
  summary.hash = reader.hash();
  summary.unmatched_completions = transactions.unmatched_completions();
  for (auto& [id, link] : links) {
    link.name = info.components[id];
    if (const auto settings = info.links.find(id); settings != info.links.end()) {
      link.generation = settings->second.generation;
      link.width = settings->second.width;
      if (info.timed) {
        const double rate = raw_bytes_per_second(link.generation, link.width);
        // A link's time ends when its last bit leaves, not when it has flown.
        const std::uint64_t flight = std::min(settings->second.propagation.count, link.last - link.first);
        link.utilisation = fraction(link.wire_bytes, rate, summary.last - summary.first);
        link.utilisation_active = fraction(link.wire_bytes, rate, link.last - link.first - flight);
      }
    }
    summary.links.push_back(std::move(link));
  }
  return summary;
}

}  // namespace orrery::pcie
