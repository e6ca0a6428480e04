#include "systemc_models/server/server_config.h"

#include <array>

#include "common/config_writer.h"
#include "systemc_models/server/link_config.h"
#include "systemc_models/server/topology.h"

namespace orrery::models {
namespace {

const std::array<std::string, 2> time_modes{"functional", "timed"};
const std::array<std::string, 2> completion_chunks{"mps", "rcb"};
const std::array<std::string, 2> iommu_modes{"translated", "passthrough"};
const std::array<std::string, 2> trace_formats{"binary", "perfetto"};
const std::array<std::string, 2> firmwares{"seabios", "ovmf"};
const std::array<std::string, 2> rnic_personalities{"self-test", "mlx5"};
const std::array<std::string, 2> rnic_port_types{"infiniband", "ethernet"};
const std::array<std::string, 2> rnic_function_ids{"vf", "pf"};
const std::array<std::string, 3> rnic_virtualizations{"vf", "hyv", "vstellar"};
const std::array<std::string, 3> rnic_firmwares{"native", "riscv64", "none"};

constexpr std::array<std::uint64_t, 6> payload_sizes{128, 256, 512, 1024, 2048, 4096};
constexpr std::array<std::uint64_t, 2> read_completion_boundaries{64, 128};
constexpr std::array<std::uint64_t, 7> link_widths{1, 2, 4, 8, 12, 16, 32};

constexpr std::uint64_t most_switches = 8;
constexpr std::uint64_t most_servers = 256;  // one byte of a MAC address
constexpr std::uint64_t most_links = 32;
constexpr std::uint64_t most_per_switch = Topology::max_downstream_ports;

IntegerRule up_to(std::uint64_t minimum, std::uint64_t maximum) {
  return {.minimum = minimum, .maximum = maximum};
}
IntegerRule one_of(std::span<const std::uint64_t> values) {
  return {.one_of = values};
}

constexpr TimeRule latency_rule{{0}, {1'000'000'000}};  // up to 1 ms: beyond it a link only looks dead

constexpr ConfigNote acs_note{
    "ACS Control register of each downstream port: SV 0x1, TB 0x2, RR 0x4, CR 0x8, UF 0x10, "
    "EC 0x20, DT 0x40",
    "specification: PCIe Base 6.3 §7.7.11.3; 0x1d is what Linux programs, 0x5d adds direct "
    "translated"};
constexpr IntegerRule acs_rule{.minimum = 0, .maximum = 0x7f, .hexadecimal = true};

void describe_link(ConfigVisitor& v, const char* key, const char* meaning, pcie::LinkSettings& link) {
  v.begin_table(key, meaning);
  v.integer("generation", link.generation, up_to(1, 5),
            {"PCIe generation: 2.5, 5, 8, 16 or 32 GT/s per lane",
             "choice: the RNIC's 400 Gb/s need Gen5 x16 (63.0 GB/s); the real server's generation is unpublished"});
  v.integer("width", link.width, one_of(link_widths), {"lanes", "specification: PCIe Base 6.3 §4.2; x16 is a choice"});
  v.time(
      "propagation_ps", link.propagation, TimeUnit::picoseconds, latency_rule,
      {"from the last bit's departure to the receiver's transaction layer, one way: flight, both PHYs and link layers",
       "estimate: with root_complex.latency_ns and memory.latency_ns it puts a 64 B DRAM read of a Gen3 x8 device "
       "at 484 ns (measured on Xeon E5 v1 to v4: 480 to 495) and a second switch plus root complex at +346 ns "
       "(measured: +335 to +440)"});
  v.end_table();
}

void describe_switch(ConfigVisitor& v, SwitchConfig& config) {
  v.begin_table("switch", "All switches");
  v.time("latency_ns", config.latency, TimeUnit::nanoseconds, latency_rule,
         {"ingress to egress of one TLP", "vendor: 105 for a Gen4 (PEX88000), 115 for a Gen5 (PEX89000) switch"});
  v.integer("acs", config.acs, acs_rule, acs_note);
  v.numbered("override", config.overrides, most_switches - 1, "One switch that differs: [switch.override.N], N from 0",
             [](ConfigVisitor& o, SwitchOverride& single) {
               o.duration("latency_ns", single.latency, TimeUnit::nanoseconds, latency_rule,
                          {"as switch.latency_ns", "choice"});
               o.optional_integer("acs", single.acs, acs_rule, {"as switch.acs", "choice"});
               o.integers(
                   "egress", single.egress, {.minimum = 0, .maximum = 0xffff'ffff, .hexadecimal = true},
                   most_per_switch,
                   {"Egress Control Vector by slot: bit s of the n-th number stops requests from slot n to slot s "
                    "while EC is set",
                    "specification: PCIe Base 6.3 §7.7.11.4; none by default"});
             });
  v.end_table();
}

void describe_gpu(ConfigVisitor& v, GpusConfig& gpu) {
  v.begin_table("gpu", "Every GPU");
  v.integer("memory_mib", gpu.memory_mib, up_to(1, 1 << 20),
            {"device memory in MiB; sparse, only touched pages cost host memory", "choice"});
  v.integer("bar_mib", gpu.bar_mib, {.minimum = 1, .maximum = 131072, .power_of_two = true},
            {"prefetchable 64-bit BAR onto its first bytes, MiB; more than 256 wants a guest with firmware = \"ovmf\"",
             "choice: what SeaBIOS places for eight GPUs"});
  v.boolean("map_bars", gpu.map_bars,
            {"true: a guest maps the BAR and its CPU accesses make no TLPs; false: every access is a TLP", "choice"});
  v.time("register_ns", gpu.register_access, TimeUnit::nanoseconds, latency_rule, {"access to a register", "estimate"});
  v.time("memory_ns", gpu.memory_access, TimeUnit::nanoseconds, latency_rule,
         {"access to device memory through the BAR", "estimate"});
  v.time("command_ns", gpu.command_decode, TimeUnit::nanoseconds, latency_rule,
         {"from a command's arrival to its execution", "estimate"});
  v.integer("memory_gb_per_s", gpu.memory_gb_per_s, up_to(1, 100'000),
            {"bandwidth of device memory for the engine, 10^9 bytes per second", "vendor: A100 80 GB SXM, 2039"});
  v.integer("reduce_gb_per_s", gpu.reduce_gb_per_s, up_to(1, 100'000),
            {"operand bytes through the adders, 10^9 bytes per second", "estimate: below memory, above a link"});
  v.end_table();
}

void describe_rnic(ConfigVisitor& v, RnicsConfig& rnic) {
  v.begin_table("rnic", "Every RNIC");
  v.time("register_ns", rnic.register_access, TimeUnit::nanoseconds, latency_rule,
         {"access to a register", "estimate"});
  v.choice(
      "personality", rnic.personality, rnic_personalities,
      {"guest interface: self-test, a DMA engine with registers of our own; mlx5, which stock drivers use", "choice"});
  v.choice("port_type", rnic.port_type, rnic_port_types, {"mlx5: what the port is", "choice"});
  v.choice("function_id", rnic.function_id, rnic_function_ids,
           {"mlx5: PCI device ID 101e (vf) or 101d (pf); the driver does a little more for a pf", "choice"});
  v.choice(
      "virtualization", rnic.virtualization, rnic_virtualizations,
      {"mlx5: how GPU memory is reached. vstellar: by its memory type, AT = 10b, peer to peer; hyv and vf: as host "
       "memory, AT = 00b, through the IOMMU",
       "choice: Stellar, SIGCOMM 2025, §6"});
  v.choice(
      "firmware", rnic.firmware, rnic_firmwares,
      {"mlx5: management firmware: native, linked in; riscv64, on a QEMU of its own; none: the device never comes up",
       "choice"});
  v.text("firmware_elf", rnic.firmware_elf, {}, {"riscv64: the ELF file to run; empty: Orrery's own", "choice"});
  v.text("firmware_map", rnic.firmware_map, {},
         {"riscv64: file that describes the register map which that ELF file expects; empty: Orrery's own", "choice"});
  v.time(
      "firmware_step_ns", rnic.firmware_step, TimeUnit::nanoseconds, latency_rule,
      {"mlx5, timed mode: from an event to the firmware's handling of it", "estimate: a microsecond on a small core"});
  v.time("message_ns", rnic.message, TimeUnit::nanoseconds, latency_rule,
         {"mlx5, timed mode: what a WQE occupies the send engine, whose inverse is the highest message rate",
          "paper: Stellar, SIGCOMM 2025, Fig. 14: 4.67 M messages/s"});
  v.time("gather_ns", rnic.gather, TimeUnit::nanoseconds, latency_rule,
         {"mlx5, timed mode: from a packet's turn to the read of its payload (keys, translation)",
          "paper: Stellar, SIGCOMM 2025, Fig. 13a at 4 KiB (set by `orrery repro fig13`)"});
  v.time("pipeline_ns", rnic.pipeline, TimeUnit::nanoseconds, latency_rule,
         {"mlx5, timed mode: a packet's way through both RNICs' pipelines, spent in the receiving one",
          "paper: Stellar, SIGCOMM 2025, Fig. 13a at 2 B (set by `orrery repro fig13`)"});
  v.integer("fault_opcode", rnic.fault_opcode, {.minimum = 0, .maximum = 0xffff, .hexadecimal = true},
            {"mlx5: fault injection, a command that the firmware fails; 0: none", "choice"});
  v.integer("fault_status", rnic.fault_status, {.minimum = 0, .maximum = 0xff, .hexadecimal = true},
            {"mlx5: with this status", "choice: internal error"});
  v.end_table();
}

void describe_instance_link(ConfigVisitor& v, InstanceLinkConfig& link) {
  v.boolean("listen", link.listen, {"true: wait for the other server; false: connect to it", "choice"});
  v.text("address", link.address, {.may_be_empty = false},
         {"where: unix:PATH, tcp:PORT (this machine), tcp:ADDRESS:PORT", "choice"});
  v.text("token_file", link.token_file, {.may_be_empty = false},
         {"file with the secret that both servers share, at least 16 bytes, mode 0600", "choice"});
  v.text("peer", link.peer, {.maximum_bytes = 64}, {"server.name that the other must have; empty: any", "choice"});
  v.integers("planes", link.planes, up_to(0, 1), 2, {"planes that are on this link; none: all", "choice"});
}

void describe_network(ConfigVisitor& v, NetworkConfig& network) {
  constexpr NumberRule probability{.minimum = 0, .maximum = 1};
  v.begin_table("network", "The Ethernet between RNICs: every RNIC's port P is plugged into the ToR of plane P");
  v.integer("ports", network.ports, up_to(1, 2),
            {"ports of an RNIC, which share MAC and IP", "paper: HPN 7.0 (SIGCOMM 2024) and Stellar §8.1, 2"});
  v.integer("port_gbit_per_s", network.port_gbit_per_s, up_to(1, 100'000),
            {"rate of a port, 10^9 bits per second", "paper: Stellar §8.1, 200"});
  v.time("propagation_ns", network.propagation, TimeUnit::nanoseconds, latency_rule,
         {"one way along a cable, both PHYs included", "estimate"});
  v.number("loss", network.loss, probability, {"probability that a link loses a frame", "choice"});
  v.number("corruption", network.corruption, probability,
           {"probability that a frame arrives with a wrong FCS and is dropped", "choice"});
  v.number("duplication", network.duplication, probability, {"probability that a frame arrives twice", "choice"});
  v.number("reordering", network.reordering, probability,
           {"probability that a frame is late by up to reorder_delay_ns", "choice"});
  v.time("reorder_delay_ns", network.reorder_delay, TimeUnit::nanoseconds, latency_rule,
         {"most that a reordered or duplicated frame is late", "choice"});
  v.time("switch_latency_ns", network.switch_latency, TimeUnit::nanoseconds, latency_rule,
         {"ToR: from a frame's last bit in to its egress queue", "estimate"});
  v.integer("port_limit_kib", network.port_limit_kib, up_to(16, 1 << 20), {"ToR: most queued at one egress", "choice"});
  v.integer("buffer_kib", network.buffer_kib, up_to(16, 1 << 24),
            {"ToR: most queued at all", "vendor: 64 MiB class of a 51.2 Tb/s switch"});
  v.boolean("ecn", network.ecn, {"ToR: marks congestion (RFC 3168)", "choice"});
  v.integer("ecn_kmin_kib", network.ecn_kmin_kib, up_to(0, 1 << 20), {"ToR: no marks below this queue", "choice"});
  v.integer("ecn_kmax_kib", network.ecn_kmax_kib, up_to(0, 1 << 20), {"ToR: all marked above this queue", "choice"});
  v.number("ecn_pmax", network.ecn_pmax, probability, {"ToR: probability of a mark just below ecn_kmax_kib", "choice"});
  v.text("capture", network.capture_file, {}, {"pcapng file of all RNIC ports and uplinks; empty: none", "choice"});
  v.list("link", network.links, most_links, "A link to another server's process; [[network.link]] for each",
         describe_instance_link);
  v.end_table();
}

void describe_device(ConfigVisitor& v, DeviceConfig& device) {
  v.text("slot", device.slot, {.may_be_empty = false, .maximum_bytes = 64},
         {"where: \"switchN.slotM\", or \"socketN.slotM\" at a root port; takes the place of what is there, or adds",
          "choice"});
  v.text("name", device.name, {.device_id = true}, {"name of the endpoint, unique", "choice"});
  v.text("model", device.model, {.may_be_empty = false},
         {"\"gpu\", \"rnic\", or the path of a shared object with a model", "choice"});
  v.free_table("params", device.params, {"handed to the model as texts", "choice"});
}

void describe_guest(ConfigVisitor& v, GuestConfig& guest) {
  v.text("name", guest.name, {.device_id = true}, {"name of the guest, unique", "choice"});
  v.texts("devices", guest.devices, {.may_be_empty = false, .maximum_bytes = 64},
          {"endpoints it gets, by name, or \"all\"", "choice"});
  v.integer("memory_mib", guest.memory_mib, up_to(256, 1 << 20), {"RAM, MiB", "choice"});
  v.integer("cpus", guest.cpus, up_to(1, 8), {"virtual CPUs", "choice"});
  v.choice("firmware", guest.firmware, firmwares, {"firmware that starts it", "choice"});
  v.text("kernel", guest.kernel, {}, {"kernel image; empty: the demonstration kernel", "choice"});
  v.text("initrd", guest.initrd, {}, {"initial RAM disk; empty: the demonstration one, if kernel is empty", "choice"});
  v.text("disk", guest.disk, {}, {"disk image (qcow2 or raw)", "choice"});
  v.text("command_line", guest.command_line, {}, {"appended to the kernel's command line", "choice"});
}

}  // namespace

void describe(ConfigVisitor& v, ServerConfig& c) {
  v.begin_table("server", "The server as a whole");
  v.text("name", c.name, {.identifier = true}, {"appears in sockets, reports and traces", "choice"});
  v.integer("index", c.server_index, up_to(0, most_servers - 1),
            {"number of this server among linked ones; MAC addresses and LIDs of its RNICs are made of it", "choice"});
  v.integer("seed", c.seed, {}, {"of every random number of a run", "choice"});
  v.end_table();

  v.begin_table("time", "Time: functional runs as fast as the host, timed counts picoseconds");
  v.choice("mode", c.time_mode, time_modes, {"whether latencies and bandwidths are modelled", "choice"});
  v.number("pace", c.pace, {.minimum = 0, .maximum = 1000, .above_minimum = true},
           {"timed mode with a live guest: simulated seconds per second of the host's clock", "choice"});
  v.end_table();

  v.begin_table("topology", "Shape: switches are spread over the sockets in order");
  v.integer("sockets", c.topology.sockets, up_to(1, 2),
            {"CPU sockets, each a NUMA node with its root bus", "paper: Stellar (SIGCOMM 2025) §3.1, 2"});
  v.integer("switches", c.topology.switches, up_to(0, most_switches),
            {"PCIe switches; 0: every endpoint at a root port of its own", "paper: Stellar §3.1 and §8.1, 4"});
  v.integer("rnics_per_switch", c.topology.rnics_per_switch, up_to(0, most_per_switch),
            {"RNICs below each switch, in its first slots", "paper: Stellar §3.1, 1"});
  v.integer("gpus_per_switch", c.topology.gpus_per_switch, up_to(0, most_per_switch),
            {"GPUs below each switch, in the slots after the RNICs", "paper: Stellar §3.1, 2"});
  v.integer("rnics", c.topology.rnics, up_to(0, 62),
            {"RNICs in all; only used with switches = 0", "paper: Stellar, 4"});
  v.integer("gpus", c.topology.gpus, up_to(0, 62), {"GPUs in all; only used with switches = 0", "paper: Stellar, 8"});
  v.end_table();

  v.begin_table("pcie", "What all functions of the hierarchy agree on");
  v.integer("mps_bytes", c.pcie.mps_bytes, one_of(payload_sizes),
            {"Max_Payload_Size", "specification: PCIe Base 6.3 §7.5.3.4; 256 is what servers commonly run"});
  v.integer("mrrs_bytes", c.pcie.mrrs_bytes, one_of(payload_sizes),
            {"Max_Read_Request_Size", "specification: PCIe Base 6.3 §7.5.3.4, default 512"});
  v.integer("rcb_bytes", c.pcie.rcb_bytes, one_of(read_completion_boundaries),
            {"Read Completion Boundary of the root complex", "specification: PCIe Base 6.3 §2.3.1.1, 64 or 128"});
  v.integer("tags", c.pcie.tags, up_to(1, 1024),
            {"reads that one function may have outstanding", "specification: PCIe Base 6.3 §2.2.6.2, 8-bit tags: 256"});
  v.choice("completion_chunk", c.pcie.completion_chunk, completion_chunks,
           {"where a completer cuts completions: at multiples of mps_bytes or of rcb_bytes",
            "specification: PCIe Base 6.3 §2.3.1.1 allows both; measured throughput decides"});
  v.end_table();

  v.begin_table("link", nullptr);
  describe_link(v, "upstream", "Links from root ports to switches", c.links.upstream);
  describe_link(v, "rnic", "Links to RNICs", c.links.rnic);
  describe_link(v, "gpu", "Links to GPUs and plug-in devices", c.links.gpu);
  v.end_table();

  describe_switch(v, c.switches);

  v.begin_table("root_complex", "Root complex");
  v.time("latency_ns", c.root_complex.latency, TimeUnit::nanoseconds, latency_rule,
         {"one way through it, without the memory access", "estimate, see link.upstream.propagation_ps"});
  v.time("socket_link_ns", c.root_complex.socket_link, TimeUnit::nanoseconds, latency_rule,
         {"added to a peer-to-peer TLP that leaves by the other socket", "estimate: as memory.remote_socket_ns"});
  v.boolean("peer_to_peer", c.root_complex.peer_to_peer,
            {"whether it routes requests from one root port to another; false: they are answered UR",
             "specification: PCIe Base 6.3 §1.3.1 leaves it optional; server parts do"});
  v.end_table();

  v.begin_table("iommu", "IOMMU");
  v.choice("mode", c.iommu_mode, iommu_modes,
           {"translated: page tables are walked for every untranslated request; passthrough: none are", "choice"});
  v.end_table();

  v.begin_table("memory", "Host memory");
  v.time("latency_ns", c.memory.latency, TimeUnit::nanoseconds, latency_rule,
         {"of one DRAM access", "estimate, see link.upstream.propagation_ps"});
  v.time("remote_socket_ns", c.memory.remote_socket, TimeUnit::nanoseconds, latency_rule,
         {"added for memory of the other socket", "measured: pcie-bench, Xeon E5 v2 and v4, DMA reads: +100 to +115"});
  v.integer("size_gib", c.memory.size_gib, up_to(1, 16384),
            {"physical memory of each socket, GiB; only guests' memory occupies the host", "choice"});
  v.end_table();

  describe_gpu(v, c.gpu);

  describe_rnic(v, c.rnic);

  describe_network(v, c.network);

  v.begin_table("trace", "Trace of every TLP");
  v.text("file", c.trace_file, {}, {"where to write it; empty: not at all", "choice"});
  v.choice("format", c.trace_format, trace_formats,
           {"binary: compact, for `orrery trace`; perfetto: JSON, at the end of the run", "choice"});
  v.end_table();

  v.begin_table("record", "Recording for `orrery replay`");
  v.text("file", c.record_file, {}, {"where to write it; empty: not at all", "choice"});
  v.end_table();

  v.list("device", c.devices, 256, "A plug-in model in a slot; [[device]] for each", describe_device);
  v.list("guest", c.guests, 64, "A guest; [[guest]] for each; without any, one guest gets every device",
         describe_guest);
}

Picoseconds ServerConfig::switch_latency(unsigned index) const {
  const auto found = switches.overrides.find(index);
  return found == switches.overrides.end() ? switches.latency : found->second.latency.value_or(switches.latency);
}

std::uint16_t ServerConfig::switch_acs(unsigned index) const {
  const auto found = switches.overrides.find(index);
  return found == switches.overrides.end() ? switches.acs : found->second.acs.value_or(switches.acs);
}

namespace {

ServerConfig read(ConfigDocument document, std::span<const std::string> sets, ConfigOrigins* origins) {
  for (const std::string& set : sets) {
    document.set(set);
  }
  ConfigProblems problems(document.name());
  ServerConfig config;
  ConfigReader reader(document, problems);
  describe(reader, config);
  reader.finish();
  // A topology built from values that were refused would only add puzzling complaints.
  if (problems.empty()) {
    const Topology topology = Topology::from(config, problems);
    if (problems.empty()) {
      check_links(config, topology, problems);
    }
  }
  problems.throw_if_any();
  if (origins != nullptr) {
    *origins = std::move(problems.origins());
  }
  return config;
}

std::string write(ServerConfig config, TomlWriter writer) {
  describe(writer, config);
  return writer.take();
}

}  // namespace

ServerConfig parse_server_config(std::string_view text, const std::string& name, std::span<const std::string> sets,
                                 ConfigOrigins* origins) {
  return read(ConfigDocument::parse(text, name), sets, origins);
}

ServerConfig load_server_config(const std::string& path, std::span<const std::string> sets, ConfigOrigins* origins) {
  return read(path.empty() ? ConfigDocument() : ConfigDocument::load(path), sets, origins);
}

std::string to_toml(const ServerConfig& config) {
  return write(config, TomlWriter(TomlWriter::Remarks::meaning));
}

std::string to_toml(const ServerConfig& config, const ConfigOrigins& origins) {
  return write(config, TomlWriter(TomlWriter::Remarks::origin, &origins));
}

std::string to_plain_toml(const ServerConfig& config) {
  return write(config, TomlWriter(TomlWriter::Remarks::none));
}

}  // namespace orrery::models
