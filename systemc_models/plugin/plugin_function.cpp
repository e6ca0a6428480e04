#include "systemc_models/plugin/plugin_function.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "common/error.h"
#include "pcie/capabilities.h"

namespace orrery::models {

namespace {

constexpr std::uint32_t table_entry_bytes = 16;  // §7.7.2.6
constexpr std::uint32_t smallest_msix_bar = 4096;

// The last BAR index that neither is described nor is the upper half of one; -1 if there is none.
int free_bar(const pcie::BarDescriptions& bars) {
  for (int bar = static_cast<int>(pcie::bar_count) - 1; bar >= 0; --bar) {
    const auto index = static_cast<std::size_t>(bar);
    if (bars[index].size == 0 && (bar == 0 || bars[index - 1].size == 0 || !bars[index - 1].is_64bit)) {
      return bar;
    }
  }
  return -1;
}

}  // namespace

PluginFunction make_plugin_function(const std::string& device, const TlmFunction& function, const FunctionLink& link) {
  pcie::FunctionIdentity identity = function.identity;
  if (identity.vendor_id == 0xffff || identity.device_id == 0xffff) {
    throw Error(fmt::format("device {}: its model sets no vendor ID or no device ID", device),
                "set function.identity in the factory; ffff means that there is no device");
  }
  if (identity.class_code > 0xff'ffff) {
    throw Error(fmt::format("device {}: class code {:#x}", device, identity.class_code), "a class code has 24 bits");
  }
  if (identity.subsystem_vendor_id == 0 && identity.subsystem_id == 0) {
    identity.subsystem_vendor_id = identity.vendor_id;
    identity.subsystem_id = identity.device_id;
  }
  identity.multi_function = false;
  if (function.msix_vectors > pcie::most_msix_vectors) {
    throw Error(fmt::format("device {}: {} MSI-X vectors", device, function.msix_vectors), "use 0 to 2048");
  }

  PluginFunction result;
  for (std::size_t bar = 0; bar < pcie::bar_count; ++bar) {
    const TlmBar& described = function.bars[bar];
    result.bars[bar].size = described.size;
    result.bars[bar].is_64bit = described.is_64bit;
    result.bars[bar].prefetchable = described.prefetchable;
  }
  std::uint32_t half = 0;
  if (function.msix_vectors != 0) {
    result.msix_bar = free_bar(result.bars);
    if (result.msix_bar < 0) {
      throw Error(fmt::format("device {}: no BAR is free for its MSI-X table", device),
                  "describe at most five BARs (a 64-bit BAR counts twice), or set msix_vectors = 0");
    }
    // Table in the lower half, PBA (a bit for each 16-byte entry) in the upper one.
    half = std::max(std::bit_ceil(function.msix_vectors * table_entry_bytes), smallest_msix_bar / 2);
    result.bars[static_cast<std::size_t>(result.msix_bar)].size = std::uint64_t{2} * half;
  }

  result.config_space = std::make_unique<pcie::ConfigSpace>(pcie::HeaderType::endpoint, identity);
  try {
    pcie::define_bars(*result.config_space, result.bars);
    pcie::CapabilityBuilder builder(*result.config_space);
    builder.add(pcie::PowerManagementCapability{});
    if (result.msix_bar >= 0) {
      const auto bar = static_cast<unsigned>(result.msix_bar);
      builder.add(pcie::MsixCapability{
          .vectors = function.msix_vectors, .table_bar = bar, .table_offset = 0, .pba_bar = bar, .pba_offset = half});
    }
    pcie::PciExpressCapability express;
    express.max_payload = link.max_payload;
    express.generation = link.generation;
    express.width = link.width;
    builder.add(express);
    builder.add(pcie::AerCapability{});
    if (function.serial != 0) {
      builder.add_serial_number(function.serial);
    }
    if (function.ats) {
      builder.add(pcie::AtsCapability{});
    }
  } catch (const Error& error) {
    throw Error(fmt::format("device {}: {}", device, error.what()), error.remedy());
  }
  return result;
}

}  // namespace orrery::models
