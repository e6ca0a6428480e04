// Which of a connection's paths a packet takes.
//
// A path is an entropy value (EV), carried as UDP source port; the fabric maps it to links. Selectors deal in path
// indices 0 … paths-1; EntropyMap turns them into ports. Names and rules: docs/fabric.md.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "common/rng.h"
#include "common/time.h"

namespace orrery::fabric {

// single: one path for the connection's life (drawn once). obs: oblivious packet spraying, uniform and independent for
// each packet. obs_without_replacement: (i xor x) & (paths-1), x drawn anew every `paths` packets: each path once a
// round. round_robin: the next one each time, from a random start.
enum class PathPolicy : std::uint8_t { single, obs, obs_without_replacement, round_robin };

struct PathSettings {
  PathPolicy policy = PathPolicy::obs;
  unsigned paths = 128;           // 1 … 256; a power of two for obs_without_replacement
  bool consecutive_ports = true;  // ports of path i: base + i; otherwise scattered over the range
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;  // a number of its own for each connection of a run
};

// Path index to UDP source port in 0xc000 … 0xffff (the RoCEv2 range, IBTA A17.4.3) and back. Bijective.
class EntropyMap {
 public:
  // `paths` as in the settings; ports begin at a place drawn from seed and stream.
  explicit EntropyMap(const PathSettings& settings);
  [[nodiscard]] std::uint16_t port(unsigned path) const {
    return static_cast<std::uint16_t>(0xc000U | ((base_ + path * stride_) & 0x3fffU));
  }
  // The path of a port; `paths` if it is none of this connection's.
  [[nodiscard]] unsigned path(std::uint16_t port) const;

 private:
  std::uint32_t base_;
  std::uint32_t stride_;   // odd
  std::uint32_t inverse_;  // of stride_, modulo 2^14
  std::uint32_t paths_;
};

// What became of a packet, for selectors that adapt.
struct PathFeedback {
  unsigned path = 0;
  enum class Kind : std::uint8_t { clean, ecn, lost, timeout } kind = Kind::clean;
  Picoseconds rtt;  // clean and ecn; 0 if unknown
};

// One per connection. A new algorithm is a class here and a name in PathPolicy.
class PathSelector {
 public:
  virtual ~PathSelector() = default;
  // The path of a new packet of `bytes`.
  virtual unsigned next(Picoseconds now, std::uint32_t bytes) = 0;
  // The path of a retransmission: never `previous` if there is another (but `single` has one only).
  virtual unsigned next_other(Picoseconds now, std::uint32_t bytes, unsigned previous);
  virtual void on_feedback(Picoseconds now, const PathFeedback& feedback);
  [[nodiscard]] unsigned paths() const { return paths_; }

 protected:
  explicit PathSelector(unsigned paths) : paths_(paths) {}

 private:
  unsigned paths_;
};

// Error if a setting is outside its range.
std::unique_ptr<PathSelector> make_path_selector(const PathSettings& settings);

}  // namespace orrery::fabric
