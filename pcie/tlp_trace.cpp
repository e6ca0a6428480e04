#include "pcie/tlp_trace.h"

#include <algorithm>
#include <limits>
#include <utility>

// The whole of XXH3 in this file's own code: a call through a shared library would cost more than the
// hash of a small payload.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/bytes.h"

namespace orrery::pcie {
namespace {

TraceRecord make_record(ComponentId link, const Tlp& tlp, Picoseconds start, Picoseconds end) {
  TraceRecord r;
  r.start = start.count;
  r.end = end.count;
  r.address = tlp.address;
  r.payload_hash = tlp.data == nullptr || tlp.length == 0 ? 0 : XXH3_64bits(tlp.data, tlp.length);
  r.length = tlp.length;
  r.count = tlp.count;
  r.byte_count = tlp.byte_count;
  r.wire_bytes = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(tlp.bytes_on_wire(framing_bytes_non_flit), std::numeric_limits<std::uint32_t>::max()));
  r.unit = tlp.count > 1 ? tlp.unit : 0;
  r.link = link;
  r.requester = tlp.requester.value;
  r.completer = tlp.completer.value;
  r.tag = tlp.tag;
  r.kind = static_cast<std::uint8_t>(static_cast<unsigned>(tlp.type) | (static_cast<unsigned>(tlp.at) << 4) |
                                     (tlp.poisoned ? 0x40U : 0U));
  r.qualifiers = static_cast<std::uint8_t>(static_cast<unsigned>(tlp.status) | (tlp.attributes.no_snoop ? 8U : 0U) |
                                           (tlp.attributes.relaxed_ordering ? 16U : 0U) |
                                           (tlp.attributes.id_based_ordering ? 32U : 0U));
  r.enables = is_message(tlp.type) ? tlp.message_code
                                   : static_cast<std::uint8_t>((tlp.first_be & 0xfU) | ((tlp.last_be & 0xfU) << 4));
  r.traffic_class = tlp.traffic_class;
  return r;
}

}  // namespace

TraceRecord trace_record(ComponentId link_direction, const Tlp& tlp, Picoseconds start, Picoseconds end) {
  return make_record(link_direction, tlp, start, end);
}

struct TlpTrace::HashState {
  HashState() { XXH3_64bits_reset(&state); }
  XXH3_state_t state;
};

TlpTrace::TlpTrace(const Simulation& simulation, std::string title)
    : simulation_(simulation), hash_(std::make_unique<HashState>()) {
  info_.title = std::move(title);
}

TlpTrace::~TlpTrace() = default;

void TlpTrace::open(const std::string& path) {
  file_ = std::make_unique<BlockFileWriter>(path, trace_file_format);
}

void TlpTrace::on_link(ComponentId link_direction, const Tlp& tlp, Picoseconds start, Picoseconds end) {
  records_[used_] = make_record(link_direction, tlp, start, end);
  if (++used_ == buffered) {
    flush();
  }
  ++count_;
}

void TlpTrace::flush() {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(records_).first(used_));
  XXH3_64bits_update(&hash_->state, bytes.data(), bytes.size());
  if (file_ != nullptr && used_ != 0) {
    if (info_.components.size() != simulation_.names.all().size()) {
      write_info();
    }
    file_->write(static_cast<std::uint32_t>(TraceBlock::records), bytes);
  }
  used_ = 0;
}

void TlpTrace::write_info() {
  info_.components = simulation_.names.all();
  info_.timed = simulation_.timed;
  ByteWriter out;
  out.put_text(info_.title);
  out.put(static_cast<std::uint8_t>(info_.timed ? 1 : 0));
  out.put(static_cast<std::uint32_t>(info_.components.size()));
  for (const std::string& component : info_.components) {
    out.put_text(component);
  }
  out.put(static_cast<std::uint32_t>(info_.links.size()));
  for (const auto& [id, link] : info_.links) {
    out.put(id);
    out.put(static_cast<std::uint8_t>(link.generation));
    out.put(static_cast<std::uint8_t>(link.width));
    out.put(link.propagation.count);
  }
  out.put(static_cast<std::uint32_t>(info_.functions.size()));
  for (const auto& [bdf, function] : info_.functions) {
    out.put(bdf);
    out.put_text(function);
  }
  file_->write(static_cast<std::uint32_t>(TraceBlock::info), out.bytes());
}

std::uint64_t TlpTrace::hash() {
  flush();
  return XXH3_64bits_digest(&hash_->state);
}

void TlpTrace::close() {
  if (file_ == nullptr) {
    return;
  }
  ByteWriter out;
  const std::uint64_t digest = hash();
  if (info_.components.empty()) {
    write_info();  // no TLP at all
  }
  out.put(count_);
  out.put(digest);
  file_->write(static_cast<std::uint32_t>(TraceBlock::summary), out.bytes());
  const std::unique_ptr<BlockFileWriter> file = std::move(file_);
  file->close();
}

}  // namespace orrery::pcie
