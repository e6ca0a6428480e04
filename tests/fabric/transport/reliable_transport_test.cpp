// Both halves together over impaired links: exactly once, no hang, repeatable.
#include <cmath>
#include <map>

#include "common/error.h"
#include "fabric/wire_codec.h"
#include "tests/fabric/support.h"
#include "tests/fabric/transport/connection.h"

namespace orrery::fabric::reliable_transport_test {
namespace {

using testing::Connection;
using testing::ConnectionSettings;

constexpr Picoseconds rto{250'000'000};

TEST(ReliableTransport, ACleanLinkNeedsNoRetransmission) {
  Connection c({});
  c.start(5'000);
  EXPECT_TRUE(c.run());
  EXPECT_EQ(c.sender.counters().retransmissions, 0U);
  EXPECT_EQ(c.receiver.counters().fresh, 5'000U);
  EXPECT_EQ(c.receiver.counters().out_of_order, 0U);
  EXPECT_EQ(c.sender.counters().stale_acks, 0U);
  EXPECT_EQ(c.pool.outstanding(), 0U);
}

TEST(ReliableTransport, AcknowledgesAreCoalesced) {
  ConnectionSettings settings;
  settings.messages_of = 1'000'000;
  settings.receiver.ack_every = 8;
  settings.receiver.ack_delay = {10'000'000};
  Connection c(settings);
  c.start(8'000);
  EXPECT_TRUE(c.run());
  EXPECT_EQ(c.receiver.counters().acks, 1'000U);
}

// What is delivered exactly once at any of these rates, with everything else going wrong at the same rate too.
class Impaired : public ::testing::TestWithParam<std::tuple<double, PathPolicy, bool>> {};

TEST_P(Impaired, EveryPacketIsDeliveredExactlyOnce) {
  const auto& [rate, policy, trigger] = GetParam();
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    ConnectionSettings settings;
    settings.link.impairments = {.loss = rate,
                                 .corruption = rate / 4,
                                 .icrc_corruption = rate / 4,
                                 .duplication = rate,
                                 .reordering = rate,
                                 .reorder_delay = {20'000'000}};
    settings.link.seed = seed;
    settings.sender.initial_psn = {0xff'ff00};  // wraps soon
    settings.sender.paths = {.policy = policy, .paths = 16, .seed = seed};
    settings.sender.out_of_order_trigger = trigger;
    settings.receiver.initial_psn = settings.sender.initial_psn;
    Connection c(settings);
    c.start(20'000);
    ASSERT_TRUE(c.run()) << "seed " << seed << ", delivered " << c.delivered.size();
    EXPECT_EQ(c.sender.counters().packets, 20'000U);
    EXPECT_GT(c.sender.counters().retransmissions, 0U);
    EXPECT_EQ(c.acknowledged_packets, 20'000U);
    EXPECT_EQ(c.sender.in_flight_bytes(), 0U);
    EXPECT_EQ(c.receiver.counters().outside, 0U);
    EXPECT_EQ(c.pool.outstanding(), 0U);
    // A retransmission takes another path than the transmission before it, if there is one.
    std::map<std::uint64_t, std::uint16_t> last;
    for (const Connection::Transmission& t : c.transmissions) {
      if (t.attempt > 1 && policy != PathPolicy::single) {
        EXPECT_NE(t.entropy, last[t.number]);
      }
      last[t.number] = t.entropy;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rates, Impaired,
                         ::testing::Combine(::testing::Values(0.001, 0.01, 0.05),
                                            ::testing::Values(PathPolicy::single, PathPolicy::obs,
                                                              PathPolicy::obs_without_replacement,
                                                              PathPolicy::round_robin),
                                            ::testing::Bool()));

TEST(ReliableTransport, TheSameSeedGivesTheSameRun) {
  const auto run = [](std::uint64_t seed) {
    ConnectionSettings settings;
    settings.link.impairments = {.loss = 0.02, .duplication = 0.02, .reordering = 0.02};
    settings.link.seed = seed;
    Connection c(settings);
    c.start(3'000);
    EXPECT_TRUE(c.run());
    std::vector<std::uint64_t> log;
    for (const Connection::Transmission& t : c.transmissions) {
      log.push_back((t.at.count << 20) ^ (t.number << 16) ^ t.entropy);
    }
    return log;
  };
  EXPECT_EQ(run(4), run(4));
  EXPECT_NE(run(4), run(5));
}

TEST(ReliableTransport, ASmallWindowAndASmallBitmapStillGetThrough) {
  for (const std::uint32_t window : {1U, 2U, 63U, 64U}) {
    ConnectionSettings settings;
    settings.link.impairments = {.loss = 0.03, .reordering = 0.2};
    settings.sender.window_packets = window;
    settings.receiver.bitmap_packets = 64;
    settings.sender.congestion = {.algorithm = CongestionAlgorithm::fixed};
    Connection c(settings);
    c.start(1'000);
    ASSERT_TRUE(c.run()) << window;
    EXPECT_EQ(c.receiver.counters().outside, 0U) << window;
    EXPECT_LE(c.receiver.counters().widest, 64U);
  }
}

TEST(ReliableTransport, ThePsnSpaceWrapsAtAnyPlaceOfTheWindow) {
  for (std::uint32_t start = 0xff'fff0; start <= 0xff'ffff; ++start) {
    ConnectionSettings settings;
    settings.sender.initial_psn = settings.receiver.initial_psn = {start};
    settings.link.impairments = {.loss = 0.1};
    settings.link.seed = start;
    Connection c(settings);
    c.start(64);
    ASSERT_TRUE(c.run()) << start;
    EXPECT_EQ(c.sender.next_psn(), Psn::of(start + 64));
  }
}

// Facts §3: a lost packet is found by the RTO, 250 µs after it was sent.
TEST(ReliableTransport, ALostPacketIsSentAgainAfterExactlyTheRto) {
  Connection c({});
  c.swallow = [](const Connection::Transmission& t) { return t.number == 7 && t.attempt <= 2; };
  c.start(64);
  ASSERT_TRUE(c.run());
  std::vector<Picoseconds> times;
  for (const Connection::Transmission& t : c.transmissions) {
    if (t.number == 7) {
      times.push_back(t.at);
    }
  }
  ASSERT_EQ(times.size(), 3U);
  EXPECT_EQ(times[1] - times[0], rto);
  EXPECT_EQ(times[2] - times[1], rto);
  EXPECT_EQ(c.sender.counters().timeouts, 2U);
  EXPECT_EQ(c.sender.counters().retransmissions, 2U);  // selective: nothing else
}

TEST(ReliableTransport, TheOutOfOrderTriggerIsFasterThanTheRto) {
  ConnectionSettings settings;
  settings.sender.out_of_order_trigger = true;
  settings.sender.congestion = {.algorithm = CongestionAlgorithm::fixed, .max_window_bytes = 20 * 4162};
  Connection c(settings);
  c.swallow = [](const Connection::Transmission& t) { return t.number == 7 && t.attempt == 1; };
  c.start(200);
  ASSERT_TRUE(c.run());
  EXPECT_EQ(c.sender.counters().overtaken, 1U);
  EXPECT_EQ(c.sender.counters().timeouts, 0U);
  EXPECT_EQ(c.sender.counters().retransmissions, 1U);
  for (const Connection::Transmission& t : c.transmissions) {
    if (t.number == 7 && t.attempt == 2) {
      EXPECT_LT(t.at, rto);
    }
  }
}

TEST(ReliableTransport, ReorderingAloneTriggersNothing) {
  ConnectionSettings settings;
  settings.sender.out_of_order_trigger = true;
  settings.sender.congestion = {.algorithm = CongestionAlgorithm::fixed, .max_window_bytes = 64 * 4162};
  settings.link.impairments = {.reordering = 0.3, .reorder_delay = {2'000'000}};  // 12 packet times
  Connection c(settings);
  c.start(5'000);
  ASSERT_TRUE(c.run());
  EXPECT_EQ(c.sender.counters().retransmissions, 0U);
  EXPECT_EQ(c.receiver.counters().duplicates, 0U);
  EXPECT_GT(c.receiver.counters().out_of_order, 1'000U);
}

// Every packet is named by some acknowledge, however widely they are scattered: none is sent again for want of one.
TEST(ReliableTransport, WideReorderingIsAcknowledgedInTime) {
  for (const std::uint32_t every : {1U, 4U, 64U}) {
    ConnectionSettings settings;
    settings.sender.congestion = {.algorithm = CongestionAlgorithm::fixed, .max_window_bytes = 512 * 4'162};
    settings.receiver.ack_every = every;
    Connection c(settings);
    c.link.set_impairments(0, {.reordering = 0.4, .reorder_delay = {100'000'000}});  // 600 packet times
    c.start(20'000);
    ASSERT_TRUE(c.run());
    EXPECT_EQ(c.sender.counters().retransmissions, 0U) << every;
    EXPECT_GT(c.receiver.counters().widest, 400U);
  }
}

TEST(ReliableTransport, ALinkThatComesBackIsUsedAgain) {
  Connection c({});
  c.start(2'000);
  c.events.run_until({20'000'000});
  c.link.set_up(false);
  c.events.run_until({3'000'000'000});
  c.link.set_up(true);
  EXPECT_TRUE(c.run());
  EXPECT_GT(c.sender.counters().timeouts, 0U);
}

// The documented time: (retry_count + 1) acknowledge timeouts after the last progress, to the picosecond.
TEST(ReliableTransport, ADeadPeerFailsTheConnectionAtTheDocumentedTime) {
  for (const auto& [timeout, retries] : {std::pair<unsigned, unsigned>{14, 7}, {14, 0}, {10, 3}, {1, 7}}) {
    ConnectionSettings settings;
    settings.sender.ack_timeout = static_cast<std::uint8_t>(timeout);
    settings.sender.retry_count = static_cast<std::uint8_t>(retries);
    Connection c(settings);
    c.start(10);
    c.events.run_until({100'000'000});
    ASSERT_TRUE(c.sender.idle());
    c.swallow = [](const Connection::Transmission&) { return true; };
    const Picoseconds start = c.events.now();
    c.start(10);
    c.run();
    ASSERT_TRUE(c.failure.has_value());
    EXPECT_EQ(*c.failure, SendFailure::retry_exceeded);
    const Picoseconds one = max(Picoseconds{4'096'000} * (1U << timeout), rto);
    EXPECT_EQ(c.failed_at - start, one * (retries + 1));
    EXPECT_TRUE(c.sender.stopped());
    EXPECT_FALSE(c.sender.may_send(64));
    const std::size_t transmissions = c.transmissions.size();
    c.events.run_until({20'000'000'000'000});
    EXPECT_EQ(c.transmissions.size(), transmissions);
  }
}

TEST(ReliableTransport, ProgressPutsTheFailureOff) {
  ConnectionSettings settings;
  settings.sender.ack_timeout = 8;  // 1.05 ms
  settings.sender.retry_count = 1;
  settings.sender.window_packets = 1;
  Connection c(settings);
  c.swallow = [](const Connection::Transmission& t) { return t.attempt < 5; };  // 1 ms for each packet
  c.start(20);
  EXPECT_TRUE(c.run());
}

TEST(ReliableTransport, TimeoutZeroNeverFails) {
  ConnectionSettings settings;
  settings.sender.ack_timeout = 0;
  Connection c(settings);
  c.swallow = [](const Connection::Transmission& t) { return t.at < Picoseconds{5'000'000'000'000}; };  // 5 s
  c.start(10);
  EXPECT_TRUE(c.run());
}

// RNR: the packet stays missing, nothing is sent for the delay, then everything gets through.
TEST(ReliableTransport, AReceiverThatIsNotReadyIsWaitedFor) {
  Connection c({});
  const Picoseconds delay{640'000'000};
  Picoseconds refused;
  c.refuse = [&](std::uint64_t number) -> std::optional<Picoseconds> {
    if (number < 20 || (refused.count != 0 && c.events.now() >= refused + delay)) {
      return std::nullopt;
    }
    if (refused.count == 0) {
      refused = c.events.now();
    }
    return delay;
  };
  c.start(500);
  ASSERT_TRUE(c.run());
  EXPECT_GT(c.sender.counters().rnr_naks, 0U);
  EXPECT_EQ(c.receiver.counters().refused, c.sender.counters().rnr_naks);
  Picoseconds first_nak_arrival = refused + c.link.settings().propagation;
  for (const Connection::Transmission& t : c.transmissions) {
    EXPECT_FALSE(t.at > first_nak_arrival + Picoseconds{1'000'000} && t.at < refused + delay) << t.at.count;
  }
}

TEST(ReliableTransport, RnrRetriesRunOut) {
  ConnectionSettings settings;
  settings.sender.rnr_retry_count = 3;
  Connection c(settings);
  unsigned refusals = 0;
  c.refuse = [&refusals](std::uint64_t) -> std::optional<Picoseconds> {
    ++refusals;
    return Picoseconds{10'000'000};
  };
  c.start(1);
  c.run();
  ASSERT_TRUE(c.failure.has_value());
  EXPECT_EQ(*c.failure, SendFailure::rnr_retry_exceeded);
  EXPECT_EQ(refusals, 4U);
}

TEST(ReliableTransport, RnrRetrySevenIsForEver) {
  ConnectionSettings settings;
  settings.sender.ack_timeout = 5;  // would fail after 2 ms if the waits counted
  Connection c(settings);
  unsigned refusals = 0;
  c.refuse = [&refusals](std::uint64_t) -> std::optional<Picoseconds> {
    return ++refusals <= 1'000 ? std::optional(Picoseconds{100'000'000}) : std::nullopt;
  };
  c.start(1);
  EXPECT_TRUE(c.run());
  EXPECT_EQ(refusals, 1'001U);
}

TEST(ReliableTransport, RnrUnderLossStillEnds) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    ConnectionSettings settings;
    settings.link.impairments = {.loss = 0.02, .duplication = 0.02, .reordering = 0.1};
    settings.link.seed = seed;
    Connection c(settings);
    Rng random(seed, 99);
    c.refuse = [&random](std::uint64_t) -> std::optional<Picoseconds> {
      return random.below(100) < 2 ? std::optional(Picoseconds{20'000'000}) : std::nullopt;
    };
    c.start(5'000);
    ASSERT_TRUE(c.run()) << seed;
  }
}

// Facts §4 oracle 8: losses = packets * p; only what was lost is sent again when acknowledges get through.
TEST(ReliableTransport, RetransmissionsAreAsManyAsLosses) {
  ConnectionSettings settings;
  settings.messages_of = 1'000'000'000;
  Connection c(settings);
  c.link.set_impairments(0, {.loss = 0.01});
  constexpr double n = 100'000;
  c.start(static_cast<std::uint64_t>(n));
  ASSERT_TRUE(c.run({100'000'000'000'000}));
  EXPECT_EQ(c.sender.counters().retransmissions, c.link.counters(0).lost);
  EXPECT_EQ(c.receiver.counters().duplicates, 0U);
  EXPECT_NEAR(static_cast<double>(c.link.counters(0).lost), n * 0.01 / 0.99, 5 * std::sqrt(n * 0.01));
}

TEST(ReliableTransport, RttIsMeasuredToThePicosecondAtZeroLoad) {
  ConnectionSettings settings;
  settings.messages_of = 1;
  Connection c(settings);
  c.start(1);
  ASSERT_TRUE(c.run());
  RoceHeaders ack;
  ack.bth.opcode = opcode_of(RoceTransport::rc, RoceOperation::acknowledge);
  ack.bth.extended = true;
  const std::uint32_t ack_bytes = frame_bytes(ack, 0) + fcs_bytes;
  EXPECT_EQ(c.sender.counters().last_rtt,
            c.link.occupancy(4162) + c.link.occupancy(ack_bytes) + 2 * c.link.settings().propagation);
}

}  // namespace
}  // namespace orrery::fabric::reliable_transport_test
