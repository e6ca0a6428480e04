// Transaction layer packets (TLPs), the currency of the platform.
//
// Field names and meanings follow the PCI Express Base Specification 6.3, chapter 2. A Tlp is made by
// its requester or completer, moves through links, switches and root complex by TlpPtr (exactly one
// owner at any time) and carries its own latency breakdown.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "common/time.h"

namespace orrery::pcie {

// Bus, device, function: a requester or completer ID (PCIe Base 6.3 §2.2.4.2).
struct Bdf {
  std::uint16_t value = 0;

  constexpr auto operator<=>(const Bdf&) const = default;
  static constexpr Bdf of(unsigned bus, unsigned device, unsigned function) {
    return {static_cast<std::uint16_t>((bus << 8) | (device << 3) | function)};
  }
  [[nodiscard]] constexpr unsigned bus() const { return value >> 8; }
  [[nodiscard]] constexpr unsigned device() const { return (value >> 3) & 31U; }
  [[nodiscard]] constexpr unsigned function() const { return value & 7U; }
  [[nodiscard]] std::string text() const;  // "bb:dd.f", as lspci prints it
};

enum class TlpType : std::uint8_t { MRd, MWr, CfgRd0, CfgWr0, CfgRd1, CfgWr1, Cpl, CplD, Msg, MsgD };
const char* name(TlpType type);

constexpr bool is_memory(TlpType t) {
  return t == TlpType::MRd || t == TlpType::MWr;
}
constexpr bool is_config(TlpType t) {
  return t >= TlpType::CfgRd0 && t <= TlpType::CfgWr1;
}
constexpr bool is_completion(TlpType t) {
  return t == TlpType::Cpl || t == TlpType::CplD;
}
constexpr bool is_message(TlpType t) {
  return t == TlpType::Msg || t == TlpType::MsgD;
}
// Posted requests get no completion (§2.2.1): memory writes and messages.
constexpr bool is_posted(TlpType t) {
  return t == TlpType::MWr || is_message(t);
}
constexpr bool is_request(TlpType t) {
  return !is_completion(t);
}
constexpr bool carries_payload(TlpType t) {
  return t == TlpType::MWr || t == TlpType::CfgWr0 || t == TlpType::CfgWr1 || t == TlpType::CplD || t == TlpType::MsgD;
}

// Address type of a memory request (§2.2.4.1, table 2-5).
enum class AddressType : std::uint8_t { untranslated = 0, translation_request = 1, translated = 2 };

// Completion status (§2.2.9.1).
enum class CompletionStatus : std::uint8_t { success = 0, unsupported_request = 1, retry = 2, completer_abort = 4 };
const char* name(CompletionStatus status);

// Attr[2:0] (§2.2.6.3): no snoop, relaxed ordering, ID-based ordering.
struct Attributes {
  bool no_snoop = false;
  bool relaxed_ordering = false;
  bool id_based_ordering = false;
  constexpr bool operator==(const Attributes&) const = default;
};

// Index of a component (link direction, switch, root complex, endpoint, memory) in the run's
// ComponentNames; 0 is "unknown".
using ComponentId = std::uint16_t;

// What one component added to a transaction's latency, in picoseconds. All zero in functional mode.
struct HopCost {
  ComponentId component = 0;
  std::uint32_t queue = 0;      // waiting for an occupied link or port
  std::uint32_t credit = 0;     // waiting for flow-control credits (links without credits leave it 0)
  std::uint32_t serialise = 0;  // bytes on the wire / link rate
  std::uint32_t propagate = 0;  // time of flight
  std::uint32_t process = 0;    // switch or root complex latency, translation, register or memory access
};

// Per-hop latency of a transaction so far; a completion continues the list of its request.
class LatencyBreakdown {
 public:
  static constexpr std::size_t max_hops = 24;
  // Beyond max_hops the last entry accumulates, so that the total stays right.
  HopCost& add(ComponentId component) {
    if (count_ == max_hops) {
      return hops_[max_hops - 1];
    }
    HopCost& hop = hops_[count_++];
    hop = HopCost{};
    hop.component = component;
    return hop;
  }
  [[nodiscard]] std::span<const HopCost> hops() const { return {hops_.data(), count_}; }
  [[nodiscard]] Picoseconds total() const;
  void clear() { count_ = 0; }
  void copy_from(const LatencyBreakdown& other);

