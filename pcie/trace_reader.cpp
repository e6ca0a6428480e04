#include "pcie/trace_reader.h"

#include <cstring>
#include <utility>

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/bytes.h"

namespace orrery::pcie {
namespace {

constexpr std::size_t longest_name = 256;
constexpr std::uint32_t most_components = 1U << 16;  // a ComponentId has 16 bits, so has a BDF

bool link_exists(const LinkSettings& link) {
  switch (link.width) {
    case 1:
    case 2:
    case 4:
    case 8:
    case 12:
    case 16:
    case 32:
      return link.generation >= 1 && link.generation <= 5;
    default:
      return false;
  }
}

}  // namespace

struct TraceReader::HashState {
  HashState() { XXH3_64bits_reset(&state); }
  XXH3_state_t state;
};

TraceReader::TraceReader(BlockFileReader file) : file_(std::move(file)), hash_(std::make_unique<HashState>()) {}
TraceReader::TraceReader(const std::string& path) : TraceReader(BlockFileReader(path, trace_file_format)) {}
TraceReader::TraceReader(std::span<const std::byte> bytes, std::string name, BlockFileReader::Checksums checksums)
    : TraceReader(BlockFileReader(bytes, std::move(name), trace_file_format, checksums)) {}
TraceReader::~TraceReader() = default;

std::uint64_t TraceReader::hash() const {
  return XXH3_64bits_digest(&hash_->state);
}

std::string TraceReader::function_name(std::uint16_t bdf) const {
  const auto found = info_.functions.find(bdf);
  return found == info_.functions.end() ? Bdf{bdf}.text() : fmt::format("{} ({})", found->second, Bdf{bdf}.text());
}

bool TraceReader::next(TraceRecord& record) {
  while (records_.empty()) {
    if (!next_block()) {
      return false;
    }
  }
  std::memcpy(&record, records_.data(), sizeof(record));
  if (!record.valid()) {
    file_.fail(records_offset_, "a record that is no TLP");
  }
  if (record.link >= info_.components.size()) {
    file_.fail(records_offset_, "a record of a link without a name");
  }
  XXH3_64bits_update(&hash_->state, records_.data(), sizeof(record));
  records_ = records_.subspan(sizeof(record));
  records_offset_ += sizeof(record);
  ++count_;
  return true;
}

bool TraceReader::next_block() {
  const std::optional<BlockFileReader::Block> block = file_.next();
  if (!block) {
    if (!file_.truncated() && !has_summary_) {
      file_.fail(0, "a trace without a summary, looked for from the block");
    }
    return false;
  }
  if (has_summary_) {
    file_.fail(block->offset, "a block behind the summary");
  }
  switch (static_cast<TraceBlock>(block->kind)) {
    case TraceBlock::info:
      read_info(*block);
      return true;
    case TraceBlock::records:
      if (!has_info_) {
        file_.fail(block->offset, "records before the names of the links");
      }
      if (block->payload.size() % sizeof(TraceRecord) != 0) {
        file_.fail(block->offset, "a block of broken records");
      }
      records_ = block->payload;
      records_offset_ = block->offset;
      return true;
    case TraceBlock::summary:
      read_summary(*block);
      return true;
  }
  file_.fail(block->offset, fmt::format("a block of unknown kind {}", block->kind));
}

void TraceReader::read_info(const BlockFileReader::Block& block) {
  ByteReader in(block.payload);
  TraceInfo info;
  info.title = in.get_text(longest_name);
  info.timed = in.get<std::uint8_t>() != 0;
  const std::uint32_t components = in.get<std::uint32_t>();
  for (std::uint32_t i = 0; i < components && i < most_components && in.good(); ++i) {
    info.components.push_back(in.get_text(longest_name));
  }
  const std::uint32_t links = in.get<std::uint32_t>();
  for (std::uint32_t i = 0; i < links && i < most_components && in.good(); ++i) {
    const ComponentId id = in.get<std::uint16_t>();
    LinkSettings link;
    link.generation = in.get<std::uint8_t>();
    link.width = in.get<std::uint8_t>();
    link.propagation = {in.get<std::uint64_t>()};
    if (in.good() && !link_exists(link)) {
      file_.fail(block.offset, "a link of impossible generation or width");
    }
    info.links[id] = link;
  }
  const std::uint32_t functions = in.get<std::uint32_t>();
  for (std::uint32_t i = 0; i < functions && i < most_components && in.good(); ++i) {
    const std::uint16_t bdf = in.get<std::uint16_t>();
    info.functions[bdf] = in.get_text(longest_name);
  }
  if (!in.good() || in.left() != 0) {
    file_.fail(block.offset, "broken names");
  }
  info_ = std::move(info);
  has_info_ = true;
}

void TraceReader::read_summary(const BlockFileReader::Block& block) {
  ByteReader in(block.payload);
  const std::uint64_t count = in.get<std::uint64_t>();
  const std::uint64_t digest = in.get<std::uint64_t>();
  if (!in.good() || in.left() != 0) {
    file_.fail(block.offset, "a broken summary");
  }
  if (count != count_) {
    file_.fail(block.offset, fmt::format("a summary of {} records after {}", count, count_));
  }
  if (digest != hash()) {
    file_.fail(block.offset, fmt::format("trace hash {:016x}, the records have {:016x},", digest, hash()));
  }
  has_summary_ = true;
}

}  // namespace orrery::pcie
