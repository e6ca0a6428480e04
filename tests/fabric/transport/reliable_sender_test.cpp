// The sending half alone: windows, requests with responses, NAKs, hostile acknowledges.
#include "fabric/transport/reliable_sender.h"

#include <functional>
#include <optional>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "common/error.h"
#include "common/rng.h"

namespace orrery::fabric::reliable_sender_test {
namespace {

constexpr Picoseconds rto{250'000'000};
constexpr std::uint32_t bytes = 4'162;

struct Resend {
  Psn psn;
  std::uint16_t entropy;
  unsigned attempt;
  std::uint32_t packets;
  Picoseconds at;
};

class Sender : public ::testing::Test, protected SenderHost {
 protected:
  static SenderSettings wide() {
    SenderSettings settings;
    settings.congestion.algorithm = CongestionAlgorithm::fixed;
    settings.congestion.max_window_bytes = 1U << 30;
    return settings;
  }
  void make(const SenderSettings& settings) { sender.emplace(timers, static_cast<SenderHost&>(*this), settings); }
  void send(unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
      ASSERT_TRUE(sender->may_send(bytes));
      entropies.push_back(sender->send(bytes).entropy);
    }
  }
  void ack(std::uint32_t cumulative, std::uint32_t base = 0, std::uint64_t bitmap = 0) {
    AckInfo info;
    info.cumulative = Psn::of(cumulative);
    info.has_trigger = false;
    info.sack_base = {base};
    info.sack_bitmap = bitmap;
    sender->on_ack(info);
  }
  void advance(Picoseconds by) { events.run_until(events.now() + by); }
  void run_until_idle(Picoseconds limit) { events.run_until(limit); }

  void transmit(Psn psn, std::uint16_t entropy, unsigned attempt, std::uint32_t packets) override {
    resends.push_back({psn, entropy, attempt, packets, events.now()});
  }
  void acknowledged(Psn upto) override {
    acknowledged_upto.push_back(upto.value);
    if (on_acknowledged) {
      on_acknowledged();
    }
  }
  void window_opened() override { ++opened; }
  void failed(SendFailure reason) override { failure = reason; }

