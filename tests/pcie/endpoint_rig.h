// A fabric whose functions see a MiB of host memory through the IOMMU, and that nothing is left behind in.
#pragma once

#include <cstdint>

#include <gtest/gtest.h>

#include "tests/pcie/fabric.h"

namespace orrery::pcie::testing::endpoint {

// Host memory of 1 MiB at Fabric::dram, seen by every function at IOVA `iova`.
inline constexpr std::uint64_t iova = 0x10'0000;
struct Host : Fabric {
  explicit Host(const FabricOptions& o = {}) : Fabric(translated(o)), region(memory.add(dram, 1U << 20)) {
    for (const DomainId domain : domains) {
      EXPECT_EQ(iommu.map(domain, Iova{iova}, Hpa{dram}, 1U << 20, {true, true}), PageTableStatus::ok);
    }
  }
  // No test may leave a TLP, a tag or a transfer behind.
  ~Host() {
    simulation.observer = nullptr;
    EXPECT_EQ(simulation.tlps.outstanding(), 0U);
    for (const auto& function : functions) {
      EXPECT_EQ(function->endpoint->transfers(), 0U);
    }
  }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;
  static FabricOptions translated(FabricOptions o) {
    o.domain = DomainMode::translated;
    return o;
  }
  void unmap(unsigned function, std::uint64_t page) {
    EXPECT_EQ(iommu.unmap(domains[function], Iova{iova + page * 4096}, 4096), PageTableStatus::ok);
  }
  HostStub::Region& region;
};
inline FabricOptions mode(bool timed) {
  FabricOptions options;
  options.timed = timed;
  return options;
}

}  // namespace orrery::pcie::testing::endpoint
