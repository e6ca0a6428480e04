// An RNIC with the mlx5 guest interface: management block with its firmware, data path, PCI function.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "pcie/device.h"
#include "systemc_models/rnic/control_plane.h"
#include "systemc_models/rnic/management_block.h"
#include "systemc_models/rnic/mlx5/mlx5_function.h"

namespace orrery::rnic {

struct Mlx5Settings {
  std::string name = "rnic0";
  ManagementSettings management;
  std::uint16_t device_id = mlx5::device_id_vf;
  bool memory_types = true;   // peers' device memory gets a memory type, hence AT = 10b; false: all memory is host's
  bool with_firmware = true;  // false: the device stays "initializing"
  Picoseconds register_access{40'000};
};

// The firmware on the native target.
class NativeProcessor final : public Processor {
 public:
  explicit NativeProcessor(firmware::RegisterAccess& registers) : firmware_(registers) {}
  void restart() override { firmware_.boot(); }
  void run() override { firmware_.step(); }
  [[nodiscard]] firmware::NativeFirmware& firmware() { return firmware_; }

 private:
  firmware::NativeFirmware firmware_;
};

class Mlx5Rnic final : public pcie::DeviceModel {
 public:
  Mlx5Rnic(const Mlx5Settings& settings, const MakeDataPath& make_data_path);

  void attach(pcie::DevicePort& port) override;
  void bar_read(unsigned bar, std::uint64_t offset, std::span<std::byte> into) override {
    function_.bar_read(bar, offset, into);
  }
  void bar_write(unsigned bar, std::uint64_t offset, std::span<const std::byte> from) override {
    function_.bar_write(bar, offset, from);
  }
  [[nodiscard]] Picoseconds access_time(unsigned bar) const override { return function_.access_time(bar); }
  void set_peer_windows(std::span<const pcie::PeerWindow> windows) override {
    if (settings_.memory_types) {
      data_path_->set_peer_windows(0, windows);
    }
  }
  void reset() override { function_.reset(); }

  [[nodiscard]] const Mlx5Settings& settings() const { return settings_; }
  [[nodiscard]] Mlx5Identity identity() const;
  [[nodiscard]] ManagementBlock& management() { return block_; }
  [[nodiscard]] Mlx5Function& function() { return function_; }
  [[nodiscard]] DataPath& data_path() { return *data_path_; }
  [[nodiscard]] NativeProcessor& processor() { return processor_; }

 private:
  Mlx5Settings settings_;
  ManagementBlock block_;
  std::unique_ptr<DataPath> data_path_;
  NativeProcessor processor_;
  Mlx5Function function_;
};

// GUIDs, MAC addresses and LIDs of RNIC `index` of server `server`, all locally administered and distinct.
// Distinct for servers 0 … 255 (Ethernet) or 0 … 10, 11 with 60 RNICs (InfiniBand: LIDs run out) of at most 64 RNICs.
void give_identity(ManagementSettings& settings, unsigned server, unsigned index);

// MAC addresses that functions of such an RNIC have on the wire out of reset, first and last; on an InfiniBand port
// those that stand for their LIDs.
struct WireAddresses {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
};
[[nodiscard]] WireAddresses wire_addresses(const ManagementSettings& settings);

}  // namespace orrery::rnic
