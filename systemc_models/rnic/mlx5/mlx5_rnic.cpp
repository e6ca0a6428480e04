#include "systemc_models/rnic/mlx5/mlx5_rnic.h"

#include "firmware/interface/contexts.h"
#include "systemc_models/device_identity.h"

namespace orrery::rnic {

Mlx5Rnic::Mlx5Rnic(const Mlx5Settings& settings, const MakeDataPath& make_data_path)
    : settings_(settings),
      block_(settings.management),
      data_path_(make_data_path(block_)),
      processor_(block_),
      function_(0, block_, *data_path_, settings.register_access) {
  block_.bind(*data_path_);
  if (settings.with_firmware) {
    block_.bind(processor_);
  }
}

void Mlx5Rnic::attach(pcie::DevicePort& port) {
  function_.attach(port);
  block_.power_on();
}

Mlx5Identity Mlx5Rnic::identity() const {
  Mlx5Identity identity;
  identity.device_id = settings_.device_id;
  identity.port_type = settings_.management.port_type;
  identity.vectors = settings_.management.vectors;
  identity.serial = settings_.management.guid;
  return identity;
}

void give_identity(ManagementSettings& settings, unsigned server, unsigned index) {
  // Functions of one RNIC count up from these.
  settings.guid = orrery_serial(ORRERY_SERIAL_KIND_RNIC, server, 0) | (static_cast<std::uint64_t>(index) << 8);
  settings.mac = 0x024f'5200'0000ULL | (static_cast<std::uint64_t>(server & 0xffU) << 16) |
                 (static_cast<std::uint64_t>(index & 0xffU) << 8);
  constexpr unsigned unicast_lids = 0xbf00;
  settings.lid = 1 + (server * 64 + index) * max_functions % unicast_lids;
  settings.board = index;
}

WireAddresses wire_addresses(const ManagementSettings& settings) {
  const std::uint64_t more = settings.functions - 1;
  if (settings.port_type == reg::PortType::ethernet) {
    return {settings.mac, settings.mac + more};
  }
  return {lid_mac(settings.lid), lid_mac(settings.lid + static_cast<std::uint32_t>(more))};
}

}  // namespace orrery::rnic
