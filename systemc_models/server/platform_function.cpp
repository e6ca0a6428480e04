#include "systemc_models/server/platform_function.h"

#include <algorithm>
#include <cstring>

#include "common/log.h"
#include "pcie/capabilities.h"
#include "systemc_models/server/platform_parts.h"

namespace orrery::models {

namespace {

constexpr std::uint32_t bar_registers = pcie::config_register::bar0;
constexpr std::uint32_t bar_registers_end = bar_registers + 4 * pcie::bar_count;
// Where BARs go that can't stand where the guest put them.
constexpr std::uint64_t high_windows = std::uint64_t{1} << 50;
constexpr std::uint64_t high_windows_end = std::uint64_t{1} << 51;
constexpr std::uint64_t low_windows = 0xb000'0000;
constexpr std::uint64_t low_windows_end = 0xfec0'0000;
constexpr std::uint64_t page_mask = 4095;
// A guest may have its BARs at its own addresses up to where DRAM begins, but not in the way of interrupts.
constexpr std::uint64_t identity_end = Dram::base(0);
bool identity_allowed(std::uint64_t start, std::uint64_t size) {
  return size <= identity_end && start <= identity_end - size &&
         (start + size <= pcie::interrupt_window_start ||
          start >= pcie::interrupt_window_start + pcie::interrupt_window_size);
}

bool is_bar_register(std::uint32_t offset) {
  return offset >= bar_registers && offset < bar_registers_end;
}

}  // namespace

PlatformFunction::PlatformFunction(Platform& platform, pcie::Endpoint& endpoint, pcie::DomainId domain)
    : platform_(platform), endpoint_(endpoint), domain_(domain) {
  virtual_config_ = std::make_unique<pcie::ConfigSpace>(pcie::HeaderType::endpoint, pcie::FunctionIdentity{});
  const pcie::BarDescriptions& descriptions = endpoint.bars().descriptions();
  pcie::define_bars(*virtual_config_, descriptions);
  virtual_bars_ = std::make_unique<pcie::BarSet>(*virtual_config_, descriptions);
}

PlatformFunction::~PlatformFunction() = default;

std::string PlatformFunction::name() const {
  return endpoint_.name();
}

std::array<pcie::BarDescription, pcie::bar_count> PlatformFunction::bars() const {
  return virtual_bars_->descriptions();
}

unsigned PlatformFunction::msix_vectors() const {
  const std::uint8_t at = endpoint_.config().capability(pcie::capability_id::msix);
  return at == 0 ? 0 : (endpoint_.config().read16(at + 2U) & 0x7ffU) + 1;
}

// ---- Configuration space ----------------------------------------------------------------------------------

std::uint32_t PlatformFunction::read_dword(std::uint32_t offset) {
  if (is_bar_register(offset)) {
    return virtual_config_->read_dword(offset);
  }
  std::array<std::byte, 4> bytes{};
  pcie::HostRequest request;
  request.type = pcie::TlpType::CfgRd1;
  request.address = offset;
  request.target = endpoint_.bdf();
  request.buffer = bytes;
  platform_.complete(request);
  std::uint32_t value = 0xffff'ffff;
  if (request.status == pcie::CompletionStatus::success) {
    std::memcpy(&value, bytes.data(), sizeof(value));
  }
  return value;
}

void PlatformFunction::write_dword(std::uint32_t offset, std::uint32_t value, unsigned byte_enables) {
  std::array<std::byte, 4> bytes{};
  std::memcpy(bytes.data(), &value, sizeof(value));
  pcie::HostRequest request;
  request.type = pcie::TlpType::CfgWr1;
  request.address = offset;
  request.target = endpoint_.bdf();
  request.buffer = bytes;
  request.byte_enables = static_cast<std::uint8_t>(byte_enables);
  platform_.complete(request);
}

void PlatformFunction::config_read(std::uint32_t offset, std::span<std::byte> into) {
  std::size_t done = 0;
  while (done < into.size()) {
    const std::uint32_t at = offset + static_cast<std::uint32_t>(done);
    const std::uint32_t value = read_dword(at & ~3U);
    const std::uint32_t skip = at & 3U;
    const std::size_t bytes = std::min<std::size_t>(4 - skip, into.size() - done);
    std::memcpy(into.data() + done, reinterpret_cast<const std::byte*>(&value) + skip, bytes);
    done += bytes;
  }
}

void PlatformFunction::config_write(std::uint32_t offset, std::span<const std::byte> from) {
  std::size_t done = 0;
  while (done < from.size()) {
    const std::uint32_t at = offset + static_cast<std::uint32_t>(done);
    const std::uint32_t skip = at & 3U;
    const std::size_t bytes = std::min<std::size_t>(4 - skip, from.size() - done);
    std::uint32_t value = 0;
    std::memcpy(reinterpret_cast<std::byte*>(&value) + skip, from.data() + done, bytes);
    const unsigned enables = ((1U << bytes) - 1U) << skip;
    const std::uint32_t dword = at & ~3U;
    if (is_bar_register(dword)) {
      virtual_config_->write_dword(dword, value, enables);
      virtual_bars_->refresh();
      place_bars();
    } else {
      if (dword == pcie::config_register::command) {
        // The guest's BARs claim while its command register says so; the platform places them first.
        virtual_config_->write_dword(dword, value, enables);
        virtual_bars_->refresh();
        place_bars();
      }
      write_dword(dword, value, enables);
      program_bars();  // a function level reset clears the BARs; a VMM puts them back, as VFIO does
    }
    done += bytes;
  }
}

// ---- BARs ---------------------------------------------------------------------------------------------------

std::optional<Hpa> PlatformFunction::choose(unsigned bar, Gpa gpa) const {
  const pcie::BarDescription& description = bar_description(bar);
  const pcie::RootComplex& complex = platform_.parts_->root_complex();
  const auto free_at = [&](std::uint64_t address) { return complex.window_free(address, description.size); };
  if (identity_allowed(gpa.value, description.size) && free_at(gpa.value)) {
    return Hpa{gpa.value};
  }
  const std::uint64_t first = description.is_64bit ? high_windows : low_windows;
  const std::uint64_t last = description.is_64bit ? high_windows_end : low_windows_end;
  const std::uint64_t size = description.size;
  for (std::uint64_t at = (first + size - 1) / size * size; at + size <= last; at += size) {
    if (free_at(at)) {
      return Hpa{at};
    }
  }
  return std::nullopt;
}

void PlatformFunction::place_bars() {
  // First the old places of all that moves are given up, so that BARs may change places.
  std::array<std::optional<std::uint64_t>, pcie::bar_count> wanted{};
  bool changed = false;
  for (unsigned bar = 0; bar < pcie::bar_count; ++bar) {
    Placement& placement = placements_[bar];
    const std::optional<std::uint64_t> base = virtual_bars_->base(bar);
    if (placement.placed && (!base || placement.gpa.value != *base)) {
      placement.placed = false;
      changed = true;
    }
    if (base && !placement.placed) {
      wanted[bar] = base;
      changed = true;
    }
  }
  if (!changed) {
    return;
  }
  platform_.rebuild_windows();
  for (unsigned bar = 0; bar < pcie::bar_count; ++bar) {
    if (!wanted[bar]) {
      continue;
    }
    const Gpa gpa{*wanted[bar]};
    const std::optional<Hpa> hpa = choose(bar, gpa);
    if (!hpa) {
      log(LogLevel::error, "{}: no host address is free for BAR{} of {} bytes; it answers nothing", name(), bar,
          bar_description(bar).size);
      continue;
    }
    placements_[bar] = {true, gpa, *hpa};
    platform_.rebuild_windows();
  }
  program_bars();
  tell_peers();
}

void PlatformFunction::unplace_bars() {
  for (Placement& placement : placements_) {
    placement.placed = false;
  }
  platform_.rebuild_windows();
  tell_peers();
}

void PlatformFunction::set_guest(std::string guest) {
  guest_ = std::move(guest);
  tell_peers();
  for (std::size_t i = 0; i < platform_.functions(); ++i) {
    const auto& other = static_cast<const PlatformFunction&>(platform_.function(i));
    for (unsigned bar = 0; bar < pcie::bar_count; ++bar) {
      follow_peer(other, bar);
    }
  }
}

void PlatformFunction::tell_peers() {
  for (std::size_t i = 0; i < platform_.functions(); ++i) {
    auto& other = static_cast<PlatformFunction&>(platform_.function(i));
    for (unsigned bar = 0; bar < pcie::bar_count; ++bar) {
      other.follow_peer(*this, bar);
    }
  }
}

void PlatformFunction::program_bars() {
  for (unsigned bar = 0; bar < pcie::bar_count; ++bar) {
    if (!placements_[bar].placed) {
      continue;
    }
    const std::uint32_t at = bar_registers + 4 * bar;
    const std::uint64_t hpa = placements_[bar].hpa.value;
    if ((endpoint_.config().read32(at) & ~0xfU) != static_cast<std::uint32_t>(hpa)) {
      write_dword(at, static_cast<std::uint32_t>(hpa), 0xf);
    }
    if (bar_description(bar).is_64bit && endpoint_.config().read32(at + 4) != static_cast<std::uint32_t>(hpa >> 32)) {
      write_dword(at + 4, static_cast<std::uint32_t>(hpa >> 32), 0xf);
    }
  }
}

void PlatformFunction::bar_read(unsigned bar, std::uint64_t offset, std::span<std::byte> into) {
  pcie::HostRequest request;
  request.type = pcie::TlpType::MRd;
  request.buffer = into;
  request.status = pcie::CompletionStatus::unsupported_request;
  if (placements_[bar].placed) {
    request.address = placements_[bar].hpa.value + offset;
    platform_.complete(request);
  }
  if (request.status != pcie::CompletionStatus::success) {
    std::fill(into.begin(), into.end(), std::byte{0xff});
  }
}

void PlatformFunction::bar_write(unsigned bar, std::uint64_t offset, std::span<const std::byte> from) {
  if (!placements_[bar].placed) {
    return;
  }
  pcie::HostRequest request;
  request.type = pcie::TlpType::MWr;
  request.address = placements_[bar].hpa.value + offset;
  // The bytes of a write are only read.
  request.buffer = {const_cast<std::byte*>(from.data()), from.size()};
  platform_.complete(request);  // posted: done at once
}

void PlatformFunction::interrupt(unsigned vector) {
  // A device may write any number where interrupts are written to.
  if (sink_ != nullptr && vector < msix_vectors()) {
    sink_->msix(vector);
  }
}

void PlatformFunction::reset() {
  const std::uint8_t at = endpoint_.config().capability(pcie::capability_id::pci_express);
  const std::uint32_t command = endpoint_.config().command();
  if (at == 0) {
    endpoint_.config().reset(pcie::ResetKind::function_level);
  } else {
    // Initiate Function Level Reset: bit 15 of Device Control (PCIe Base 6.3 §7.5.3.4).
    const std::uint32_t control = at + 8U;
    write_dword(control, endpoint_.config().read16(control) | 0x8000U, 0x3);
  }
  program_bars();
  write_dword(pcie::config_register::command, command & pcie::command_bit::memory_space, 0x3);
}

void PlatformFunction::disconnect() {
  sink_ = nullptr;
  reset();  // first, so that a running DMA ends without faults
  dma_unmap_all();
  write_dword(pcie::config_register::command, 0, 0x3);
  virtual_config_->reset(pcie::ResetKind::cold);
  virtual_bars_->refresh();
  unplace_bars();
  for (std::size_t i = 0; i < platform_.functions(); ++i) {
    const auto& other = static_cast<PlatformFunction&>(platform_.function(i));
    if (other.guest_ == guest_ && !other.mappings_.empty()) {
      return;
    }
  }
  platform_.parts_->forget_guest(guest_);
}

// ---- DMA address space --------------------------------------------------------------------------------------

pcie::MapResult PlatformFunction::dma_map(Iova iova, std::uint64_t size, pcie::DmaAccess access,
                                          std::optional<pcie::FileWindow> window, pcie::MessageMemory* messages) {
  using pcie::MapResult;
  if (!range_is_valid(iova.value, size) || ((iova.value | size) & page_mask) != 0 || (!access.read && !access.write)) {
    return MapResult::invalid;
  }
  auto after = mappings_.upper_bound(iova.value);
  if (after != mappings_.end() && after->first - iova.value < size) {
    return MapResult::overlap;
  }
  if (after != mappings_.begin()) {
    const auto& before = *std::prev(after);
    if (iova.value - before.first < before.second.size) {
      return MapResult::overlap;
    }
  }
  Mapping mapping;
  mapping.size = size;
  mapping.access = access;
  if (window) {
    std::string why;
    const std::optional<Dram::Window> frames =
        platform_.parts_->dram.acquire(*window, size, platform_.parts_->node_for(guest_, *window), &why);
    if (!frames) {
      log(LogLevel::error, "{}: DMA mapping of {:#x} bytes at {:#x} refused: {}", name(), size, iova.value, why);
      return MapResult::io_error;
    }
    mapping.kind = Mapping::Kind::file;
    mapping.file = frames->file;
    mapping.hpa = frames->address;
  } else {
    bool found = false;
    for (std::size_t i = 0; i < platform_.functions() && !found; ++i) {
      auto& peer = static_cast<PlatformFunction&>(platform_.function(i));
      if (peer.guest_ != guest_) {
        continue;
      }
      for (unsigned bar = 0; bar < pcie::bar_count && !found; ++bar) {
        const Placement& placement = peer.placements_[bar];
        const std::uint64_t offset = iova.value - placement.gpa.value;
        if (placement.placed && offset < peer.bar_description(bar).size &&
            size <= peer.bar_description(bar).size - offset) {
          mapping.kind = Mapping::Kind::peer;
          mapping.peer = &peer;
          mapping.bar = bar;
          mapping.hpa = placement.hpa + offset;
          found = true;
        }
      }
    }
    if (!found) {
      if (messages == nullptr) {
        return MapResult::no_peer;
      }
      const std::optional<Hpa> frames = platform_.parts_->dram.acquire_remote(*messages, iova, size);
      if (!frames) {
        return MapResult::io_error;
      }
      mapping.kind = Mapping::Kind::remote;
      mapping.hpa = *frames;
      mapping.remote_base = *frames;
    }
  }
  switch (platform_.parts_->iommu.map(domain_, iova, mapping.hpa, size, access)) {
    case pcie::PageTableStatus::ok:
      break;
    case pcie::PageTableStatus::invalid:
      release(mapping);
      return MapResult::invalid;
    case pcie::PageTableStatus::overlap:
      release(mapping);
      return MapResult::overlap;
    case pcie::PageTableStatus::out_of_memory:
      release(mapping);
      return MapResult::io_error;
  }
  mappings_.emplace(iova.value, mapping);
  if (mapping.kind == Mapping::Kind::peer) {
    tell_device();
  }
  return MapResult::ok;
}

void PlatformFunction::tell_device() {
  std::vector<pcie::PeerWindow> windows;
  for (const auto& [iova, mapping] : mappings_) {
    // Registers of peers aren't memory: they stay behind the IOMMU.
    if (mapping.kind == Mapping::Kind::peer && mapping.live && mapping.access.read && mapping.access.write &&
        mapping.peer->bar_description(mapping.bar).prefetchable) {
      windows.push_back({iova, mapping.size, mapping.hpa.value});
    }
  }
  endpoint_.model().set_peer_windows(windows);
}

void PlatformFunction::release(const Mapping& mapping) {
  if (mapping.kind == Mapping::Kind::file) {
    platform_.parts_->dram.release(mapping.file);
  } else if (mapping.kind == Mapping::Kind::remote) {
    platform_.parts_->dram.release_remote(mapping.remote_base);
  }
}

pcie::MapResult PlatformFunction::dma_unmap(Iova iova, std::uint64_t size) {
  using pcie::MapResult;
  if (!range_is_valid(iova.value, size) || ((iova.value | size) & page_mask) != 0) {
    return MapResult::invalid;
  }
  const std::uint64_t last = iova.value + (size - 1);
  // Mappings that the range touches; one that it cuts keeps its parts outside.
  auto at = mappings_.upper_bound(iova.value);
  if (at != mappings_.begin() && iova.value - std::prev(at)->first < std::prev(at)->second.size) {
    --at;
  }
  if (at == mappings_.end() || at->first > last) {
    return MapResult::not_found;
  }
  if (platform_.parts_->iommu.unmap(domain_, iova, size) != pcie::PageTableStatus::ok) {
    return MapResult::io_error;
  }
  bool peers_changed = false;
  while (at != mappings_.end() && at->first <= last) {
    peers_changed = peers_changed || at->second.kind == Mapping::Kind::peer;
    const std::uint64_t start = at->first;
    const Mapping mapping = at->second;
    const std::uint64_t mapping_last = start + (mapping.size - 1);
    at = mappings_.erase(at);
    unsigned parts = 0;
    const auto keep = [&](std::uint64_t from, std::uint64_t to) {
      Mapping part = mapping;
      part.hpa = mapping.hpa + (from - start);
      part.size = to - from + 1;
      mappings_.emplace(from, part);
      ++parts;
    };
    if (start < iova.value) {
      keep(start, iova.value - 1);
    }
    if (mapping_last > last) {
      keep(last + 1, mapping_last);
    }
    if (mapping.kind == Mapping::Kind::file) {
      if (parts == 0) {
        release(mapping);
      } else if (parts == 2) {
        platform_.parts_->dram.retain(mapping.file);
      }
    } else if (mapping.kind == Mapping::Kind::remote) {
      // The frames go with the last part.
      const bool used = std::any_of(mappings_.begin(), mappings_.end(), [&](const auto& entry) {
        return entry.second.kind == Mapping::Kind::remote && entry.second.remote_base == mapping.remote_base;
      });
      if (!used) {
        release(mapping);
      }
    }
  }
  if (peers_changed) {
    tell_device();
  }
  return MapResult::ok;
}

void PlatformFunction::dma_unmap_all() {
  while (!mappings_.empty()) {
    const auto& first = *mappings_.begin();
    dma_unmap(Iova{first.first}, first.second.size);
  }
}

void PlatformFunction::follow_peer(const PlatformFunction& peer, unsigned bar) {
  const Placement& placement = peer.placements_[bar];
  bool changed = false;
  for (auto& [iova, mapping] : mappings_) {
    if (mapping.kind != Mapping::Kind::peer || mapping.peer != &peer || mapping.bar != bar) {
      continue;
    }
    // A mapping of a peer names the address that the BAR had in the guest when it was made.
    const std::uint64_t offset = iova - placement.gpa.value;
    const std::uint64_t bar_size = peer.bar_description(bar).size;
    const bool still =
        placement.placed && peer.guest_ == guest_ && offset < bar_size && mapping.size <= bar_size - offset;
    const Hpa hpa = still ? placement.hpa + offset : mapping.hpa;
    if (mapping.live && (!still || hpa != mapping.hpa)) {
      changed = true;
      platform_.parts_->iommu.unmap(domain_, Iova{iova}, mapping.size);
      mapping.live = false;
    }
    if (still && !mapping.live) {
      changed = true;
      mapping.hpa = hpa;
      mapping.live = platform_.parts_->iommu.map(domain_, Iova{iova}, hpa, mapping.size, mapping.access) ==
                     pcie::PageTableStatus::ok;
    }
  }
  if (changed) {
    tell_device();
  }
}

}  // namespace orrery::models
