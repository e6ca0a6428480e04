// An mlx5 RNIC on a bus in memory, with a stand-in data path and the driver's side.
#pragma once

#include <memory>

#include "systemc_models/rnic/mlx5/mlx5_rnic.h"
#include "tests/systemc_models/fake_bus.h"
#include "tests/systemc_models/rnic/fake_data_path.h"
#include "tests/systemc_models/rnic/mlx5_driver.h"

namespace orrery::test {

inline rnic::Mlx5Settings rig_settings(rnic::reg::PortType type = rnic::reg::PortType::infiniband) {
  rnic::Mlx5Settings settings;
  settings.management.port_type = type;
  rnic::give_identity(settings.management, 0, 0);
  return settings;
}

// Runs the firmware of a rig's RNIC elsewhere than in this process, from its construction on.
class FirmwareTarget {
 public:
  virtual ~FirmwareTarget() = default;
};
// Set by a program that tests another target than `native`.
using MakeFirmwareTarget = std::unique_ptr<FirmwareTarget> (*)(FakeBus& bus, rnic::ManagementBlock& block);
inline MakeFirmwareTarget make_firmware_target = nullptr;

struct Mlx5Rig : rnic::CommandObserver {
  explicit Mlx5Rig(const rnic::Mlx5Settings& settings = rig_settings())
      : rnic(on_target(settings),
             [this](rnic::EventSink& sink) {
               auto path = std::make_unique<FakeDataPath>(sink);
               data = path.get();
               return path;
             }),
        port(bus, rnic),
        driver(bus, port) {
    rnic.management().observe(this);
    if (settings.with_firmware && make_firmware_target != nullptr) {
      target = make_firmware_target(bus, rnic.management());
    }
  }
  virtual ~Mlx5Rig() = default;
  Mlx5Rig(const Mlx5Rig&) = delete;
  Mlx5Rig& operator=(const Mlx5Rig&) = delete;
  void on_command(const rnic::CommandRecord& record) override { commands.push_back(record); }

  // The firmware itself, if it runs in this process.
  [[nodiscard]] firmware::Firmware* native_firmware() {
    return target == nullptr ? &rnic.processor().firmware().firmware() : nullptr;
  }

  FakeBus bus;
  FakeDataPath* data = nullptr;
  rnic::Mlx5Rnic rnic;
  FakePort port;
  Mlx5Driver driver;
  std::vector<rnic::CommandRecord> commands;
  std::unique_ptr<FirmwareTarget> target;

 private:
  static rnic::Mlx5Settings on_target(rnic::Mlx5Settings settings) {
    settings.with_firmware = settings.with_firmware && make_firmware_target == nullptr;
    return settings;
  }
};

}  // namespace orrery::test
