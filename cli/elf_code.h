// The code in an ELF executable for 64-bit RISC-V: where its instructions and functions are. Plain; no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace orrery::cli {

struct ElfFunction {
  std::string name;  // as the linker knows it: mangled
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
};

struct ElfCode {
  // Of each instruction in the executable sections, in order: 4 bytes if the low two bits of its first half are 11b,
  // else 2 (RISC-V unprivileged specification, 1.5). Padding between functions counts as instructions.
  std::vector<std::uint64_t> instructions;
  // Symbols of type STT_FUNC with a size, by address; of several with one address the first.
  std::vector<ElfFunction> functions;
};

// Throws Error naming `path` if the bytes aren't such a file, or what it says of itself lies outside of it.
[[nodiscard]] ElfCode read_elf_code(const std::string& path, std::span<const std::byte> file);
[[nodiscard]] ElfCode read_elf_code(const std::string& path);

}  // namespace orrery::cli
