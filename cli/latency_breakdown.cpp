#include "cli/latency_breakdown.h"

#include <algorithm>

#include "pcie/tlp_trace.h"

namespace orrery::cli {

namespace {

using pcie::TlpType;
using pcie::TraceRecord;

constexpr std::uint32_t cqe_bytes = 64;

std::string link_of_direction(const std::string& direction) {
  return direction.substr(0, direction.rfind('.'));
}

void add_hop(LatencyStep& step, const std::string& name, Picoseconds time) {
  const auto row = std::find_if(step.hops.begin(), step.hops.end(), [&](const auto& hop) { return hop.first == name; });
  if (row == step.hops.end()) {
    step.hops.emplace_back(name, time);
  } else {
    row->second += time;
  }
}

class Reader {
 public:
  Reader(std::span<const TraceRecord> records, RnicLink requester, RnicLink responder,
         const pcie::ComponentNames& names)
      : records_(records), requester_(requester), responder_(responder), names_(names) {}

  std::optional<LatencyBreakdown> last_read() {
    for (std::size_t end = records_.size(); end-- > 0;) {
      if (records_[end].link == requester_.up && records_[end].type() == TlpType::MWr &&
          records_[end].length == cqe_bytes) {
        if (std::optional<LatencyBreakdown> found = read_that_ends_with(end)) {
          return found;
        }
      }
    }
    return std::nullopt;
  }

 private:
  static constexpr std::size_t none = ~std::size_t{0};

  [[nodiscard]] std::size_t find_back(std::size_t from, std::uint16_t link, TlpType type) const {
    for (std::size_t i = from; i-- > 0;) {
      if (records_[i].link == link && records_[i].type() == type) {
        return i;
      }
    }
    return none;
  }
  // The read on `link` that this completion answers.
  [[nodiscard]] std::size_t request_of(std::size_t completion, std::uint16_t link) const {
    std::size_t i = completion;
    while ((i = find_back(i, link, TlpType::MRd)) != none) {
      if (records_[i].tag == records_[completion].tag && records_[i].requester == records_[completion].requester) {
        return i;
      }
    }
    return none;
  }
  // The same TLP on the link before or after this one.
  static bool same(const TraceRecord& a, const TraceRecord& b) {
    return a.type() == b.type() && a.requester == b.requester && a.address == b.address && a.length == b.length &&
           a.tag == b.tag && a.byte_count == b.byte_count;
  }

  std::optional<LatencyBreakdown> read_that_ends_with(std::size_t cqe) {
    const std::size_t doorbell = find_back(cqe, requester_.down, TlpType::MWr);
    if (doorbell == none) {
      return std::nullopt;
    }
    // Other traffic of the two RNICs may lie between: what belongs together has the payload's length.
    std::size_t payload = cqe;
    std::size_t answered = none;
    std::size_t served = none;
    while (served == none && (payload = find_back(payload, requester_.up, TlpType::MWr)) != none &&
           payload > doorbell) {
      answered = payload;
      while (served == none && (answered = find_back(answered, responder_.down, TlpType::CplD)) != none &&
             answered > doorbell) {
        const std::size_t request = request_of(answered, responder_.up);
        served = request != none && request > doorbell && records_[request].length == records_[payload].length ? request
                                                                                                               : none;
      }
    }
    if (served == none) {
      return std::nullopt;
    }
    const std::size_t fetched = find_back(served, requester_.down, TlpType::CplD);
    if (fetched == none || fetched < doorbell) {
      return std::nullopt;
    }
    LatencyBreakdown result;
    begin_ = at_ = first_start(doorbell);
    add(result, "doorbell: CPU to RNIC", {records_[doorbell].end}, doorbell, doorbell + 1, requester_);
    add(result, "doorbell record and WQE fetched", {records_[fetched].end}, doorbell + 1, fetched + 1, requester_);
    add_wire(result, "request on the wire", {records_[served].start});
    add(result, "responder reads its memory", {records_[answered].end}, served, answered + 1, responder_);
    add_wire(result, "response on the wire", {records_[payload].start});
    add(result, "payload written, and confirmed", {records_[cqe].start}, payload, cqe, requester_);
    add(result, "CQE: RNIC to memory's root complex", last_end(cqe), cqe, cqe + 1, requester_);
    result.total = at_ - begin_;
    return result;
  }

