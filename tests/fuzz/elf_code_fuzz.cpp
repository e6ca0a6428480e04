// Fuzz target: the reader of a firmware's ELF file. Input: the file.
#include <cstddef>
#include <cstdint>
#include <span>

#include "cli/elf_code.h"
#include "common/error.h"
#include "tests/fuzz/require.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace orrery;
  try {
    const cli::ElfCode code = cli::read_elf_code("fuzz.elf", std::as_bytes(std::span(data, size)));
    fuzz::require(code.instructions.size() <= 2 * size, "no more instructions than the file has room for");
    for (const cli::ElfFunction& function : code.functions) {
      fuzz::require(function.name.size() <= size && function.bytes != 0, "a function's name is in the file");
    }
  } catch (const Error&) {
  }
  return 0;
}
