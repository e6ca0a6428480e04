#include "firmware/native/native_firmware.h"

#include <sys/mman.h>

#include <new>
#include <type_traits>

#include "firmware/firmware.h"

namespace orrery::firmware {

std::uint32_t read32(const Hal& hal, std::uint32_t offset) {
  return static_cast<RegisterAccess*>(hal.target)->read32(offset);
}

void write32(const Hal& hal, std::uint32_t offset, std::uint32_t value) {
  static_cast<RegisterAccess*>(hal.target)->write32(offset, value);
}

static_assert(std::is_trivially_destructible_v<Firmware>, "it lies in memory that is only given back");

NativeFirmware::NativeFirmware(RegisterAccess& registers) : registers_(registers) {}

NativeFirmware::~NativeFirmware() {
  release();
}

void NativeFirmware::release() {
  if (firmware_ != nullptr) {
    munmap(firmware_, sizeof(Firmware));
    firmware_ = nullptr;
  }
}

void NativeFirmware::boot() {
  release();
  void* memory =
      mmap(nullptr, sizeof(Firmware), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::bad_alloc();
  }
  firmware_ = static_cast<Firmware*>(memory);
  firmware_->boot(Hal{&registers_});
}

void NativeFirmware::step() {
  if (firmware_ != nullptr) {
    firmware_->step();
  }
}

}  // namespace orrery::firmware
