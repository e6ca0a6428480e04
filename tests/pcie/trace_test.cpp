// The TLP trace: record layout, hash, file, reader.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstring>
#include <functional>
#include <tuple>

#include "common/bytes.h"
#include "common/error.h"
#include "pcie/tlp_trace.h"
#include "pcie/trace_reader.h"
#include "tests/common/temporary_file.h"

namespace orrery::pcie::trace_test {
namespace {

using test::TemporaryFile;
using ::testing::HasSubstr;

class TraceTest : public ::testing::Test {
 protected:
  TraceTest() {
    up_ = simulation_.names.add("gpu0.up");
    down_ = simulation_.names.add("gpu0.down");
    simulation_.timed = true;
  }

  TlpPtr write(std::uint64_t address, std::string_view payload) {
    TlpPtr tlp = simulation_.tlps.make();
    tlp->type = TlpType::MWr;
    tlp->requester = Bdf::of(4, 0, 0);
    tlp->address = address;
    tlp->store(std::as_bytes(std::span(payload.data(), payload.size())));
    return tlp;
  }
  TlpPtr read(std::uint64_t address, std::uint32_t length, std::uint16_t tag) {
    TlpPtr tlp = simulation_.tlps.make();
    tlp->requester = Bdf::of(4, 0, 0);
    tlp->address = address;
    tlp->length = length;
    tlp->tag = tag;
    return tlp;
  }

