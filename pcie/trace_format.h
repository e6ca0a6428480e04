// The compact binary trace: one fixed record for each TLP on each link.
//
// docs/trace.md is the user's page. The trace hash is XXH3-64 over all records, in order, as they stand in
// the file; the payload of each TLP enters by its own XXH3-64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "common/block_file.h"
#include "pcie/tlp.h"

namespace orrery::pcie {

inline constexpr BlockFileFormat trace_file_format{{'O', 'R', 'R', 'T', 'R', 'A', 'C', 'E'}, 1, "trace", 1U << 20};

enum class TraceBlock : std::uint32_t {
  info = 1,     // title, mode, names; a later one replaces an earlier one
  records = 2,  // TraceRecord[]
  summary = 3,  // u64 number of records, u64 trace hash: the last block of a complete trace
};

// 64 bytes, little-endian, no padding: the record of the file and of the hash.
struct TraceRecord {
  std::uint64_t start = 0;         // ps; serialisation begins
  std::uint64_t end = 0;           // ps; the last bit has arrived
  std::uint64_t address = 0;       // as Tlp::address
  std::uint64_t payload_hash = 0;  // XXH3-64 of the payload; 0 without payload
  std::uint32_t length = 0;        // bytes
  std::uint32_t count = 1;         // TLPs of a burst
  std::uint32_t byte_count = 0;    // completions
  std::uint32_t wire_bytes = 0;    // headers and framing included; 2^32-1 if more
  std::uint32_t unit = 0;          // bytes per TLP of a burst
  std::uint16_t link = 0;          // ComponentId of the link direction
  std::uint16_t requester = 0;     // Bdf::value
  std::uint16_t completer = 0;
  std::uint16_t tag = 0;
  std::uint8_t kind = 0;        // [3:0] TlpType, [5:4] AddressType, [6] poisoned
  std::uint8_t qualifiers = 0;  // [2:0] CompletionStatus, [3] no snoop, [4] relaxed ordering, [5] ID-based ordering
  std::uint8_t enables = 0;     // [3:0] first, [7:4] last byte enables; messages: the message code
  std::uint8_t traffic_class = 0;

  [[nodiscard]] TlpType type() const { return static_cast<TlpType>(kind & 0xfU); }
  [[nodiscard]] AddressType at() const { return static_cast<AddressType>((kind >> 4) & 3U); }
  [[nodiscard]] bool poisoned() const { return (kind & 0x40U) != 0; }
  [[nodiscard]] CompletionStatus status() const { return static_cast<CompletionStatus>(qualifiers & 7U); }
  [[nodiscard]] Attributes attributes() const {
    return {(qualifiers & 8U) != 0, (qualifiers & 16U) != 0, (qualifiers & 32U) != 0};
  }
  // False if a field has a value that no TLP has.
  [[nodiscard]] bool valid() const {
    const unsigned s = qualifiers & 7U;
    return (kind & 0xfU) <= static_cast<unsigned>(TlpType::MsgD) && ((kind >> 4) & 3U) <= 2 && (kind & 0x80U) == 0 &&
           (s <= 2 || s == 4) && (qualifiers & 0xc0U) == 0 && end >= start && count != 0;
  }
};
static_assert(sizeof(TraceRecord) == 64 && std::is_trivially_copyable_v<TraceRecord>);
static_assert(std::has_unique_object_representations_v<TraceRecord>);

}  // namespace orrery::pcie
