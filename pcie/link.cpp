#include "pcie/link.h"

#include <bit>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "common/error.h"
#include "pcie/burst.h"

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
  const std::uint64_t numerator = generation <= 2 ? ui * 10 : ui * 8 * 130;
  const std::uint64_t denominator = std::uint64_t{1000} * width * (generation <= 2 ? 1 : 128);
  const std::uint64_t common = std::gcd(numerator, denominator);
  return {numerator / common, denominator / common};
}

double raw_bytes_per_second(unsigned generation, unsigned width) {
  const ByteTime t = byte_time(generation, width);
  return 1e12 * static_cast<double>(t.denominator) / static_cast<double>(t.numerator);
}

LinkDirection::LinkDirection(Simulation& simulation, const std::string& name, const LinkSettings& settings)
    : simulation_(simulation),
      settings_(settings),
      byte_time_(byte_time(settings.generation, settings.width)),
      id_(simulation.names.add(name)) {
  if (std::has_single_bit(byte_time_.denominator)) {
    shift_ = static_cast<unsigned>(std::countr_zero(byte_time_.denominator));
  }
}

Picoseconds LinkDirection::duration(std::uint64_t bytes) const {
  const std::uint64_t rounded_up = bytes * byte_time_.numerator + byte_time_.denominator - 1;
  return {shift_ != 0 ? rounded_up >> shift_ : rounded_up / byte_time_.denominator};
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
  busy_end_ = busy_start_ + duration(busy_bytes_);
  const Picoseconds serialise = busy_end_ - start;
  const Picoseconds arrival = busy_end_ + settings_.propagation;

  std::uint64_t queued = (start - ready).count;
  for (constexpr std::uint64_t most = std::numeric_limits<std::uint32_t>::max(); queued > most; queued -= most) {
    tlp->latency.add(id_).queue += static_cast<std::uint32_t>(most);  // a wait over 4 ms takes more than one entry
  }
  HopCost& hop = tlp->latency.add(id_);
  hop.queue += static_cast<std::uint32_t>(queued);
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

}  // namespace orrery::pcie
