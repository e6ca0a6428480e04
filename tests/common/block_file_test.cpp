#include "common/block_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <cstring>

#include "common/bytes.h"
#include "common/error.h"
#include "tests/common/temporary_file.h"

namespace orrery::block_file_test {
namespace {

using test::TemporaryFile;
using ::testing::HasSubstr;

constexpr BlockFileFormat format{{'T', 'E', 'S', 'T', 'F', 'I', 'L', 'E'}, 3, "test file", 1000};

std::vector<std::byte> bytes(std::string_view text) {
  const auto all = std::as_bytes(std::span(text.data(), text.size()));
  return {all.begin(), all.end()};
}

std::string error_of(const std::vector<std::byte>& content) {
  try {
    BlockFileReader reader(content, "x", format);
    while (reader.next()) {
    }
    return reader.truncated() ? "truncated" : "";
  } catch (const Error& error) {
    return error.what();
  }
}

std::vector<std::byte> two_blocks() {
  const TemporaryFile file;
  BlockFileWriter writer(file.path(), format);
  writer.write(1, bytes("hello"));
  writer.write(2, {});
  writer.close();
  return file.read();
}

TEST(BlockFile, LayoutIsAsDocumented) {
  const std::vector<std::byte> content = two_blocks();
  ASSERT_EQ(content.size(), 16U + (16 + 5) + 16 + 16);
  ByteReader in(content);
  EXPECT_EQ(std::memcmp(in.take(8).data(), "TESTFILE", 8), 0);
  EXPECT_EQ(in.get<std::uint32_t>(), 3U);
  EXPECT_EQ(in.get<std::uint32_t>(), 0U);
  EXPECT_EQ(in.get<std::uint32_t>(), 1U);
  EXPECT_EQ(in.get<std::uint32_t>(), 5U);
  EXPECT_EQ(in.get<std::uint64_t>(), XXH3_64bits_withSeed("hello", 5, 1));
  in.take(5);
  EXPECT_EQ(in.get<std::uint32_t>(), 2U);
  EXPECT_EQ(in.get<std::uint32_t>(), 0U);
  in.take(8);
  EXPECT_EQ(in.get<std::uint32_t>(), 0xffff'ffffU);
}

TEST(BlockFile, ReadsBackFromFileAndMemory) {
  const TemporaryFile file;
  file.write(two_blocks());
  BlockFileReader reader(file.path(), format);
  auto block = reader.next();
  ASSERT_TRUE(block.has_value());
  EXPECT_EQ(block->kind, 1U);
  EXPECT_EQ(block->offset, 16U);
  EXPECT_EQ(std::memcmp(block->payload.data(), "hello", 5), 0);
  block = reader.next();
  ASSERT_TRUE(block.has_value());
  EXPECT_TRUE(block->payload.empty());
  EXPECT_FALSE(reader.next().has_value());
  EXPECT_FALSE(reader.next().has_value());
  EXPECT_FALSE(reader.truncated());
  EXPECT_EQ(error_of(two_blocks()), "");
}

TEST(BlockFile, EveryTruncationIsNoticed) {
  const std::vector<std::byte> whole = two_blocks();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::string error = error_of({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)});
    EXPECT_EQ(error, size < 16 ? "x: not an Orrery test file" : "truncated") << size;
  }
}

TEST(BlockFile, EveryFlippedByteOfPayloadAndChecksumIsNoticed) {
  for (std::size_t at = 24; at < 16 + 16 + 5; ++at) {
    std::vector<std::byte> damaged = two_blocks();
    damaged[at] ^= std::byte{0x40};
    EXPECT_EQ(error_of(damaged), "x: a block with a wrong checksum at byte 16") << at;
  }
}

TEST(BlockFile, RefusesHugeBlocksForeignFilesAndOtherVersions) {
  std::vector<std::byte> content = two_blocks();
  content[20] = std::byte{0xe9};  // 1001 bytes
  content[21] = std::byte{0x03};
  EXPECT_EQ(error_of(content), "x: a block of 1001 bytes, more than 1000, at byte 16");
  content = two_blocks();
  content[8] = std::byte{4};
  EXPECT_EQ(error_of(content), "x: test file format version 4, this program reads version 3");
  content = two_blocks();
  content.push_back(std::byte{0});
  EXPECT_THAT(error_of(content), HasSubstr("data behind the end block"));
  EXPECT_THAT(error_of(bytes("#!/bin/sh\nexit 0\n")), HasSubstr("not an Orrery test file"));
}

TEST(BlockFile, FullDiskIsReportedOnceAtClose) {
  BlockFileWriter writer("/dev/full", format);
  writer.write(1, bytes("hello"));
  EXPECT_TRUE(writer.failed());
  writer.write(1, bytes("hello"));
  try {
    writer.close();
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "/dev/full: the test file is incomplete: No space left on device");
    EXPECT_THAT(error.remedy(), HasSubstr("free some space"));
  }
  writer.close();  // says it only once
}

TEST(BlockFile, UncreatableFilesAreErrors) {
  EXPECT_THROW(BlockFileWriter("/nonexistent/dir/x", format), Error);
  EXPECT_THROW(BlockFileWriter("/tmp", format), Error);
  EXPECT_THROW(BlockFileReader("/nonexistent/dir/x", format), Error);
  EXPECT_THROW(BlockFileReader("/tmp", format), Error);
}

TEST(BlockFile, NobodyElseMayRead) {
  const std::string path = ::testing::TempDir() + "orrery_block_file_mode";
  std::remove(path.c_str());
  BlockFileWriter(path, format).close();
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0077U, 0U);
  std::remove(path.c_str());
}

TEST(ByteReader, NeverRunsPastTheEnd) {
  const std::vector<std::byte> three = bytes("abc");
  ByteReader in(three);
  EXPECT_EQ(in.get<std::uint32_t>(), 0U);
  EXPECT_FALSE(in.good());
  EXPECT_EQ(in.get<std::uint8_t>(), 0U);  // stays bad
  ByteWriter out;
  out.put(std::uint32_t{0xffff'ffff});
  ByteReader length(out.bytes());
  EXPECT_EQ(length.get_text(100), "");
  EXPECT_FALSE(length.good());
}

}  // namespace
}  // namespace orrery::block_file_test
