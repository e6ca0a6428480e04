// Translation memory, the window of each function, and the rings that lie behind page entries.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "firmware/interface/contexts.h"
#include "pcie/device.h"
#include "systemc_models/rnic/verbs/dma_pool.h"
#include "systemc_models/rnic/verbs/sparse_table.h"

namespace orrery::rnic {

// 64-bit entries, allocated by the firmware. Entries never written read as 0: not present.
class TranslationMemory {
 public:
  explicit TranslationMemory(std::uint32_t entries) : table_(entries) {}
  [[nodiscard]] std::uint32_t size() const { return table_.size(); }
  [[nodiscard]] std::uint64_t at(std::uint64_t index) const {
    const std::uint64_t* entry = index < table_.size() ? table_.find(static_cast<std::uint32_t>(index)) : nullptr;
    return entry == nullptr ? 0 : *entry;
  }
  // False: beyond the memory.
  bool write(std::uint32_t first, std::span<const std::uint64_t> entries);
  bool read(std::uint32_t first, std::span<std::uint64_t> into) const;

 private:
  SparseTable<std::uint64_t, 4096> table_;
};

// Functions and what of the bus each may reach: host memory by a window of IOVAs, device memory of peers by windows
// that the host's side names.
class FunctionWindows {
 public:
  static constexpr std::size_t most_device_windows = 32;

  void set_device_windows(std::uint32_t function, std::span<const pcie::PeerWindow> windows);
  // A page entry of the function's own address with its memory type: in a device window, the host physical address
  // and the flags of device memory; else as it is, as host memory.
  [[nodiscard]] std::uint64_t typed(std::uint32_t function, std::uint64_t entry) const;
  // Whether [address, address + length), length >= 1, of a device memory entry's page still is what it was when the
  // entry was written.
  [[nodiscard]] bool device(std::uint32_t function, std::uint64_t entry, std::uint64_t address,
                            std::uint64_t length) const;
  [[nodiscard]] FunctionContext& at(std::uint32_t function) { return functions_[function]; }
  [[nodiscard]] const FunctionContext& at(std::uint32_t function) const { return functions_[function]; }
  // The bus address of host memory [address, address + length), length >= 1; nothing if the function may not have it.
  [[nodiscard]] std::optional<std::uint64_t> bus(std::uint32_t function, std::uint64_t address,
                                                 std::uint64_t length) const {
    const FunctionContext& f = functions_[function];
    if (address + (length - 1) < address || (f.iova_limit != 0 && address + (length - 1) >= f.iova_limit)) {
      return std::nullopt;
    }
    const std::uint64_t base = f.iova_base + address;
    if (base < f.iova_base || base + (length - 1) < base) {
      return std::nullopt;
    }
    return base;
  }

 private:
  // Of a window's life. Entries carry it, so that they are void once the window has gone or moved: by the time that
  // numbers come again, 511 other windows of the RNIC have come and gone.
  struct DeviceWindow {
    pcie::PeerWindow window;
    std::uint64_t life = 0;  // 1 … 511
  };
  std::array<FunctionContext, max_functions> functions_{};
  std::array<std::vector<DeviceWindow>, max_functions> device_windows_;
  std::uint64_t last_life_ = 0;
};

enum class WalkStatus : std::uint8_t {
  ok,
  denied,  // rights, bounds, a window; too many pieces
  absent,  // a page entry that is not present
};

struct WalkResult {
  WalkStatus status = WalkStatus::ok;
  std::uint64_t offset = 0;  // absent: bytes of the access before the page
};

// Bytes [offset, offset + length) of what the entries from `first` on map, each 1 << page_shift bytes; `count` entries
// at most. `needed`: translation::readable or writable; 0: any entry that is present. Appends to `into`.
WalkResult walk_pages(const TranslationMemory& memory, const FunctionWindows& windows, std::uint32_t function,
                      std::uint32_t first, std::uint32_t count, std::uint32_t page_shift, std::uint64_t offset,
                      std::uint64_t length, std::uint64_t needed, SegmentList& into);

// A ring or buffer in guest memory. Replaces `into`; denied where it leaves its pages.
WalkResult walk_buffer(const TranslationMemory& memory, const FunctionWindows& windows, std::uint32_t function,
                       const QueueBuffer& buffer, std::uint64_t offset, std::uint64_t length, SegmentList& into);

}  // namespace orrery::rnic
