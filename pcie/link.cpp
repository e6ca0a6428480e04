#include "pcie/link.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/error.h"

namespace orrery::pcie {

ByteTime byte_time(unsigned generation, unsigned width) {
  // Unit interval in femtoseconds: 2.5, 5, 8, 16, 32 GT/s.
  constexpr std::uint64_t unit_interval_fs[] = {400'000, 200'000, 125'000, 62'500, 31'250};
  if (generation < 1 || generation > 5) {
    throw Error(fmt::format("link generation {} does not exist here", generation), "use 1 to 5");
  }
  if (width != 1 && width != 2 && width != 4 && width != 8 && width != 12 && width != 16 && width != 32) {
    throw Error(fmt::format("link width x{} does not exist", width), "use 1, 2, 4, 8, 12, 16 or 32 lanes");
  }
  const std::uint64_t ui = unit_interval_fs[generation - 1];
  if (generation <= 2) {
    return {ui * 10, std::uint64_t{1000} * width};
  }
  return {ui * 8 * 130, std::uint64_t{1000} * 128 * width};
}

double raw_bytes_per_second(unsigned generation, unsigned width) {
  const ByteTime t = byte_time(generation, width);
  return 1e12 * static_cast<double>(t.denominator) / static_cast<double>(t.numerator);
}

LinkDirection::LinkDirection(Simulation& simulation, const std::string& name, const LinkSettings& settings)
    : simulation_(simulation),
      settings_(settings),
      byte_time_(byte_time(settings.generation, settings.width)),
      id_(simulation.names.add(name)) {}

void LinkDirection::count(const Tlp& tlp, std::uint64_t wire_bytes) {
  counters_.tlps += tlp.count;
  counters_.wire_bytes += wire_bytes;
  counters_.payload_bytes += tlp.has_payload() ? tlp.length : 0;
}

Picoseconds LinkDirection::receive(TlpPtr tlp, Picoseconds delay) {
  if (!simulation_.timed) {
    count(*tlp, tlp->bytes_on_wire(framing_bytes_non_flit));
    if (simulation_.observer != nullptr) {
      simulation_.observer->on_link(id_, *tlp, simulation_.now(), simulation_.now());
    }
    far_end_->receive(std::move(tlp), {});
    return {};
  }
  const Picoseconds ready = simulation_.now() + delay;
  const Picoseconds left = tlp->count > 1 ? transmit_burst(*tlp, ready) : transmit(std::move(tlp), ready);
  return left - simulation_.now();
}

Picoseconds LinkDirection::transmit(TlpPtr tlp, Picoseconds ready) {
  const std::uint64_t bytes = tlp->bytes_on_wire(framing_bytes_non_flit);
  if (ready > busy_end_) {
    busy_start_ = ready;
    busy_bytes_ = 0;
    busy_end_ = ready;
  }
  const Picoseconds start = busy_end_;
  busy_bytes_ += bytes;
  if (busy_bytes_ >= std::uint64_t{1} << 30) {
    // Move the period's origin by whole multiples of the ratio, so that the product below stays small.
    const std::uint64_t whole = busy_bytes_ / byte_time_.denominator;
    busy_start_ += Picoseconds{whole * byte_time_.numerator};
    busy_bytes_ -= whole * byte_time_.denominator;
  }
  busy_end_ = busy_start_ + Picoseconds{(busy_bytes_ * byte_time_.numerator + byte_time_.denominator - 1) /
                                        byte_time_.denominator};
  const Picoseconds serialise = busy_end_ - start;
  const Picoseconds arrival = busy_end_ + settings_.propagation;

  HopCost& hop = tlp->latency.add(id_);
  hop.queue += static_cast<std::uint32_t>((start - ready).count);
  hop.serialise += static_cast<std::uint32_t>(serialise.count);
  hop.propagate += static_cast<std::uint32_t>(settings_.propagation.count);
  count(*tlp, bytes);
  counters_.busy += serialise;
  if (simulation_.observer != nullptr) {
    simulation_.observer->on_link(id_, *tlp, start, arrival);
  }
  simulation_.events.schedule(arrival, *this, reinterpret_cast<std::uintptr_t>(tlp.release()));
  return busy_end_;
}

Picoseconds LinkDirection::transmit_burst(const Tlp& burst, Picoseconds ready) {
  Picoseconds left;
  for (std::uint32_t i = 0; i < burst.count; ++i) {
    TlpPtr single = simulation_.tlps.make();
    split_burst(burst, i, *single);
    left = transmit(std::move(single), ready);
  }
  return left;
}

void LinkDirection::on_event(std::uint64_t argument) {
  far_end_->receive(TlpPtr(reinterpret_cast<Tlp*>(static_cast<std::uintptr_t>(argument))), {});
}

void split_burst(const Tlp& burst, std::uint32_t index, Tlp& out) {
  // The first TLP ends at the first multiple of `unit`; the others are aligned to it.
  const std::uint64_t mask = burst.unit - 1;
  const std::uint64_t base = burst.address & ~mask;
  const std::uint64_t begin = std::max(burst.address, base + std::uint64_t{index} * burst.unit);
  const std::uint64_t end = std::min(burst.address + burst.length, base + (std::uint64_t{index} + 1) * burst.unit);
  const std::uint64_t offset = begin - burst.address;

  out.type = burst.type;
  out.at = burst.at;
  out.attributes = burst.attributes;
  out.traffic_class = burst.traffic_class;
  out.poisoned = burst.poisoned;
  out.requester = burst.requester;
  out.completer = burst.completer;
  out.status = burst.status;
  out.address = begin;
  out.created = burst.created;
  out.latency.copy_from(burst.latency);
  if (burst.has_payload()) {
    out.store({burst.data + offset, static_cast<std::size_t>(end - begin)});
  } else {
    out.length = static_cast<std::uint32_t>(end - begin);
  }
  if (is_completion(burst.type)) {
    out.tag = burst.tag;
    out.byte_count = static_cast<std::uint32_t>(burst.byte_count - offset);
  } else {
    out.tag = static_cast<std::uint16_t>(burst.tag + (burst.type == TlpType::MRd ? index : 0));
    const ByteEnables be = byte_enables(begin, out.length);
    out.first_be = be.first;
    out.last_be = be.last;
  }
}

}  // namespace orrery::pcie