  EventQueue events;
  TimerPool timers{events};
  std::vector<Resend> resends;
  std::vector<std::uint32_t> acknowledged_upto;
  std::vector<std::uint16_t> entropies;
  std::function<void()> on_acknowledged;
  unsigned opened = 0;
  std::optional<SendFailure> failure;
  std::optional<ReliableSender> sender;
};

TEST_F(Sender, TheCongestionWindowLimitsBytesButNeverTheFirstPacket) {
  SenderSettings settings = wide();
  settings.congestion.max_window_bytes = 3 * bytes;
  settings.congestion.mtu_bytes = bytes;
  make(settings);
  send(3);
  EXPECT_FALSE(sender->may_send(1));
  ack(0);
  EXPECT_TRUE(sender->may_send(bytes));
  EXPECT_FALSE(sender->may_send(bytes + 1));
  ack(2);
  EXPECT_TRUE(sender->may_send(1U << 30));  // nothing is in flight
}

TEST_F(Sender, ThePsnWindowCountsFromTheOldestMissing) {
  SenderSettings settings = wide();
  settings.window_packets = 100;
  make(settings);
  send(100);
  EXPECT_FALSE(sender->may_send(64));
  ack(0xff'ffff, 1, ~std::uint64_t{0});  // 1 … 64 have arrived, 0 hasn't
  EXPECT_FALSE(sender->may_send(64));
  EXPECT_EQ(sender->in_flight_bytes(), 36U * bytes);
  ack(0);
  EXPECT_TRUE(sender->may_send(64, 65));
  EXPECT_FALSE(sender->may_send(64, 66));
  EXPECT_EQ(acknowledged_upto, std::vector<std::uint32_t>{64});
  EXPECT_EQ(sender->oldest_psn(), Psn{65});
}

TEST_F(Sender, AcknowledgesThatMakeNoSenseChangeNothing) {
  make(wide());
  ack(0xff'ffff);  // nothing sent
  ack(5);
  send(10);
  ack(10);  // the newest is 9
  ack(100);
  ack(0x80'0000);
  ack(0xff'ffff, 10, ~std::uint64_t{0});         // bits beyond what was sent
  ack(0xff'fff0, 0xff'ff00, ~std::uint64_t{0});  // bits before
  EXPECT_TRUE(acknowledged_upto.empty());
  EXPECT_EQ(sender->in_flight_bytes(), 10U * bytes);
  EXPECT_EQ(sender->counters().stale_acks, 5U);
  ack(9);
  ack(3);  // late
  EXPECT_EQ(acknowledged_upto, std::vector<std::uint32_t>{9});
  EXPECT_TRUE(sender->idle());
}

TEST_F(Sender, AnAcknowledgeOfALostPacketCallsItsRetransmissionOff) {
  SenderSettings settings = wide();
  settings.congestion.max_window_bytes = bytes;  // so that only one is sent again at a time
  settings.congestion.mtu_bytes = bytes;
  settings.congestion.algorithm = CongestionAlgorithm::fixed;
  make(settings);
  send(1);
  ack(0);
  settings.congestion.max_window_bytes = 4 * bytes;
  sender.reset();
  make(settings);
  send(4);
  advance(rto);
  EXPECT_EQ(resends.size(), 4U);
  ack(1, 3, 1);  // only 2 is missing
  advance(rto);
  ASSERT_EQ(resends.size(), 5U);
  EXPECT_EQ(resends[4].psn, Psn{2});
  EXPECT_EQ(resends[4].attempt, 3U);
}

TEST_F(Sender, LostPacketsWaitForTheWindowAndGoBeforeNewOnes) {
  SenderSettings settings = wide();
  settings.congestion.max_window_bytes = 4 * bytes;
  make(settings);
  send(2);
  advance({100'000'000});
  send(2);
  advance({150'000'000});  // the first two are lost: both fit again, as they left the window
  EXPECT_EQ(resends.size(), 2U);
  EXPECT_EQ(sender->in_flight_bytes(), 4U * bytes);
  sender->on_rnr_nak({0}, {10'000'000});
  EXPECT_FALSE(sender->may_send(64));
  ack(0xff'ffff, 1, 0b111);
  EXPECT_FALSE(sender->may_send(64));  // 0 goes first, and the receiver isn't ready
  advance({10'000'000});
  EXPECT_EQ(resends.back().psn, Psn{0});
  EXPECT_TRUE(sender->may_send(64));
}

TEST_F(Sender, AttemptsSaturate) {
  SenderSettings settings = wide();
  settings.ack_timeout = 0;
  make(settings);
  send(1);
  advance(rto * 300);
  EXPECT_EQ(resends.size(), 300U);
  EXPECT_EQ(resends[0].attempt, 2U);
  EXPECT_EQ(resends.back().attempt, 255U);
  for (std::size_t i = 1; i < resends.size(); ++i) {
    EXPECT_NE(resends[i].entropy, resends[i - 1].entropy);
  }
}

TEST_F(Sender, OnlyResponsesCompleteARequest) {
  make(wide());
  send(1);
  const ReliableSender::Ticket ticket = sender->send_request(bytes, 5);
  send(1);
  EXPECT_EQ(ticket.psn, Psn{1});
  EXPECT_EQ(sender->next_psn(), Psn{7});
  ack(6, 0, ~std::uint64_t{0});
  EXPECT_EQ(acknowledged_upto, std::vector<std::uint32_t>{0});
  EXPECT_EQ(sender->in_flight_bytes(), 5U * bytes);
  EXPECT_FALSE(sender->on_response({0}, 0, false));  // not a response
  EXPECT_FALSE(sender->on_response({6}, 0, false));
  EXPECT_FALSE(sender->on_response({7}, 0, false));  // never asked for
  for (const std::uint32_t psn : {5U, 3U, 2U, 4U}) {
    EXPECT_TRUE(sender->on_response({psn}, 0, false));
    EXPECT_FALSE(sender->on_response({psn}, 0, false));
  }
  EXPECT_EQ(acknowledged_upto.size(), 1U);
  EXPECT_TRUE(sender->on_response({1}, 0, false));
  EXPECT_EQ(acknowledged_upto, (std::vector<std::uint32_t>{0, 6}));
  EXPECT_TRUE(sender->idle());
}

TEST_F(Sender, MissingResponsesAreAskedForInRunsOfOneRequest) {
  make(wide());
  sender->send_request(64, 4);  // 0 … 3
  sender->send_request(64, 3);  // 4 … 6
  sender->on_response({0}, 0, false);
  sender->on_response({2}, 0, false);
  advance(rto + Picoseconds{1'000'000});
  ASSERT_EQ(resends.size(), 3U);  // 1; 3; 4 … 6 (another request)
  EXPECT_EQ(resends[0].psn, Psn{1});
  EXPECT_EQ(resends[0].packets, 1U);
  EXPECT_EQ(resends[1].psn, Psn{3});
  EXPECT_EQ(resends[1].packets, 1U);
  EXPECT_EQ(resends[2].psn, Psn{4});
  EXPECT_EQ(resends[2].packets, 3U);
  EXPECT_EQ(sender->counters().retransmissions, 5U);
  for (const std::uint32_t psn : {1U, 3U, 4U, 5U, 6U}) {
    EXPECT_TRUE(sender->on_response({psn}, 0, false));
  }
  EXPECT_TRUE(sender->idle());
  const std::size_t before = resends.size();
  advance(rto * 3);
  EXPECT_EQ(resends.size(), before);
}

// Responses of a long READ leave one after the other: the RTO of each begins when it can have left.
TEST_F(Sender, ALongReadDoesNotTimeOutWhileItIsBeingSent) {
  make(wide());
  constexpr std::uint32_t packets = 8'192;  // 1.36 ms at 200 Gb/s
  sender->send_request(bytes, packets);
  const Picoseconds each{bytes * 40};
  for (std::uint32_t i = 0; i < packets; ++i) {
    events.run_until(each * (i + 1) + Picoseconds{50'000'000});
    ASSERT_TRUE(sender->on_response({i}, 0, false));
  }
  EXPECT_TRUE(resends.empty());
  EXPECT_TRUE(sender->idle());
}

TEST_F(Sender, ASequenceNakGoesBack) {
  make(wide());
  send(10);
  sender->on_sequence_nak({4});
  EXPECT_EQ(acknowledged_upto, std::vector<std::uint32_t>{3});
  ASSERT_EQ(resends.size(), 6U);
  for (std::uint32_t i = 0; i < 6; ++i) {
    EXPECT_EQ(resends[i].psn, Psn{4 + i});
    EXPECT_EQ(resends[i].attempt, 2U);
  }
  sender->on_sequence_nak({4});  // another of the same gap
  EXPECT_EQ(resends.size(), 6U);
  advance({12'000'000});
  sender->on_sequence_nak({4});  // lost once more
  EXPECT_EQ(resends.size(), 12U);
  sender->on_sequence_nak({10});  // nothing of that number is outstanding
  sender->on_sequence_nak({2});
  EXPECT_EQ(resends.size(), 12U);
  EXPECT_EQ(sender->counters().sequence_naks, 3U);
}

TEST_F(Sender, RnrNaksOfOneFlightCountOnce) {
  SenderSettings settings = wide();
  settings.rnr_retry_count = 1;
  make(settings);
  send(5);
  for (std::uint32_t i = 0; i < 5; ++i) {
    sender->on_rnr_nak({i}, {1'000'000});
  }
  EXPECT_FALSE(failure.has_value());
  EXPECT_TRUE(resends.empty());
  advance({1'000'000});
  EXPECT_EQ(resends.size(), 5U);
  sender->on_rnr_nak({7}, {1'000'000});  // never sent
  EXPECT_FALSE(failure.has_value());
  sender->on_rnr_nak({0}, {1'000'000});
  EXPECT_EQ(failure, SendFailure::rnr_retry_exceeded);
}

TEST_F(Sender, ProgressStartsTheRnrCountAnew) {
  SenderSettings settings = wide();
  settings.rnr_retry_count = 1;
  make(settings);
  send(4);
  for (std::uint32_t i = 0; i < 4; ++i) {
    sender->on_rnr_nak({i}, {1'000'000});
    advance({1'000'000});
    ack(i);
  }
  EXPECT_FALSE(failure.has_value());
  EXPECT_TRUE(sender->idle());
}

// All that was refused arrives after all while the sender waits: it must not sleep for ever.
TEST_F(Sender, AWaitThatNobodyNeedsAnyMoreStillEnds) {
  make(wide());
  send(1);
  sender->on_rnr_nak({0}, {5'000'000});
  ack(0);
  EXPECT_TRUE(sender->idle());
  EXPECT_FALSE(sender->may_send(bytes));
  const unsigned before = opened;
  advance({5'000'000});
  EXPECT_GT(opened, before);
  EXPECT_TRUE(sender->may_send(bytes));
}

TEST_F(Sender, AStoppedSenderIsSilent) {
  make(wide());
  send(3);
  sender->stop();
  ack(1);
  sender->on_rnr_nak({0}, {1});
  sender->on_sequence_nak({0});
  EXPECT_FALSE(sender->on_response({0}, 0, false));
  advance({10'000'000'000'000});
  EXPECT_TRUE(resends.empty());
  EXPECT_TRUE(acknowledged_upto.empty());
  EXPECT_FALSE(failure.has_value());
}

TEST_F(Sender, MayBeStoppedFromItsHostAndSendFromIt) {
  make(wide());
  send(2);
  on_acknowledged = [this] { sender->stop(); };
  ack(0);
  EXPECT_EQ(opened, 0U);
  sender.reset();
  make(wide());
  send(2);
  on_acknowledged = [this] { sender->send(bytes); };
  ack(1);
  EXPECT_EQ(sender->next_psn(), Psn{3});
  EXPECT_FALSE(sender->idle());
}

TEST_F(Sender, MayBeDestroyedWithItsTimerArmed) {
  make(wide());
  send(3);
  sender.reset();
  advance(rto * 2);
  EXPECT_TRUE(resends.empty());
}

TEST_F(Sender, TheRttOfARetransmissionIsItsOwn) {
  make(wide());
  send(1);
  advance(rto);
  ASSERT_EQ(resends.size(), 1U);
  advance({7'000'000});
  AckInfo info;
  info.cumulative = info.trigger = {0};
  info.entropy = entropies[0];  // the first transmission, arriving very late
  info.delay = {1'000'000};
  sender->on_ack(info);
  EXPECT_EQ(sender->counters().last_rtt.count, 0U);
  sender.reset();
  resends.clear();
  make(wide());
  send(1);
  advance(rto);
  advance({7'000'000});
  info.entropy = resends[0].entropy;
  sender->on_ack(info);
  EXPECT_EQ(sender->counters().last_rtt.count, 6'000'000U);
}

TEST_F(Sender, RandomAcknowledgesKeepItConsistent) {
  Rng random(4, 4);
  for (int round = 0; round < 50; ++round) {
    SenderSettings settings = wide();
    settings.initial_psn = {random() & 0xff'ffffU};
    settings.window_packets = 1 + random.below(500);
    settings.out_of_order_trigger = random.below(2) != 0;
    settings.ack_timeout = 0;
    make(settings);
    acknowledged_upto.clear();
    std::uint64_t sent = 0;
    for (int i = 0; i < 2'000; ++i) {
      const std::uint32_t around = sender->oldest_psn().value + random.below(600) - 50;
      switch (random.below(8)) {
        case 0: {
          AckInfo info;
          info.cumulative = Psn::of(around);
          info.trigger = Psn::of(random());
          info.sack_base = Psn::of(around + random.below(100));
          info.sack_bitmap = random.next64();
          info.entropy = static_cast<std::uint16_t>(random());
          info.ecn_echo = random.below(2) != 0;
          info.delay = {random.next64() >> random.below(64)};
          sender->on_ack(info);
          break;
        }
        case 1:
          sender->on_rnr_nak(Psn::of(around), {random.below(1'000'000'000)});
          break;
        case 2:
          sender->on_sequence_nak(Psn::of(around));
          break;
        case 3:
          sender->on_response(Psn::of(around), static_cast<std::uint16_t>(random()), false);
          break;
        case 4:
          advance({random.below(400'000'000)});
          break;
        default:
          if (random.below(4) == 0 && sender->may_send(100, 7)) {
            sender->send_request(100, 7);
            sent += 7;
          } else if (sender->may_send(100)) {
            sender->send(100);
            ++sent;
          }
      }
      const std::int32_t window = distance(sender->oldest_psn(), sender->next_psn());
      ASSERT_GE(window, 0);
      ASSERT_LE(static_cast<std::uint32_t>(window), settings.window_packets);
      ASSERT_LE(sender->in_flight_bytes(), static_cast<std::uint64_t>(window) * 100);
      ASSERT_EQ(sender->in_flight_bytes() % 100, 0U);
    }
    // And it still works: acknowledge and answer everything.
    advance({2'000'000'000});
    for (Psn psn = sender->oldest_psn(); psn != sender->next_psn(); psn = psn + 1) {
      ack(psn.value);
      sender->on_response(psn, 0, false);
    }
    EXPECT_TRUE(sender->idle());
    EXPECT_EQ(sender->in_flight_bytes(), 0U);
    EXPECT_EQ(sender->next_psn(), settings.initial_psn + static_cast<std::uint32_t>(sent));
    sender.reset();
  }
}

TEST_F(Sender, RefusesSettingsThatMakeNoSense) {
  const auto with = [this](auto change) {
    SenderSettings settings = wide();
    change(settings);
    make(settings);
  };
  EXPECT_THROW(with([](SenderSettings& s) { s.window_packets = 0; }), Error);
  EXPECT_THROW(with([](SenderSettings& s) { s.window_packets = 1U << 23; }), Error);
  EXPECT_THROW(with([](SenderSettings& s) { s.rto = {}; }), Error);
  EXPECT_THROW(with([](SenderSettings& s) { s.ack_timeout = 32; }), Error);
  EXPECT_THROW(with([](SenderSettings& s) { s.retry_count = 8; }), Error);
  EXPECT_THROW(with([](SenderSettings& s) { s.rnr_retry_count = 8; }), Error);
  EXPECT_THROW(with([](SenderSettings& s) { s.paths.paths = 0; }), Error);
  EXPECT_THROW(with([](SenderSettings& s) { s.congestion.mtu_bytes = 0; }), Error);
}

}  // namespace
}  // namespace orrery::fabric::reliable_sender_test
