// Pairs the requests of a trace with their completions.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>

#include "pcie/trace_format.h"

namespace orrery::pcie {

// A non-posted request from its first link to the arrival of its last completion on its last link.
struct TraceTransaction {
  TlpType type = TlpType::MRd;
  AddressType at = AddressType::untranslated;
  CompletionStatus status = CompletionStatus::success;  // the first that is no success, if any
  std::uint16_t requester = 0;
  std::uint16_t completer = 0;  // of the last completion
  std::uint16_t tag = 0;
  std::uint16_t first_link = 0;
  std::uint64_t address = 0;  // on the first link (before translation)
  std::uint64_t start = 0;    // ps
  std::uint64_t end = 0;      // ps; valid if answered
  std::uint32_t length = 0;
  bool answered = false;
  [[nodiscard]] std::uint64_t latency() const { return end - start; }
};

// A TLP shows up once on every link of its way, so a request is new only when its requester and tag are seen
// again on the link where they were seen first. Memory grows with the number of different (requester,
// tag) pairs.
class TransactionTracker {
 public:
  // Called once per transaction, when it is known to be over.
  using Done = std::function<void(const TraceTransaction&)>;
  explicit TransactionTracker(Done done) : done_(std::move(done)) {}

  // Records in the order of the trace.
  void add(const TraceRecord& record);
  // The trace is over: reports what is left, in order of start, requester and tag.
  void finish();
  // Completions whose request the trace does not hold.
  [[nodiscard]] std::uint64_t unmatched_completions() const { return unmatched_; }

 private:
  Done done_;
  std::unordered_map<std::uint32_t, TraceTransaction> open_;
  std::uint64_t unmatched_ = 0;
};

}  // namespace orrery::pcie
