#include "systemc_models/gpu/gpu_function.h"

#include "pcie/capabilities.h"
#include "systemc_models/device_identity.h"

namespace orrery::models {

pcie::BarDescriptions gpu_bars(const GpuCore& gpu) {
  pcie::BarDescriptions bars;
  bars[ORRERY_GPU_BAR_REGISTERS].size = ORRERY_GPU_BAR0_SIZE;
  bars[ORRERY_GPU_BAR_MEMORY] = {.size = gpu.config().bar2_size,
                                 .is_64bit = true,
                                 .prefetchable = true,
                                 .memory_fd = gpu.bar_memory_fd(ORRERY_GPU_BAR_MEMORY)};
  bars[ORRERY_GPU_BAR_MSIX].size = ORRERY_GPU_BAR4_SIZE;
  return bars;
}

std::unique_ptr<pcie::ConfigSpace> make_gpu_config_space(const GpuCore& gpu, const FunctionLink& link) {
  pcie::FunctionIdentity identity;
  identity.vendor_id = ORRERY_PCI_VENDOR;
  identity.device_id = ORRERY_PCI_DEVICE_GPU;
  identity.revision = ORRERY_GPU_VERSION_VALUE >> 16;
  identity.class_code = ORRERY_PCI_CLASS_GPU;
  identity.subsystem_vendor_id = ORRERY_PCI_VENDOR;
  identity.subsystem_id = ORRERY_PCI_DEVICE_GPU;
  auto space = std::make_unique<pcie::ConfigSpace>(pcie::HeaderType::endpoint, identity);
  pcie::define_bars(*space, gpu_bars(gpu));

  pcie::CapabilityBuilder builder(*space);
  builder.add(pcie::PowerManagementCapability{});
  builder.add(pcie::MsixCapability{.vectors = ORRERY_GPU_VECTOR_COUNT,
                                   .table_bar = ORRERY_GPU_BAR_MSIX,
                                   .table_offset = ORRERY_GPU_MSIX_TABLE_OFFSET,
                                   .pba_bar = ORRERY_GPU_BAR_MSIX,
                                   .pba_offset = ORRERY_GPU_MSIX_PBA_OFFSET});
  pcie::PciExpressCapability express;
  express.max_payload = link.max_payload;
  express.generation = link.generation;
  express.width = link.width;
  builder.add(express);
  builder.add(pcie::AerCapability{});
  builder.add_serial_number(orrery_serial(ORRERY_SERIAL_KIND_GPU, gpu.config().server, gpu.config().index));
  builder.add(pcie::AtsCapability{});
  return space;
}

}  // namespace orrery::models
