#include "systemc_models/rnic/firmware_function.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/log.h"
#include "pcie/bar.h"
#include "pcie/capabilities.h"
#include "systemc_models/device_identity.h"
#include "systemc_models/rnic/register_names.h"

namespace orrery::rnic {

namespace {

constexpr std::uint32_t class_other_system = 0x088000;  // base system peripheral, other

pcie::BarDescriptions firmware_bars(const RegisterMap* map) {
  pcie::BarDescriptions bars;
  bars[firmware_bar::registers].size = map != nullptr ? map->bar_bytes() : firmware_bar::registers_bytes;
  bars[firmware_bar::msix].size = firmware_bar::msix_bytes;
  return bars;
}

bool whole_words(std::uint64_t offset, std::size_t size) {
  return offset % 4 == 0 && size % 4 == 0;
}

}  // namespace

FirmwareFunction::FirmwareFunction(std::string name, ManagementBlock& block, std::function<void()> start,
                                   std::unique_ptr<RegisterMap> map)
    : name_(std::move(name)),
      block_(block),
      start_(std::move(start)),
      map_(std::move(map)),
      registers_(map_ != nullptr ? static_cast<firmware::RegisterAccess&>(*map_) : block) {
  pcie::FunctionIdentity identity;
  identity.vendor_id = ORRERY_PCI_VENDOR;
  identity.device_id = ORRERY_PCI_DEVICE_MANAGEMENT;
  identity.revision = reg::version_value >> 16;
  identity.class_code = class_other_system;
  identity.subsystem_vendor_id = ORRERY_PCI_VENDOR;
  identity.subsystem_id = ORRERY_PCI_DEVICE_MANAGEMENT;
  config_ = std::make_unique<pcie::ConfigSpace>(pcie::HeaderType::endpoint, identity);
  pcie::define_bars(*config_, firmware_bars(map_.get()));
  pcie::CapabilityBuilder builder(*config_);
  builder.add(pcie::MsixCapability{.vectors = 1,
                                   .table_bar = firmware_bar::msix,
                                   .table_offset = 0,
                                   .pba_bar = firmware_bar::msix,
                                   .pba_offset = firmware_bar::pba_offset});
  builder.add(pcie::PciExpressCapability{});
}

std::array<pcie::BarDescription, pcie::bar_count> FirmwareFunction::bars() const {
  return firmware_bars(map_.get());
}

void FirmwareFunction::restart() {
  // Whoever is connected now is the processor of before.
  outdated_ = sink_ != nullptr;
  used_ = false;
  if (map_ != nullptr) {
    map_->reset();
  }
  start_();
}

void FirmwareFunction::run() {
  if (sink_ != nullptr && !outdated_) {
    sink_->msix(0);
  }
}

void FirmwareFunction::processor_ended() {
  block_.processor_lost();
}

void FirmwareFunction::bar_read(unsigned bar, std::uint64_t offset, std::span<std::byte> into) {
  std::fill(into.begin(), into.end(), std::byte{0});
  if (bar != firmware_bar::registers || outdated_) {
    return;
  }
  used_ = true;
  if (!whole_words(offset, into.size())) {
    block_.refuse_access();
    return;
  }
  for (std::size_t at = 0; at < into.size(); at += 4) {
    const std::uint32_t value = registers_.read32(static_cast<std::uint32_t>(offset + at));
    log_access("reads", static_cast<std::uint32_t>(offset + at), value);
    std::memcpy(into.data() + at, &value, sizeof value);
  }
}

void FirmwareFunction::bar_write(unsigned bar, std::uint64_t offset, std::span<const std::byte> from) {
  if (bar != firmware_bar::registers || outdated_) {
    return;
  }
  used_ = true;
  if (!whole_words(offset, from.size())) {
    block_.refuse_access();
    return;
  }
  for (std::size_t at = 0; at < from.size(); at += 4) {
    std::uint32_t value = 0;
    std::memcpy(&value, from.data() + at, sizeof value);
    log_access("writes", static_cast<std::uint32_t>(offset + at), value);
    registers_.write32(static_cast<std::uint32_t>(offset + at), value);
  }
}

// Every register access by name, for `--log-level trace`.
void FirmwareFunction::log_access(const char* what, std::uint32_t offset, std::uint32_t value) const {
  if (!log_enabled(LogLevel::trace)) {
    return;
  }
  const std::string fields = map_ != nullptr ? map_->fields(offset, value) : std::string();
  log(LogLevel::trace, "{} {} {} {:#x}{}{}", name_, what, map_ != nullptr ? map_->name(offset) : register_name(offset),
      value, fields.empty() ? "" : ": ", fields);
}

// A machine resets its devices before it starts; one whose firmware has run already starts over.
void FirmwareFunction::reset() {
  config_->reset(pcie::ResetKind::conventional);
  if (used_ && !outdated_) {
    block_.processor_lost();
  }
}

pcie::MapResult FirmwareFunction::dma_map(Iova /*iova*/, std::uint64_t /*size*/, pcie::DmaAccess /*access*/,
                                          std::optional<pcie::FileWindow> /*window*/,
                                          pcie::MessageMemory* /*messages*/) {
  return pcie::MapResult::ok;
}

pcie::MapResult FirmwareFunction::dma_unmap(Iova /*iova*/, std::uint64_t /*size*/) {
  return pcie::MapResult::ok;
}

void FirmwareFunction::disconnect() {
  config_->reset(pcie::ResetKind::cold);
  sink_ = nullptr;
  outdated_ = false;
}

}  // namespace orrery::rnic
