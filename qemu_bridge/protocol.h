// The vfio-user protocol on the wire.
//
// Source: QEMU's docs/interop/vfio-user.rst, "Protocol Specification"; each structure names its section.
// Offsets of payload structures count from the end of the 16-byte header, as they do there. All fields
// are in the byte order of the host ("Protocol Specification", first paragraph).
#pragma once

#include <cstddef>
#include <cstdint>

namespace orrery::bridge::wire {

static_assert(sizeof(std::size_t) == 8, "vfio-user offsets and sizes are 64 bits wide");

// Section "Commands". 14 is VFIO_USER_DIRTY_PAGES of older drafts; the text has no command 0 or 14.
enum class Command : std::uint16_t {
  version = 1,
  dma_map = 2,
  dma_unmap = 3,
  device_get_info = 4,
  device_get_region_info = 5,
  device_get_region_io_fds = 6,
  device_get_irq_info = 7,
  device_set_irqs = 8,
  region_read = 9,
  region_write = 10,
  dma_read = 11,   // server to client
  dma_write = 12,  // server to client
  device_reset = 13,
  dirty_pages = 14,
  region_write_multi = 15,
  device_feature = 16,
  mig_data_read = 17,
  mig_data_write = 18,
};
inline constexpr std::size_t command_count = 19;  // one more than the highest command of the text

// Section "Header".
struct Header {
  std::uint16_t message_id;
  std::uint16_t command;
  std::uint32_t message_size;  // whole message, header included
  std::uint32_t flags;
  std::uint32_t error;  // errno of a reply with flag_error, else reserved
};
static_assert(sizeof(Header) == 16);
static_assert(offsetof(Header, command) == 2 && offsetof(Header, message_size) == 4);
static_assert(offsetof(Header, flags) == 8 && offsetof(Header, error) == 12);

inline constexpr std::uint32_t type_mask = 0xf;
inline constexpr std::uint32_t type_command = 0x0;
inline constexpr std::uint32_t type_reply = 0x1;
inline constexpr std::uint32_t flag_no_reply = 1U << 4;
inline constexpr std::uint32_t flag_error = 1U << 5;

// Section VFIO_USER_VERSION; JSON text, NUL included, may follow.
struct Version {
  std::uint16_t major;
  std::uint16_t minor;
};
static_assert(sizeof(Version) == 4 && offsetof(Version, minor) == 2);

// Defaults of the capabilities, table of the same section.
inline constexpr std::uint64_t default_max_msg_fds = 1;
inline constexpr std::uint64_t default_max_data_xfer_size = 1048576;
inline constexpr std::uint64_t default_max_dma_maps = 65535;
inline constexpr std::uint64_t default_page_sizes = 4096;

// Section VFIO_USER_DMA_MAP.
struct DmaMap {
  std::uint32_t argsz;
  std::uint32_t flags;
  std::uint64_t offset;
  std::uint64_t address;
  std::uint64_t size;
};
static_assert(sizeof(DmaMap) == 32);
static_assert(offsetof(DmaMap, flags) == 4 && offsetof(DmaMap, offset) == 8);
static_assert(offsetof(DmaMap, address) == 16 && offsetof(DmaMap, size) == 24);

inline constexpr std::uint32_t dma_map_readable = 1U << 0;
inline constexpr std::uint32_t dma_map_writeable = 1U << 1;

// Section VFIO_USER_DMA_UNMAP.
struct DmaUnmap {
  std::uint32_t argsz;
  std::uint32_t flags;
  std::uint64_t address;
  std::uint64_t size;
};
static_assert(sizeof(DmaUnmap) == 24);
static_assert(offsetof(DmaUnmap, flags) == 4 && offsetof(DmaUnmap, address) == 8 && offsetof(DmaUnmap, size) == 16);

// Not in the text, which leaves flags unused: QEMU passes the flag of <linux/vfio.h> of this value, with
// address and size 0, to take every mapping away (VFIO_DMA_UNMAP_FLAG_ALL).
inline constexpr std::uint32_t dma_unmap_all = 1U << 1;

// Section VFIO_USER_DEVICE_GET_INFO.
struct DeviceInfo {
  std::uint32_t argsz;
  std::uint32_t flags;
  std::uint32_t num_regions;
  std::uint32_t num_irqs;
};
static_assert(sizeof(DeviceInfo) == 16);
static_assert(offsetof(DeviceInfo, flags) == 4 && offsetof(DeviceInfo, num_regions) == 8);
static_assert(offsetof(DeviceInfo, num_irqs) == 12);

inline constexpr std::uint32_t device_flag_reset = 1U << 0;
inline constexpr std::uint32_t device_flag_pci = 1U << 1;

// Region indices of a PCI device (<linux/vfio.h>, VFIO_PCI_*_REGION_INDEX): 0 to 5 are the BARs.
inline constexpr std::uint32_t region_rom = 6;
inline constexpr std::uint32_t region_config = 7;
inline constexpr std::uint32_t region_vga = 8;
inline constexpr std::uint32_t region_count = 9;

// Section VFIO_USER_DEVICE_GET_REGION_INFO.
struct RegionInfo {
  std::uint32_t argsz;
  std::uint32_t flags;
  std::uint32_t index;
  std::uint32_t cap_offset;
  std::uint64_t size;
  std::uint64_t offset;
};
static_assert(sizeof(RegionInfo) == 32);
static_assert(offsetof(RegionInfo, flags) == 4 && offsetof(RegionInfo, index) == 8);
static_assert(offsetof(RegionInfo, cap_offset) == 12 && offsetof(RegionInfo, size) == 16);
static_assert(offsetof(RegionInfo, offset) == 24);

inline constexpr std::uint32_t region_flag_read = 1U << 0;
inline constexpr std::uint32_t region_flag_write = 1U << 1;
inline constexpr std::uint32_t region_flag_mmap = 1U << 2;
inline constexpr std::uint32_t region_flag_caps = 1U << 3;

// "VFIO cap header format" with "VFIO region info cap sparse mmap", one area.
struct SparseMmapCapability {
  std::uint16_t id;
  std::uint16_t version;
  std::uint32_t next;
  std::uint32_t nr_areas;
  std::uint32_t reserved;
  std::uint64_t area_offset;
  std::uint64_t area_size;
};
static_assert(sizeof(SparseMmapCapability) == 32);
static_assert(offsetof(SparseMmapCapability, version) == 2 && offsetof(SparseMmapCapability, next) == 4);
static_assert(offsetof(SparseMmapCapability, nr_areas) == 8 && offsetof(SparseMmapCapability, area_offset) == 16);
static_assert(offsetof(SparseMmapCapability, area_size) == 24);

inline constexpr std::uint16_t capability_sparse_mmap = 1;  // VFIO_REGION_INFO_CAP_SPARSE_MMAP
inline constexpr std::uint16_t capability_sparse_mmap_version = 1;

// Section VFIO_USER_DEVICE_GET_REGION_IO_FDS; sub-regions may follow in the reply.
struct RegionIoFds {
  std::uint32_t argsz;
  std::uint32_t flags;
  std::uint32_t index;
  std::uint32_t count;
};
static_assert(sizeof(RegionIoFds) == 16);
static_assert(offsetof(RegionIoFds, flags) == 4 && offsetof(RegionIoFds, index) == 8);
static_assert(offsetof(RegionIoFds, count) == 12);

// Interrupt indices of a PCI device (<linux/vfio.h>, VFIO_PCI_*_IRQ_INDEX).
inline constexpr std::uint32_t irq_intx = 0;
inline constexpr std::uint32_t irq_msi = 1;
inline constexpr std::uint32_t irq_msix = 2;
inline constexpr std::uint32_t irq_err = 3;
inline constexpr std::uint32_t irq_req = 4;
inline constexpr std::uint32_t irq_index_count = 5;

// Section VFIO_USER_DEVICE_GET_IRQ_INFO.
struct IrqInfo {
  std::uint32_t argsz;
  std::uint32_t flags;
  std::uint32_t index;
  std::uint32_t count;
};
static_assert(sizeof(IrqInfo) == 16);
static_assert(offsetof(IrqInfo, flags) == 4 && offsetof(IrqInfo, index) == 8 && offsetof(IrqInfo, count) == 12);

inline constexpr std::uint32_t irq_info_eventfd = 1U << 0;
inline constexpr std::uint32_t irq_info_maskable = 1U << 1;
inline constexpr std::uint32_t irq_info_automasked = 1U << 2;
inline constexpr std::uint32_t irq_info_noresize = 1U << 3;

// Section VFIO_USER_DEVICE_SET_IRQS; an array of booleans may follow.
struct IrqSet {
  std::uint32_t argsz;
  std::uint32_t flags;
  std::uint32_t index;
  std::uint32_t start;
  std::uint32_t count;
};
static_assert(sizeof(IrqSet) == 20);
static_assert(offsetof(IrqSet, flags) == 4 && offsetof(IrqSet, index) == 8);
static_assert(offsetof(IrqSet, start) == 12 && offsetof(IrqSet, count) == 16);

inline constexpr std::uint32_t irq_set_data_none = 1U << 0;
inline constexpr std::uint32_t irq_set_data_bool = 1U << 1;
inline constexpr std::uint32_t irq_set_data_eventfd = 1U << 2;
inline constexpr std::uint32_t irq_set_data_mask = 0x7;
inline constexpr std::uint32_t irq_set_action_mask = 1U << 3;
inline constexpr std::uint32_t irq_set_action_unmask = 1U << 4;
inline constexpr std::uint32_t irq_set_action_trigger = 1U << 5;
inline constexpr std::uint32_t irq_set_actions_mask = 0x38;

// Sections VFIO_USER_REGION_READ and VFIO_USER_REGION_WRITE; data may follow.
struct RegionAccess {
  std::uint64_t offset;
  std::uint32_t region;
  std::uint32_t count;
};
static_assert(sizeof(RegionAccess) == 16);
static_assert(offsetof(RegionAccess, region) == 8 && offsetof(RegionAccess, count) == 12);

// Sections VFIO_USER_DMA_READ and VFIO_USER_DMA_WRITE; data may follow. (The reply to a DMA_WRITE has a
// count of 4 bytes.)
struct DmaAccess {
  std::uint64_t address;
  std::uint64_t count;
};
static_assert(sizeof(DmaAccess) == 16 && offsetof(DmaAccess, count) == 8);
inline constexpr std::size_t dma_write_reply_size = 12;

// Section VFIO_USER_REGION_WRITE_MULTI: a 64-bit number of writes, then that many of these.
struct WriteMultiEntry {
  std::uint64_t offset;
  std::uint32_t region;
  std::uint32_t count;
  std::uint8_t data[8];
};
static_assert(sizeof(WriteMultiEntry) == 24);
static_assert(offsetof(WriteMultiEntry, region) == 8 && offsetof(WriteMultiEntry, count) == 12);
static_assert(offsetof(WriteMultiEntry, data) == 16);

// Section VFIO_USER_DEVICE_FEATURE; data may follow.
struct DeviceFeature {
  std::uint32_t argsz;
  std::uint32_t flags;
};
static_assert(sizeof(DeviceFeature) == 8 && offsetof(DeviceFeature, flags) == 4);

inline constexpr std::uint32_t feature_index_mask = 0xffff;
inline constexpr std::uint32_t feature_get = 1U << 16;
inline constexpr std::uint32_t feature_set = 1U << 17;
inline constexpr std::uint32_t feature_probe = 1U << 18;

// Sections VFIO_USER_MIG_DATA_READ and VFIO_USER_MIG_DATA_WRITE.
struct MigData {
  std::uint32_t argsz;
  std::uint32_t size;
};
static_assert(sizeof(MigData) == 8 && offsetof(MigData, size) == 4);

}  // namespace orrery::bridge::wire
