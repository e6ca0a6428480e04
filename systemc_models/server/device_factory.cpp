#include "systemc_models/server/device_factory.h"

#include "fabric/link.h"
#include "fabric/wire_codec.h"
#include "systemc_models/gpu/gpu_core.h"
#include "systemc_models/gpu/gpu_function.h"
#include "systemc_models/plugin/plugin.h"
#include "systemc_models/rnic/mlx5/mlx5_rnic.h"
#include "systemc_models/rnic/rnic_core.h"
#include "systemc_models/rnic/rnic_function.h"
#include "systemc_models/rnic/verbs_data_path.h"
#include "systemc_models/server/network.h"

namespace orrery::models {

namespace {

// An SR-IOV capability as a physical function has it; the VMM hides it from its guest.
constexpr std::uint16_t rnic_virtual_functions = 8;

constexpr Picoseconds linked_rto{50'000'000'000};
constexpr std::uint64_t linked_window_bytes = std::uint64_t{4} << 20;

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

void give_identity(const ServerConfig& config, unsigned ordinal, rnic::ManagementSettings& management) {
  rnic::give_identity(management, config.server_index, ordinal);
  management.port_type =
      config.rnic.port_type == RnicPortType::ethernet ? rnic::reg::PortType::ethernet : rnic::reg::PortType::infiniband;
}

// Time on one port of a packet of a reliable connection, preamble and gap included.
Picoseconds time_on_port(const ServerConfig& config, fabric::RoceOperation operation, std::uint32_t payload) {
  fabric::RoceHeaders headers;
  headers.network.encapsulation = fabric::RoceEncapsulation::v2_ipv4;
  headers.bth.opcode = fabric::opcode_of(fabric::RoceTransport::rc, operation);
  headers.bth.extended = fabric::layout_of(headers.bth.opcode).extension != fabric::RoceExtension::none;
  const std::uint64_t bytes =
      fabric::frame_bytes(headers, payload) + fabric::fcs_bytes + fabric::preamble_and_gap_bytes;
  return Picoseconds{bytes * 8'000 / config.network.port_gbit_per_s};
}

// Of a full packet to another RNIC below the ToR, and of its acknowledge back, without queues: two links each way.
Picoseconds base_rtt(const ServerConfig& config) {
  const Picoseconds fixed = 2 * config.network.propagation + config.network.switch_latency + config.rnic.pipeline;
  return 2 * (fixed + time_on_port(config, fabric::RoceOperation::write_middle, 4096) +
              time_on_port(config, fabric::RoceOperation::acknowledge, 0));
}

Device make_mlx5(const ServerConfig& config, const Topology::Endpoint& endpoint, Network& network) {
  rnic::Mlx5Settings settings;
  settings.name = endpoint.name;
  settings.register_access = config.rnic.register_access;
  // A processor of another target is bound by whoever runs it (Platform::management).
  settings.with_firmware = config.rnic.firmware == RnicFirmware::native;
  settings.device_id =
      config.rnic.function_id == RnicFunctionId::vf ? rnic::mlx5::device_id_vf : rnic::mlx5::device_id_pf;
  settings.memory_types = config.rnic.virtualization == RnicVirtualization::vstellar;
  rnic::ManagementSettings& management = settings.management;
  give_identity(config, endpoint.ordinal, management);
  management.step_time = config.rnic.firmware_step;
  management.fault_opcode = config.rnic.fault_opcode;
  management.fault_status = config.rnic.fault_status;
  management.link_gbps = static_cast<unsigned>(config.network.port_gbit_per_s * config.network.ports);
  fabric::Port& port = network.port(endpoint.ordinal);
  rnic::VerbsSettings verbs;
  verbs.translation_entries = management.translation_entries;
  if (config.time_mode == TimeMode::timed) {
    verbs.timing = {config.rnic.message, config.rnic.gather, config.rnic.pipeline};
    fabric::CongestionSettings& congestion = verbs.sender.congestion;
    congestion.bits_per_second = config.network.port_gbit_per_s * config.network.ports * 1'000'000'000;
    congestion.base_rtt = base_rtt(config);
  }
  if (!config.network.links.empty()) {
    // Another process' answers take as long as the host's scheduler lets them: a retransmission timeout or a window
    // made for microseconds would resend what is only under way. Nothing is lost on the way, so neither is missed.
    verbs.sender.rto = linked_rto;
    verbs.sender.congestion.algorithm = fabric::CongestionAlgorithm::fixed;
    verbs.sender.congestion.max_window_bytes = linked_window_bytes;
  }
  auto device_model = std::make_unique<rnic::Mlx5Rnic>(
      settings, [&](rnic::EventSink& sink) { return rnic::make_verbs_data_path(verbs, sink, port, network.pool()); });
  Device device;
  device.bars = rnic::mlx5_bars();
  device.config_space = rnic::make_mlx5_config_space(device_model->identity(), function_link(config, endpoint));
  device.translated_allowed = settings.memory_types;
  device.management = &device_model->management();
  device.model = std::move(device_model);
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

std::vector<instance_link::AddressRange> rnic_addresses(const ServerConfig& config, const Topology& topology) {
  std::vector<instance_link::AddressRange> ranges;
  if (config.rnic.personality != RnicPersonality::mlx5) {
    return ranges;
  }
  for (const Topology::Endpoint& endpoint : topology.endpoints) {
    if (endpoint.kind == EndpointKind::rnic) {
      rnic::ManagementSettings management;
      give_identity(config, endpoint.ordinal, management);
      const rnic::WireAddresses addresses = rnic::wire_addresses(management);
      ranges.push_back({addresses.first, addresses.last});
    }
  }
  return ranges;
}

Device make_device(const ServerConfig& config, const Topology::Endpoint& endpoint, pcie::EventHost& host,
                   Network& network) {
  switch (endpoint.kind) {
    case EndpointKind::rnic:
      return config.rnic.personality == RnicPersonality::mlx5 ? make_mlx5(config, endpoint, network)
                                                              : make_rnic(config, endpoint);
    case EndpointKind::gpu:
      return make_gpu(config, endpoint);
    case EndpointKind::plugin:
      break;
  }
  return make_plugin(config, endpoint, host);
}

}  // namespace orrery::models
