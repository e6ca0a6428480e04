// The 4096-byte configuration space of one PCI Express function: a register file with access masks.
//
// Field names, layouts and attributes follow the PCI Express Base Specification 6.3, chapter 7; header
// registers §7.5.1, register attributes (RO, RW, RW1C, sticky) §7.4. Capabilities are laid into a space
// by CapabilityBuilder (pcie/capabilities.h), base address registers by define_bars() (pcie/bar.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace orrery::pcie {

// Offsets and bits of the header that models ask for (§7.5.1.1 – §7.5.1.3).
namespace config_register {
inline constexpr std::uint16_t vendor_id = 0x00;
inline constexpr std::uint16_t device_id = 0x02;
inline constexpr std::uint16_t command = 0x04;
inline constexpr std::uint16_t status = 0x06;
inline constexpr std::uint16_t revision_id = 0x08;
inline constexpr std::uint16_t class_code = 0x09;
inline constexpr std::uint16_t header_type = 0x0e;
inline constexpr std::uint16_t bar0 = 0x10;
inline constexpr std::uint16_t subsystem_vendor_id = 0x2c;  // type 0 only
inline constexpr std::uint16_t capabilities_pointer = 0x34;
inline constexpr std::uint16_t interrupt_line = 0x3c;
inline constexpr std::uint16_t interrupt_pin = 0x3d;
// Type 1 (bridges: root ports and switch ports).
inline constexpr std::uint16_t primary_bus = 0x18;
inline constexpr std::uint16_t secondary_bus = 0x19;
inline constexpr std::uint16_t subordinate_bus = 0x1a;
inline constexpr std::uint16_t secondary_status = 0x1e;
inline constexpr std::uint16_t memory_base = 0x20;
inline constexpr std::uint16_t memory_limit = 0x22;
inline constexpr std::uint16_t prefetchable_base = 0x24;
inline constexpr std::uint16_t prefetchable_limit = 0x26;
inline constexpr std::uint16_t prefetchable_base_upper = 0x28;
inline constexpr std::uint16_t prefetchable_limit_upper = 0x2c;
inline constexpr std::uint16_t bridge_control = 0x3e;
// First offsets of the two lists of capabilities.
inline constexpr std::uint16_t first_capability = 0x40;
inline constexpr std::uint16_t first_extended_capability = 0x100;
}  // namespace config_register

// Command register (§7.5.1.1.3).
namespace command_bit {
inline constexpr std::uint16_t io_space = 1U << 0;
inline constexpr std::uint16_t memory_space = 1U << 1;
inline constexpr std::uint16_t bus_master = 1U << 2;
inline constexpr std::uint16_t parity_error_response = 1U << 6;
inline constexpr std::uint16_t serr_enable = 1U << 8;
inline constexpr std::uint16_t interrupt_disable = 1U << 10;
}  // namespace command_bit

// Status register (§7.5.1.1.4); the secondary status of a bridge has the same error bits.
namespace status_bit {
inline constexpr std::uint16_t interrupt = 1U << 3;
inline constexpr std::uint16_t capabilities_list = 1U << 4;
inline constexpr std::uint16_t master_data_parity_error = 1U << 8;
inline constexpr std::uint16_t signalled_target_abort = 1U << 11;
inline constexpr std::uint16_t received_target_abort = 1U << 12;
inline constexpr std::uint16_t received_master_abort = 1U << 13;
inline constexpr std::uint16_t signalled_system_error = 1U << 14;
inline constexpr std::uint16_t detected_parity_error = 1U << 15;
}  // namespace status_bit

// Which header a function has (§7.5.1.1.9).
enum class HeaderType : std::uint8_t { endpoint = 0, bridge = 1 };

// Device power state in PMCSR[1:0] (§7.5.2.2).
enum class PowerState : std::uint8_t { d0 = 0, d1 = 1, d2 = 2, d3hot = 3 };

// What resets a function (§6.6). What survives:
// cold: nothing. conventional (hot or warm): sticky bits. function_level: sticky bits and the bits that
// §6.6.2 exempts (MPS, link controls).
enum class ResetKind : std::uint8_t { cold, conventional, function_level };

