#include "pcie/burst.h"

#include <algorithm>

namespace orrery::pcie {

namespace {

void copy_header(const Tlp& from, Tlp& to) {
  to.type = from.type;
  to.at = from.at;
  to.attributes = from.attributes;
  to.traffic_class = from.traffic_class;
  to.poisoned = from.poisoned;
  to.requester = from.requester;
  to.completer = from.completer;
  to.status = from.status;
  to.tag = from.tag;
  to.created = from.created;
  to.latency.copy_from(from.latency);
}

// How many bytes a burst covers: a completion without data stands for those that it answers.
std::uint32_t extent(const Tlp& burst) {
  return burst.type == TlpType::Cpl ? burst.byte_count : burst.length;
}

void set_byte_enables(Tlp& request) {
  const ByteEnables be = byte_enables(request.address, request.length);
  request.first_be = be.first;
  request.last_be = be.last;
}

}  // namespace

void split_burst(const Tlp& burst, std::uint32_t index, Tlp& out) {
  // The first TLP ends at the first multiple of `unit`; the others are aligned to it. Offsets, not addresses:
  // a burst may end at the top of the address space.
  const std::uint64_t skip = burst.address & (burst.unit - 1);
  const std::uint64_t begin = index == 0 ? 0 : std::uint64_t{index} * burst.unit - skip;
  const std::uint64_t end = std::min<std::uint64_t>(extent(burst), (std::uint64_t{index} + 1) * burst.unit - skip);

  copy_header(burst, out);
  out.address = burst.address + begin;
  if (burst.has_payload()) {
    out.store({burst.data + begin, static_cast<std::size_t>(end - begin)});
  } else if (burst.type != TlpType::Cpl) {
    out.length = static_cast<std::uint32_t>(end - begin);
  }
  if (is_completion(burst.type)) {
    out.byte_count = static_cast<std::uint32_t>(burst.byte_count - begin);
    return;
  }
  if (burst.type == TlpType::MRd) {
    out.tag = static_cast<std::uint16_t>(burst.tag + index);
  }
  set_byte_enables(out);
}

TlpPtr request_part(Simulation& simulation, const Tlp& request, std::uint32_t offset, std::uint32_t length) {
  TlpPtr part = simulation.tlps.make();
  copy_header(request, *part);
  part->address = request.address + offset;
  if (request.has_payload()) {
    part->borrow({request.data + offset, length});
  } else {
    part->length = length;
    part->byte_count = request.length - offset - length + request.byte_count;
  }
  if (request.count > 1) {
    part->unit = request.unit;
    part->count = tlps_needed(part->address, length, request.unit);
  }
  if (length == request.length) {
    part->first_be = request.first_be;  // of a zero-length read none is set
    part->last_be = request.last_be;
  } else {
    set_byte_enables(*part);
  }
  return part;
}

}  // namespace orrery::pcie
