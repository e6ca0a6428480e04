#include "systemc_models/rnic/rnic_function.h"

#include "pcie/capabilities.h"
#include "systemc_models/device_identity.h"

namespace orrery::models {

pcie::BarDescriptions rnic_bars() {
  pcie::BarDescriptions bars;
  bars[ORRERY_RNIC_BAR_REGISTERS].size = ORRERY_RNIC_BAR0_SIZE;
  bars[ORRERY_RNIC_BAR_MSIX].size = ORRERY_RNIC_BAR4_SIZE;
  return bars;
}

std::unique_ptr<pcie::ConfigSpace> make_rnic_config_space(const RnicCore& rnic, const FunctionLink& link,
                                                          std::uint16_t virtual_functions) {
  pcie::FunctionIdentity identity;
  identity.vendor_id = ORRERY_PCI_VENDOR;
  identity.device_id = ORRERY_PCI_DEVICE_RNIC;
  identity.revision = ORRERY_RNIC_VERSION_VALUE >> 16;
  identity.class_code = ORRERY_PCI_CLASS_RNIC;
  identity.subsystem_vendor_id = ORRERY_PCI_VENDOR;
  identity.subsystem_id = ORRERY_PCI_DEVICE_RNIC;
  auto space = std::make_unique<pcie::ConfigSpace>(pcie::HeaderType::endpoint, identity);
  pcie::define_bars(*space, rnic_bars());

  pcie::CapabilityBuilder builder(*space);
  builder.add(pcie::PowerManagementCapability{});
  builder.add(pcie::MsixCapability{.vectors = ORRERY_RNIC_VECTOR_COUNT,
                                   .table_bar = ORRERY_RNIC_BAR_MSIX,
                                   .table_offset = ORRERY_RNIC_MSIX_TABLE_OFFSET,
                                   .pba_bar = ORRERY_RNIC_BAR_MSIX,
                                   .pba_offset = ORRERY_RNIC_MSIX_PBA_OFFSET});
  pcie::PciExpressCapability express;
  express.max_payload = link.max_payload;
  express.generation = link.generation;
  express.width = link.width;
  builder.add(express);
  builder.add(pcie::AerCapability{});
  builder.add_serial_number(orrery_serial(ORRERY_SERIAL_KIND_RNIC, rnic.config().server, rnic.config().index));
  builder.add(pcie::AtsCapability{});
  if (virtual_functions > 0) {
    builder.add(pcie::AriCapability{});
    pcie::SriovCapability sriov;
    sriov.total_vfs = virtual_functions;
    sriov.vf_device_id = ORRERY_PCI_DEVICE_RNIC;
    sriov.vf_bars = rnic_bars();
    builder.add(sriov);
    pcie::AcsCapability none;
    none.source_validation = false;
    none.translation_blocking = false;
    none.request_redirect = false;
    none.completion_redirect = false;
    none.upstream_forwarding = false;
    none.direct_translated = false;
    builder.add(none);
  }
  return space;
}

}  // namespace orrery::models
