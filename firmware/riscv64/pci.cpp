// The way to the RNIC's registers: a PCI function behind ECAM (PCIe Base 6.3 §7.2.2), its BARs, its MSI-X vector
// (§7.7.2) and the hart's interrupt file (RISC-V Advanced Interrupt Architecture 1.0, chapter 3).
//
// Interrupts rather than polling: each look at a register is a message to another process, and a hart in `wfi` costs
// the host nothing. The MSI goes straight to the hart's interrupt file, without an interrupt controller's registers.
#include "firmware/riscv64/machine.h"

namespace orrery::firmware::riscv64 {

namespace {

constexpr std::uint32_t vendor_and_device = 0x0e21'1234;  // systemc_models/device_identity.h
constexpr std::uint64_t function_bytes = 4096;
constexpr std::uint64_t device_bytes = 8 * function_bytes;
constexpr std::uint64_t msix_bar_at = pci_memory + 0x100'0000;

constexpr std::uint32_t config_command = 0x04;
constexpr std::uint32_t config_bar0 = 0x10;
constexpr std::uint32_t config_bar4 = 0x20;
constexpr std::uint32_t config_capabilities = 0x34;
constexpr std::uint32_t command_memory_and_master = 0x6;
constexpr std::uint32_t capability_msix = 0x11;
constexpr std::uint32_t msix_enable = 1U << 31;
constexpr std::uint32_t interrupt_identity = 1;

// Machine-level interrupt file, by indirect CSRs: miselect 0x350, mireg 0x351, mtopei 0x35c.
constexpr std::uint64_t file_delivery = 0x70;
constexpr std::uint64_t file_threshold = 0x72;
constexpr std::uint64_t file_enable0 = 0xc0;

void write_interrupt_file(std::uint64_t index, std::uint64_t value) {
  asm volatile("csrw 0x350, %0\n csrw 0x351, %1" ::"r"(index), "r"(value) : "memory");
}

void set_up_interrupt(std::uint64_t function) {
  write_interrupt_file(file_delivery, 1);
  write_interrupt_file(file_threshold, 0);
  write_interrupt_file(file_enable0, 1ULL << interrupt_identity);
  constexpr std::uint64_t machine_external = 1ULL << 11;
  asm volatile("csrs mie, %0" ::"r"(machine_external) : "memory");

  store32(msix_bar_at + 0x0, static_cast<std::uint32_t>(imsic));
  store32(msix_bar_at + 0x4, static_cast<std::uint32_t>(imsic >> 32));
  store32(msix_bar_at + 0x8, interrupt_identity);
  store32(msix_bar_at + 0xc, 0);  // not masked
  std::uint32_t at = load32(function + config_capabilities) & 0xfcU;
  for (int left = 48; at != 0 && left > 0; --left) {
    const std::uint32_t head = load32(function + at);
    if ((head & 0xffU) == capability_msix) {
      store32(function + at, head | msix_enable);
      return;
    }
    at = head >> 8 & 0xfcU;
  }
}

}  // namespace

std::uint64_t set_up_registers() {
  for (std::uint64_t device = 0; device < 32; ++device) {
    const std::uint64_t function = ecam + device * device_bytes;
    if (load32(function) != vendor_and_device) {
      continue;
    }
    store32(function + config_bar0, static_cast<std::uint32_t>(pci_memory));
    store32(function + config_bar4, static_cast<std::uint32_t>(msix_bar_at));
    store32(function + config_command, command_memory_and_master);
    set_up_interrupt(function);
    return pci_memory;
  }
  return 0;
}

void wait_for_interrupt() {
  std::uint64_t taken = 0;
  while (taken == 0) {
    // Ends also when the interrupt came before it: interrupts are disabled, not ignored.
    asm volatile("wfi\n csrrw %0, 0x35c, zero" : "=r"(taken)::"memory");
  }
}

}  // namespace orrery::firmware::riscv64
