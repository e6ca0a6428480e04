#include "cli/adaptive_wait.h"

#include <gtest/gtest.h>

namespace orrery::cli {
namespace {

using namespace std::chrono_literals;

TEST(AdaptiveWait, DoublesWhileMessagesComeSoonAndStaysWhenItIsLongEnough) {
  AdaptiveWait wait(10us, 50us);
  EXPECT_EQ(wait.wait(), 0us) << "a server that was never asked sleeps";
  wait.ended(40us);
  EXPECT_EQ(wait.wait(), 10us);
  wait.ended(40us);
  EXPECT_EQ(wait.wait(), 20us);
  wait.ended(20us);
  EXPECT_EQ(wait.wait(), 20us);
  wait.ended(21us);
  EXPECT_EQ(wait.wait(), 40us);
  wait.ended(50us);
  EXPECT_EQ(wait.wait(), 50us) << "never more than the most";
}

TEST(AdaptiveWait, FallsToNothingAfterALongSilence) {
  AdaptiveWait wait(10us, 50us);
  wait.ended(1us);
  wait.ended(30us);
  ASSERT_EQ(wait.wait(), 20us);
  wait.ended(51us);
  EXPECT_EQ(wait.wait(), 0us);
  wait.ended(1s);
  EXPECT_EQ(wait.wait(), 0us) << "an idle server never looks on";
}

}  // namespace
}  // namespace orrery::cli
