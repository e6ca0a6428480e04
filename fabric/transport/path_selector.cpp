#include "fabric/transport/path_selector.h"

#include <bit>

#include <fmt/format.h>

#include "common/error.h"
#include "fabric/streams.h"

namespace orrery::fabric {

namespace {

constexpr unsigned most_paths = 256;
constexpr std::uint32_t port_mask = 0x3fff;

class Single final : public PathSelector {
 public:
  Single() : PathSelector(1) {}
  unsigned next(Picoseconds /*now*/, std::uint32_t /*bytes*/) override { return 0; }
};

class Oblivious final : public PathSelector {
 public:
  Oblivious(unsigned paths, const Rng& random) : PathSelector(paths), random_(random) {}
  unsigned next(Picoseconds /*now*/, std::uint32_t /*bytes*/) override { return random_.below(paths()); }

 private:
  Rng random_;
};

class WithoutReplacement final : public PathSelector {
 public:
  WithoutReplacement(unsigned paths, const Rng& random) : PathSelector(paths), random_(random) {}
  unsigned next(Picoseconds /*now*/, std::uint32_t /*bytes*/) override {
    const unsigned mask = paths() - 1;
    if (index_ == 0) {
      flip_ = random_() & mask;
    }
    const unsigned path = index_ ^ flip_;
    index_ = (index_ + 1) & mask;
    return path;
  }

 private:
  Rng random_;
  unsigned index_ = 0;
  unsigned flip_ = 0;
};

class RoundRobin final : public PathSelector {
 public:
  RoundRobin(unsigned paths, Rng random) : PathSelector(paths), next_(random.below(paths)) {}
  unsigned next(Picoseconds /*now*/, std::uint32_t /*bytes*/) override {
    const unsigned path = next_;
    next_ = next_ + 1 == paths() ? 0 : next_ + 1;
    return path;
  }

 private:
  unsigned next_;
};

void check(const PathSettings& settings) {
  if (settings.paths < 1 || settings.paths > most_paths) {
    throw Error(fmt::format("path selection over {} paths", settings.paths), "use 1 to 256");
  }
  if (settings.policy == PathPolicy::obs_without_replacement && !std::has_single_bit(settings.paths)) {
    throw Error(fmt::format("spraying without replacement over {} paths", settings.paths), "use a power of two");
  }
}

}  // namespace

EntropyMap::EntropyMap(const PathSettings& settings)
    : paths_(settings.policy == PathPolicy::single ? 1 : settings.paths) {
  check(settings);
  Rng random(settings.seed, stream_of(StreamPurpose::entropy, settings.stream));
  base_ = random() & port_mask;
  stride_ = settings.consecutive_ports ? 1 : (random() & port_mask) | 1U;
  // Newton's iteration for the inverse of an odd number modulo a power of two; each step doubles the right bits.
  inverse_ = stride_;
  for (unsigned i = 0; i < 4; ++i) {
    inverse_ = (inverse_ * (2 - stride_ * inverse_)) & port_mask;
  }
}

unsigned EntropyMap::path(std::uint16_t port) const {
  const std::uint32_t path = (((port - base_) & port_mask) * inverse_) & port_mask;
  return port >= 0xc000 && path < paths_ ? path : paths_;
}

unsigned PathSelector::next_other(Picoseconds now, std::uint32_t bytes, unsigned previous) {
  constexpr unsigned tries = 4;
  for (unsigned i = 0; i < tries; ++i) {
    const unsigned path = next(now, bytes);
    if (path != previous) {
      return path;
    }
  }
  return previous + 1 < paths_ ? previous + 1 : 0;
}

void PathSelector::on_feedback(Picoseconds /*now*/, const PathFeedback& /*feedback*/) {}

std::unique_ptr<PathSelector> make_path_selector(const PathSettings& settings) {
  check(settings);
  const Rng random(settings.seed, stream_of(StreamPurpose::path, settings.stream));
  switch (settings.policy) {
    case PathPolicy::obs:
      return std::make_unique<Oblivious>(settings.paths, random);
    case PathPolicy::obs_without_replacement:
      return std::make_unique<WithoutReplacement>(settings.paths, random);
    case PathPolicy::round_robin:
      return std::make_unique<RoundRobin>(settings.paths, random);
    default:
      return std::make_unique<Single>();
  }
}

}  // namespace orrery::fabric