  // When the doorbell left the root complex: the same write on the links above.
  [[nodiscard]] Picoseconds first_start(std::size_t doorbell) const {
    Picoseconds start{records_[doorbell].start};
    for (std::size_t i = doorbell; i-- > 0 && doorbell - i < 64;) {
      if (same(records_[i], records_[doorbell])) {
        if (records_[i].link == records_[doorbell].link) {
          break;  // an earlier one
        }
        start = {records_[i].start};
      }
    }
    return start;
  }
  [[nodiscard]] Picoseconds last_end(std::size_t cqe) const {
    Picoseconds end{records_[cqe].end};
    for (std::size_t i = cqe + 1; i < records_.size() && i - cqe < 64; ++i) {
      if (same(records_[i], records_[cqe])) {
        if (records_[i].link == records_[cqe].link) {
          break;
        }
        end = max(end, {records_[i].end});
      }
    }
    return end;
  }

  void add_wire(LatencyBreakdown& result, const char* what, Picoseconds until) {
    LatencyStep step;
    step.what = what;
    step.wire = true;
    step.time = until - at_;
    at_ = until;
    result.steps.push_back(std::move(step));
  }

  // The step's transactions, each followed over the links: what a link takes from start to end, and what lies between
  // two links (a switch; above the last link root complex, IOMMU and memory).
  void add(LatencyBreakdown& result, const char* what, Picoseconds until, std::size_t first, std::size_t last,
           RnicLink rnic) {
    LatencyStep step;
    step.what = what;
    step.time = until - at_;
    Picoseconds now = at_;
    // In order of time: records of a step on the way of its transactions.
    std::vector<const TraceRecord*> way;
    const std::uint16_t requester = records_[last - 1].requester;
    for (std::size_t i = first >= 64 ? first - 64 : 0; i < std::min(records_.size(), last + 64); ++i) {
      const TraceRecord& r = records_[i];
      const bool related = r.requester == requester || same(r, records_[last - 1]);
      if (related && r.start >= at_.count && r.end <= until.count) {
        way.push_back(&r);
      }
    }
    std::stable_sort(way.begin(), way.end(), [](const auto* a, const auto* b) { return a->start < b->start; });
    const TraceRecord* before = nullptr;
    for (const TraceRecord* r : way) {
      if (r->end <= now.count) {
        continue;  // beside the longest way
      }
      if (r->start > now.count) {
        add_hop(step, between(before, *r, rnic), Picoseconds{r->start} - now);
        now = {r->start};
      }
      add_hop(step, link_of_direction(names_[r->link]), Picoseconds{r->end} - now);
      now = {r->end};
      before = r;
    }
    if (now < until) {
      add_hop(step, "in the RNIC", until - now);
    }
    at_ = until;
    result.steps.push_back(std::move(step));
  }
  // What lies between two links that a transaction crosses one after the other.
  static const char* between(const TraceRecord* before, const TraceRecord& after, RnicLink rnic) {
    if (before == nullptr || before->link == rnic.down) {
      return "in the RNIC";
    }
    const bool turned = !pcie::is_completion(before->type()) && pcie::is_completion(after.type());
    return turned ? "root complex and memory" : "switch";
  }

  std::span<const TraceRecord> records_;
  RnicLink requester_;
  RnicLink responder_;
  const pcie::ComponentNames& names_;
  Picoseconds begin_;
  Picoseconds at_;
};

}  // namespace

std::optional<LatencyBreakdown> read_breakdown(std::span<const TraceRecord> records, RnicLink requester,
                                               RnicLink responder, const pcie::ComponentNames& names) {
  return Reader(records, requester, responder, names).last_read();
}

TlpKeeper::TlpKeeper(pcie::Simulation& simulation) : simulation_(simulation), next_(simulation.observer) {
  ring_.resize(most_records);
  simulation_.observer = this;
}

TlpKeeper::~TlpKeeper() {
  simulation_.observer = next_;
}

void TlpKeeper::on_link(pcie::ComponentId link_direction, const pcie::Tlp& tlp, Picoseconds start, Picoseconds end) {
  ring_[count_++ % most_records] = pcie::trace_record(link_direction, tlp, start, end);
  if (next_ != nullptr) {
    next_->on_link(link_direction, tlp, start, end);
  }
}

std::vector<TraceRecord> TlpKeeper::records() const {
  std::vector<TraceRecord> all;
  for (std::uint64_t i = count_ > most_records ? count_ - most_records : 0; i < count_; ++i) {
    all.push_back(ring_[i % most_records]);
  }
  return all;
}

}  // namespace orrery::cli