  Simulation simulation_;
  ComponentId up_ = 0;
  ComponentId down_ = 0;
};

TEST_F(TraceTest, RecordHoldsEveryField) {
  TlpPtr tlp = write(0x1'2345'6780, "payload!");
  tlp->at = AddressType::translated;
  tlp->poisoned = true;
  tlp->attributes = {true, false, true};
  tlp->first_be = 0x3;
  tlp->last_be = 0xc;
  tlp->tag = 0x3fff;
  tlp->traffic_class = 5;
  const TraceRecord r = trace_record(7, *tlp, {100}, {250});
  EXPECT_EQ(r.start, 100U);
  EXPECT_EQ(r.end, 250U);
  EXPECT_EQ(r.address, 0x1'2345'6780U);
  EXPECT_EQ(r.payload_hash, XXH3_64bits("payload!", 8));
  EXPECT_EQ(r.length, 8U);
  EXPECT_EQ(r.wire_bytes, 16U + 8 + 8);  // 4 DW header, framing, payload
  EXPECT_EQ(r.link, 7);
  EXPECT_EQ(r.requester, 0x0400);
  EXPECT_EQ(r.tag, 0x3fff);
  EXPECT_EQ(r.type(), TlpType::MWr);
  EXPECT_EQ(r.at(), AddressType::translated);
  EXPECT_TRUE(r.poisoned());
  EXPECT_EQ(r.attributes(), (Attributes{true, false, true}));
  EXPECT_EQ(r.enables, 0xc3);
  EXPECT_EQ(r.traffic_class, 5);
  EXPECT_TRUE(r.valid());

  TlpPtr completion = simulation_.tlps.make();
  completion->type = TlpType::Cpl;
  completion->status = CompletionStatus::completer_abort;
  EXPECT_EQ(trace_record(1, *completion, {}, {}).status(), CompletionStatus::completer_abort);
  TlpPtr message = simulation_.tlps.make();
  message->type = TlpType::Msg;
  message->message_code = 0x30;
  EXPECT_EQ(trace_record(1, *message, {}, {}).enables, 0x30);
  EXPECT_EQ(trace_record(1, *message, {}, {}).payload_hash, 0U);
}

TEST_F(TraceTest, WireBytesOfAHugeBurstSaturate) {
  TlpPtr tlp = read(0, 0xffff'ffff, 0);
  tlp->count = 0xffff'ffff;
  tlp->unit = 1;
  EXPECT_EQ(trace_record(1, *tlp, {}, {}).wire_bytes, 0xffff'ffffU);
}

TEST_F(TraceTest, EmptyTraceHasXxh3OfNothing) {
  TlpTrace trace(simulation_);
  EXPECT_EQ(trace.hash(), 0x2d06800538d394c2U);  // XXH3-64 of no bytes, as its specification gives it
  EXPECT_EQ(trace.count(), 0U);
}

// Independent of the streaming and of the file: the library's one-shot hash over the records.
TEST_F(TraceTest, HashIsXxh3OverAllRecords) {
  TlpTrace trace(simulation_);
  std::vector<TraceRecord> records;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const TlpPtr tlp = write(i * 64, std::string(i % 700, 'x'));
    trace.on_link(up_, *tlp, {i}, {i + 1});
    records.push_back(trace_record(up_, *tlp, {i}, {i + 1}));
    if (i == 10) {
      static_cast<void>(trace.hash());  // looking at it in between changes nothing
    }
  }
  EXPECT_EQ(trace.hash(), XXH3_64bits(records.data(), records.size() * sizeof(TraceRecord)));
  EXPECT_EQ(trace.count(), 2000U);
}

TEST_F(TraceTest, HashSeesOrderTimePayloadAndLink) {
  const TlpPtr a = write(0, "aaaa");
  const TlpPtr b = write(0, "aaab");
  const auto hash_of = [&](std::initializer_list<std::tuple<ComponentId, const Tlp*, std::uint64_t>> tlps) {
    TlpTrace trace(simulation_);
    for (const auto& [link, tlp, time] : tlps) {
      trace.on_link(link, *tlp, {time}, {time});
    }
    return trace.hash();
  };
  const std::uint64_t base = hash_of({{up_, a.get(), 1}, {up_, b.get(), 1}});
  EXPECT_EQ(base, hash_of({{up_, a.get(), 1}, {up_, b.get(), 1}}));
  EXPECT_NE(base, hash_of({{up_, b.get(), 1}, {up_, a.get(), 1}}));
  EXPECT_NE(base, hash_of({{up_, a.get(), 1}, {up_, a.get(), 1}}));
  EXPECT_NE(base, hash_of({{up_, a.get(), 2}, {up_, b.get(), 1}}));
  EXPECT_NE(base, hash_of({{down_, a.get(), 1}, {up_, b.get(), 1}}));
  EXPECT_NE(base, hash_of({{up_, a.get(), 1}}));
}

TEST_F(TraceTest, FileReadsBack) {
  const TemporaryFile file;
  TlpTrace trace(simulation_, "server0");
  trace.set_link(up_, {4, 16, {40'000}});
  trace.set_function(Bdf::of(4, 0, 0), "gpu0");
  trace.open(file.path());
  for (std::uint64_t i = 0; i < 1300; ++i) {  // several blocks
    trace.on_link(i % 2 == 0 ? up_ : down_, *write(i * 64, "abcd"), {i}, {i + 5});
  }
  const std::uint64_t hash = trace.hash();
  trace.close();
  trace.close();  // a second time does nothing

  TraceReader reader(file.path());
  TraceRecord record;
  for (std::uint64_t i = 0; i < 1300; ++i) {
    ASSERT_TRUE(reader.next(record));
    ASSERT_EQ(record.address, i * 64);
    ASSERT_EQ(reader.link_name(record), i % 2 == 0 ? "gpu0.up" : "gpu0.down");
  }
  EXPECT_FALSE(reader.next(record));
  EXPECT_FALSE(reader.truncated());
  EXPECT_EQ(reader.count(), 1300U);
  EXPECT_EQ(reader.hash(), hash);
  EXPECT_EQ(reader.info().title, "server0");
  EXPECT_TRUE(reader.info().timed);
  EXPECT_EQ(reader.info().links.at(up_).width, 16U);
  EXPECT_EQ(reader.info().links.at(up_).propagation.count, 40'000U);
  EXPECT_EQ(reader.function_name(0x0400), "gpu0 (04:00.0)");
  EXPECT_EQ(reader.function_name(0x0508), "05:01.0");
}

TEST_F(TraceTest, ComponentsThatComeLaterHaveNames) {
  const TemporaryFile file;
  TlpTrace trace(simulation_);
  trace.open(file.path());
  trace.on_link(up_, *write(0, "a"), {}, {});
  static_cast<void>(trace.hash());  // writes a block
  const ComponentId late = simulation_.names.add("late.up");
  trace.on_link(late, *write(0, "a"), {}, {});
  trace.close();
  TraceReader reader(file.path());
  TraceRecord record;
  ASSERT_TRUE(reader.next(record));
  ASSERT_TRUE(reader.next(record));
  EXPECT_EQ(reader.link_name(record), "late.up");
  EXPECT_FALSE(reader.next(record));
}

TEST_F(TraceTest, ATraceWithoutTlpsIsComplete) {
  const TemporaryFile file;
  TlpTrace trace(simulation_);
  trace.open(file.path());
  trace.close();
  TraceReader reader(file.path());
  TraceRecord record;
  EXPECT_FALSE(reader.next(record));
  EXPECT_FALSE(reader.truncated());
}

TEST_F(TraceTest, FullDiskIsToldAtCloseAndTheHashGoesOn) {
  TlpTrace with(simulation_);
  TlpTrace without(simulation_);
  with.open("/dev/full");
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const TlpPtr tlp = write(i, "abcd");
    with.on_link(up_, *tlp, {i}, {i});
    without.on_link(up_, *tlp, {i}, {i});
  }
  EXPECT_TRUE(with.file_failed());
  EXPECT_EQ(with.hash(), without.hash());
  try {
    with.close();
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("/dev/full: the trace is incomplete: No space left"));
  }
  with.close();
}

TEST_F(TraceTest, UncreatableFileIsAnError) {
  TlpTrace trace(simulation_);
  EXPECT_THROW(trace.open("/nonexistent/trace"), Error);
}

// ---- Damaged files ----

class DamagedTrace : public TraceTest {
 protected:
  std::vector<std::byte> good(std::uint64_t records = 3) {
    const TemporaryFile file;
    TlpTrace trace(simulation_, "t");
    trace.set_link(up_, {4, 16, {1}});
    trace.open(file.path());
    for (std::uint64_t i = 0; i < records; ++i) {
      trace.on_link(up_, *write(i, "abcd"), {i}, {i});
    }
    trace.close();
    return file.read();
  }
  static std::string error_of(std::span<const std::byte> content,
                              BlockFileReader::Checksums checksums = BlockFileReader::Checksums::verify) {
    try {
      TraceReader reader(content, "x", checksums);
      TraceRecord record;
      while (reader.next(record)) {
      }
      return reader.truncated() ? "truncated" : "";
    } catch (const Error& error) {
      return error.what();
    }
  }
  // A file made of the given blocks.
  static std::vector<std::byte> made_of(const std::vector<std::pair<TraceBlock, std::vector<std::byte>>>& blocks) {
    const TemporaryFile file;
    BlockFileWriter writer(file.path(), trace_file_format);
    for (const auto& [kind, payload] : blocks) {
      writer.write(static_cast<std::uint32_t>(kind), payload);
    }
    writer.close();
    return file.read();
  }
  static std::vector<std::byte> info(const std::function<void(ByteWriter&)>& links = nullptr) {
    ByteWriter out;
    out.put_text("t");
    out.put(std::uint8_t{1});
    out.put(std::uint32_t{2});
    out.put_text("unknown");
    out.put_text("link");
    if (links) {
      links(out);
    } else {
      out.put(std::uint32_t{0});
    }
    out.put(std::uint32_t{0});
    return {out.bytes().begin(), out.bytes().end()};
  }
  static std::vector<std::byte> records(const std::vector<TraceRecord>& all) {
    const auto bytes = std::as_bytes(std::span(all));
    return {bytes.begin(), bytes.end()};
  }
  static std::vector<std::byte> summary(std::uint64_t count, const std::vector<TraceRecord>& all) {
    ByteWriter out;
    out.put(count);
    out.put(static_cast<std::uint64_t>(XXH3_64bits(all.data(), all.size() * sizeof(TraceRecord))));
    return {out.bytes().begin(), out.bytes().end()};
  }
};

TEST_F(DamagedTrace, EveryTruncationIsNoticed) {
  const std::vector<std::byte> whole = good();
  EXPECT_EQ(error_of(whole), "");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(error_of(std::span(whole).first(size)), "") << size;
  }
}

TEST_F(DamagedTrace, EveryFlippedBitIsNoticed) {
  const std::vector<std::byte> whole = good(1);
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::vector<std::byte> damaged = whole;
    damaged[bit / 8] ^= std::byte(1U << (bit % 8));
    // Reserved header bytes and the checksum of the empty end block carry nothing.
    const bool idle = (bit / 8 >= 12 && bit / 8 < 16) || bit / 8 >= whole.size() - 8;
    if (!idle) {
      EXPECT_NE(error_of(damaged), "") << bit;
    }
  }
}

TEST_F(DamagedTrace, BlocksThatDoNotFit) {
  TraceRecord r;
  r.link = 1;
  const std::vector<TraceRecord> one{r};
  EXPECT_EQ(
      error_of(made_of(
          {{TraceBlock::info, info()}, {TraceBlock::records, records(one)}, {TraceBlock::summary, summary(1, one)}})),
      "");
  EXPECT_THAT(error_of(made_of({{TraceBlock::records, records(one)}})), HasSubstr("records before the names"));
  EXPECT_THAT(error_of(made_of({{TraceBlock::info, info()}, {TraceBlock::records, records(one)}})),
              HasSubstr("without a summary"));
  EXPECT_THAT(error_of(made_of({{TraceBlock::info, info()}, {TraceBlock::summary, summary(1, {})}})),
              HasSubstr("a summary of 1 records after 0"));
  EXPECT_THAT(
      error_of(made_of(
          {{TraceBlock::info, info()}, {TraceBlock::records, records(one)}, {TraceBlock::summary, summary(1, {})}})),
      HasSubstr("trace hash 2d06800538d394c2"));
  EXPECT_THAT(error_of(made_of(
                  {{TraceBlock::info, info()}, {TraceBlock::summary, summary(0, {})}, {TraceBlock::info, info()}})),
              HasSubstr("behind the summary"));
  EXPECT_THAT(error_of(made_of({{static_cast<TraceBlock>(9), {}}})), HasSubstr("unknown kind 9"));
  EXPECT_THAT(error_of(made_of({{TraceBlock::info, {}}})), HasSubstr("broken names"));
  std::vector<std::byte> cut = records(one);
  cut.pop_back();
  EXPECT_THAT(error_of(made_of({{TraceBlock::info, info()}, {TraceBlock::records, cut}})), HasSubstr("broken records"));
}

TEST_F(DamagedTrace, RecordsThatAreNoTlps) {
  const auto error_with = [](const std::function<void(TraceRecord&)>& change) {
    TraceRecord r;
    r.link = 1;
    change(r);
    return error_of(made_of({{TraceBlock::info, info()}, {TraceBlock::records, records({r})}}));
  };
  EXPECT_THAT(error_with([](TraceRecord& r) { r.link = 2; }), HasSubstr("a link without a name"));
  for (const auto& change : std::vector<std::function<void(TraceRecord&)>>{
           [](TraceRecord& r) { r.kind = 10; }, [](TraceRecord& r) { r.kind = 0x30; },
           [](TraceRecord& r) { r.kind = 0x80; }, [](TraceRecord& r) { r.qualifiers = 3; },
           [](TraceRecord& r) { r.qualifiers = 0x40; }, [](TraceRecord& r) { r.start = 1; },
           [](TraceRecord& r) { r.count = 0; }}) {
    EXPECT_THAT(error_with(change), HasSubstr("a record that is no TLP"));
  }
}

TEST_F(DamagedTrace, LinksThatDoNotExist) {
  for (const auto& [generation, width] : std::vector<std::pair<unsigned, unsigned>>{{0, 16}, {6, 16}, {4, 0}, {4, 3}}) {
    const auto bad = info([g = generation, w = width](ByteWriter& out) {
      out.put(std::uint32_t{1});
      out.put(std::uint16_t{1});
      out.put(static_cast<std::uint8_t>(g));
      out.put(static_cast<std::uint8_t>(w));
      out.put(std::uint64_t{0});
    });
    EXPECT_THAT(error_of(made_of({{TraceBlock::info, bad}})), HasSubstr("impossible generation or width"));
  }
}

TEST_F(DamagedTrace, HugeCountsAllocateNothing) {
  ByteWriter out;
  out.put_text("t");
  out.put(std::uint8_t{1});
  out.put(std::uint32_t{0xffff'ffff});
  EXPECT_THAT(error_of(made_of({{TraceBlock::info, {out.bytes().begin(), out.bytes().end()}}})),
              HasSubstr("broken names"));
}

}  // namespace
}  // namespace orrery::pcie::trace_test