// The identity that a function's header shows; it never changes.
struct FunctionIdentity {
  std::uint16_t vendor_id = 0xffff;
  std::uint16_t device_id = 0xffff;
  std::uint8_t revision = 0;
  std::uint32_t class_code = 0;           // 24 bits: base class, sub-class, programming interface
  std::uint16_t subsystem_vendor_id = 0;  // type 0 headers
  std::uint16_t subsystem_id = 0;
  bool multi_function = false;
};

// Told of configuration writes that change what a function does, after the registers have changed and
// before the write returns. A call is made only on a change (or, for on_reset, on the event).
// Calls come on the thread of the write. A call may read the space and use the device-side setters; it
// must not write().
class ConfigObserver {
 public:
  // Command register; memory and bus master enables are the bits that matter to a model.
  virtual void on_command(std::uint16_t /*before*/, std::uint16_t /*after*/) {}
  // A base address register, also one half of a 64-bit one, and also during sizing (see BarSet).
  virtual void on_bars() {}
  // MSI-X Enable or Function Mask (§7.7.2.2).
  virtual void on_msix_control(bool /*enabled*/, bool /*function_masked*/) {}
  // Only states that the function supports.
  virtual void on_power_state(PowerState /*before*/, PowerState /*after*/) {}
  // Device Control or Device Control 2: MPS, MRRS, relaxed ordering, tags, … (see device_control()).
  virtual void on_device_control() {}
  // Controls of ATS, ACS (egress vector included), AER and SR-IOV (VF BARs included).
  virtual void on_ats_control() {}
  virtual void on_acs_control() {}
  virtual void on_aer() {}
  virtual void on_sriov() {}
  // Bridges: bus numbers; memory windows; Secondary Bus Reset (true: asserted) (§7.5.1.3).
  virtual void on_bus_numbers() {}
  virtual void on_bridge_windows() {}
  virtual void on_secondary_bus_reset(bool /*asserted*/) {}
  // The space has been reset, by Initiate Function Level Reset or by reset(); no other call reports the
  // changes that came with it.
  virtual void on_reset(ResetKind /*kind*/) {}

 protected:
  ~ConfigObserver() = default;
};

// What a 4-byte aligned register means to the observer.
enum class ConfigWatch : std::uint8_t {
  none,
  command,
  bar,
  msix_control,
  power,
  device_control,
  device_control2,
  ats,
  acs,
  aer,
  sriov,
  bus_numbers,
  bridge_window,
  bridge_control,
};

// How the bits of one register behave; a bit in none of the masks is read-only. `writable` and
// `clear_by_one` are disjoint. Values are those of the register, bit 0 first.
struct RegisterAccess {
  std::uint32_t writable = 0;      // RW
  std::uint32_t clear_by_one = 0;  // RW1C: writing 1 clears
  std::uint32_t sticky = 0;        // keeps its value over a conventional reset and an FLR (ROS, RWS, RW1CS)
  std::uint32_t flr_exempt = 0;    // keeps its value over an FLR only
};

// One thread. Reads and writes never allocate; construction does, once.
class ConfigSpace {
 public:
  static constexpr std::uint32_t size = 4096;

  ConfigSpace(HeaderType type, const FunctionIdentity& identity);
  ConfigSpace(const ConfigSpace&) = delete;
  ConfigSpace& operator=(const ConfigSpace&) = delete;
  ~ConfigSpace();

  [[nodiscard]] HeaderType header_type() const { return type_; }

  // --- The host's side: configuration requests -------------------------------------------------
  // Any offset and length: bytes beyond the space read as all ones, and writes to them are dropped.
  // A write takes effect one aligned dword after the other, low addresses first.
  void read(std::uint32_t offset, std::span<std::byte> into) const;
  void write(std::uint32_t offset, std::span<const std::byte> from);
  // One configuration TLP: `offset` is taken down to a multiple of 4; bit i of byte_enables = byte i.
  [[nodiscard]] std::uint32_t read_dword(std::uint32_t offset) const;
  void write_dword(std::uint32_t offset, std::uint32_t value, unsigned byte_enables = 0xf);

