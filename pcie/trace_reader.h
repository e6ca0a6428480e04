// Reads a trace file record by record. The file is untrusted.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "common/block_file.h"
#include "pcie/tlp_trace.h"
#include "pcie/trace_format.h"

namespace orrery::pcie {

// One thread; memory is bounded by one block and the names. Every damage is an Error that names the file
// and the place.
class TraceReader {
 public:
  explicit TraceReader(const std::string& path);
  // Over bytes that outlive the reader.
  TraceReader(std::span<const std::byte> bytes, std::string name,
              BlockFileReader::Checksums checksums = BlockFileReader::Checksums::verify);
  ~TraceReader();

  // The next record; false at the end. A complete trace has then been checked against its own count and hash.
  bool next(TraceRecord& record);
  // Names and links as far as read: those of every record that next() has returned.
  [[nodiscard]] const TraceInfo& info() const { return info_; }
  [[nodiscard]] const std::string& link_name(const TraceRecord& record) const { return info_.components[record.link]; }
  // "gpu0 (04:00.0)", or the bare number of a function without name.
  [[nodiscard]] std::string function_name(std::uint16_t bdf) const;
  // The trace stops before its end: the run was killed, or the disk was full.
  [[nodiscard]] bool truncated() const { return file_.truncated(); }
  [[nodiscard]] std::uint64_t count() const { return count_; }
  // Trace hash of the records returned so far.
  [[nodiscard]] std::uint64_t hash() const;
  [[nodiscard]] const std::string& name() const { return file_.name(); }

 private:
  struct HashState;
  explicit TraceReader(BlockFileReader file);
  bool next_block();
  void read_info(const BlockFileReader::Block& block);
  void read_summary(const BlockFileReader::Block& block);

  BlockFileReader file_;
  TraceInfo info_;
  std::span<const std::byte> records_;  // what is left of the current block
  std::uint64_t records_offset_ = 0;
  std::uint64_t count_ = 0;
  bool has_info_ = false;
  bool has_summary_ = false;
  std::unique_ptr<HashState> hash_;
};

}  // namespace orrery::pcie