 private:
  std::array<HopCost, max_hops> hops_;
  std::uint8_t count_ = 0;
};

class TlpPool;
struct TlpRelease {
  void operator()(struct Tlp* tlp) const noexcept;
};
using TlpPtr = std::unique_ptr<struct Tlp, TlpRelease>;

// One TLP, or a burst of `count` like TLPs of one transfer with consecutive addresses (and tags).
//
// A burst is one object for what the wire carries as `count` packets: bytes and counters are those of
// the single TLPs. Its `length` is the sum over all of them; each but the last has `unit` bytes.
// Bursts exist in functional mode; a timed link takes them apart into single TLPs (Link).
struct Tlp {
  // Header.
  TlpType type = TlpType::MRd;
  AddressType at = AddressType::untranslated;
  Attributes attributes;
  std::uint8_t traffic_class = 0;
  bool poisoned = false;        // EP bit
  std::uint8_t first_be = 0xf;  // byte enables of the first and last DW (§2.2.5)
  std::uint8_t last_be = 0xf;
  std::uint8_t message_code = 0;  // Msg, MsgD (§2.2.8)
  Bdf requester;
  Bdf completer;                                        // completions; target of Cfg requests and of ID-routed messages
  std::uint16_t tag = 0;                                // 14 bits
  CompletionStatus status = CompletionStatus::success;  // completions
  std::uint64_t address = 0;  // memory: byte address; Cfg: register offset; Cpl: lower address
  std::uint32_t length = 0;   // bytes of payload, or bytes asked for by a read
  // Completions: bytes remaining of the request, this TLP included. Reads: bytes of the requester's burst that
  // follow this part of it (0 but for a part that a router has cut off, burst.h).
  std::uint32_t byte_count = 0;
  std::uint32_t count = 1;  // TLPs in this burst
  std::uint32_t unit = 0;   // bytes per TLP of a burst (only read if count > 1)

  // Payload: `length` bytes, or null for a TLP without payload. Points to own storage (store()) or,
  // only while a synchronous functional-mode call lasts, into memory owned by the sender (borrow()).
  std::byte* data = nullptr;

  // Simulation state, not on any wire.
  Picoseconds created;       // when the requester issued the transaction
  std::uint64_t cookie = 0;  // free for the current holder (e.g. a port index, while queued)
  void* carrier = nullptr;   // TLM payload that travels with this TLP, owned by its TlpPool hook
  LatencyBreakdown latency;

  [[nodiscard]] bool has_payload() const { return carries_payload(type); }
  [[nodiscard]] std::span<const std::byte> payload() const { return {data, data == nullptr ? 0 : length}; }
  // Copies the bytes into storage owned by this TLP and sets length.
  void store(std::span<const std::byte> bytes);
  // Makes room for `bytes` of payload in own storage, contents unspecified; sets length and returns it.
  std::span<std::byte> reserve(std::uint32_t bytes);
  // Refers to bytes that the caller keeps alive until the TLP is consumed; sets length.
  void borrow(std::span<const std::byte> bytes);
  [[nodiscard]] bool borrowed() const { return data != nullptr && !owns_; }
  // Bytes on the wire of this TLP or whole burst, framing included (see wire_bytes()).
  [[nodiscard]] std::uint64_t bytes_on_wire(unsigned framing_bytes) const;
  // Resets every field to its default, keeping the storage.
  void reset();

