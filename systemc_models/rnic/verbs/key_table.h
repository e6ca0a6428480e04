// Memory keys: may this QP touch these bytes, and where on the bus are they.
//
// IBTA §10.6 (memory management), §9.7.4.1.5 and 9.9 (what a responder checks).
#pragma once

#include <cstdint>

#include "firmware/interface/contexts.h"
#include "systemc_models/rnic/verbs/sparse_table.h"
#include "systemc_models/rnic/verbs/translation.h"

namespace orrery::rnic {

struct KeyRequest {
  std::uint32_t function = 0;
  std::uint32_t pd = 0;
  std::uint32_t qp = 0;
  std::uint32_t key = 0;
  std::uint64_t address = 0;
  std::uint64_t length = 0;       // bytes; 0: nothing is checked (IBTA §9.7.5.1.1), no segment results
  std::uint32_t access = 0;       // KeyAccess bits, all needed
  bool reserved_allowed = false;  // qp_reserved_key: rnic::reserved_key may be used, locally
};

class KeyTable {
 public:
  KeyTable(const TranslationMemory& memory, const FunctionWindows& windows)
      : memory_(memory), windows_(windows), keys_(max_mkeys) {}

  [[nodiscard]] MkeyContext* find(std::uint32_t index) { return keys_.find(index); }
  [[nodiscard]] const MkeyContext* find(std::uint32_t index) const { return keys_.find(index); }
  MkeyContext& make(std::uint32_t index) { return keys_.make(index); }
  template <class Visit>
  void for_each(Visit visit) {
    keys_.for_each(visit);
  }

  // Appends the segments of the bytes to `into`. Anything but ok leaves `into` unspecified.
  [[nodiscard]] WalkResult resolve(const KeyRequest& request, SegmentList& into) const;
  // Whether the key gives these rights over all of the bytes; pages are not looked at, nor pieces of an indirect key.
  [[nodiscard]] bool permits(const KeyRequest& request) const;
  // Whether `key` may be invalidated by a QP: IBTA §10.6.5 (a key of this PD, not the reserved one), and does it.
  bool invalidate(std::uint32_t function, std::uint32_t pd, std::uint32_t qp, std::uint32_t key);

 private:
  // Indirection ends after so many lists: hostile ones may be circular.
  static constexpr unsigned max_depth = 4;
  // List elements looked at for one access.
  static constexpr std::uint32_t max_scanned = 1U << 16;
  struct Walk {
    const KeyRequest& request;
    SegmentList& into;
    std::uint32_t scanned = 0;
  };
  WalkResult resolve_key(Walk& walk, std::uint32_t key, std::uint64_t address, std::uint64_t length,
                         std::uint32_t access, unsigned depth) const;
  WalkResult resolve_special(Walk& walk, std::uint32_t key, std::uint64_t address, std::uint64_t length,
                             std::uint32_t access) const;
  WalkResult resolve_list(Walk& walk, const MkeyContext& key, std::uint64_t offset, std::uint64_t length,
                          std::uint32_t access, unsigned depth) const;
  [[nodiscard]] static bool within(const MkeyContext& key, std::uint64_t address, std::uint64_t length);
  [[nodiscard]] const MkeyContext* usable(const KeyRequest& request, std::uint32_t key) const;

  const TranslationMemory& memory_;
  const FunctionWindows& windows_;
  SparseTable<MkeyContext> keys_;
};

}  // namespace orrery::rnic
