#include "common/recording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "common/error.h"
#include "tests/common/temporary_file.h"

namespace orrery::recording_test {
namespace {

using test::TemporaryFile;
using ::testing::HasSubstr;

const std::array<std::byte, 4> four{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};

Stimulus bar_write(std::uint64_t time) {
  Stimulus s;
  s.kind = StimulusKind::bar_write;
  s.function = 5;
  s.region = 2;
  s.address = 0x40;
  s.time = {time};
  s.position = time * 2;
  s.bytes = four;
  return s;
}

Stimulus memory_file(std::uint32_t number, std::uint64_t size) {
  Stimulus s;
  s.kind = StimulusKind::memory_file;
  s.file = number;
  s.size = size;
  return s;
}

// What reading a recording of these stimuli says.
std::string error_of(const std::vector<Stimulus>& stimuli) {
  const TemporaryFile file;
  RecordingWriter writer(file.path(), {"0.1.0", ""});
  for (const Stimulus& s : stimuli) {
    writer.add(s);
  }
  writer.close({0, Picoseconds::max(), 0, 0});
  try {
    RecordingReader reader(file.path());
    Stimulus s;
    while (reader.next(s)) {
    }
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Recording, ReadsBackEverything) {
  const TemporaryFile file;
  RecordingWriter writer(file.path(), {"0.1.0", "[server]\nname = \"x\"\n"});
  writer.add(memory_file(0, 1 << 20));
  Stimulus map;
  map.kind = StimulusKind::dma_map;
  map.flags = Stimulus::access_read | Stimulus::access_write;
  map.function = 3;
  map.file = 0;
  map.address = 0xffff'ffff'ffff'f000;
  map.size = 0x1000;
  map.file_offset = 0xff000;
  map.time = {10};
  writer.add(map);
  writer.add(bar_write(20));
  EXPECT_EQ(writer.count(), 3U);
  writer.close({0, {25}, 77, 0x0123'4567'89ab'cdef});

  RecordingReader reader(file.path());
  EXPECT_EQ(reader.header().program_version, "0.1.0");
  EXPECT_EQ(reader.header().config, "[server]\nname = \"x\"\n");
  Stimulus s;
  ASSERT_TRUE(reader.next(s));
  EXPECT_EQ(s.kind, StimulusKind::memory_file);
  ASSERT_TRUE(reader.next(s));
  EXPECT_EQ(s.kind, StimulusKind::dma_map);
  EXPECT_EQ(s.flags, 3);
  EXPECT_EQ(s.function, 3);
  EXPECT_EQ(s.address, 0xffff'ffff'ffff'f000U);
  EXPECT_EQ(s.file_offset, 0xff000U);
  EXPECT_EQ(s.time.count, 10U);
  ASSERT_TRUE(reader.next(s));
  EXPECT_EQ(s.region, 2U);
  EXPECT_EQ(s.position, 40U);
  ASSERT_EQ(s.bytes.size(), 4U);
  EXPECT_EQ(std::memcmp(s.bytes.data(), four.data(), 4), 0);
  EXPECT_FALSE(reader.next(s));
  ASSERT_TRUE(reader.complete());
  EXPECT_EQ(reader.result().stimuli, 3U);
  EXPECT_EQ(reader.result().trace_records, 77U);
  EXPECT_EQ(reader.result().trace_hash, 0x0123'4567'89ab'cdefU);
}

TEST(Recording, ManyBlocks) {
  const TemporaryFile file;
  RecordingWriter writer(file.path(), {});
  for (std::uint64_t i = 0; i < 5000; ++i) {
    writer.add(bar_write(i));
  }
  writer.close({0, {5000}, 0, 0});
  RecordingReader reader(file.path());
  Stimulus s;
  std::uint64_t expected = 0;
  while (reader.next(s)) {
    ASSERT_EQ(s.time.count, expected++);
  }
  EXPECT_EQ(expected, 5000U);
  EXPECT_TRUE(reader.complete());
}

TEST(Recording, AKilledRunReadsUpToItsLastFlush) {
  const TemporaryFile file;
  {
    RecordingWriter writer(file.path(), {});
    writer.add(bar_write(1));
    writer.flush();
    writer.add(bar_write(2));
  }
  RecordingReader reader(file.path());
  Stimulus s;
  EXPECT_TRUE(reader.next(s));
  EXPECT_FALSE(reader.next(s));
  EXPECT_FALSE(reader.complete());
}

TEST(Recording, MemoryOfAnySizeIsSplit) {
  const TemporaryFile file;
  const std::vector<std::byte> contents(Stimulus::maximum_bytes + 10, std::byte{7});
  RecordingWriter writer(file.path(), {});
  writer.add(memory_file(0, 1U << 30));
  Stimulus s;
  s.kind = StimulusKind::memory_contents;
  s.file = 0;
  s.file_offset = 100;
  s.bytes = contents;
  writer.add(s);
  writer.close({});
  RecordingReader reader(file.path());
  ASSERT_TRUE(reader.next(s));
  ASSERT_TRUE(reader.next(s));
  EXPECT_EQ(s.bytes.size(), Stimulus::maximum_bytes);
  ASSERT_TRUE(reader.next(s));
  EXPECT_EQ(s.file_offset, 100 + Stimulus::maximum_bytes);
  EXPECT_EQ(s.bytes.size(), 10U);
  EXPECT_FALSE(reader.next(s));
}

TEST(Recording, AnAccessThatIsTooLargeFailsAtClose) {
  const TemporaryFile file;
  const std::vector<std::byte> contents(Stimulus::maximum_bytes + 1);
  RecordingWriter writer(file.path(), {});
  Stimulus s = bar_write(0);
  s.bytes = contents;
  writer.add(s);
  EXPECT_TRUE(writer.failed());
  EXPECT_THROW(writer.close({}), Error);
}

TEST(Recording, RefusesStimuliThatMakeNoSense) {
  EXPECT_EQ(error_of({bar_write(1), bar_write(1)}), "");
  EXPECT_THAT(error_of({bar_write(2), bar_write(1)}), HasSubstr("stimulus 1: time goes back"));

  Stimulus s = bar_write(0);
  s.region = 6;
  EXPECT_THAT(error_of({s}), HasSubstr("no such part of a BAR"));
  s = bar_write(0);
  s.address = 0xffff'ffff'ffff'fffe;  // four bytes from here wrap
  EXPECT_THAT(error_of({s}), HasSubstr("no such part of a BAR"));
  s = bar_write(0);
  s.bytes = {};
  EXPECT_THAT(error_of({s}), HasSubstr("no such part of a BAR"));
  s.kind = StimulusKind::bar_read;
  s.size = std::uint64_t{1} << 40;
  EXPECT_THAT(error_of({s}), HasSubstr("answer and size differ"));
  s = bar_write(0);
  s.kind = StimulusKind::config_write;
  s.address = 4093;
  EXPECT_THAT(error_of({s}), HasSubstr("outside configuration space"));
  s.kind = static_cast<StimulusKind>(0);
  EXPECT_THAT(error_of({s}), HasSubstr("unknown kind"));
  s.kind = static_cast<StimulusKind>(14);
  EXPECT_THAT(error_of({s}), HasSubstr("unknown kind"));

  Stimulus map;
  map.kind = StimulusKind::dma_map;
  map.flags = Stimulus::access_read;
  map.size = 0x1000;
  EXPECT_EQ(error_of({map}), "");
  map.address = 0x800;
  EXPECT_THAT(error_of({map}), HasSubstr("unaligned"));
  map.address = 0;
  map.flags = 4;
  EXPECT_THAT(error_of({map}), HasSubstr("no access right"));
  map.flags = 1;
  map.file = 0;
  EXPECT_THAT(error_of({map}), HasSubstr("mapping outside its file"));
  EXPECT_EQ(error_of({memory_file(0, 0x2000), map}), "");
  map.file_offset = 0x2000;
  EXPECT_THAT(error_of({memory_file(0, 0x2000), map}), HasSubstr("mapping outside its file"));
  map.file_offset = 0xffff'ffff'ffff'f000;
  EXPECT_THAT(error_of({memory_file(0, 0x2000), map}), HasSubstr("mapping outside its file"));

  EXPECT_THAT(error_of({memory_file(1, 0x2000)}), HasSubstr("file number out of order"));
  EXPECT_THAT(error_of({memory_file(0, 0)}), HasSubstr("impossible file size"));
  EXPECT_THAT(error_of({memory_file(0, std::uint64_t{1} << 60)}), HasSubstr("impossible file size"));

  Stimulus contents;
  contents.kind = StimulusKind::memory_contents;
  contents.bytes = four;
  contents.file = 0;
  contents.file_offset = 0x1ffd;
  EXPECT_THAT(error_of({memory_file(0, 0x2000), contents}), HasSubstr("contents outside their file"));
  contents.file_offset = 0x1ffc;
  EXPECT_EQ(error_of({memory_file(0, 0x2000), contents}), "");

  Stimulus vectors;
  vectors.kind = StimulusKind::interrupts_attached;
  vectors.address = 2048;
  vectors.size = 1;
  EXPECT_THAT(error_of({vectors}), HasSubstr("more vectors"));
}

TEST(Recording, TruncatedFilesNeverCrashAndNeverLookComplete) {
  const TemporaryFile file;
  RecordingWriter writer(file.path(), {"v", "config"});
  writer.add(bar_write(1));
  writer.close({0, {1}, 0, 0});
  const std::vector<std::byte> whole = file.read();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::span<const std::byte> part = std::span(whole).first(size);
    try {
      RecordingReader reader(part, "x");
      Stimulus s;
      while (reader.next(s)) {
      }
      // Only the end block may be missing from a recording that has its result.
      EXPECT_TRUE(!reader.complete() || size >= whole.size() - 16) << size;
    } catch (const Error&) {
    }
  }
}

TEST(Recording, IsNotATrace) {
  const TemporaryFile file;
  file.write(std::string("ORRTRACE\1\0\0\0\0\0\0\0", 16));
  EXPECT_THROW(RecordingReader reader(file.path()), Error);
}

TEST(Recording, FullDisk) {
  RecordingWriter writer("/dev/full", {});
  writer.add(bar_write(1));
  EXPECT_THROW(writer.close({}), Error);
}

}  // namespace
}  // namespace orrery::recording_test
