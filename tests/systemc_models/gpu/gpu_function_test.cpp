#include "systemc_models/gpu/gpu_function.h"

#include <gtest/gtest.h>

#include "common/error.h"
#include "pcie/capabilities.h"
#include "systemc_models/device_identity.h"
#include "tests/systemc_models/gpu/gpu_driver.h"

namespace orrery::test::gpu_function_test {
namespace {

namespace id = pcie::capability_id;
namespace extended = pcie::extended_capability_id;

TEST(GpuFunction, ShowsItsIdentityAndBars) {
  const models::GpuCore gpu(small_gpu(3));
  const auto space = models::make_gpu_config_space(gpu, {.generation = 5, .width = 16, .max_payload = 512});
  EXPECT_EQ(space->read32(0x00), 0x0e10'1234U);
  EXPECT_EQ(space->read32(0x08) >> 8, 0x030200U);
  // Sizing (PCIe Base 6.3 §7.5.1.2.1): ones written, the mask and the type bits read back.
  for (std::uint32_t offset = 0x10; offset < 0x28; offset += 4) {
    space->write_dword(offset, 0xffff'ffff);
  }
  EXPECT_EQ(space->read32(0x10), 0xffff'0000U);  // 64 KiB, 32-bit
  EXPECT_EQ(space->read32(0x14), 0U);
  EXPECT_EQ(space->read32(0x18), 0xff00'000cU);  // 16 MiB, 64-bit, prefetchable
  EXPECT_EQ(space->read32(0x1c), 0xffff'ffffU);
  EXPECT_EQ(space->read32(0x20), 0xffff'f000U);  // 4 KiB
  EXPECT_EQ(space->read32(0x24), 0U);
  EXPECT_EQ(models::gpu_bars(gpu)[2].memory_fd, gpu.bar_memory_fd(2));
}

TEST(GpuFunction, HasTheCapabilitiesOfARealEndpoint) {
  const models::GpuCore gpu(small_gpu(3));
  const auto space = models::make_gpu_config_space(gpu, {});
  EXPECT_NE(space->capability(id::power_management), 0);
  const std::uint32_t msix = space->capability(id::msix);
  ASSERT_NE(msix, 0U);
  EXPECT_EQ(space->read16(msix + 2) & 0x7ffU, ORRERY_GPU_VECTOR_COUNT - 1);  // §7.7.2.2: N - 1
  EXPECT_EQ(space->read32(msix + 4), ORRERY_GPU_MSIX_TABLE_OFFSET | 4U);     // offset | BAR
  EXPECT_EQ(space->read32(msix + 8), ORRERY_GPU_MSIX_PBA_OFFSET | 4U);
  EXPECT_LE(ORRERY_GPU_MSIX_TABLE_OFFSET + 16 * ORRERY_GPU_VECTOR_COUNT, ORRERY_GPU_MSIX_PBA_OFFSET);
  const std::uint32_t express = space->capability(id::pci_express);
  ASSERT_NE(express, 0U);
  EXPECT_NE(space->read32(express + 4) & (1U << 28), 0U);             // §7.5.3.3: FLR
  EXPECT_EQ(space->read32(express + 0xc) & 0x3ffU, 5U | (16U << 4));  // §7.5.3.6: speed, width
  EXPECT_NE(space->extended_capability(extended::aer), 0);
  EXPECT_NE(space->extended_capability(extended::ats), 0);
  EXPECT_EQ(space->extended_capability(extended::sriov), 0);
  const std::uint32_t serial = space->extended_capability(extended::serial_number);
  ASSERT_NE(serial, 0U);
  EXPECT_EQ(space->read64(serial + 4), orrery_serial(1, 0, 3));
  EXPECT_EQ(space->read64(serial + 4), 0x024f'5201'0000'0003U);
}

TEST(GpuFunction, RefusesALinkThatCannotBe) {
  const models::GpuCore gpu(small_gpu());
  EXPECT_THROW(static_cast<void>(models::make_gpu_config_space(gpu, {.generation = 9})), Error);
  EXPECT_THROW(static_cast<void>(models::make_gpu_config_space(gpu, {.width = 3})), Error);
  EXPECT_THROW(static_cast<void>(models::make_gpu_config_space(gpu, {.max_payload = 100})), Error);
}

}  // namespace
}  // namespace orrery::test::gpu_function_test
