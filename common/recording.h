// The stimulus log of a run: everything that reached the platform from outside, with its simulated time, so
// that `orrery replay` repeats the run without the guest.
//
// A block file (block_file.h): one header block, blocks of stimuli, one result block.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/block_file.h"
#include "common/bytes.h"
#include "common/time.h"

namespace orrery {

inline constexpr BlockFileFormat recording_file_format{
    {'O', 'R', 'R', 'R', 'E', 'C', 'R', 'D'}, 1, "recording", (1U << 24) + (1U << 10)};

enum class StimulusKind : std::uint8_t {
  config_read = 1,  // address: offset; size; bytes: the answer, or none if it was not kept
  config_write,     // address: offset; bytes
  bar_read,         // region: BAR; address: offset; size; bytes: the answer, or none if it was not kept
  bar_write,        // region: BAR; address: offset; bytes
  memory_file,      // file: a number not used before; size: its bytes; region: NUMA node of its frames
  dma_map,          // address: IOVA; size; flags: access; file and file_offset, or file == no_file (peer or messages)
  dma_unmap,        // address: IOVA; size
  dma_unmap_all,
  interrupts_attached,  // address: first vector; size: number of vectors from there that are delivered
  interrupts_detached,  // the same, no longer delivered
  reset,
  disconnect,
  memory_contents,  // file, file_offset, bytes: what a device is about to read there
};
const char* name(StimulusKind kind);

struct Stimulus {
  static constexpr std::uint32_t no_file = 0xffff'ffff;
  static constexpr std::uint8_t access_read = 1;  // flags of dma_map
  static constexpr std::uint8_t access_write = 2;
  static constexpr std::size_t maximum_bytes = 1U << 24;

  StimulusKind kind = StimulusKind::reset;
  std::uint8_t flags = 0;
  std::uint16_t function = 0;  // index of the endpoint in the topology
  std::uint32_t region = 0;
  std::uint32_t file = no_file;
  Picoseconds time;            // simulated, when it arrived
  std::uint64_t position = 0;  // events handled before it (EventQueue::dispatched): orders equal times
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  std::uint64_t file_offset = 0;
  std::span<const std::byte> bytes;  // read: valid until the next call of the reader
};

// What a run starts from.
struct RecordingHeader {
  std::string program_version;
  std::string config;  // complete, TOML
};

// How it ended.
struct RecordingResult {
  std::uint64_t stimuli = 0;
  Picoseconds time;
  std::uint64_t trace_records = 0;
  std::uint64_t trace_hash = 0;
};

// One thread. After the construction nothing throws before close(); the first error is kept and the rest
// of the recording dropped.
class RecordingWriter {
 public:
  // Throws Error.
  RecordingWriter(const std::string& path, const RecordingHeader& header);

  // Appends. Times must not go back. memory_contents of any size is split; other stimuli carry at most
  // maximum_bytes, more makes the recording fail.
  void add(const Stimulus& stimulus);
  // Hands what is buffered to the operating system: what a killed process still leaves behind.
  void flush();
  [[nodiscard]] bool failed() const { return too_large_ || file_.failed(); }
  [[nodiscard]] std::uint64_t count() const { return count_; }
  // Ends the recording; `stimuli` of the result is filled in. Throws Error if anything could not be written.
  void close(RecordingResult result);

 private:
  void append(const Stimulus& stimulus);

  BlockFileWriter file_;
  ByteWriter buffer_;
  std::uint64_t count_ = 0;
  bool too_large_ = false;
};

// One thread. The file is untrusted: sizes, kinds, order of times and file numbers are checked, every error
// is an Error. Memory is bounded by one block.
class RecordingReader {
 public:
  explicit RecordingReader(const std::string& path);
  RecordingReader(std::span<const std::byte> bytes, std::string name,
                  BlockFileReader::Checksums checksums = BlockFileReader::Checksums::verify);

  [[nodiscard]] const RecordingHeader& header() const { return header_; }
  // The next stimulus; false at the end.
  bool next(Stimulus& stimulus);
  // After next() gave false: whether there is a result. A recording without one (its run was killed) can
  // be replayed, but there is no hash to compare with.
  [[nodiscard]] bool complete() const { return complete_; }
  [[nodiscard]] const RecordingResult& result() const { return result_; }
  [[nodiscard]] const std::string& name() const { return file_.name(); }

 private:
  void read_header();
  void check(const Stimulus& stimulus) const;

  BlockFileReader file_;
  RecordingHeader header_;
  RecordingResult result_;
  std::span<const std::byte> stimuli_;  // what is left of the current block
  std::uint64_t block_offset_ = 0;
  std::uint64_t count_ = 0;
  Picoseconds last_time_;
  std::vector<std::uint64_t> file_sizes_;
  bool complete_ = false;
};

}  // namespace orrery
