// One PCI function with the mlx5 guest interface: BAR0 (init segment and UAR pages) and configuration space.
//
// A BAR access only reads or changes registers: nothing here waits for firmware or data path.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "pcie/bar.h"
#include "pcie/config_space.h"
#include "pcie/device.h"
#include "systemc_models/function_settings.h"
#include "systemc_models/rnic/control_plane.h"
#include "systemc_models/rnic/management_block.h"

namespace orrery::rnic {

namespace mlx5 {

inline constexpr unsigned bar_registers = 0;
inline constexpr unsigned bar_msix = 4;
inline constexpr std::uint64_t bar0_bytes = 32ULL << 20;
inline constexpr std::uint64_t bar4_bytes = 0x2000;
inline constexpr std::uint64_t page_bytes = 4096;
inline constexpr std::uint32_t first_uar = 8;  // pages below are not UARs
inline constexpr std::uint16_t vendor_id = 0x15b3;
inline constexpr std::uint16_t device_id_vf = 0x101e;  // "ConnectX Family mlx5Gen Virtual Function"
inline constexpr std::uint16_t device_id_pf = 0x101d;

// Init segment; big-endian words.
inline constexpr std::uint32_t queue_high = 0x010;
inline constexpr std::uint32_t queue_low = 0x014;
inline constexpr std::uint32_t doorbell = 0x018;
inline constexpr std::uint32_t initializing = 0x1fc;
inline constexpr std::uint32_t health_severity = 0x238;
inline constexpr std::uint32_t health_syndrome = 0x23c;
inline constexpr std::uint32_t timer_high = 0x1000;
inline constexpr std::uint32_t timer_low = 0x1004;
inline constexpr std::uint32_t health_counter = 0x1010;
// In a UAR page.
inline constexpr std::uint32_t uar_cq = 0x20;
inline constexpr std::uint32_t uar_eq_arm = 0x40;
inline constexpr std::uint32_t uar_eq_update = 0x48;
inline constexpr std::uint32_t uar_send = 0x800;

}  // namespace mlx5

struct Mlx5Identity {
  std::uint16_t device_id = mlx5::device_id_vf;
  reg::PortType port_type = reg::PortType::infiniband;
  unsigned vectors = 32;
  std::uint64_t serial = 0;
};
[[nodiscard]] pcie::BarDescriptions mlx5_bars();
// Header, power management, MSI-X, PCI Express endpoint with FLR, AER, serial number.
[[nodiscard]] std::unique_ptr<pcie::ConfigSpace> make_mlx5_config_space(const Mlx5Identity& identity,
                                                                        const models::FunctionLink& link);

struct Mlx5BarCounters {
  std::uint64_t reads = 0;
  std::uint64_t writes = 0;
  std::uint64_t doorbells = 0;       // of every kind
  std::uint64_t writes_ignored = 0;  // where nothing can be written, of odd sizes, halves of nothing
};

class Mlx5Function final : public pcie::DeviceModel {
 public:
  // All three outlive the function.
  Mlx5Function(std::uint32_t number, ManagementBlock& block, DataPath& data_path, Picoseconds register_access);

  void attach(pcie::DevicePort& port) override;
  void bar_read(unsigned bar, std::uint64_t offset, std::span<std::byte> into) override;
  void bar_write(unsigned bar, std::uint64_t offset, std::span<const std::byte> from) override;
  [[nodiscard]] Picoseconds access_time(unsigned /*bar*/) const override { return register_access_; }
  void reset() override;

  [[nodiscard]] const Mlx5BarCounters& counters() const { return counters_; }

 private:
  // The first half of an 8-byte doorbell that came as two writes. A guest's CPUs may interleave theirs.
  struct Half {
    std::uint64_t offset = 0;  // 0: free
    std::uint32_t value = 0;
  };
  static constexpr std::size_t most_halves = 16;

  [[nodiscard]] std::uint32_t read_word(std::uint64_t offset) const;
  [[nodiscard]] std::uint32_t read_init(std::uint32_t offset) const;
  void write_word(std::uint64_t offset, std::uint32_t value);
  void write_uar(std::uint64_t offset, std::uint32_t value);
  void ring(std::uint64_t offset, std::uint32_t first, std::uint32_t second);
  void keep_half(std::uint64_t offset, std::uint32_t value);
  [[nodiscard]] bool take_half(std::uint64_t offset, std::uint32_t& value);

  std::uint32_t number_;
  ManagementBlock& block_;
  DataPath& data_path_;
  Picoseconds register_access_;
  pcie::DevicePort* port_ = nullptr;
  std::array<Half, most_halves> halves_;
  std::size_t next_half_ = 0;
  Mlx5BarCounters counters_;
};

}  // namespace orrery::rnic
