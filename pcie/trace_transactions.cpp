#include "pcie/trace_transactions.h"

#include <algorithm>
#include <tuple>
#include <vector>

namespace orrery::pcie {

void TransactionTracker::add(const TraceRecord& record) {
  const std::uint32_t key = (static_cast<std::uint32_t>(record.requester) << 16) | record.tag;
  const TlpType type = record.type();
  if (is_completion(type)) {
    const auto found = open_.find(key);
    if (found == open_.end()) {
      ++unmatched_;
      return;
    }
    TraceTransaction& t = found->second;
    t.end = t.answered ? std::max(t.end, record.end) : record.end;
    t.answered = true;
    t.completer = record.completer;
    if (t.status == CompletionStatus::success) {
      t.status = record.status();
    }
    return;
  }
  if (is_posted(type)) {
    return;
  }
  const auto [found, fresh] = open_.try_emplace(key);
  TraceTransaction& t = found->second;
  if (!fresh) {
    if (record.link != t.first_link) {
      return;  // the same request, one link further
    }
    done_(t);
  }
  t = TraceTransaction{};
  t.type = type;
  t.at = record.at();
  t.requester = record.requester;
  t.tag = record.tag;
  t.first_link = record.link;
  t.address = record.address;
  t.start = record.start;
  t.length = record.length;
}

void TransactionTracker::finish() {
  std::vector<TraceTransaction> left;
  left.reserve(open_.size());
  for (const auto& entry : open_) {
    left.push_back(entry.second);
  }
  open_.clear();
  // The map's order must not show.
  std::sort(left.begin(), left.end(), [](const TraceTransaction& a, const TraceTransaction& b) {
    return std::tie(a.start, a.requester, a.tag) < std::tie(b.start, b.requester, b.tag);
  });
  for (const TraceTransaction& t : left) {
    done_(t);
  }
}

}  // namespace orrery::pcie
