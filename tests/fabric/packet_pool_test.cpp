// Records: references, reuse, sizes.
#include "fabric/packet_pool.h"

#include <gtest/gtest.h>

#include "common/error.h"

namespace orrery::fabric::packet_pool_test {
namespace {

TEST(PacketPool, ARecordLivesAsLongAsItsLastReference) {
  PacketPool pool;
  const std::vector<std::byte> frame(60, std::byte{7});
  const ContentHandle handle = pool.make_frame(frame);
  pool.add_reference(handle);
  EXPECT_EQ(pool.references(handle), 2U);
  pool.release(handle);
  EXPECT_EQ(pool.outstanding(), 1U);
  EXPECT_EQ(pool.at(handle).bytes()[59], std::byte{7});
  pool.release(handle);
  EXPECT_EQ(pool.outstanding(), 0U);
  pool.release({});  // empty handles are nothing
  pool.add_reference({});
}

TEST(PacketPool, RecordsComeBackEmptyAndTheirBuffersAreUsedAgain) {
  PacketPool pool;
  RoceHeaders headers;
  headers.bth.psn = 5;
  const ContentHandle first = pool.make_roce(headers, std::vector<std::byte>(9000));
  const std::byte* buffer = pool.at(first).bytes().data();
  pool.release(first);
  const ContentHandle small = pool.make();
  EXPECT_EQ(small, first);
  EXPECT_FALSE(pool.at(small).is_roce);
  EXPECT_EQ(pool.at(small).roce.bth.psn, 0U);
  EXPECT_TRUE(pool.at(small).bytes().empty());
  const ContentHandle large = pool.make_frame(std::vector<std::byte>(1000));
  EXPECT_EQ(pool.at(large).bytes().data(), buffer);
  pool.release(small);
  pool.release(large);
}

TEST(PacketPool, RecordsStayInPlaceWhileThePoolGrows) {
  PacketPool pool;
  std::vector<ContentHandle> handles;
  handles.reserve(2000);
  const ContentHandle first = pool.make();
  const PacketContent* place = &pool.at(first);
  for (int i = 0; i < 2000; ++i) {
    handles.push_back(pool.make());
  }
  EXPECT_EQ(&pool.at(first), place);
  EXPECT_EQ(pool.outstanding(), 2001U);
}

TEST(PacketPool, RefusesWhatIsLargerThanAJumboFrame) {
  PacketPool pool;
  EXPECT_THROW(static_cast<void>(pool.make_frame(std::vector<std::byte>(max_frame_bytes + 1))), Error);
  EXPECT_EQ(pool.outstanding(), 0U);
  const ContentHandle largest = pool.make_frame(std::vector<std::byte>(max_frame_bytes));
  EXPECT_EQ(pool.at(largest).bytes().size(), max_frame_bytes);
  EXPECT_THROW(static_cast<void>(pool.reserve(largest, 1U << 31)), Error);
  pool.release(largest);
}

TEST(PacketPool, ReserveFromSmallToLargeAndBack) {
  PacketPool pool;
  const ContentHandle handle = pool.make();
  EXPECT_EQ(pool.reserve(handle, 100).size(), 100U);
  EXPECT_EQ(pool.reserve(handle, 5000).size(), 5000U);
  EXPECT_EQ(pool.reserve(handle, 0).size(), 0U);
  pool.release(handle);
}

TEST(PacketOf, SmallFramesArePaddedOnTheWire) {
  PacketPool pool;
  const Packet packet = packet_of(pool, pool.make_frame(std::vector<std::byte>(42)));
  EXPECT_EQ(packet.wire_bytes, 64U);
  EXPECT_EQ(packet.kind, PacketClass::ethernet);
  pool.release(packet.content);
  const Packet empty = packet_of(pool, pool.make());
  EXPECT_EQ(empty.wire_bytes, 64U);
  pool.release(empty.content);
}

}  // namespace
}  // namespace orrery::fabric::packet_pool_test
