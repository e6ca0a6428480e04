#include "common/recording.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/address.h"
#include "common/error.h"

namespace orrery {
namespace {

enum class RecordingBlock : std::uint32_t { header = 1, stimuli = 2, result = 3 };

constexpr std::size_t flush_at = 64U << 10;
constexpr std::size_t longest_config = 1U << 21;
constexpr std::size_t most_files = 1U << 16;

constexpr std::uint32_t number(RecordingBlock block) {
  return static_cast<std::uint32_t>(block);
}

}  // namespace

const char* name(StimulusKind kind) {
  switch (kind) {
    case StimulusKind::config_read:
      return "config read";
    case StimulusKind::config_write:
      return "config write";
    case StimulusKind::bar_read:
      return "BAR read";
    case StimulusKind::bar_write:
      return "BAR write";
    case StimulusKind::memory_file:
      return "memory file";
    case StimulusKind::dma_map:
      return "DMA map";
    case StimulusKind::dma_unmap:
      return "DMA unmap";
    case StimulusKind::dma_unmap_all:
      return "DMA unmap all";
    case StimulusKind::interrupts_attached:
      return "interrupts attached";
    case StimulusKind::interrupts_detached:
      return "interrupts detached";
    case StimulusKind::reset:
      return "reset";
    case StimulusKind::disconnect:
      return "disconnect";
    case StimulusKind::memory_contents:
      return "memory contents";
  }
  return "?";
}

RecordingWriter::RecordingWriter(const std::string& path, const RecordingHeader& header)
    : file_(path, recording_file_format) {
  ByteWriter block;
  block.put_text(header.program_version);
  block.put_text(header.config);
  file_.write(number(RecordingBlock::header), block.bytes());
}

void RecordingWriter::append(const Stimulus& s) {
  buffer_.put(static_cast<std::uint8_t>(s.kind));
  buffer_.put(s.flags);
  buffer_.put(s.function);
  buffer_.put(s.region);
  buffer_.put(s.file);
  buffer_.put(static_cast<std::uint32_t>(s.bytes.size()));
  buffer_.put(s.time.count);
  buffer_.put(s.position);
  buffer_.put(s.address);
  buffer_.put(s.size);
  buffer_.put(s.file_offset);
  buffer_.put(s.bytes);
  ++count_;
  if (buffer_.size() >= flush_at) {
    flush();
  }
}

void RecordingWriter::add(const Stimulus& stimulus) {
  if (stimulus.bytes.size() <= Stimulus::maximum_bytes) {
    append(stimulus);
    return;
  }
  if (stimulus.kind != StimulusKind::memory_contents) {
    too_large_ = true;
    return;
  }
  Stimulus piece = stimulus;
  while (!piece.bytes.empty()) {
    const std::span<const std::byte> rest = piece.bytes;
    piece.bytes = rest.first(std::min(rest.size(), Stimulus::maximum_bytes));
    append(piece);
    piece.file_offset += piece.bytes.size();
    piece.bytes = rest.subspan(piece.bytes.size());
  }
}

void RecordingWriter::flush() {
  if (buffer_.size() != 0) {
    file_.write(number(RecordingBlock::stimuli), buffer_.bytes());
    buffer_.clear();
  }
}

void RecordingWriter::close(RecordingResult result) {
  flush();
  if (too_large_) {
    throw Error(fmt::format("{}: the recording is incomplete: one access was larger than {} bytes", file_.path(),
                            Stimulus::maximum_bytes),
                "split the guest's access, or run without recording");
  }
  ByteWriter block;
  block.put(count_);
  block.put(result.time.count);
  block.put(result.trace_records);
  block.put(result.trace_hash);
  file_.write(number(RecordingBlock::result), block.bytes());
  file_.close();
}

RecordingReader::RecordingReader(const std::string& path) : file_(path, recording_file_format) {
  read_header();
}

RecordingReader::RecordingReader(std::span<const std::byte> bytes, std::string name,
                                 BlockFileReader::Checksums checksums)
    : file_(bytes, std::move(name), recording_file_format, checksums) {
  read_header();
}

void RecordingReader::read_header() {
  const std::optional<BlockFileReader::Block> block = file_.next();
  if (!block || block->kind != number(RecordingBlock::header)) {
    file_.fail(block ? block->offset : 0, "a recording without a configuration");
  }
  ByteReader in(block->payload);
  header_.program_version = in.get_text(256);
  header_.config = in.get_text(longest_config);
  if (!in.good() || in.left() != 0) {
    file_.fail(block->offset, "a broken header");
  }
}

bool RecordingReader::next(Stimulus& s) {
  while (stimuli_.empty()) {
    const std::optional<BlockFileReader::Block> block = file_.next();
    if (!block) {
      if (!complete_ && !file_.truncated()) {
        file_.fail(0, "a recording without a result, looked for from the block");
      }
      return false;
    }
    if (complete_) {
      file_.fail(block->offset, "a block behind the result");
    }
    block_offset_ = block->offset;
    if (block->kind == number(RecordingBlock::stimuli)) {
      stimuli_ = block->payload;
      continue;
    }
    if (block->kind != number(RecordingBlock::result)) {
      file_.fail(block->offset, fmt::format("a block of unknown kind {}", block->kind));
    }
    ByteReader in(block->payload);
    result_.stimuli = in.get<std::uint64_t>();
    result_.time = {in.get<std::uint64_t>()};
    result_.trace_records = in.get<std::uint64_t>();
    result_.trace_hash = in.get<std::uint64_t>();
    if (!in.good() || in.left() != 0 || result_.stimuli != count_ || result_.time < last_time_) {
      file_.fail(block->offset, "a result that does not fit the stimuli");
    }
    complete_ = true;
  }
  ByteReader in(stimuli_);
  s.kind = static_cast<StimulusKind>(in.get<std::uint8_t>());
  s.flags = in.get<std::uint8_t>();
  s.function = in.get<std::uint16_t>();
  s.region = in.get<std::uint32_t>();
  s.file = in.get<std::uint32_t>();
  const std::uint32_t bytes = in.get<std::uint32_t>();
  s.time = {in.get<std::uint64_t>()};
  s.position = in.get<std::uint64_t>();
  s.address = in.get<std::uint64_t>();
  s.size = in.get<std::uint64_t>();
  s.file_offset = in.get<std::uint64_t>();
  s.bytes = in.take(bytes);
  if (!in.good()) {
    file_.fail(block_offset_, "a stimulus that its block cuts off, in the block");
  }
  check(s);
  if (s.kind == StimulusKind::memory_file) {
    file_sizes_.push_back(s.size);
  }
  stimuli_ = stimuli_.last(in.left());
  last_time_ = s.time;
  ++count_;
  return true;
}

void RecordingReader::check(const Stimulus& s) const {
  const auto require = [&](bool good, const char* what) {
    if (!good) {
      file_.fail(block_offset_, fmt::format("stimulus {}: {}, in the block", count_, what));
    }
  };
  require(s.kind >= StimulusKind::config_read && s.kind <= StimulusKind::memory_contents, "unknown kind");
  require(s.time >= last_time_, "time goes back");
  const auto within_file = [&](std::uint64_t length) {
    return s.file < file_sizes_.size() && s.file_offset <= file_sizes_[s.file] &&
           length <= file_sizes_[s.file] - s.file_offset;
  };
  switch (s.kind) {
    case StimulusKind::config_read:
      require(s.address < 4096 && s.size >= 1 && s.size <= 4096 - s.address, "outside configuration space");
      require(s.bytes.empty() || s.bytes.size() == s.size, "an answer of another size than the read");
      break;
    case StimulusKind::config_write:
      require(s.address < 4096 && !s.bytes.empty() && s.bytes.size() <= 4096 - s.address,
              "outside configuration space");
      break;
    case StimulusKind::bar_read:
      require(s.region < 6 && range_is_valid(s.address, s.size), "no such part of a BAR");
      require(s.size <= Stimulus::maximum_bytes && (s.bytes.empty() || s.bytes.size() == s.size),
              "answer and size differ");
      break;
    case StimulusKind::bar_write:
      require(s.region < 6 && range_is_valid(s.address, s.bytes.size()), "no such part of a BAR");
      break;
    case StimulusKind::memory_file:
      require(s.file == file_sizes_.size() && file_sizes_.size() < most_files, "file number out of order");
      require(s.size != 0 && s.size <= (std::uint64_t{1} << 46), "impossible file size");
      break;
    case StimulusKind::dma_map:
      require(range_is_valid(s.address, s.size) && s.address % 4096 == 0 && s.size % 4096 == 0, "unaligned mapping");
      require(s.flags != 0 && (s.flags & ~(Stimulus::access_read | Stimulus::access_write)) == 0, "no access right");
      require(s.file == Stimulus::no_file || (s.file_offset % 4096 == 0 && within_file(s.size)),
              "mapping outside its file");
      break;
    case StimulusKind::dma_unmap:
      require(range_is_valid(s.address, s.size), "range wraps");
      break;
    case StimulusKind::memory_contents:
      require(!s.bytes.empty() && within_file(s.bytes.size()), "contents outside their file");
      break;
    case StimulusKind::interrupts_attached:
    case StimulusKind::interrupts_detached:
      require(s.address <= 2048 && s.size <= 2048 - s.address, "more vectors than MSI-X has");
      break;
    case StimulusKind::dma_unmap_all:
    case StimulusKind::reset:
    case StimulusKind::disconnect:
      break;
  }
}

}  // namespace orrery
