// What a trace amounts to: traffic and utilisation of each link, latencies of transactions.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "pcie/trace_reader.h"
#include "pcie/trace_transactions.h"

namespace orrery::pcie {

// Distribution of latencies in constant memory: exact count, minimum, mean and maximum; quantiles to 1.6 %.
class LatencyHistogram {
 public:
  void add(std::uint64_t ps);
  [[nodiscard]] std::uint64_t count() const { return count_; }
  // The rest: count() > 0.
  [[nodiscard]] std::uint64_t minimum() const { return minimum_; }
  [[nodiscard]] std::uint64_t maximum() const { return maximum_; }
  [[nodiscard]] double mean() const;
  // The smallest latency that at least the fraction `q` (0 … 1) of all do not exceed, rounded up within 1.6 %.
  [[nodiscard]] std::uint64_t quantile(double q) const;

 private:
  // 64 buckets per power of two: the first 64 are exact, then 58 octaves.
  static constexpr unsigned sub_bits = 6;
  std::array<std::uint64_t, (64 - sub_bits + 1) << sub_bits> buckets_{};
  std::uint64_t count_ = 0;
  std::uint64_t minimum_ = 0;
  std::uint64_t maximum_ = 0;
  long double sum_ = 0;
};

struct TraceSummary {
  struct LinkTraffic {
    std::string name;
    std::uint64_t tlps = 0;
    std::uint64_t payload_bytes = 0;
    std::uint64_t wire_bytes = 0;
    std::uint64_t first = 0;  // ps: first start
    std::uint64_t last = 0;   // ps: last arrival
    // Of the link's rate: over the whole trace, and between its own first and last TLP. Negative: unknown (no
    // rate in the trace, functional mode, or no time passed).
    double utilisation = -1;
    double utilisation_active = -1;
    unsigned generation = 0;  // 0: unknown
    unsigned width = 0;
  };

  std::string title;
  bool timed = false;
  bool truncated = false;
  std::uint64_t records = 0;
  std::uint64_t hash = 0;
  std::uint64_t first = 0;                        // ps
  std::uint64_t last = 0;                         // ps
  std::vector<LinkTraffic> links;                 // those with traffic, by ComponentId
  std::map<TlpType, LatencyHistogram> latencies;  // of answered transactions; timed traces only
  std::vector<TraceTransaction> slowest;          // longest first
  std::uint64_t failed = 0;                       // answered with another status than success
  std::uint64_t unanswered = 0;
  std::uint64_t unmatched_completions = 0;
};

// Reads the whole trace. `top`: how many slow transactions to keep.
TraceSummary summarise(TraceReader& reader, std::size_t top);

}  // namespace orrery::pcie
