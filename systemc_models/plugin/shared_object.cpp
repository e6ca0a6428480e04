#include "systemc_models/plugin/shared_object.h"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

namespace orrery::models {

std::string shared_object_problem(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  file.seekg(0, std::ios::end);
  const auto end = file.tellg();
  if (!file || end < 0) {
    return "it can't be read";
  }
  const auto size = static_cast<std::uint64_t>(end);
  const auto read = [&](std::uint64_t offset, void* into, std::size_t bytes) {
    if (offset > size || bytes > size - offset) {
      return false;
    }
    file.seekg(static_cast<std::streamoff>(offset));
    return static_cast<bool>(file.read(static_cast<char*>(into), static_cast<std::streamsize>(bytes)));
  };
  Elf64_Ehdr header;
  if (!read(0, &header, sizeof(header)) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
    return "it is no shared object";
  }
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_type != ET_DYN || header.e_phentsize != sizeof(Elf64_Phdr)) {
    return "it is no 64-bit shared object";
  }
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (header.e_phoff > size || !read(header.e_phoff + i * sizeof(segment), &segment, sizeof(segment)) ||
        (segment.p_type == PT_LOAD && (segment.p_offset > size || segment.p_filesz > size - segment.p_offset))) {
      return fmt::format("it is cut short at {} bytes", size);
    }
  }
  return {};
}

}  // namespace orrery::models
