// A root complex with two ports, a collector below each, and memory of a stub.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include <gtest/gtest.h>

#include "pcie/burst.h"
#include "pcie/root_complex.h"
#include "tests/pcie/fabric.h"

namespace orrery::pcie::testing::root_complex {

inline constexpr std::uint64_t dram = std::uint64_t{1} << 47;
inline constexpr std::uint64_t bar_a = 0x40'0000'0000;  // below port 0
inline constexpr std::uint64_t bar_b = 0x40'0001'0000;  // below port 1, right after it
inline constexpr std::uint64_t bar_bytes = 0x1'0000;
inline constexpr Bdf device_a = Bdf::of(1, 0, 0);
inline constexpr Bdf device_b = Bdf::of(9, 0, 0);

// Ports 0 (socket 0, buses 1-4) and 1 (socket 1, bus 9); a collector stands below each.
struct Bench {
  explicit Bench(bool timed = false, const RootComplexSettings& settings = {}, DomainMode mode = DomainMode::translated)
      : tables(Hpa{std::uint64_t{1} << 46}, 4096),
        iommu(tables),
        complex(simulation, "rc", settings, iommu, memory, interrupts),
        below{Collector(simulation), Collector(simulation)} {
    simulation.timed = timed;
    complex.add_port("p0", 0, {1, 4}, AcsControl::from_register(0x1d));
    complex.add_port("p1", 1, {9, 9}, AcsControl::from_register(0x1d));
    complex.connect(0, below[0]);
    complex.connect(1, below[1]);
    EXPECT_TRUE(complex.add_window(0, bar_a, bar_bytes));
    EXPECT_TRUE(complex.add_window(1, bar_b, bar_bytes));
    domain = *iommu.create_domain(mode);
    iommu.attach(device_a, domain);
    iommu.attach(device_b, domain);
  }
  ~Bench() {
    for (Collector& c : below) {
      c.tlps.clear();
    }
    EXPECT_EQ(simulation.tlps.outstanding(), 0U);
  }
  TlpPtr request(TlpType type, std::uint64_t address, std::span<const std::byte> bytes, std::uint32_t length,
                 std::uint32_t unit = 0) {
    TlpPtr tlp = simulation.tlps.make();
    tlp->type = type;
    tlp->requester = device_a;
    tlp->address = address;
    tlp->tag = 21;
    tlp->created = simulation.now();
    if (type == TlpType::MWr) {
      simulation.timed ? tlp->store(bytes) : tlp->borrow(bytes);
    } else {
      tlp->length = length;
    }
    if (unit != 0) {
      tlp->unit = unit;
      tlp->count = tlps_needed(address, tlp->length, unit);
    }
    return tlp;
  }
  TlpPtr write(std::uint64_t address, std::span<const std::byte> bytes, std::uint32_t unit = 0) {
    return request(TlpType::MWr, address, bytes, 0, unit);
  }
  TlpPtr read(std::uint64_t address, std::uint32_t length, std::uint32_t unit = 0) {
    return request(TlpType::MRd, address, {}, length, unit);
  }
  void send(unsigned port, TlpPtr tlp) {
    complex.ingress(port).receive(std::move(tlp), {});
    run();
  }
  void run() {
    while (simulation.events.run_one()) {
    }
  }
  void map(std::uint64_t iova, std::uint64_t hpa, std::uint64_t size, DmaAccess access = {true, true}) {
    ASSERT_EQ(iommu.map(domain, Iova{iova}, Hpa{hpa}, size, access), PageTableStatus::ok);
  }
  Simulation simulation;
  PageTablePool tables;
  Iommu iommu;
  HostStub memory;
  Interrupts interrupts;
  RootComplex complex;
  std::array<Collector, 2> below;
  DomainId domain;
};

}  // namespace orrery::pcie::testing::root_complex
