// The inside of a Platform; only platform*.cpp include it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pcie/modules.h"
#include "pcie/page_table_pool.h"
#include "systemc_models/server/device_factory.h"
#include "systemc_models/server/network.h"
#include "systemc_models/server/platform.h"
#include "systemc_models/server/platform_function.h"

namespace orrery::models {

struct Platform::Parts final : private pcie::InterruptController {
  Parts(Platform& platform, const ServerConfig& configuration);

  ServerConfig config;
  Topology topology;
  pcie::Simulation simulation;
  Dram dram;
  pcie::PageTablePool tables;
  pcie::Iommu iommu;
  std::unique_ptr<pcie::EventHost> host;
  bool kernel_is_ours = true;  // no plug-in with processes of its own, which must see each moment
  std::unique_ptr<pcie::RootComplexModule> complex;
  std::vector<std::unique_ptr<pcie::LinkModule>> root_links;  // by root port
  std::vector<std::unique_ptr<pcie::SwitchModule>> switches;
  std::vector<std::unique_ptr<pcie::LinkModule>> device_links;  // by endpoint; null at a root port
  Network network;                                              // of the RNICs
  std::vector<Device> devices;                                  // by endpoint
  std::vector<std::unique_ptr<pcie::EndpointModule>> endpoints;
  std::vector<std::unique_ptr<PlatformFunction>> functions;
  std::vector<PlatformFunction*> function_of;  // by requester ID

  [[nodiscard]] pcie::RootComplex& root_complex() { return complex->core; }
  [[nodiscard]] const pcie::RootComplex& root_complex() const { return complex->core; }
  // The NUMA node of a memory file of a guest: its files take the sockets in turn, in the order in which the
  // guest's VMM maps them, which is that of its own nodes.
  unsigned node_for(const std::string& guest, const pcie::FileWindow& window);
  // Decides it instead, for a file that the guest hasn't mapped yet.
  void place_file(const std::string& guest, int fd, unsigned node);
  void forget_guest(const std::string& guest);

 private:
  void interrupt(pcie::Bdf requester, std::uint64_t address, std::uint32_t data) override;

  struct GuestFile {
    std::uint64_t device;
    std::uint64_t inode;
    unsigned node;
  };
  std::map<std::string, std::vector<GuestFile>> files_;  // by guest
};

}  // namespace orrery::models
