// The configuration of one emulated server.
//
// Plain values with their defaults; describe() in server_config.cpp names every key, its range, its
// meaning and the source of its default. docs/configuration.md is the user's page.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/config.h"
#include "common/time.h"
#include "pcie/link.h"
#include "systemc_models/server/network_config.h"

namespace orrery::models {

enum class TimeMode : std::uint8_t { functional, timed };
enum class CompletionChunk : std::uint8_t { mps, rcb };
enum class IommuMode : std::uint8_t { translated, passthrough };
enum class TraceFormat : std::uint8_t { binary, perfetto };
enum class RnicPersonality : std::uint8_t { self_test, mlx5 };
enum class RnicPortType : std::uint8_t { infiniband, ethernet };
enum class RnicFunctionId : std::uint8_t { vf, pf };
enum class RnicVirtualization : std::uint8_t { vf, hyv, vstellar };
enum class RnicFirmware : std::uint8_t { native, riscv64, none };
enum class GuestFirmware : std::uint8_t { seabios, ovmf };

struct TopologyConfig {
  unsigned sockets = 2;   // 1 … 2
  unsigned switches = 4;  // 0 … 8; 0: every endpoint hangs at a root port
  // With switches.
  unsigned rnics_per_switch = 1;
  unsigned gpus_per_switch = 2;
  // Without switches.
  unsigned rnics = 4;
  unsigned gpus = 8;
};

struct PcieConfig {
  std::uint32_t mps_bytes = 256;
  std::uint32_t mrrs_bytes = 512;
  std::uint32_t rcb_bytes = 64;
  unsigned tags = 256;
  CompletionChunk completion_chunk = CompletionChunk::mps;
  // Where completions are cut: mps_bytes or rcb_bytes.
  [[nodiscard]] std::uint32_t completion_unit() const {
    return completion_chunk == CompletionChunk::mps ? mps_bytes : rcb_bytes;
  }
};

struct LinksConfig {
  pcie::LinkSettings upstream{5, 16, {40'000}};  // root port to switch
  pcie::LinkSettings rnic{5, 16, {40'000}};      // switch or root port to an RNIC
  pcie::LinkSettings gpu{5, 16, {40'000}};       // to a GPU, or a plug-in device
};

struct SwitchOverride {
  std::optional<Picoseconds> latency;
  std::optional<std::uint16_t> acs;
  // Bit s of element n: requests from slot n to slot s are blocked (or redirected) while Egress Control is on.
  std::vector<std::uint64_t> egress;
};

struct SwitchConfig {
  Picoseconds latency = {115'000};
  std::uint16_t acs = 0x5d;  // ACS Control register of every downstream port
  std::map<unsigned, SwitchOverride> overrides;
};

struct RootComplexConfig {
  Picoseconds latency = {150'000};
  Picoseconds socket_link = {110'000};
  bool peer_to_peer = true;
};

struct MemoryConfig {
  Picoseconds latency = {90'000};
  Picoseconds remote_socket = {108'000};
  std::uint64_t size_gib = 64;  // of one socket
};

struct GpusConfig {
  std::uint64_t memory_mib = 1024;
  std::uint64_t bar_mib = 256;
  bool map_bars = true;
  Picoseconds register_access = {40'000};
  Picoseconds memory_access = {350'000};
  Picoseconds command_decode = {50'000};
  std::uint64_t memory_gb_per_s = 2000;  // 10^9 bytes per second
  std::uint64_t reduce_gb_per_s = 500;
};

struct RnicsConfig {
  Picoseconds register_access = {40'000};
  RnicPersonality personality = RnicPersonality::mlx5;
  // Of the mlx5 personality.
  RnicPortType port_type = RnicPortType::ethernet;
  RnicFunctionId function_id = RnicFunctionId::vf;
  RnicVirtualization virtualization = RnicVirtualization::vstellar;
  RnicFirmware firmware = RnicFirmware::native;
  std::string firmware_elf;  // empty: ours
  std::string firmware_map;  // empty: firmware/interface/registers.h
  Picoseconds firmware_step = {1'000'000};
  // Of the data path, in timed mode (rnic::VerbsTiming).
  Picoseconds message = {214'000};
  Picoseconds gather = {1'590'000};
  Picoseconds pipeline = {3'660'000};
  std::uint32_t fault_opcode = 0;  // 0: none
  std::uint32_t fault_status = 1;
};

// A plug-in model in a slot of the topology.
struct DeviceConfig {
  std::string slot = "switch0.slot3";
  std::string name = "device0";
  std::string model = "gpu";  // "gpu", "rnic", or the path of a shared object
  std::map<std::string, std::string> params;
};

struct GuestConfig {
  std::string name = "guest0";
  std::vector<std::string> devices = {"all"};  // names of endpoints, or "all"
  std::uint64_t memory_mib = 2048;
  unsigned cpus = 2;
  GuestFirmware firmware = GuestFirmware::seabios;
  std::string kernel;  // empty: the demonstration guest's
  std::string initrd;
  std::string disk;
  std::string command_line;  // appended
};

struct ServerConfig {
  std::string name = "server0";
  unsigned server_index = 0;  // among linked servers; the addresses of its RNICs are made of it
  std::uint64_t seed = 1;
  TimeMode time_mode = TimeMode::functional;
  double pace = 1.0;  // simulated seconds per wall second, timed mode
  TopologyConfig topology;
  PcieConfig pcie;
  LinksConfig links;
  SwitchConfig switches;
  RootComplexConfig root_complex;
  IommuMode iommu_mode = IommuMode::translated;
  MemoryConfig memory;
  GpusConfig gpu;
  RnicsConfig rnic;
  NetworkConfig network;
  std::string trace_file;  // empty: no trace is written
  TraceFormat trace_format = TraceFormat::binary;
  std::string record_file;  // empty: nothing is recorded
  std::vector<DeviceConfig> devices;
  std::vector<GuestConfig> guests;

  // Settings of switch `index`, its override applied.
  [[nodiscard]] Picoseconds switch_latency(unsigned index) const;
  [[nodiscard]] std::uint16_t switch_acs(unsigned index) const;
};

// Names every key. Used with ConfigReader and the writers.
void describe(ConfigVisitor& visitor, ServerConfig& config);

// Reads a configuration and checks it, the topology included. `sets`: --set options, in order. If
// `origins` is given it receives where each value comes from. Throws Error with everything that is wrong.
ServerConfig parse_server_config(std::string_view text, const std::string& name, std::span<const std::string> sets = {},
                                 ConfigOrigins* origins = nullptr);
// The same for a file; an empty path stands for the defaults.
ServerConfig load_server_config(const std::string& path, std::span<const std::string> sets = {},
                                ConfigOrigins* origins = nullptr);

// The complete configuration as TOML that parses back to an equal one: with the meaning of each key, or,
// given origins, with the origin of each value.
std::string to_toml(const ServerConfig& config);
std::string to_toml(const ServerConfig& config, const ConfigOrigins& origins);
// Without any comment: what a recording keeps.
std::string to_plain_toml(const ServerConfig& config);

}  // namespace orrery::models
