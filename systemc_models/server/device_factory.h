// Makes the device model of an endpoint from the configuration.
#pragma once

#include <memory>
#include <vector>

#include "fabric/instance_link/messages.h"
#include "pcie/bar.h"
#include "pcie/config_space.h"
#include "pcie/device.h"
#include "systemc_models/server/server_config.h"
#include "systemc_models/server/topology.h"

namespace orrery::pcie {
class EventHost;
}

namespace orrery::rnic {
class ManagementBlock;
}

namespace orrery::models {

class Network;

// What an endpoint needs: the model, its configuration space and its BARs.
struct Device {
  std::unique_ptr<pcie::DeviceModel> model;
  std::unique_ptr<pcie::ConfigSpace> config_space;
  pcie::BarDescriptions bars;
  // Its AT = 10b requests name addresses that the host gave it, so they may pass the IOMMU.
  bool translated_allowed = false;
  rnic::ManagementBlock* management = nullptr;  // of the model; RNICs with the mlx5 personality
};

// Throws Error if the configuration asks for what can't be had. `host` runs the events of the device's
// simulation and outlives the device: processes of a plug-in model go through it. RNICs are plugged into `network`,
// which outlives them.
Device make_device(const ServerConfig& config, const Topology::Endpoint& endpoint, pcie::EventHost& host,
                   Network& network);

// The MAC addresses that the RNICs of a server have on the wire, a range for each; none with a personality that has
// no network.
std::vector<instance_link::AddressRange> rnic_addresses(const ServerConfig& config, const Topology& topology);

}  // namespace orrery::models
