#include "systemc_models/rnic/mlx5/mlx5_function.h"

#include <algorithm>
#include <cstring>

#include "pcie/capabilities.h"
#include "systemc_models/register_access.h"

namespace orrery::rnic {

namespace {

constexpr std::uint32_t swap(std::uint32_t value) {
  return __builtin_bswap32(value);
}

constexpr std::uint32_t class_infiniband = 0x020700;
constexpr std::uint32_t class_ethernet = 0x020000;
constexpr std::uint16_t subsystem_id = 0x0001;
constexpr std::uint32_t pba_offset = 0x1000;
constexpr std::uint32_t low24 = 0x00ff'ffff;

}  // namespace

pcie::BarDescriptions mlx5_bars() {
  pcie::BarDescriptions bars;
  bars[mlx5::bar_registers] = {.size = mlx5::bar0_bytes, .is_64bit = true, .prefetchable = true, .memory_fd = -1};
  bars[mlx5::bar_msix].size = mlx5::bar4_bytes;
  return bars;
}

std::unique_ptr<pcie::ConfigSpace> make_mlx5_config_space(const Mlx5Identity& identity,
                                                          const models::FunctionLink& link) {
  pcie::FunctionIdentity header;
  header.vendor_id = mlx5::vendor_id;
  header.device_id = identity.device_id;
  header.class_code = identity.port_type == reg::PortType::ethernet ? class_ethernet : class_infiniband;
  header.subsystem_vendor_id = mlx5::vendor_id;
  header.subsystem_id = subsystem_id;
  auto space = std::make_unique<pcie::ConfigSpace>(pcie::HeaderType::endpoint, header);
  pcie::define_bars(*space, mlx5_bars());
  pcie::CapabilityBuilder builder(*space);
  builder.add(pcie::PowerManagementCapability{});
  builder.add(pcie::MsixCapability{.vectors = identity.vectors,
                                   .table_bar = mlx5::bar_msix,
                                   .table_offset = 0,
                                   .pba_bar = mlx5::bar_msix,
                                   .pba_offset = pba_offset});
  pcie::PciExpressCapability express;
  express.max_payload = link.max_payload;
  express.generation = link.generation;
  express.width = link.width;
  builder.add(express);
  builder.add(pcie::AerCapability{});
  builder.add_serial_number(identity.serial);
  return space;
}

Mlx5Function::Mlx5Function(std::uint32_t number, ManagementBlock& block, DataPath& data_path,
                           Picoseconds register_access)
    : number_(number), block_(block), data_path_(data_path), register_access_(register_access) {}

void Mlx5Function::attach(pcie::DevicePort& port) {
  port_ = &port;
  data_path_.attach(number_, port);
  block_.attach(number_, port);
}

void Mlx5Function::reset() {
  halves_.fill({});
  block_.guest_reset(number_);
}

// ---- Reads -------------------------------------------------------------------------------------------------------

void Mlx5Function::bar_read(unsigned bar, std::uint64_t offset, std::span<std::byte> into) {
  if (bar != mlx5::bar_registers) {
    std::fill(into.begin(), into.end(), std::byte{0});  // the MSI-X table lives in the VMM
    return;
  }
  ++counters_.reads;
  models::read_registers(offset, into, [this](std::uint64_t at) { return read_word(at); });
}

// A word as it lies in memory, big-endian.
std::uint32_t Mlx5Function::read_word(std::uint64_t offset) const {
  if (offset < reg::init_segment_bytes) {
    return read_init(static_cast<std::uint32_t>(offset));
  }
  const std::uint64_t nanoseconds = port_->simulation().now().count / 1000;
  constexpr std::uint64_t ns_per_count = 10'000'000;
  switch (offset) {
    case mlx5::timer_high:
      return swap(static_cast<std::uint32_t>(nanoseconds >> 32));
    case mlx5::timer_low:
      return swap(static_cast<std::uint32_t>(nanoseconds));
    case mlx5::health_counter:
      // Alive while the firmware is; never 0.
      return block_.ready() ? swap(static_cast<std::uint32_t>(nanoseconds / ns_per_count % low24) + 1) : 0;
    default:
      return 0;  // UAR pages are written only
  }
}

std::uint32_t Mlx5Function::read_init(std::uint32_t offset) const {
  std::uint32_t word = 0;
  std::memcpy(&word, block_.init_segment(number_).data() + offset, sizeof word);
  const std::uint32_t fatal = block_.fatal_syndrome(number_);
  switch (offset) {
    case mlx5::queue_low: {
      constexpr std::uint32_t interface_mask = 0x700;
      return swap((swap(word) & ~interface_mask) | block_.nic_interface(number_) << 8);
    }
    case mlx5::initializing: {
      constexpr std::uint32_t busy = 1U << 31;
      return block_.ready() ? word : swap(swap(word) | busy);
    }
    case mlx5::health_severity: {
      constexpr std::uint32_t reset_needed = 1U << 31;
      return fatal == 0 ? word : swap(swap(word) | reset_needed);
    }
    case mlx5::health_syndrome: {
      constexpr std::uint32_t mask = 0x00ff'0000;
      return fatal == 0 ? word : swap((swap(word) & ~mask) | (fatal << 16 & mask));
    }
    default:
      return word;
  }
}

// ---- Writes ------------------------------------------------------------------------------------------------------

void Mlx5Function::bar_write(unsigned bar, std::uint64_t offset, std::span<const std::byte> from) {
  if (bar != mlx5::bar_registers) {
    return;
  }
  ++counters_.writes;
  // A doorbell is its first 8 bytes; what a write-combining buffer may have put behind them is the WQE itself.
  constexpr std::size_t doorbell_bytes = 8;
  if (offset >= mlx5::first_uar * mlx5::page_bytes && from.size() > doorbell_bytes) {
    from = from.first(doorbell_bytes);
  }
  if (!models::write_registers(offset, from,
                               [this](std::uint64_t at, std::uint32_t word) { write_word(at, swap(word)); })) {
    ++counters_.writes_ignored;
  }
}

void Mlx5Function::write_word(std::uint64_t offset, std::uint32_t value) {
  if (offset >= mlx5::first_uar * mlx5::page_bytes) {
    write_uar(offset, value);
    return;
  }
  switch (offset) {
    case mlx5::queue_high:
      block_.guest_queue_high(number_, value);
      return;
    case mlx5::queue_low: {
      constexpr std::uint32_t address = 0xffff'f000;
      block_.guest_queue_low(number_, value & address, value >> 8 & 7U);
      return;
    }
    case mlx5::doorbell:
      ++counters_.doorbells;
      block_.guest_doorbell(number_, value);
      return;
    default:
      ++counters_.writes_ignored;
  }
}

void Mlx5Function::keep_half(std::uint64_t offset, std::uint32_t value) {
  auto place = std::find_if(halves_.begin(), halves_.end(), [&](const Half& h) { return h.offset == offset; });
  if (place == halves_.end()) {
    place = std::find_if(halves_.begin(), halves_.end(), [](const Half& h) { return h.offset == 0; });
  }
  if (place == halves_.end()) {
    ++counters_.writes_ignored;  // some first half whose second never came
    place = halves_.begin() + static_cast<std::ptrdiff_t>(next_half_++ % most_halves);
  }
  *place = {offset, value};
}

bool Mlx5Function::take_half(std::uint64_t offset, std::uint32_t& value) {
  const auto found = std::find_if(halves_.begin(), halves_.end(), [&](const Half& h) { return h.offset == offset; });
  if (found == halves_.end()) {
    return false;
  }
  value = found->value;
  found->offset = 0;
  return true;
}

void Mlx5Function::write_uar(std::uint64_t offset, std::uint32_t value) {
  const std::uint64_t at = offset % mlx5::page_bytes;
  const auto uar = static_cast<std::uint32_t>(offset / mlx5::page_bytes);
  if (at == mlx5::uar_eq_arm || at == mlx5::uar_eq_update) {
    ++counters_.doorbells;
    data_path_.update_eq(number_, uar, value >> 24, value & low24, at == mlx5::uar_eq_arm);
    return;
  }
  if (at != mlx5::uar_cq && at != mlx5::uar_cq + 4 && at < mlx5::uar_send) {
    ++counters_.writes_ignored;
    return;
  }
  if ((offset & 4U) == 0) {
    keep_half(offset, value);
    return;
  }
  std::uint32_t first = 0;
  if (!take_half(offset - 4, first)) {
    ++counters_.writes_ignored;
    return;
  }
  ring(offset - 4, first, value);
}

void Mlx5Function::ring(std::uint64_t offset, std::uint32_t first, std::uint32_t second) {
  const auto uar = static_cast<std::uint32_t>(offset / mlx5::page_bytes);
  ++counters_.doorbells;
  if (offset % mlx5::page_bytes == mlx5::uar_cq) {
    constexpr std::uint32_t solicited = 1U << 24;
    data_path_.arm_cq(number_, uar, second & low24, first & low24, (first & solicited) != 0, first >> 28 & 3U);
    return;
  }
  data_path_.ring_send(number_, uar, second >> 8);
}

}  // namespace orrery::rnic
