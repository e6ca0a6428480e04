#include "systemc_models/server/device_factory.h"

#include "systemc_models/gpu/gpu_core.h"
#include "systemc_models/gpu/gpu_function.h"
#include "systemc_models/plugin/plugin.h"
#include "systemc_models/rnic/rnic_core.h"
#include "systemc_models/rnic/rnic_function.h"

namespace orrery::models {

namespace {

// An SR-IOV capability as a physical function has it; the VMM hides it from its guest.
constexpr std::uint16_t rnic_virtual_functions = 8;

FunctionLink function_link(const ServerConfig& config, const Topology::Endpoint& endpoint) {
  FunctionLink link;
  link.generation = endpoint.link.generation;
  link.width = endpoint.link.width;
  link.max_payload = config.pcie.mps_bytes;
  return link;
}

Device make_gpu(const ServerConfig& config, const Topology::Endpoint& endpoint) {
  GpuConfig gpu;
  gpu.name = endpoint.name;
  gpu.index = endpoint.ordinal;
  gpu.memory_size = config.gpu.memory_mib << 20;
  gpu.bar2_size = config.gpu.bar_mib << 20;
  gpu.bar2_mappable = config.gpu.map_bars;
  gpu.timing.command_decode = config.gpu.command_decode;
  gpu.timing.memory_bytes_per_us = config.gpu.memory_gb_per_s * 1000;
  gpu.timing.reduce_bytes_per_us = config.gpu.reduce_gb_per_s * 1000;
  gpu.timing.register_access = config.gpu.register_access;
  gpu.timing.memory_access = config.gpu.memory_access;
  auto core = std::make_unique<GpuCore>(gpu);
  Device device;
  device.bars = gpu_bars(*core);
  device.config_space = make_gpu_config_space(*core, function_link(config, endpoint));
  device.model = std::move(core);
  return device;
}

Device make_rnic(const ServerConfig& config, const Topology::Endpoint& endpoint) {
  RnicConfig rnic;
  rnic.name = endpoint.name;
  rnic.index = endpoint.ordinal;
  rnic.register_access = config.rnic.register_access;
  auto core = std::make_unique<RnicCore>(rnic);
  Device device;
  device.bars = rnic_bars();
  device.config_space = make_rnic_config_space(*core, function_link(config, endpoint), rnic_virtual_functions);
  device.model = std::move(core);
  return device;
}

}  // namespace

Device make_device(const ServerConfig& config, const Topology::Endpoint& endpoint, pcie::EventHost& host) {
  switch (endpoint.kind) {
    case EndpointKind::rnic:
      return make_rnic(config, endpoint);
    case EndpointKind::gpu:
      return make_gpu(config, endpoint);
    case EndpointKind::plugin:
      break;
  }
  return make_plugin(config, endpoint, host);
}

}  // namespace orrery::models
