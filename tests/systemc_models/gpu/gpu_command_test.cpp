#include "systemc_models/gpu/gpu_command.h"

#include <gtest/gtest.h>

#include "tests/systemc_models/gpu/gpu_driver.h"

namespace orrery::test::gpu_command_test {
namespace {

using models::check_command;

constexpr std::uint64_t memory = 64 * mib;
constexpr std::uint64_t top = ~std::uint64_t{0};

std::uint32_t code_of(const orrery_gpu_command& c) {
  return check_command(c, memory).code;
}

TEST(GpuCommand, LastBytesOfMemoryAndOfTheBusAreUsable) {
  EXPECT_EQ(code_of(copy({0, false}, {memory - 1, false}, 1)), ORRERY_GPU_ERROR_NONE);
  EXPECT_EQ(code_of(copy({0, false}, {top, true}, 1)), ORRERY_GPU_ERROR_NONE);
  EXPECT_EQ(code_of(copy({0, false}, {0, true}, memory)), ORRERY_GPU_ERROR_NONE);
  EXPECT_EQ(code_of(fence({memory - 8, false}, 1)), ORRERY_GPU_ERROR_NONE);
}

TEST(GpuCommand, RefusesRangesThatLeaveMemoryOrWrap) {
  EXPECT_EQ(code_of(copy({0, false}, {memory - 1, false}, 2)), ORRERY_GPU_ERROR_ADDRESS_RANGE);
  EXPECT_EQ(code_of(copy({memory, false}, {0, true}, 1)), ORRERY_GPU_ERROR_ADDRESS_RANGE);
  EXPECT_EQ(code_of(copy({top, false}, {0, true}, 1)), ORRERY_GPU_ERROR_ADDRESS_RANGE);
  EXPECT_EQ(code_of(copy({0, false}, {0, true}, top)), ORRERY_GPU_ERROR_ADDRESS_RANGE);
  EXPECT_EQ(code_of(copy({8, false}, {0, true}, top - 7)), ORRERY_GPU_ERROR_ADDRESS_RANGE);  // 8 + length wraps to 1
  EXPECT_EQ(code_of(copy({top, true}, {0, false}, 2)), ORRERY_GPU_ERROR_ADDRESS_RANGE);
  EXPECT_EQ(code_of(fill({memory - 3, false}, 4, 0)), ORRERY_GPU_ERROR_ADDRESS_RANGE);
  EXPECT_EQ(code_of(fence({memory, false}, 1)), ORRERY_GPU_ERROR_ADDRESS_RANGE);
}

TEST(GpuCommand, ReportsTheOffendingValue) {
  EXPECT_EQ(check_command(copy({0, false}, {memory, false}, 3), memory).address, memory);
  EXPECT_EQ(check_command(copy({memory + 5, false}, {0, false}, 3), memory).address, memory + 5);
  EXPECT_EQ(check_command(command(77, {0, false}, {0, false}, 0), memory).address, 77U);
  EXPECT_EQ(check_command(command(ORRERY_GPU_OP_REDUCE_F32_SUM, {2, true}, {0, false}, 4), memory).address, 2U);
}

TEST(GpuCommand, RefusesUnknownOpcodes) {
  for (unsigned opcode = ORRERY_GPU_OP_FENCE + 1; opcode < 256; ++opcode) {
    ASSERT_EQ(code_of(command(static_cast<std::uint8_t>(opcode), {0, false}, {0, false}, 0)), ORRERY_GPU_ERROR_OPCODE);
  }
}

TEST(GpuCommand, RefusesFieldsThatMustBeZero) {
  const auto refuses = [](orrery_gpu_command c) { return code_of(c) == ORRERY_GPU_ERROR_FIELD; };
  orrery_gpu_command c = copy({0, false}, {64, false}, 16);
  ASSERT_EQ(code_of(c), ORRERY_GPU_ERROR_NONE);
  for (unsigned i = 0; i < 3; ++i) {
    orrery_gpu_command bad = c;
    bad.reserved1[i] = 1;
    EXPECT_TRUE(refuses(bad));
  }
  orrery_gpu_command bad = c;
  bad.reserved0 = 1;
  EXPECT_TRUE(refuses(bad));
  bad = c;
  bad.value = 1;
  EXPECT_TRUE(refuses(bad)) << "a copy has no value";
  bad = c;
  bad.vector = 1;
  EXPECT_TRUE(refuses(bad)) << "a vector without INTERRUPT";
  for (unsigned bit = 4; bit < 8; ++bit) {
    bad = c;
    bad.flags |= static_cast<std::uint8_t>(1U << bit);
    EXPECT_TRUE(refuses(bad)) << "flag " << bit;
  }
  EXPECT_TRUE(refuses(with_interrupt(c, ORRERY_GPU_VECTOR_COUNT)));
  EXPECT_FALSE(refuses(with_interrupt(c, ORRERY_GPU_VECTOR_COUNT - 1)));

  bad = fill({0, false}, 4, 1);
  bad.source = 1;
  EXPECT_TRUE(refuses(bad));
  bad = fill({0, false}, 4, 1);
  bad.value |= std::uint64_t{1} << 32;
  EXPECT_TRUE(refuses(bad));
  bad = fill({0, false}, 4, 1);
  bad.flags |= ORRERY_GPU_FLAG_SOURCE_BUS;
  EXPECT_TRUE(refuses(bad));
  bad = fence({0, false}, 4);
  bad.source = 8;
  EXPECT_TRUE(refuses(bad));
  bad = command(ORRERY_GPU_OP_NOP, {0, false}, {0, false}, 0);
  ASSERT_FALSE(refuses(bad));
  bad.destination = 1;
  EXPECT_TRUE(refuses(bad));
  EXPECT_TRUE(refuses(command(ORRERY_GPU_OP_NOP, {0, true}, {0, false}, 0)));
}

TEST(GpuCommand, RefusesLengthsThatDoNotFitTheOpcode) {
  EXPECT_EQ(code_of(copy({0, false}, {64, false}, 0)), ORRERY_GPU_ERROR_LENGTH);
  EXPECT_EQ(code_of(fill({0, false}, 0, 1)), ORRERY_GPU_ERROR_LENGTH);
  EXPECT_EQ(code_of(command(ORRERY_GPU_OP_REDUCE_F32_SUM, {0, false}, {64, false}, 6)), ORRERY_GPU_ERROR_LENGTH);
  EXPECT_EQ(code_of(command(ORRERY_GPU_OP_REDUCE_BF16_SUM, {0, false}, {64, false}, 7)), ORRERY_GPU_ERROR_LENGTH);
  EXPECT_EQ(code_of(command(ORRERY_GPU_OP_REDUCE_BF16_SUM, {0, false}, {64, false}, 6)), ORRERY_GPU_ERROR_NONE);
  orrery_gpu_command bad = fence({0, false}, 1);
  bad.length = 8;
  EXPECT_EQ(code_of(bad), ORRERY_GPU_ERROR_LENGTH);
  EXPECT_EQ(code_of(command(ORRERY_GPU_OP_NOP, {0, false}, {0, false}, 1)), ORRERY_GPU_ERROR_LENGTH);
}

TEST(GpuCommand, ReduceAndFenceNeedAlignedOperandsAndCopyDoesNot) {
  EXPECT_EQ(code_of(command(ORRERY_GPU_OP_REDUCE_F32_SUM, {2, true}, {64, false}, 4)), ORRERY_GPU_ERROR_ALIGNMENT);
  EXPECT_EQ(code_of(command(ORRERY_GPU_OP_REDUCE_F32_SUM, {0, true}, {66, false}, 4)), ORRERY_GPU_ERROR_ALIGNMENT);
  EXPECT_EQ(code_of(command(ORRERY_GPU_OP_REDUCE_BF16_SUM, {1, true}, {64, false}, 4)), ORRERY_GPU_ERROR_ALIGNMENT);
  EXPECT_EQ(code_of(command(ORRERY_GPU_OP_REDUCE_BF16_SUM, {2, true}, {66, false}, 4)), ORRERY_GPU_ERROR_NONE);
  EXPECT_EQ(code_of(fence({4, true}, 1)), ORRERY_GPU_ERROR_ALIGNMENT);
  EXPECT_EQ(code_of(copy({1, true}, {3, false}, 5)), ORRERY_GPU_ERROR_NONE);
}

TEST(GpuCommand, OverlapIsMemmoveInOwnMemoryAndRefusedElsewhere) {
  EXPECT_EQ(code_of(copy({0, false}, {1, false}, 4)), ORRERY_GPU_ERROR_NONE);
  EXPECT_EQ(code_of(copy({0, true}, {3, true}, 4)), ORRERY_GPU_ERROR_OVERLAP);
  EXPECT_EQ(code_of(copy({3, true}, {0, true}, 4)), ORRERY_GPU_ERROR_OVERLAP);
  EXPECT_EQ(code_of(copy({4, true}, {0, true}, 4)), ORRERY_GPU_ERROR_NONE);
  EXPECT_EQ(code_of(copy({top - 3, true}, {top - 7, true}, 4)), ORRERY_GPU_ERROR_NONE);
  EXPECT_EQ(code_of(copy({top - 3, true}, {top - 6, true}, 4)), ORRERY_GPU_ERROR_OVERLAP);
  // Equal numbers in different address spaces are different places.
  EXPECT_EQ(code_of(copy({0, true}, {0, false}, 4)), ORRERY_GPU_ERROR_NONE);
  EXPECT_EQ(code_of(command(ORRERY_GPU_OP_REDUCE_F32_SUM, {0, false}, {4, false}, 8)), ORRERY_GPU_ERROR_OVERLAP);
  EXPECT_EQ(code_of(command(ORRERY_GPU_OP_REDUCE_F32_SUM, {0, false}, {0, false}, 8)), ORRERY_GPU_ERROR_NONE);
  EXPECT_EQ(code_of(command(ORRERY_GPU_OP_REDUCE_F32_SUM, {8, true}, {8, true}, 8)), ORRERY_GPU_ERROR_NONE);
}

}  // namespace
}  // namespace orrery::test::gpu_command_test
