// Target riscv64: bare metal on QEMU's virt machine, with the management registers behind PCI. The firmware itself is
// the same as on every target; here are its memory, its loop, and what happens when it faults.
#include <cstddef>

#include "firmware/firmware.h"
#include "firmware/riscv64/machine.h"

namespace orrery::firmware {

std::uint32_t read32(const Hal& hal, std::uint32_t offset) {
  return *reinterpret_cast<volatile std::uint32_t*>(static_cast<std::byte*>(hal.target) + offset);
}

void write32(const Hal& hal, std::uint32_t offset, std::uint32_t value) {
  *reinterpret_cast<volatile std::uint32_t*>(static_cast<std::byte*>(hal.target) + offset) = value;
}

namespace {

namespace reg = rnic::reg;

// 43 MB, of which little is ever touched. RAM of a machine that was just started is zero, and stays the host's to
// give; after a reset of a running one it is cleared by hand.
struct Tables {
  std::uint64_t used;
  alignas(Firmware) unsigned char firmware[sizeof(Firmware)];
};
[[gnu::section(".tables")]] Tables tables;

Hal hal;

Firmware& fresh_firmware() {
  if (tables.used != 0) {
    auto* words = reinterpret_cast<std::uint64_t*>(tables.firmware);
    for (std::size_t i = 0; i < sizeof tables.firmware / sizeof *words; ++i) {
      words[i] = 0;
    }
  }
  tables.used = 1;
  return *reinterpret_cast<Firmware*>(tables.firmware);
}

// Words of the crash record that are the firmware's own.
constexpr std::uint32_t record_mark = 16;  // "TRAP"
constexpr std::uint32_t mark_value = 0x5041'5254;
constexpr std::uint32_t record_cause = 18;      // mcause, mepc, mtval: low half first
constexpr std::uint32_t record_registers = 24;  // ra, sp, gp, tp, t0, t1, t2, s0, s1, a0 … a7
constexpr std::uint32_t recorded_registers = 17;
constexpr std::uint32_t syndrome_firmware_error = 0x01;  // health syndrome: an internal error of the firmware

void record(std::uint32_t word, std::uint64_t value) {
  write32(hal, reg::crash_record + 4 * word, static_cast<std::uint32_t>(value));
  write32(hal, reg::crash_record + 4 * (word + 1), static_cast<std::uint32_t>(value >> 32));
}

}  // namespace

}  // namespace orrery::firmware

extern "C" {

std::uint64_t trap_frame[18];  // registers x1 … x17, by number

[[noreturn]] void firmware_main() {
  using namespace orrery::firmware;
  riscv64::print("Orrery RNIC firmware, riscv64\n");
  const std::uint64_t registers = riscv64::set_up_registers();
  hal.target = reinterpret_cast<void*>(registers);
  if (registers == 0 || read32(hal, reg::id) != reg::id_value ||
      read32(hal, reg::version) >> 16 != reg::version_value >> 16) {
    riscv64::print("no management registers of an RNIC, or of another version: stopped\n");
    for (;;) {
      park();
    }
  }
  riscv64::print("RNIC ");
  riscv64::print_hex(read32(hal, reg::strap_board));
  riscv64::print(", reset cause ");
  riscv64::print_hex(read32(hal, reg::reset_cause));
  riscv64::print("\n");
  Firmware& firmware = fresh_firmware();
  firmware.boot(hal);
  riscv64::print("ready\n");
  for (;;) {
    write32(hal, reg::wait, 1);
    riscv64::wait_for_interrupt();
    firmware.step();
  }
}

void firmware_trap(std::uint64_t cause, std::uint64_t pc, std::uint64_t value, const std::uint64_t* registers) {
  using namespace orrery::firmware;
  riscv64::print("trap: mcause ");
  riscv64::print_hex(cause);
  riscv64::print(", mepc ");
  riscv64::print_hex(pc);
  riscv64::print(", mtval ");
  riscv64::print_hex(value);
  riscv64::print("\n");
  if (hal.target == nullptr) {
    return;
  }
  write32(hal, reg::crash_record + 4 * record_mark, mark_value);
  record(record_cause, cause);
  record(record_cause + 2, pc);
  record(record_cause + 4, value);
  for (std::uint32_t i = 0; i < recorded_registers; ++i) {
    record(record_registers + 2 * i, registers[i + 1]);
  }
  write32(hal, reg::panic, syndrome_firmware_error);
}

// What the compiler takes for granted. Byte by byte: the firmware's own copies are small.
void* memcpy(void* to, const void* from, std::size_t bytes) {
  auto* target = static_cast<unsigned char*>(to);
  const auto* source = static_cast<const unsigned char*>(from);
  for (std::size_t i = 0; i < bytes; ++i) {
    target[i] = source[i];
  }
  return to;
}

void* memset(void* to, int value, std::size_t bytes) {
  auto* target = static_cast<unsigned char*>(to);
  for (std::size_t i = 0; i < bytes; ++i) {
    target[i] = static_cast<unsigned char>(value);
  }
  return to;
}

void* memmove(void* to, const void* from, std::size_t bytes) {
  auto* target = static_cast<unsigned char*>(to);
  const auto* source = static_cast<const unsigned char*>(from);
  if (target <= source) {
    return memcpy(to, from, bytes);
  }
  for (std::size_t i = bytes; i-- > 0;) {
    target[i] = source[i];
  }
  return to;
}

}  // extern "C"
