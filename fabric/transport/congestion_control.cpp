#include "fabric/transport/congestion_control.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "common/error.h"

namespace orrery::fabric {

namespace {

double bandwidth_delay_bytes(std::uint64_t bits_per_second, Picoseconds rtt) {
  return static_cast<double>(bits_per_second) / 8 * rtt.seconds();
}

void check(const CongestionSettings& settings) {
  if (settings.bits_per_second == 0 || settings.reference_bits_per_second == 0) {
    throw Error("congestion control: a rate of 0 bits per second", "name the port's rate");
  }
  if (settings.base_rtt.count == 0 || settings.reference_rtt.count == 0) {
    throw Error("congestion control: a base RTT of 0", "name the round trip without queueing");
  }
  if (settings.mtu_bytes == 0) {
    throw Error("congestion control: an MTU of 0 bytes", "name the bytes of a full packet on the wire");
  }
}

class Fixed final : public CongestionControl {
 public:
  explicit Fixed(const CongestionSettings& settings) {
    const double bdp = bandwidth_delay_bytes(settings.bits_per_second, settings.base_rtt);
    const std::uint64_t window =
        settings.max_window_bytes != 0 ? settings.max_window_bytes : static_cast<std::uint64_t>(bdp);
    window_ = max_window_ = std::max<std::uint64_t>(window, settings.mtu_bytes);
  }
  void on_ack(const AckSample& /*sample*/) override {}
  void on_loss(Picoseconds /*now*/, std::uint64_t /*bytes*/) override {}
};

// The law and its constants: docs/fabric.md, "window_ecn_rtt". Delays in picoseconds, windows in bytes, as doubles.
class WindowEcnRtt final : public CongestionControl {
 public:
  explicit WindowEcnRtt(const CongestionSettings& settings)
      : mtu_(settings.mtu_bytes),
        base_rtt_(settings.base_rtt),
        target_(settings.target_delay.count != 0 ? settings.target_delay : settings.base_rtt) {
    const double bdp = bandwidth_delay_bytes(settings.bits_per_second, settings.base_rtt);
    const double a = bdp / bandwidth_delay_bytes(settings.reference_bits_per_second, settings.reference_rtt);
    const double b = static_cast<double>(target_.count) / static_cast<double>(settings.reference_rtt.count);
    scale_ = a;
    proportional_ = 4 * mtu_ * a * b / static_cast<double>(target_.count);
    max_window_ = std::max<std::uint64_t>(
        settings.max_window_bytes != 0 ? settings.max_window_bytes : static_cast<std::uint64_t>(1.5 * bdp),
        settings.mtu_bytes);
    set(static_cast<double>(max_window_));
  }

  void on_ack(const AckSample& sample) override {
    const auto acked = static_cast<double>(sample.acked_bytes);
    achieved_ += acked;
    if (sample.has_rtt) {
      const Picoseconds queueing = sample.rtt > base_rtt_ ? sample.rtt - base_rtt_ : Picoseconds{};
      const auto delay = static_cast<double>(queueing.count);
      average_ += (delay - average_) * average_gain;
      struggling_ = struggling_ || delay > 4 * static_cast<double>(target_.count);
      if (quick_adapt(sample)) {
        return;
      }
      if (ignored_ > 0) {  // sent before the window was cut: says nothing about it
        ignored_ -= acked;
        return;
      }
      respond(sample, delay, acked);
    }
    since_adjustment_ += acked;
    if (since_adjustment_ >= 8 * mtu_ || sample.now >= adjusted_ + base_rtt_) {
      adjust(sample.now);
    }
  }

  void on_loss(Picoseconds /*now*/, std::uint64_t /*bytes*/) override { struggling_ = true; }

 private:
  static constexpr double average_gain = 1.0 / 8;  // as of smoothed RTTs; ours
  static constexpr double low_delay = 1e6;         // 1 µs

  void set(double window) {
    exact_ = std::clamp(window, mtu_, static_cast<double>(max_window_));
    window_ = static_cast<std::uint64_t>(exact_);
  }

  void respond(const AckSample& sample, double delay, double acked) {
    const auto target = static_cast<double>(target_.count);
    if (delay >= low_delay || sample.ecn) {
      low_bytes_ = 0;
      racing_ = false;
    }
    if (!sample.ecn && delay < low_delay) {
      low_bytes_ += acked;
      racing_ = racing_ || low_bytes_ > exact_;
    }
    if (racing_) {
      set(exact_ + 0.25 * scale_ * acked);
    } else if (!sample.ecn && delay < target) {
      increase_ += proportional_ * acked * (target - delay);
    } else if (!sample.ecn) {
      increase_ += 5 * mtu_ * scale_ * acked;
    } else if (delay >= target && sample.now >= decreased_ + base_rtt_ && average_ > target) {
      set(exact_ * std::max(1 - 0.8 * (average_ - target) / average_, 0.5));
      decreased_ = sample.now;
    }
  }

  void adjust(Picoseconds now) {
    set(exact_ + increase_ / exact_);
    increase_ = 0;
    since_adjustment_ = 0;
    if (now >= fair_ + base_rtt_) {
      set(exact_ + 0.15 * mtu_ * scale_);
      fair_ = now;
    }
    adjusted_ = now;
  }

  // Once per RTT and target: a window far above what got through falls to that.
  bool quick_adapt(const AckSample& sample) {
    if (sample.now < period_end_) {
      return false;
    }
    const bool cut = struggling_ && period_end_.count != 0 && achieved_ < static_cast<double>(max_window_) / 8;
    if (cut) {
      set(achieved_);
      ignored_ = static_cast<double>(sample.in_flight_bytes);
      increase_ = 0;
      low_bytes_ = 0;
      racing_ = false;
    }
    struggling_ = false;
    achieved_ = 0;
    period_end_ = sample.now + base_rtt_ + target_;
    return cut;
  }

  double mtu_;
  Picoseconds base_rtt_;
  Picoseconds target_;
  double scale_ = 1;
  double proportional_ = 0;
  double exact_ = 0;  // window_ before rounding
  double average_ = 0;
  double increase_ = 0;
  double since_adjustment_ = 0;
  double low_bytes_ = 0;  // acknowledged in a row with hardly any delay
  bool racing_ = false;
  bool struggling_ = false;
  double achieved_ = 0;
  double ignored_ = 0;
  Picoseconds period_end_;
  Picoseconds adjusted_;
  Picoseconds fair_;
  Picoseconds decreased_;
};

}  // namespace

std::unique_ptr<CongestionControl> make_congestion_control(const CongestionSettings& settings) {
  check(settings);
  if (settings.algorithm == CongestionAlgorithm::fixed) {
    return std::make_unique<Fixed>(settings);
  }
  return std::make_unique<WindowEcnRtt>(settings);
}

}  // namespace orrery::fabric
