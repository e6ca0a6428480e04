// The receiving half alone: what is fresh, and which acknowledges say so when.
#include "fabric/transport/reliable_receiver.h"

#include <optional>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "common/error.h"
#include "common/rng.h"
#include "fabric/roce_headers.h"

namespace orrery::fabric::reliable_receiver_test {
namespace {

class Receiver : public ::testing::Test, protected ReceiverHost {
 protected:
  void make(const ReceiverSettings& settings) { receiver.emplace(timers, static_cast<ReceiverHost&>(*this), settings); }
  void send_ack(const AckInfo& info) override {
    acks.push_back(info);
    times.push_back(events.now());
  }
  Arrival arrive(std::uint32_t psn, bool request = false, bool ce = false, std::uint32_t packets = 1) {
    const Arrival expected = receiver->check({psn}, packets);
    const Arrival arrival =
        receiver->on_data({{psn}, static_cast<std::uint16_t>(0xc000 + psn % 256), ce, request, false, packets});
    EXPECT_EQ(arrival, expected);
    receiver->flush();
    return arrival;
  }
  EventQueue events;
  TimerPool timers{events};
  std::optional<ReliableReceiver> receiver;
  std::vector<AckInfo> acks;
  std::vector<Picoseconds> times;
};

TEST_F(Receiver, ClassifiesAtTheEdgesOfItsWindow) {
  make({.initial_psn = {100}, .bitmap_packets = 64});
  EXPECT_EQ(arrive(99), Arrival::duplicate);
  EXPECT_EQ(arrive(100 + 64), Arrival::outside);
  EXPECT_EQ(arrive(100 + 63), Arrival::fresh);
  EXPECT_EQ(arrive(100 + 63), Arrival::duplicate);
  EXPECT_EQ(receiver->cumulative(), Psn{99});
  EXPECT_EQ(arrive(100), Arrival::fresh);
  EXPECT_EQ(arrive(100 + 64), Arrival::fresh);
  EXPECT_EQ(arrive(100 + 65), Arrival::outside);
  EXPECT_EQ(receiver->counters().outside, 2U);
  EXPECT_EQ(receiver->counters().duplicates, 2U);
  EXPECT_EQ(receiver->counters().fresh, 3U);
  EXPECT_TRUE(receiver->has_arrived({5}));
  EXPECT_TRUE(receiver->has_arrived({163}));
  EXPECT_FALSE(receiver->has_arrived({101}));
  EXPECT_FALSE(receiver->has_arrived({5'000}));
}

TEST_F(Receiver, ClosingAGapAdvancesOverAllThatWaited) {
  make({.initial_psn = {0xff'fff0}, .bitmap_packets = 128});
  for (std::uint32_t i = 1; i < 100; ++i) {
    arrive((0xff'fff0 + i) & 0xff'ffff);
  }
  EXPECT_EQ(receiver->expected(), Psn{0xff'fff0});
  arrive(0xff'fff0);
  EXPECT_EQ(receiver->expected(), Psn::of(0xff'fff0 + 100));
  EXPECT_EQ(receiver->counters().widest, 99U);
}

TEST_F(Receiver, AcknowledgesEveryNth) {
  make({.ack_every = 4});
  for (std::uint32_t i = 0; i < 12; ++i) {
    arrive(i);
  }
  ASSERT_EQ(acks.size(), 3U);
  EXPECT_EQ(acks[1].cumulative, Psn{7});
  EXPECT_EQ(acks[1].trigger, Psn{7});
  EXPECT_EQ(acks[1].entropy, 0xc007);
  EXPECT_EQ(acks[1].sack_bitmap, 0U);
  EXPECT_EQ(acks[1].delay.count, 0U);
}

// The last packet of a message, which asks for an acknowledge, overtakes the others: the message is complete with the
// first packet that fills the hole, and must not wait for the delay then.
TEST_F(Receiver, WhatFillsTheLastHoleIsAcknowledgedAtOnce) {
  make({.initial_psn = {10}, .bitmap_packets = 64, .ack_every = 4});
  arrive(12, true);
  ASSERT_EQ(acks.size(), 1U);
  EXPECT_EQ(acks[0].cumulative, Psn{9});
  arrive(10);
  EXPECT_EQ(acks.size(), 1U);
  arrive(11);
  ASSERT_EQ(acks.size(), 2U);
  EXPECT_EQ(acks[1].cumulative, Psn{12});
  EXPECT_EQ(times[1], times[0]);
  arrive(13);
  EXPECT_EQ(acks.size(), 2U);  // in order again: the delay as ever
}

TEST_F(Receiver, AcknowledgesOnRequestAndForDuplicatesAtOnce) {
  make({.ack_every = 64});
  arrive(0, true);
  EXPECT_EQ(acks.size(), 1U);
  arrive(0);
  ASSERT_EQ(acks.size(), 2U);
  EXPECT_EQ(acks[1].trigger, Psn{0});
  arrive(1);
  EXPECT_EQ(acks.size(), 2U);
  receiver->on_data({{2}, 0xc000, false, false, true, 1});  // the last of a message
  receiver->flush();
  EXPECT_EQ(acks.size(), 3U);
}

TEST_F(Receiver, AcknowledgesAfterTheDelayAndSaysHowLongItWas) {
  make({.ack_every = 64, .ack_delay = {5'000'000}});
  arrive(0);
  events.run_until({3'000'000});
  arrive(1);
  events.run_until({100'000'000});
  ASSERT_EQ(acks.size(), 1U);
  EXPECT_EQ(times[0].count, 5'000'000U);
  EXPECT_EQ(acks[0].cumulative, Psn{1});
  EXPECT_EQ(acks[0].delay.count, 2'000'000U);
}

TEST_F(Receiver, AnAcknowledgeInTimeCancelsTheDelayedOne) {
  make({.ack_every = 2, .ack_delay = {5'000'000}});
  arrive(0);
  arrive(1);
  events.run_until({4'000'000});
  arrive(2);
  events.run_until({100'000'000});
  ASSERT_EQ(acks.size(), 2U);
  EXPECT_EQ(times[1].count, 9'000'000U);
}

TEST_F(Receiver, OutOfOrderCanBeAcknowledgedAtOnce) {
  make({.ack_every = 64, .ack_out_of_order = true});
  arrive(0);
  EXPECT_TRUE(acks.empty());
  arrive(5);
  ASSERT_EQ(acks.size(), 1U);
  EXPECT_EQ(acks[0].cumulative, Psn{0});
  EXPECT_EQ(acks[0].sack_base, Psn{5});
  EXPECT_EQ(acks[0].sack_bitmap, 1U);
}

TEST_F(Receiver, OneBitmapNamesAllThatWaits) {
  make({.ack_every = 64, .ack_delay = {1'000'000'000}});
  arrive(10);
  arrive(73);  // 64 apart, both ends included: fits
  EXPECT_TRUE(acks.empty());
  arrive(74);  // doesn't
  ASSERT_EQ(acks.size(), 1U);
  EXPECT_EQ(acks[0].sack_base, Psn{10});
  EXPECT_EQ(acks[0].sack_bitmap, (std::uint64_t{1} << 63) | 1U);
  arrive(5);  // before what waits, further than 64
  ASSERT_EQ(acks.size(), 2U);
  EXPECT_EQ(acks[1].sack_base, Psn{74});
  arrive(0, true);
  EXPECT_EQ(acks[2].cumulative, Psn{0});
  EXPECT_EQ(acks[2].sack_base, Psn{5});
  EXPECT_EQ(acks[2].sack_bitmap, 1U | (1U << 5));  // 5 and 10: what is known, not only what is new
}

TEST_F(Receiver, EcnIsEchoedForTheTriggerAndCountedForAll) {
  make({.ack_every = 4});
  arrive(0, false, true);
  arrive(1, false, true);
  arrive(2);
  arrive(3);
  arrive(4, true, true);
  ASSERT_EQ(acks.size(), 2U);
  EXPECT_FALSE(acks[0].ecn_echo);
  EXPECT_EQ(acks[0].ce_count, 2U);
  EXPECT_TRUE(acks[1].ecn_echo);
  EXPECT_EQ(acks[1].ce_count, 1U);
  EXPECT_EQ(receiver->counters().ce, 3U);
}

TEST_F(Receiver, TheCountOfMarksSaturates) {
  make({.ack_every = 64, .ack_delay = {1'000'000'000}});
  arrive(0, true);
  for (int i = 0; i < 300; ++i) {
    receiver->on_data({{0}, 0xc000, true, false, false, 1});
  }
  receiver->flush();
  EXPECT_EQ(acks.back().ce_count, 255U);
}

TEST_F(Receiver, ARequestTakesThePsnsOfItsResponses) {
  make({.bitmap_packets = 64});
  EXPECT_EQ(arrive(0, true, false, 10), Arrival::fresh);
  EXPECT_EQ(receiver->expected(), Psn{10});
  EXPECT_EQ(arrive(3, true, false, 7), Arrival::duplicate);  // a part of it, asked for again
  EXPECT_EQ(arrive(20, false, false, 55), Arrival::outside);
  EXPECT_EQ(arrive(20, false, false, 54), Arrival::fresh);
  EXPECT_EQ(arrive(10, false, false, 10), Arrival::fresh);
  EXPECT_EQ(receiver->expected(), Psn{74});
  EXPECT_EQ(arrive(74, false, false, 65), Arrival::outside);
}

TEST_F(Receiver, AStoppedReceiverIsSilent) {
  make({.ack_every = 2});
  arrive(0);
  receiver->stop();
  arrive(1);
  events.run_until({1'000'000'000});
  EXPECT_TRUE(acks.empty());
}

TEST_F(Receiver, MayBeDestroyedWhileAnAcknowledgeWaits) {
  make({.ack_every = 64});
  arrive(0);
  receiver.reset();
  events.run_until({1'000'000'000});
  EXPECT_TRUE(acks.empty());
}

// Random arrivals against a set: the same verdicts, the same cumulative PSN, acknowledges that tell no lies and, all
// together, all of the truth.
TEST_F(Receiver, AgreesWithASet) {
  Rng random(8, 1);
  for (int round = 0; round < 20; ++round) {
    const std::uint32_t start = random() & 0xff'ffffU;
    const auto every = static_cast<std::uint32_t>(1 + random.below(64));
    make({.initial_psn = {start}, .bitmap_packets = 256, .ack_every = every});
    acks.clear();
    std::set<std::uint32_t> arrived;  // offsets from start
    std::set<std::uint32_t> named;
    std::uint32_t expected = 0;
    std::size_t seen = 0;
    for (int i = 0; i < 5'000; ++i) {
      const std::uint32_t offset = expected + random.below(300) - std::min(expected, 20U);
      const bool fresh = offset >= expected && arrived.count(offset) == 0 && offset < expected + 256;
      const Arrival arrival = arrive((start + offset) & 0xff'ffffU);
      ASSERT_EQ(arrival == Arrival::fresh, fresh);
      if (fresh) {
        arrived.insert(offset);
        while (arrived.count(expected) != 0) {
          ++expected;
        }
      }
      ASSERT_EQ(receiver->expected(), Psn::of(start + expected));
      if (i % 97 == 0) {
        events.run_until(events.now() + Picoseconds{2'000'000});
      }
      for (; seen < acks.size(); ++seen) {
        const AckInfo& ack = acks[seen];
        for (std::uint32_t bit = 0; bit < 64; ++bit) {
          if ((ack.sack_bitmap >> bit & 1U) != 0) {
            const auto name = static_cast<std::uint32_t>(distance(Psn{start}, ack.sack_base + bit));
            ASSERT_TRUE(arrived.count(name) != 0) << "said to have arrived: " << name;
            named.insert(name);
          }
        }
      }
    }
    events.run_until(events.now() + Picoseconds{2'000'000});
    const auto cumulative = static_cast<std::int64_t>(distance(Psn{start}, acks.back().cumulative));
    for (; seen < acks.size(); ++seen) {
      for (std::uint32_t bit = 0; bit < 64; ++bit) {
        if ((acks[seen].sack_bitmap >> bit & 1U) != 0) {
          named.insert(static_cast<std::uint32_t>(distance(Psn{start}, acks[seen].sack_base + bit)));
        }
      }
    }
    for (const std::uint32_t offset : arrived) {
      ASSERT_TRUE(offset <= cumulative || named.count(offset) != 0) << "never acknowledged: " << offset;
    }
  }
}

TEST_F(Receiver, RefusesSettingsThatMakeNoSense) {
  EXPECT_THROW(make({.bitmap_packets = 32}), Error);
  EXPECT_THROW(make({.bitmap_packets = 100}), Error);
  EXPECT_THROW(make({.bitmap_packets = 1U << 23}), Error);
  EXPECT_THROW(make({.ack_every = 0}), Error);
  EXPECT_THROW(make({.ack_every = 65}), Error);
  EXPECT_THROW(make({.ack_delay = {0}}), Error);
}

TEST(AckInfo, SurvivesTheWire) {
  AckInfo info;
  info.cumulative = {0xff'ffff};
  info.trigger = {3};
  info.sack_base = {0};
  info.sack_bitmap = 0x8000'0000'0000'0001U;
  info.entropy = 0xdead;
  info.ecn_echo = true;
  info.ce_count = 9;
  info.delay = {1'000'015'999};
  const AckInfo back = from_wire(info.cumulative, to_wire(info));
  EXPECT_EQ(back.cumulative, info.cumulative);
  EXPECT_EQ(back.trigger, info.trigger);
  EXPECT_EQ(back.sack_base, info.sack_base);
  EXPECT_EQ(back.sack_bitmap, info.sack_bitmap);
  EXPECT_EQ(back.entropy, info.entropy);
  EXPECT_TRUE(back.ecn_echo);
  EXPECT_EQ(back.ce_count, 9U);
  EXPECT_EQ(back.delay.count, 1'000'000'000U);
  info.delay = {1'000'000'000'000};
  EXPECT_EQ(from_wire({}, to_wire(info)).delay.count, 65'535U * 16'000);
}

}  // namespace
}  // namespace orrery::fabric::reliable_receiver_test
