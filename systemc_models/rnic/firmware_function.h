// The management block as a PCI function of the processor that runs the firmware: BAR0 holds the register map, MSI-X
// vector 0 is its interrupt. The processor is another machine (QEMU), reached through pcie::FunctionAccess.
//
// Neither side waits for the other: an access is answered at once, an interrupt is only signalled. What the processor
// does is as hostile as a guest: accesses that aren't aligned words are refused and counted. Simulation thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "pcie/config_space.h"
#include "pcie/function_access.h"
#include "systemc_models/rnic/management_block.h"
#include "systemc_models/rnic/register_map.h"

namespace orrery::rnic {

namespace firmware_bar {
inline constexpr unsigned registers = 0;
inline constexpr unsigned msix = 4;
inline constexpr std::uint64_t registers_bytes = 0x20'0000;
inline constexpr std::uint64_t msix_bytes = 0x1000;
inline constexpr std::uint32_t pba_offset = 0x800;
}  // namespace firmware_bar
static_assert(reg::sram + reg::sram_bytes <= firmware_bar::registers_bytes);

class FirmwareFunction final : public pcie::FunctionAccess, public Processor {
 public:
  // `start` starts a new processor, without waiting for it. One that still runs is to be ended first: what it
  // does meanwhile reaches no register. `block` outlives the function.
  // With `map` that is what BAR0 shows, instead of firmware/interface/registers.h.
  FirmwareFunction(std::string name, ManagementBlock& block, std::function<void()> start,
                   std::unique_ptr<RegisterMap> map = nullptr);

  // The processor has ended by itself, connected or not: a crash. Not for one that start() has replaced.
  void processor_ended();

  [[nodiscard]] RegisterMap* map() { return map_.get(); }

  // ---- Processor ----
  void restart() override;
  void run() override;
  [[nodiscard]] bool runs_by_calls() const override { return false; }

  // ---- pcie::FunctionAccess ----
  [[nodiscard]] std::string name() const override { return name_; }
  [[nodiscard]] std::array<pcie::BarDescription, pcie::bar_count> bars() const override;
  [[nodiscard]] std::uint32_t config_size() const override { return pcie::ConfigSpace::size; }
  [[nodiscard]] unsigned msix_vectors() const override { return 1; }
  void config_read(std::uint32_t offset, std::span<std::byte> into) override { config_->read(offset, into); }
  void config_write(std::uint32_t offset, std::span<const std::byte> from) override { config_->write(offset, from); }
  void bar_read(unsigned bar, std::uint64_t offset, std::span<std::byte> into) override;
  void bar_write(unsigned bar, std::uint64_t offset, std::span<const std::byte> from) override;
  void set_interrupt_sink(pcie::InterruptSink* sink) override { sink_ = sink; }
  void reset() override;
  // The function does no DMA: mappings are taken note of by the session only.
  pcie::MapResult dma_map(Iova iova, std::uint64_t size, pcie::DmaAccess access, std::optional<pcie::FileWindow> window,
                          pcie::MessageMemory* messages) override;
  pcie::MapResult dma_unmap(Iova iova, std::uint64_t size) override;
  void dma_unmap_all() override {}
  void disconnect() override;

 private:
  void log_access(const char* what, std::uint32_t offset, std::uint32_t value) const;

  std::string name_;
  ManagementBlock& block_;
  std::function<void()> start_;
  std::unique_ptr<RegisterMap> map_;  // may be null
  firmware::RegisterAccess& registers_;
  std::unique_ptr<pcie::ConfigSpace> config_;
  pcie::InterruptSink* sink_ = nullptr;
  bool used_ = false;      // the processor has accessed registers since it was started
  bool outdated_ = false;  // the one that is connected was replaced: its accesses are dropped until it is gone
};

}  // namespace orrery::rnic