  // --- The device's side -----------------------------------------------------------------------
  // Little-endian values at any offset with offset + width <= size (checked: reads as all ones).
  [[nodiscard]] std::uint8_t read8(std::uint32_t offset) const;
  [[nodiscard]] std::uint16_t read16(std::uint32_t offset) const;
  [[nodiscard]] std::uint32_t read32(std::uint32_t offset) const;
  [[nodiscard]] std::uint64_t read64(std::uint32_t offset) const;
  // Sets bits (status bits that report an event), clears bits, or replaces the bits in `mask`; resets
  // undo it as they do a write. The observer is not called.
  void set_bits(std::uint32_t offset, std::uint32_t bits);
  void clear_bits(std::uint32_t offset, std::uint32_t bits);
  void update_bits(std::uint32_t offset, std::uint32_t mask, std::uint32_t value);
  // Which bits of the dword at `offset` (multiple of 4) a configuration write can change to any value.
  [[nodiscard]] std::uint32_t writable_bits(std::uint32_t offset) const;
  // Replaces the bits in `mask` and their reset value: state owned by hardware that no reset of the
  // function changes (negotiated link speed, presence of a card).
  void set_hardware(std::uint32_t offset, std::uint32_t mask, std::uint32_t value);

  // Resets the registers, then calls on_reset(kind). Also the way of a reset that comes from outside
  // (secondary bus reset above, FunctionAccess::reset).
  void reset(ResetKind kind);

  // At most one observer; null detaches. Not owned.
  void set_observer(ConfigObserver* observer) { observer_ = observer; }

  // --- Frequently asked ------------------------------------------------------------------------
  [[nodiscard]] std::uint16_t command() const { return read16(config_register::command); }
  [[nodiscard]] bool bus_master_enabled() const { return (command() & command_bit::bus_master) != 0; }
  // D0 without a power management capability.
  [[nodiscard]] PowerState power_state() const;
  // Memory Space Enable is set and the function is in D0: only then does a BAR or window claim (§7.5.2.2,
  // §5.3.1.4: in D1 … D3hot a function answers configuration requests and messages only).
  [[nodiscard]] bool memory_decode_enabled() const;

  // Offset of the first capability with this ID; 0 if the function has none. Walks the list.
  [[nodiscard]] std::uint8_t capability(std::uint8_t id) const;
  [[nodiscard]] std::uint16_t extended_capability(std::uint16_t id) const;

  // --- Building --------------------------------------------------------------------------------
  // Lays a register of `width` 1, 2 or 4 bytes (naturally aligned) down: its reset value, its current value
  // and its access. Throws Error if it doesn't fit.
  void define(std::uint32_t offset, unsigned width, std::uint32_t value, const RegisterAccess& access = {});
  // Has changes of the dword at `offset` reported; one meaning per dword.
  void watch(std::uint32_t offset, ConfigWatch what);
  // States besides D0 and D3hot that PMCSR accepts.
  void set_power_management(std::uint16_t capability_offset, bool d1, bool d2);

 private:
  struct Registers;
  void notify(ConfigWatch what, std::uint32_t before, std::uint32_t after);
  [[nodiscard]] std::uint32_t filter_power(std::uint32_t before, std::uint32_t after) const;

  HeaderType type_;
  std::uint16_t power_offset_ = 0;
  bool d1_ = false;
  bool d2_ = false;
  std::unique_ptr<Registers> registers_;
  ConfigObserver* observer_ = nullptr;
};

// Memory windows and bus numbers of a type 1 function (§7.5.1.3), decoded for a router.
struct BridgeWindows {
  struct Range {
    std::uint64_t base = 1;   // inclusive; base > limit: closed, claims nothing
    std::uint64_t limit = 0;  // inclusive
    [[nodiscard]] bool contains(std::uint64_t address) const { return address >= base && address <= limit; }
  };
  std::uint8_t primary_bus = 0;
  std::uint8_t secondary_bus = 0;
  std::uint8_t subordinate_bus = 0;
  Range memory;        // 32-bit window, 1 MiB granules
  Range prefetchable;  // 64-bit window, 1 MiB granules

  [[nodiscard]] bool contains(std::uint64_t address) const {
    return memory.contains(address) || prefetchable.contains(address);
  }
  // True for the buses below the bridge; false for every bus while it is unconfigured (secondary 0).
  [[nodiscard]] bool contains_bus(unsigned bus) const {
    return secondary_bus != 0 && bus >= secondary_bus && bus <= subordinate_bus;
  }
};

// Windows are closed while memory decode is off (the bridge then forwards no memory request downstream).
// The result is a snapshot: take it anew on on_bus_numbers, on_bridge_windows, on_command, on_power_state, on_reset.
[[nodiscard]] BridgeWindows bridge_windows(const ConfigSpace& space);

}  // namespace orrery::pcie