 private:
  friend class TlpPool;
  friend struct TlpRelease;
  static constexpr std::size_t inline_bytes = 512;
  alignas(16) std::array<std::byte, inline_bytes> inline_;
  std::unique_ptr<std::byte[]> large_;  // payloads over inline_bytes; kept for reuse
  std::uint32_t large_capacity_ = 0;
  bool owns_ = false;
  TlpPool* pool_ = nullptr;
  Tlp* next_free_ = nullptr;
};

// Header bytes of one TLP (§2.2): 3 DW for 32-bit addresses, configuration and completions, 4 DW
// otherwise (messages are always 4 DW).
inline unsigned header_bytes(const Tlp& tlp) {
  if (is_memory(tlp.type)) {
    return tlp.address >> 32 == 0 ? 12 : 16;
  }
  return is_message(tlp.type) ? 16 : 12;
}
inline std::uint64_t Tlp::bytes_on_wire(unsigned framing_bytes) const {
  return std::uint64_t{count} * (header_bytes(*this) + framing_bytes) + (has_payload() ? length : 0);
}

// Framing per TLP outside the header, non-flit mode: STP, sequence number, LCRC (and END before Gen3) are
// 8 bytes for generations 1 to 5 (§3.6, §4.2; facts: 8 B both ways of counting).
inline constexpr unsigned framing_bytes_non_flit = 8;

// Number of TLPs that [address, address + length) makes when no TLP crosses a multiple of `unit`
// (MPS for writes, MRRS for reads, RCB or MPS for completions); at least 1. unit is a power of two.
std::uint32_t tlps_needed(std::uint64_t address, std::uint64_t length, std::uint32_t unit);

// Byte enables of a memory request of `length` >= 1 bytes at `address` (§2.2.5).
struct ByteEnables {
  std::uint8_t first;
  std::uint8_t last;
};
ByteEnables byte_enables(std::uint64_t address, std::uint32_t length);

// Recycles TLPs: no allocation once a run has reached its working set. One thread. Outlives its TLPs.
class TlpPool {
 public:
  TlpPool() = default;
  TlpPool(const TlpPool&) = delete;
  TlpPool& operator=(const TlpPool&) = delete;
  ~TlpPool();

  [[nodiscard]] TlpPtr make() {
    Tlp* tlp = free_;
    if (tlp == nullptr) [[unlikely]] {
      return TlpPtr(allocate());
    }
    free_ = tlp->next_free_;
    tlp->reset();
    ++outstanding_;
    return TlpPtr(tlp);
  }
  // TLPs handed out and not yet back: 0 when a platform is at rest.
  [[nodiscard]] std::size_t outstanding() const { return outstanding_; }
  // Called with a TLP's carrier when that TLP comes back (a TLM shell recycles its payload).
  using CarrierHook = void (*)(void* carrier);
  void set_carrier_hook(CarrierHook hook) { carrier_hook_ = hook; }

 private:
  friend struct TlpRelease;
  Tlp* allocate();
  void release(Tlp* tlp) noexcept {
    --outstanding_;
    if (tlp->carrier != nullptr && carrier_hook_ != nullptr) {
      carrier_hook_(tlp->carrier);
    }
    tlp->carrier = nullptr;
    tlp->next_free_ = free_;
    free_ = tlp;
  }

  Tlp* free_ = nullptr;
  std::size_t outstanding_ = 0;
  CarrierHook carrier_hook_ = nullptr;
};

inline void TlpRelease::operator()(Tlp* tlp) const noexcept {
  tlp->pool_->release(tlp);
}

inline void Tlp::reset() {
  type = TlpType::MRd;
  at = AddressType::untranslated;
  attributes = {};
  traffic_class = 0;
  poisoned = false;
  first_be = 0xf;
  last_be = 0xf;
  message_code = 0;
  requester = {};
  completer = {};
  tag = 0;
  status = CompletionStatus::success;
  address = 0;
  length = 0;
  byte_count = 0;
  count = 1;
  unit = 0;
  data = nullptr;
  owns_ = false;
  created = {};
  cookie = 0;
  latency.clear();
}

// Where TLPs go: the receiving side of a link end, a switch port, a root port or an endpoint.
class TlpSink {
 public:
  // Hands the TLP over; it becomes the receiver's `delay` after now (an annotated delay as in TLM-2.0
  // timing; always 0 in functional mode). Successive calls on one sink come with non-decreasing
  // now + delay. The receiver takes every TLP; the result says how long after now it has left the
  // sender's hands (a link: the end of its serialisation), so that a requester can pace itself.
  virtual Picoseconds receive(TlpPtr tlp, Picoseconds delay) = 0;

 protected:
  ~TlpSink() = default;
};

}  // namespace orrery::pcie
