// CRC-32 against the bit-by-bit one and its published check value.
#include "fabric/crc32.h"

#include <random>
#include <string_view>

#include <gtest/gtest.h>

#include "tests/fabric/support.h"

namespace orrery::fabric::crc32_test {
namespace {

using testing::bitwise_crc32;
using testing::random_bytes;

TEST(Crc32, EqualsTheBitwiseOneAtEveryLength) {
  std::mt19937_64 random(7);
  for (std::size_t size = 0; size < 100; ++size) {
    const std::vector<std::byte> bytes = random_bytes(random, size);
    const std::size_t cut = size == 0 ? 0 : random() % size;
    std::uint32_t state = crc32_update(crc32_start, std::span(bytes).first(cut));
    state = crc32_update(state, std::span(bytes).subspan(cut));
    ASSERT_EQ(crc32_finish(state), bitwise_crc32(bytes)) << size;
  }
}

TEST(Crc32, HasItsCheckValue) {
  constexpr std::string_view check = "123456789";
  EXPECT_EQ(crc32_finish(crc32_update(crc32_start, std::as_bytes(std::span(check)))), 0xcbf4'3926U);
}

}  // namespace
}  // namespace orrery::fabric::crc32_test
