// window_ecn_rtt against the law's arithmetic (facts/docs: NSCC), case by case, and its behaviour in closed loop.
#include "fabric/transport/congestion_control.h"

#include <gtest/gtest.h>

#include "common/error.h"

namespace orrery::fabric::congestion_control_test {
namespace {

// 100 Gb/s and 12 µs: BDP 150,000 B, a = b = 1, T = 12 µs, largest window 225,000 B.
constexpr std::uint64_t mtu = 4'000;
CongestionSettings reference() {
  CongestionSettings settings;
  settings.bits_per_second = 100'000'000'000;
  settings.base_rtt = {12'000'000};
  settings.mtu_bytes = mtu;
  return settings;
}
AckSample sample(Picoseconds now, std::uint64_t acked, std::uint64_t delay, bool ecn) {
  return {now, acked, 100'000, true, {12'000'000 + delay}, ecn};
}

class WindowEcnRtt : public ::testing::Test {
 protected:
  WindowEcnRtt() : control(make_congestion_control(reference())) {}
  // Brings the window down, with ECN and delay, until it is below `bytes`; then the delay's average is high.
  void shrink_below(std::uint64_t bytes) {
    while (control->window_bytes() >= bytes) {
      now += Picoseconds{12'000'001};
      control->on_ack(sample(now, 40'000, 30'000'000, true));
    }
  }
  std::unique_ptr<CongestionControl> control;
  Picoseconds now{1'000'000'000};
};

TEST_F(WindowEcnRtt, StartsAtOneAndAHalfBandwidthDelayProducts) {
  EXPECT_EQ(control->window_bytes(), 225'000U);
  EXPECT_EQ(control->max_window_bytes(), 225'000U);
}

TEST_F(WindowEcnRtt, EcnWithLittleDelayChangesNothing) {
  shrink_below(150'000);
  const std::uint64_t before = control->window_bytes();
  for (int i = 0; i < 8; ++i) {  // within one RTT, and fewer than 8 MTU in all
    now += Picoseconds{1'000};
    control->on_ack(sample(now, 100, 5'000'000, true));
  }
  EXPECT_EQ(control->window_bytes(), before);
}

TEST_F(WindowEcnRtt, DecreasesOnceAnRttAndByAtMostHalf) {
  const std::uint64_t before = control->window_bytes();
  for (int i = 0; i < 100; ++i) {  // the average settles far above the target: 1 - 0.8 (60 - 12) / 60 = 0.36 -> 0.5
    control->on_ack(sample(now, 0, 40'000'000, true));
  }
  EXPECT_LT(control->window_bytes(), before);
  EXPECT_GE(control->window_bytes(), before / 2);
  const std::uint64_t once = control->window_bytes();
  control->on_ack(sample(now + Picoseconds{11'999'999}, 0, 40'000'000, true));
  EXPECT_EQ(control->window_bytes(), once);
  control->on_ack(sample(now + Picoseconds{12'000'000}, 0, 40'000'000, true));
  // avg = 40 µs (to 2e-6 after 100 samples): 1 - 0.8 * 28/40 = 0.44, so half; then 0.15 MTU of fairness.
  EXPECT_NEAR(static_cast<double>(control->window_bytes()), static_cast<double>(once) / 2 + 600, 2);
}

TEST_F(WindowEcnRtt, GrowsInProportionToTheSpareDelay) {
  shrink_below(100'000);
  control->on_ack(sample(now, 0, 6'000'000, false));  // ends whatever the last decrease left
  now += Picoseconds{12'000'000};
  control->on_ack(sample(now, 8 * mtu, 6'000'000, false));  // settles the accumulators: adjustment due
  const auto before = static_cast<double>(control->window_bytes());
  now += Picoseconds{1'000'000};
  control->on_ack(sample(now, 8 * mtu, 6'000'000, false));
  // inc = 4 MTU (T - d) / T * acked = 2 MTU * acked; window += inc / window.
  EXPECT_NEAR(static_cast<double>(control->window_bytes()), before + 2.0 * mtu * 8 * mtu / before, 2);
}

TEST_F(WindowEcnRtt, GrowsFairlyWithDelayButNoMark) {
  shrink_below(100'000);
  now += Picoseconds{12'000'000};
  control->on_ack(sample(now, 8 * mtu, 20'000'000, false));
  const auto before = static_cast<double>(control->window_bytes());
  now += Picoseconds{1'000'000};
  control->on_ack(sample(now, 8 * mtu, 20'000'000, false));
  EXPECT_NEAR(static_cast<double>(control->window_bytes()), before + 5.0 * mtu * 8 * mtu / before, 2);
}

TEST_F(WindowEcnRtt, RacesAfterAWholeWindowWithoutDelay) {
  shrink_below(50'000);
  now += Picoseconds{12'000'000};
  control->on_ack(sample(now, 8 * mtu, 500'000, false));
  control->on_ack(sample(now, 8 * mtu, 500'000, false));  // more than a window by now
  const auto before = static_cast<double>(control->window_bytes());
  control->on_ack(sample(now, 10'000, 500'000, false));
  EXPECT_NEAR(static_cast<double>(control->window_bytes()), before + 2'500, 2);
  control->on_ack(sample(now, 100, 1'500'000, false));
  const auto after = static_cast<double>(control->window_bytes());
  control->on_ack(sample(now, 100, 500'000, false));  // over: a whole window again
  EXPECT_NEAR(static_cast<double>(control->window_bytes()), after, 2);
}

TEST_F(WindowEcnRtt, FallsToWhatWasAchievedAfterLoss) {
  control->on_ack(sample(now, 1'000, 0, false));  // opens a period
  control->on_ack(sample(now + Picoseconds{1'000'000}, 10'000, 0, false));
  control->on_loss(now + Picoseconds{2'000'000}, 50'000);
  control->on_ack(sample(now + Picoseconds{24'000'000}, 6'000, 0, false));
  EXPECT_EQ(control->window_bytes(), 16'000U);
  // What was in flight then (100,000 B) says nothing about the new window.
  control->on_ack(sample(now + Picoseconds{25'000'000}, 60'000, 40'000'000, true));
  EXPECT_EQ(control->window_bytes(), 16'000U);
}

TEST_F(WindowEcnRtt, LossWhileMuchGetsThroughDoesNotCut) {
  control->on_ack(sample(now, 1'000, 2'000'000, false));
  control->on_ack(sample(now + Picoseconds{1'000'000}, 100'000, 2'000'000, false));
  control->on_loss(now + Picoseconds{2'000'000}, 4'000);
  control->on_ack(sample(now + Picoseconds{24'000'000}, 6'000, 2'000'000, false));
  EXPECT_EQ(control->window_bytes(), 225'000U);
}

TEST_F(WindowEcnRtt, StaysBetweenOneMtuAndItsLargest) {
  for (int i = 0; i < 10'000; ++i) {
    now += Picoseconds{12'000'001};
    control->on_loss(now, 4'000);
    control->on_ack(sample(now, 10, 100'000'000, true));
    ASSERT_GE(control->window_bytes(), mtu);
  }
  EXPECT_LE(control->window_bytes(), 2 * mtu);
  for (int i = 0; i < 10'000; ++i) {
    now += Picoseconds{1'000'000};
    control->on_ack(sample(now, 20'000, 0, false));
    ASSERT_LE(control->window_bytes(), 225'000U);
  }
  EXPECT_EQ(control->window_bytes(), 225'000U);
}

TEST_F(WindowEcnRtt, SamplesWithoutRttOrBytesAreHarmless) {
  AckSample bare;
  bare.now = now;
  control->on_ack(bare);
  bare.acked_bytes = 1U << 30;
  control->on_ack(bare);
  AckSample early;
  early.has_rtt = true;  // an RTT below the base, a time before the last
  control->on_ack(early);
  EXPECT_EQ(control->window_bytes(), 225'000U);
}

TEST(CongestionControl, FixedStaysFixed) {
  CongestionSettings settings = reference();
  settings.algorithm = CongestionAlgorithm::fixed;
  const auto one_bdp = make_congestion_control(settings);
  EXPECT_EQ(one_bdp->window_bytes(), 150'000U);
  settings.max_window_bytes = 10;
  EXPECT_EQ(make_congestion_control(settings)->window_bytes(), mtu);  // at least a packet
  settings.max_window_bytes = 1'000'000;
  const auto wide = make_congestion_control(settings);
  wide->on_loss({}, 1'000'000);
  wide->on_ack(sample({}, 0, 90'000'000, true));
  EXPECT_EQ(wide->window_bytes(), 1'000'000U);
}

TEST(CongestionControl, RefusesSettingsThatMakeNoSense) {
  const auto with = [](auto change) {
    CongestionSettings settings = reference();
    change(settings);
    return make_congestion_control(settings);
  };
  EXPECT_THROW(with([](CongestionSettings& s) { s.bits_per_second = 0; }), Error);
  EXPECT_THROW(with([](CongestionSettings& s) { s.base_rtt = {}; }), Error);
  EXPECT_THROW(with([](CongestionSettings& s) { s.mtu_bytes = 0; }), Error);
  EXPECT_THROW(with([](CongestionSettings& s) { s.reference_rtt = {}; }), Error);
  EXPECT_THROW(with([](CongestionSettings& s) { s.reference_bits_per_second = 0; }), Error);
}

}  // namespace
}  // namespace orrery::fabric::congestion_control_test
