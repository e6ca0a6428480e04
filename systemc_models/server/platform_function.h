// One function of the platform as a guest's VMM uses it: pcie::FunctionAccess over the modelled fabric.
//
// The guest's base address registers are virtual, as in any VMM: the guest writes guest physical addresses;
// the function's own registers get host physical ones. The platform places a BAR at the very address that
// the guest chose if the host address map is free there (what a bare-metal kernel would see, and what lets
// AT = 00b peer requests be routed by a switch without ACS redirection), else elsewhere.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "pcie/bar.h"
#include "pcie/endpoint.h"
#include "pcie/function_access.h"
#include "systemc_models/server/platform.h"

namespace orrery::models {

class PlatformFunction final : public pcie::FunctionAccess {
 public:
  PlatformFunction(Platform& platform, pcie::Endpoint& endpoint, pcie::DomainId domain);
  ~PlatformFunction() override;

  [[nodiscard]] std::string name() const override;
  [[nodiscard]] std::array<pcie::BarDescription, pcie::bar_count> bars() const override;
  [[nodiscard]] std::uint32_t config_size() const override { return pcie::ConfigSpace::size; }
  [[nodiscard]] unsigned msix_vectors() const override;
  void config_read(std::uint32_t offset, std::span<std::byte> into) override;
  void config_write(std::uint32_t offset, std::span<const std::byte> from) override;
  void bar_read(unsigned bar, std::uint64_t offset, std::span<std::byte> into) override;
  void bar_write(unsigned bar, std::uint64_t offset, std::span<const std::byte> from) override;
  void set_interrupt_sink(pcie::InterruptSink* sink) override { sink_ = sink; }
  void reset() override;
  pcie::MapResult dma_map(Iova iova, std::uint64_t size, pcie::DmaAccess access, std::optional<pcie::FileWindow> window,
                          pcie::MessageMemory* messages) override;
  pcie::MapResult dma_unmap(Iova iova, std::uint64_t size) override;
  void dma_unmap_all() override;
  void disconnect() override;

  // Where a BAR stands: guest physical as the guest set it, host physical as the platform placed it.
  struct Placement {
    bool placed = false;
    Gpa gpa;
    Hpa hpa;
  };
  [[nodiscard]] const Placement& placement(unsigned bar) const { return placements_[bar]; }
  [[nodiscard]] const pcie::BarDescription& bar_description(unsigned bar) const {
    return virtual_bars_->descriptions()[bar];
  }
  // Functions that were its peers, and are no more, lose it; new ones may map it.
  void set_guest(std::string guest);
  [[nodiscard]] const std::string& guest() const { return guest_; }
  [[nodiscard]] pcie::Endpoint& endpoint() { return endpoint_; }
  void interrupt(unsigned vector);
  // A peer's BAR has moved: mappings of it follow.
  void follow_peer(const PlatformFunction& peer, unsigned bar);

 private:
  struct Mapping {
    std::uint64_t size = 0;
    pcie::DmaAccess access;
    enum class Kind : std::uint8_t { file, peer, remote } kind = Kind::file;
    unsigned file = 0;                       // file
    const PlatformFunction* peer = nullptr;  // peer
    unsigned bar = 0;
    Hpa hpa;           // of the first byte
    Hpa remote_base;   // remote: what release_remote() wants
    bool live = true;  // peer: false while the BAR is elsewhere; the IOMMU then has no entry
  };

  [[nodiscard]] std::uint32_t read_dword(std::uint32_t offset);
  void write_dword(std::uint32_t offset, std::uint32_t value, unsigned byte_enables);
  void place_bars();
  void unplace_bars();
  void program_bars();
  // Tells every function that this one's BARs have moved.
  void tell_peers();
  [[nodiscard]] std::optional<Hpa> choose(unsigned bar, Gpa gpa) const;
  void release(const Mapping& mapping);
  // Tells the device which of its peers' device memory it reaches now.
  void tell_device();

  Platform& platform_;
  pcie::Endpoint& endpoint_;
  pcie::DomainId domain_;
  std::string guest_;
  std::unique_ptr<pcie::ConfigSpace> virtual_config_;  // only its header is used
  std::unique_ptr<pcie::BarSet> virtual_bars_;
  std::array<Placement, pcie::bar_count> placements_{};
  pcie::InterruptSink* sink_ = nullptr;
  std::map<std::uint64_t, Mapping> mappings_;  // by IOVA
};

}  // namespace orrery::models
