// One emulated server: the models of a configuration, assembled and hosted in the SystemC kernel.
//
// The platform owns the simulated time and everything in it. A virtual machine monitor's side reaches it
// through pcie::FunctionAccess, one per endpoint of the topology.
// SystemC allows one elaboration per process: construct one Platform in a process, before any sc_start().
// One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/time.h"
#include "pcie/function_access.h"
#include "pcie/iommu.h"
#include "pcie/link.h"
#include "pcie/root_complex.h"
#include "pcie/simulation.h"
#include "pcie/switch.h"
#include "systemc_models/host/dram.h"
#include "systemc_models/server/server_config.h"
#include "systemc_models/server/topology.h"

namespace orrery::rnic {
class ManagementBlock;
}
namespace orrery::instance_link {
class Uplinks;
}

namespace orrery::models {

class PlatformFunction;

class Platform {
 public:
  // Throws Error if a model refuses its configuration (memory that the machine doesn't give, a plug-in that
  // can't be loaded).
  explicit Platform(const ServerConfig& config);
  Platform(const Platform&) = delete;
  Platform& operator=(const Platform&) = delete;
  ~Platform();

  [[nodiscard]] const ServerConfig& config() const;
  [[nodiscard]] const Topology& topology() const;
  [[nodiscard]] pcie::Simulation& simulation();

  // The function of topology().endpoints[endpoint].
  [[nodiscard]] pcie::FunctionAccess& function(std::size_t endpoint);
  [[nodiscard]] std::size_t functions() const;
  // The management block of an RNIC with the mlx5 personality; null for any other endpoint.
  [[nodiscard]] rnic::ManagementBlock* management(std::size_t endpoint);
  // Functions of one guest see each other's BARs as peers. Every function starts in guest "".
  void assign(std::size_t endpoint, const std::string& guest);
  // The NUMA node (modulo the number of sockets) of a memory file that the guest is going to map. Without, a guest's
  // files take the nodes in turn, and a file that is mapped again later keeps its own.
  void place_file(const std::string& guest, int fd, unsigned node);

  // ---- Time -------------------------------------------------------------------------------------------
  [[nodiscard]] Picoseconds now() const;
  // When something will happen by itself; Picoseconds::max() if nothing will.
  [[nodiscard]] Picoseconds next_activity();
  // Runs to `until`, or until about `budget` events have been handled (0: no limit), whichever is first.
  void advance(Picoseconds until, std::uint64_t budget);
  // Handles everything that is due now. In timed mode: to be done around every stimulus from outside.
  void settle();
  // Whether nothing is under way: no event pending, no TLP in flight.
  [[nodiscard]] bool at_rest() const;

  // ---- What can be read off ----------------------------------------------------------------------------
  struct LinkReport {
    std::string name;  // of the lower component: "gpu0", "switch1"
    const pcie::LinkSettings* settings;
    const pcie::LinkCounters* down;
    const pcie::LinkCounters* up;
    pcie::ComponentId down_id;
    pcie::ComponentId up_id;
  };
  [[nodiscard]] std::vector<LinkReport> links() const;
  [[nodiscard]] const pcie::SwitchCounters& switch_counters(std::size_t index) const;
  [[nodiscard]] const pcie::RootComplexCounters& root_complex_counters() const;
  [[nodiscard]] pcie::Iommu& iommu();
  [[nodiscard]] Dram& dram();
  // The way to other servers; null without network.link.
  [[nodiscard]] instance_link::Uplinks* uplinks();
  // Changes the ACS Control register of every downstream port of a switch.
  void set_acs(std::size_t switch_index, std::uint16_t control);

 private:
  friend class PlatformFunction;
  struct Parts;
  // Runs until the CPU's access is done; at most 20 ms of simulated time (a completion timeout), after
  // which the request is forgotten and ends with status unsupported_request.
  void complete(pcie::HostRequest& request);
  void rebuild_windows();
  std::unique_ptr<Parts> parts_;
};

}  // namespace orrery::models
