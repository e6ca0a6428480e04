#include "systemc_models/server/platform.h"

#include <sys/stat.h>

#include <algorithm>

#include <fmt/format.h>

#include "systemc_models/server/platform_parts.h"

namespace orrery::models {

namespace {

// Where IOMMU page tables live in the host address map: above the frames that guests get.
constexpr Hpa table_base{std::uint64_t{1} << 49};
constexpr std::uint32_t table_pages = 1U << 18;  // 1 GiB, taken page by page
// PCIe Base 6.3 §2.8: 50 us to 50 ms by default.
constexpr Picoseconds completion_timeout{20'000'000'000};

DramSettings dram_settings(const ServerConfig& config) {
  DramSettings settings;
  settings.sockets = config.topology.sockets;
  settings.bytes_per_socket = config.memory.size_gib << 30;
  settings.latency = config.memory.latency;
  settings.remote_socket = config.memory.remote_socket;
  return settings;
}

pcie::EndpointSettings endpoint_settings(const ServerConfig& config) {
  pcie::EndpointSettings settings;
  settings.max_payload = config.pcie.mps_bytes;
  settings.max_read_request = config.pcie.mrrs_bytes;
  settings.completion_unit = config.pcie.completion_unit();
  settings.tags = config.pcie.tags;
  return settings;
}

// SystemC object names must not hold a dot.
std::string module_name(std::string name) {
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

// RNICs keep their ordinals where another model has taken a slot.
unsigned network_interfaces(const Topology& topology) {
  unsigned interfaces = 0;
  for (const Topology::Endpoint& endpoint : topology.endpoints) {
    if (endpoint.kind == EndpointKind::rnic) {
      interfaces = std::max(interfaces, endpoint.ordinal + 1);
    }
  }
  return interfaces;
}

}  // namespace

Platform::Parts::Parts(Platform& platform, const ServerConfig& configuration)
    : config(configuration),
      topology(Topology::from(configuration)),
      dram(dram_settings(configuration)),
      tables(table_base, table_pages),
      iommu(tables),
      network(simulation.events, configuration.network, network_interfaces(topology), configuration.seed,
              configuration.time_mode == TimeMode::timed, configuration.name, rnic_addresses(configuration, topology)) {
  // A step in which nothing happens is no mistake here.
  sc_core::sc_report_handler::set_actions(sc_core::SC_ID_NO_SC_START_ACTIVITY_, sc_core::SC_DO_NOTHING);
  simulation.timed = config.time_mode == TimeMode::timed;
  pcie::use_tlm_carriers(simulation.tlps);
  function_of.resize(65536, nullptr);
  host = std::make_unique<pcie::EventHost>("engine", simulation.events);

  pcie::RootComplexSettings complex_settings;
  complex_settings.latency = config.root_complex.latency;
  complex_settings.peer_to_peer = config.root_complex.peer_to_peer;
  complex_settings.socket_link = config.root_complex.socket_link;
  complex_settings.completion_unit = config.pcie.completion_unit();
  complex = std::make_unique<pcie::RootComplexModule>("root_complex", simulation, complex_settings, iommu, dram,
                                                      static_cast<pcie::InterruptController&>(*this));

  for (const Topology::RootPort& port : topology.root_ports) {
    complex->add_port(module_name(port.name), static_cast<unsigned>(port.socket),
                      {port.secondary_bus, port.subordinate_bus}, pcie::AcsControl::from_register(config.switches.acs));
    const std::string below =
        port.switch_index ? topology.switches[*port.switch_index].name : topology.endpoints[*port.endpoint].name;
    root_links.push_back(
        std::make_unique<pcie::LinkModule>(("link_" + module_name(below)).c_str(), simulation, port.link));
    pcie::bind(complex->ports.back()->port, root_links.back()->upper);
  }

  for (const Topology::Switch& described : topology.switches) {
    pcie::SwitchSettings settings;
    settings.downstream_ports = static_cast<unsigned>(described.downstream_ports.size());
    settings.latency = described.latency;
    auto module = std::make_unique<pcie::SwitchModule>(module_name(described.name).c_str(), simulation, settings);
    module->core.set_bdf(described.bdf);
    module->core.set_bus_range(pcie::Switch::upstream_port, {described.secondary_bus, described.subordinate_bus});
    for (std::size_t i = 0; i < described.downstream_ports.size(); ++i) {
      const Topology::DownstreamPort& port = described.downstream_ports[i];
      const auto index = static_cast<unsigned>(i + 1);
      module->core.set_bus_range(index, {port.secondary_bus, port.secondary_bus});
      module->core.set_acs(index, pcie::AcsControl::from_register(described.acs));
      module->core.set_egress_vector(index, port.egress_vector);
    }
    pcie::bind(root_links[described.root_port]->lower, *module->ports[pcie::Switch::upstream_port]);
    switches.push_back(std::move(module));
  }

  const pcie::EndpointSettings settings = endpoint_settings(config);
  for (std::size_t i = 0; i < topology.endpoints.size(); ++i) {
    kernel_is_ours = kernel_is_ours && topology.endpoints[i].kind != EndpointKind::plugin;
    const Topology::Endpoint& described = topology.endpoints[i];
    devices.push_back(make_device(config, described, *host, network));
    Device& device = devices.back();
    endpoints.push_back(std::make_unique<pcie::EndpointModule>(
        module_name(described.name).c_str(), simulation, settings, *device.config_space, device.bars, *device.model));
    pcie::EndpointModule& endpoint = *endpoints.back();
    endpoint.core.set_bdf(described.bdf);
    complex->core.allow_translated(described.bdf, device.translated_allowed);
    if (described.switch_index) {
      device_links.push_back(std::make_unique<pcie::LinkModule>(("link_" + module_name(described.name)).c_str(),
                                                                simulation, described.link));
      pcie::bind(*switches[*described.switch_index]->ports[described.port + 1], device_links.back()->upper);
      pcie::bind(device_links.back()->lower, endpoint.port);
    } else {
      device_links.push_back(nullptr);
      pcie::bind(root_links[described.port]->lower, endpoint.port);
    }
    const auto domain = iommu.create_domain(config.iommu_mode == IommuMode::translated ? pcie::DomainMode::translated
                                                                                       : pcie::DomainMode::passthrough);
    iommu.attach(described.bdf, *domain);
    functions.push_back(std::make_unique<PlatformFunction>(platform, endpoint.core, *domain));
    function_of[described.bdf.value] = functions.back().get();
  }
}

void Platform::Parts::interrupt(pcie::Bdf requester, std::uint64_t /*address*/, std::uint32_t data) {
  if (PlatformFunction* function = function_of[requester.value]) {
    function->interrupt(data);
  }
}

unsigned Platform::Parts::node_for(const std::string& guest, const pcie::FileWindow& window) {
  struct stat status {};
  if (fstat(window.fd, &status) != 0) {
    return 0;
  }
  auto& files = files_[guest];
  const auto known = std::find_if(files.begin(), files.end(), [&](const GuestFile& file) {
    return file.device == status.st_dev && file.inode == status.st_ino;
  });
  if (known != files.end()) {
    return known->node;
  }
  files.push_back({status.st_dev, status.st_ino, static_cast<unsigned>(files.size()) % config.topology.sockets});
  return files.back().node;
}

void Platform::Parts::place_file(const std::string& guest, int fd, unsigned node) {
  struct stat status {};
  if (fstat(fd, &status) == 0) {
    files_[guest].push_back({status.st_dev, status.st_ino, node % config.topology.sockets});
  }
}

void Platform::Parts::forget_guest(const std::string& guest) {
  files_.erase(guest);
}

Platform::Platform(const ServerConfig& config) : parts_(std::make_unique<Parts>(*this, config)) {}
Platform::~Platform() = default;

const ServerConfig& Platform::config() const {
  return parts_->config;
}
const Topology& Platform::topology() const {
  return parts_->topology;
}
pcie::Simulation& Platform::simulation() {
  return parts_->simulation;
}
pcie::FunctionAccess& Platform::function(std::size_t endpoint) {
  return *parts_->functions.at(endpoint);
}
std::size_t Platform::functions() const {
  return parts_->functions.size();
}

rnic::ManagementBlock* Platform::management(std::size_t endpoint) {
  return parts_->devices.at(endpoint).management;
}

void Platform::assign(std::size_t endpoint, const std::string& guest) {
  parts_->functions.at(endpoint)->set_guest(guest);
}

void Platform::place_file(const std::string& guest, int fd, unsigned node) {
  parts_->place_file(guest, fd, node);
}

Picoseconds Platform::now() const {
  return {sc_core::sc_time_stamp().value()};
}

Picoseconds Platform::next_activity() {
  const Picoseconds queued = parts_->simulation.events.next_time();
  if (sc_core::sc_get_status() == sc_core::SC_ELABORATION) {
    return queued;
  }
  if (sc_core::sc_pending_activity_at_current_time()) {
    return now();
  }
  const sc_core::sc_time pending = sc_core::sc_time_to_pending_activity();
  const Picoseconds kernel = pending == sc_core::sc_max_time() - sc_core::sc_time_stamp()
                                 ? Picoseconds::max()
                                 : now() + Picoseconds{pending.value()};
  return min(queued, kernel);
}

void Platform::advance(Picoseconds until, std::uint64_t budget) {
  parts_->host->set_budget(budget);
  parts_->host->run_ahead(parts_->kernel_is_ours ? until : Picoseconds{});
  parts_->host->kick();
  if (until <= now()) {
    sc_core::sc_start(sc_core::SC_ZERO_TIME);
  } else {
    sc_core::sc_start(sc_core::sc_time::from_value((until - now()).count), sc_core::SC_RUN_TO_TIME);
  }
  parts_->host->set_budget(0);
  parts_->host->run_ahead({});
  // Time may have passed without an event; what comes from outside next happens at the kernel's time.
  parts_->host->synchronise();
}

void Platform::settle() {
  parts_->host->set_budget(0);
  parts_->host->kick();
  do {
    sc_core::sc_start(sc_core::SC_ZERO_TIME);
  } while (sc_core::sc_pending_activity_at_current_time());
  parts_->host->synchronise();
}

bool Platform::at_rest() const {
  return parts_->simulation.events.empty() && parts_->simulation.tlps.outstanding() == 0;
}

void Platform::complete(pcie::HostRequest& request) {
  parts_->root_complex().start(request);
  const Picoseconds deadline = now() + completion_timeout;
  while (!request.done) {
    const Picoseconds next = next_activity();
    if (next > deadline) {
      parts_->root_complex().cancel(request);
      request.done = true;
      request.status = pcie::CompletionStatus::unsupported_request;
      return;
    }
    advance(next, 0);
  }
}

void Platform::rebuild_windows() {
  parts_->root_complex().clear_windows();
  for (const auto& module : parts_->switches) {
    module->core.clear_windows();
  }
  for (std::size_t i = 0; i < parts_->functions.size(); ++i) {
    const Topology::Endpoint& endpoint = parts_->topology.endpoints[i];
    for (unsigned bar = 0; bar < pcie::bar_count; ++bar) {
      const PlatformFunction::Placement& placement = parts_->functions[i]->placement(bar);
      if (!placement.placed) {
        continue;
      }
      const std::uint64_t size = parts_->functions[i]->bar_description(bar).size;
      std::size_t root_port = endpoint.port;
      if (endpoint.switch_index) {
        root_port = parts_->topology.switches[*endpoint.switch_index].root_port;
        parts_->switches[*endpoint.switch_index]->core.add_window(static_cast<unsigned>(endpoint.port + 1),
                                                                  placement.hpa.value, size);
      }
      parts_->root_complex().add_window(static_cast<unsigned>(root_port), placement.hpa.value, size);
    }
  }
}

std::vector<Platform::LinkReport> Platform::links() const {
  std::vector<LinkReport> reports;
  const auto add = [&](const std::string& name, const pcie::LinkModule& link) {
    reports.push_back({name, &link.core.down.settings(), &link.core.down.counters(), &link.core.up.counters(),
                       link.core.down.id(), link.core.up.id()});
  };
  for (std::size_t i = 0; i < parts_->root_links.size(); ++i) {
    const Topology::RootPort& port = parts_->topology.root_ports[i];
    add(port.switch_index ? parts_->topology.switches[*port.switch_index].name
                          : parts_->topology.endpoints[*port.endpoint].name,
        *parts_->root_links[i]);
  }
  for (std::size_t i = 0; i < parts_->device_links.size(); ++i) {
    if (parts_->device_links[i] != nullptr) {
      add(parts_->topology.endpoints[i].name, *parts_->device_links[i]);
    }
  }
  return reports;
}

const pcie::SwitchCounters& Platform::switch_counters(std::size_t index) const {
  return parts_->switches.at(index)->core.counters();
}
const pcie::RootComplexCounters& Platform::root_complex_counters() const {
  return parts_->root_complex().counters();
}
pcie::Iommu& Platform::iommu() {
  return parts_->iommu;
}
instance_link::Uplinks* Platform::uplinks() {
  return parts_->network.uplinks();
}
Dram& Platform::dram() {
  return parts_->dram;
}

void Platform::set_acs(std::size_t switch_index, std::uint16_t control) {
  pcie::SwitchModule& module = *parts_->switches.at(switch_index);
  for (unsigned port = 1; port <= module.core.downstream_ports(); ++port) {
    module.core.set_acs(port, pcie::AcsControl::from_register(control));
  }
}

}  // namespace orrery::models
