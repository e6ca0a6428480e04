// What the firmware knows of QEMU's machine `virt,aia=aplic-imsic` (QEMU's hw/riscv/virt.c): where its devices lie. The
// firmware has it to itself, in machine mode.
#pragma once

#include <cstdint>

namespace orrery::firmware::riscv64 {

inline constexpr std::uint64_t uart = 0x1000'0000;   // 16550A, 115200 baud whatever is set
inline constexpr std::uint64_t imsic = 0x2400'0000;  // machine-level interrupt file of hart 0
inline constexpr std::uint64_t ecam = 0x3000'0000;   // bus 0: 1 MiB
inline constexpr std::uint64_t pci_memory = 0x4000'0000;

inline std::uint8_t load8(std::uint64_t address) {
  return *reinterpret_cast<volatile std::uint8_t*>(address);
}
inline void store8(std::uint64_t address, std::uint8_t value) {
  *reinterpret_cast<volatile std::uint8_t*>(address) = value;
}
inline std::uint32_t load32(std::uint64_t address) {
  return *reinterpret_cast<volatile std::uint32_t*>(address);
}
inline void store32(std::uint64_t address, std::uint32_t value) {
  *reinterpret_cast<volatile std::uint32_t*>(address) = value;
}

// console.cpp: for people; a line of text, or a number in hexadecimal.
void print(const char* text);
void print_hex(std::uint64_t value);

// pci.cpp: finds the function with the management registers, gives its BARs addresses and sends its interrupt to the
// interrupt file. Returns the address of the registers; 0: there is no such function.
std::uint64_t set_up_registers();
// Sleeps until an interrupt has come, and takes it.
void wait_for_interrupt();

}  // namespace orrery::firmware::riscv64

extern "C" void park();
