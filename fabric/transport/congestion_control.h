// How many bytes a connection may have in flight. One context for all its paths.
#pragma once

#include <cstdint>
#include <memory>

#include "common/time.h"

namespace orrery::fabric {

// fixed: a constant window. window_ecn_rtt: a window governed by ECN and RTT, after NSCC of the Ultra Ethernet
// specification as facts and docs/fabric.md give it.
enum class CongestionAlgorithm : std::uint8_t { fixed, window_ecn_rtt };

struct CongestionSettings {
  CongestionAlgorithm algorithm = CongestionAlgorithm::window_ecn_rtt;
  std::uint64_t bits_per_second = 200'000'000'000;  // of the sender's port
  Picoseconds base_rtt = {12'000'000};              // without queueing, data and acknowledge serialised
  std::uint32_t mtu_bytes = 4096 + 66;              // wire bytes of a full packet
  // Largest and, for `fixed`, only window. 0: 1.5 bandwidth-delay products (window_ecn_rtt), 1 (fixed).
  std::uint64_t max_window_bytes = 0;
  Picoseconds target_delay = {};  // T of window_ecn_rtt, queueing delay; 0: base_rtt (a fabric without trimming)
  // Reference of the scaling factors a = BDP/refBDP and b = T/refRTT.
  std::uint64_t reference_bits_per_second = 100'000'000'000;
  Picoseconds reference_rtt = {12'000'000};
};

struct AckSample {
  Picoseconds now;
  std::uint64_t acked_bytes = 0;      // newly acknowledged by this acknowledge
  std::uint64_t in_flight_bytes = 0;  // after it
  bool has_rtt = false;
  Picoseconds rtt;  // of the trigger, receiver's delay taken off
  bool ecn = false;
};

// One per connection. A new algorithm is a class here and a name in CongestionAlgorithm.
class CongestionControl {
 public:
  virtual ~CongestionControl() = default;
  // Bytes that may be in flight; at least one MTU.
  [[nodiscard]] std::uint64_t window_bytes() const { return window_; }
  [[nodiscard]] std::uint64_t max_window_bytes() const { return max_window_; }
  virtual void on_ack(const AckSample& sample) = 0;
  // `bytes` were found lost, by timeout or by the out-of-order trigger.
  virtual void on_loss(Picoseconds now, std::uint64_t bytes) = 0;

 protected:
  std::uint64_t window_ = 0;
  std::uint64_t max_window_ = 0;
};

// Error if a setting is outside its range.
std::unique_ptr<CongestionControl> make_congestion_control(const CongestionSettings& settings);

}  // namespace orrery::fabric
