// Target `native`: the firmware linked into the process, run by calls. Deterministic: it does nothing on its own.
#pragma once

#include <cstdint>
#include <memory>

namespace orrery::firmware {

class Firmware;

// The registers that a firmware drives (interface/registers.h); a management block implements it.
class RegisterAccess {
 public:
  // `offset`: multiple of 4.
  virtual std::uint32_t read32(std::uint32_t offset) = 0;
  virtual void write32(std::uint32_t offset, std::uint32_t value) = 0;

 protected:
  ~RegisterAccess() = default;
};

// One firmware on one management block. One thread.
class NativeFirmware {
 public:
  // `registers` outlives it. Throws std::bad_alloc if there is no memory for its tables (about 60 MB of address
  // space; pages count when they are touched).
  explicit NativeFirmware(RegisterAccess& registers);
  ~NativeFirmware();
  NativeFirmware(const NativeFirmware&) = delete;
  NativeFirmware& operator=(const NativeFirmware&) = delete;

  // Forgets everything and starts anew.
  void boot();
  // Handles what is pending; to be called while (EVENT_PENDING & EVENT_ENABLE) != 0.
  void step();

  // For tests: the firmware's own view of its tables.
  [[nodiscard]] Firmware& firmware() { return *firmware_; }

 private:
  void release();

  RegisterAccess& registers_;
  Firmware* firmware_ = nullptr;  // in zeroed memory of its own
};

}  // namespace orrery::firmware
