// Checksums and segmentation against a routine of their own, RFC 1071's example and Microsoft's RSS examples.
#include "systemc_models/rnic/ethernet/frame.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/systemc_models/rnic/ethernet/frames.h"

namespace orrery::test {
namespace {

using namespace orrery::rnic;

TEST(Frame, Rfc1071Example) {
  const Bytes bytes = make_bytes({0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7});
  EXPECT_EQ(ones_sum(bytes), 0xddf2);
}

TEST(Frame, SumsOfAnyLengthAreThoseOfTheSlowRoutine) {
  std::mt19937 random{7};
  for (std::size_t size = 0; size < 200; ++size) {
    Bytes bytes(size);
    for (std::byte& b : bytes) {
      b = static_cast<std::byte>(random());
    }
    EXPECT_EQ(ones_sum(bytes), slow_sum(bytes, 0, size)) << size;
  }
}

TEST(Frame, WrittenChecksumsAreRight) {
  for (const bool v6 : {false, true}) {
    for (const unsigned protocol : {6U, 17U}) {
      for (const unsigned payload : {0U, 1U, 2U, 7U, 999U, 1400U}) {
        Bytes frame = make_frame(v6, protocol, payload);
        EXPECT_FALSE(summarize(frame).l4_ok);
        write_checksums(frame, true, true);
        EXPECT_TRUE(l4_right(frame, v6)) << v6 << protocol << payload;
        EXPECT_TRUE(v6 || slow_sum(frame, 14, 34) == 0xffff);
        frame.resize(frame.size() + 5, std::byte{0xee});  // padding is no part of it
        const FrameSummary summary = summarize(frame);
        EXPECT_TRUE(summary.ip_ok && summary.l4_ok);
        EXPECT_EQ(summary.checksum, slow_sum(frame, 14, frame.size() - 5));
        frame[frame.size() - 6] ^= std::byte{1};
        EXPECT_FALSE(summarize(frame).l4_ok);
      }
    }
  }
}

TEST(Frame, AnyBytesAreSafe) {
  std::mt19937 random{3};
  for (unsigned round = 0; round < 20000; ++round) {
    Bytes frame = make_frame(round % 2 != 0, round % 3 != 0 ? 6 : 17, 30);
    for (unsigned i = 0; i < 4; ++i) {
      frame[12 + random() % 60 % (frame.size() - 12)] = static_cast<std::byte>(random());
    }
    frame.resize(random() % (frame.size() + 1));
    static_cast<void>(summarize(frame));
    static_cast<void>(receive_hash(frame));
    write_checksums(frame, true, true);
    Segmenter segmenter;
    static_cast<void>(segmenter.begin(frame, 1000, 100));
  }
}

// Microsoft's "Verifying the RSS hash calculation": 66.9.149.187:2794 → 161.142.100.80:1766.
TEST(Frame, ReceiveHashIsMicrosofts) {
  Bytes frame = make_frame(false, 6, 0);
  const Bytes addresses = make_bytes({66, 9, 149, 187, 161, 142, 100, 80});
  std::copy(addresses.begin(), addresses.end(), frame.begin() + 26);
  put16(frame, 34, 2794);
  put16(frame, 36, 1766);
  EXPECT_EQ(receive_hash(frame), 0x51ccc178U);
}

TEST(Frame, SegmentsOfOddSizes) {
  for (const bool v6 : {false, true}) {
    for (const unsigned protocol : {6U, 17U}) {
      const Bytes whole = make_frame(v6, protocol, 10'001);
      const std::size_t header_bytes = whole.size() - 10'001;
      const std::span headers = std::span(whole).first(header_bytes);
      const std::span payload = std::span(whole).subspan(header_bytes);
      Segmenter segmenter;
      ASSERT_TRUE(segmenter.begin(headers, 10'001, 1447));
      ASSERT_EQ(segmenter.frames(), 7U);  // ceil(10001 / 1447)
      Bytes together;
      for (std::uint32_t i = 0; i < segmenter.frames(); ++i) {
        Bytes frame(segmenter.frame_bytes(i));
        segmenter.write(i, headers, payload, frame);
        EXPECT_TRUE(l4_right(frame, v6));
        EXPECT_TRUE(v6 || slow_sum(frame, 14, 34) == 0xffff);
        if (protocol == 6) {
          const std::size_t l4 = v6 ? 54 : 34;
          EXPECT_EQ(get32(frame, l4 + 4), 0xffff'ff00U + i * 1447);  // wraps
          EXPECT_EQ(std::to_integer<unsigned>(frame[l4 + 13]), 0x10U | (i == 6 ? 9U : 0U) | (i == 0 ? 0x80U : 0U));
        }
        together.insert(together.end(), frame.begin() + static_cast<std::ptrdiff_t>(header_bytes), frame.end());
      }
      EXPECT_TRUE(std::equal(together.begin(), together.end(), payload.begin(), payload.end()));
    }
  }
}

TEST(Frame, WhatCannotBeSegmented) {
  const Bytes whole = make_frame(false, 6, 0);
  Segmenter segmenter;
  EXPECT_TRUE(segmenter.begin(whole, 100, 10));
  EXPECT_FALSE(segmenter.begin(whole, 0, 10));
  EXPECT_FALSE(segmenter.begin(whole, 100, 0));
  EXPECT_FALSE(segmenter.begin(whole, 100'000, 1));
  EXPECT_FALSE(segmenter.begin(whole, 100, 20'000));
  EXPECT_FALSE(segmenter.begin(std::span(whole).first(53), 100, 10));
  EXPECT_FALSE(segmenter.begin({}, 100, 10));
}

}  // namespace
}  // namespace orrery::test
