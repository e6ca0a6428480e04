#include "cli/elf_code.h"

#include <elf.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>

#include <fmt/format.h>

#include "common/error.h"

namespace orrery::cli {
namespace {

// A firmware is some hundred KiB; what is larger is a mistake.
constexpr std::size_t most_bytes = 256U << 20;

class Reader {
 public:
  Reader(const std::string& path, std::span<const std::byte> file) : path_(path), file_(file) {}

  [[nodiscard]] std::size_t size() const { return file_.size(); }
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(fmt::format("{}: {}", path_, why), "name an ELF executable for riscv64, linked with its symbols");
  }
  [[nodiscard]] std::span<const std::byte> bytes(std::uint64_t at, std::uint64_t size, const char* what) const {
    if (at > file_.size() || size > file_.size() - at) {
      refuse(fmt::format("its {} is outside of the file", what));
    }
    return file_.subspan(at, size);
  }
  template <typename T>
  [[nodiscard]] T get(std::uint64_t at, const char* what) const {
    T value;
    std::memcpy(&value, bytes(at, sizeof(T), what).data(), sizeof(T));
    return value;
  }

 private:
  const std::string& path_;
  std::span<const std::byte> file_;
};

std::vector<Elf64_Shdr> sections(const Reader& reader) {
  const auto header = reader.get<Elf64_Ehdr>(0, "header");
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_machine != EM_RISCV) {
    reader.refuse("no ELF file for 64-bit RISC-V");
  }
  if (header.e_shnum == 0 || header.e_shentsize != sizeof(Elf64_Shdr)) {
    reader.refuse("it has no sections");
  }
  const auto table = reader.bytes(header.e_shoff, std::uint64_t{header.e_shnum} * sizeof(Elf64_Shdr), "section table");
  std::vector<Elf64_Shdr> all(header.e_shnum);
  std::memcpy(all.data(), table.data(), table.size());
  return all;
}

void add_instructions(const Reader& reader, const Elf64_Shdr& section, std::vector<std::uint64_t>& to) {
  const auto code = reader.bytes(section.sh_offset, section.sh_size, "code");
  for (std::size_t at = 0; at + 2 <= code.size();) {
    to.push_back(section.sh_addr + at);
    at += (std::to_integer<unsigned>(code[at]) & 3U) == 3U ? 4 : 2;
  }
}

void add_functions(const Reader& reader, const std::vector<Elf64_Shdr>& all, const Elf64_Shdr& table,
                   std::vector<ElfFunction>& to) {
  if (table.sh_link >= all.size()) {
    reader.refuse("its symbol table has no names");
  }
  const auto symbols = reader.bytes(table.sh_offset, table.sh_size, "symbol table");
  const auto names = reader.bytes(all[table.sh_link].sh_offset, all[table.sh_link].sh_size, "table of names");
  std::size_t text = 0;
  for (std::size_t at = 0; at + sizeof(Elf64_Sym) <= symbols.size(); at += sizeof(Elf64_Sym)) {
    Elf64_Sym symbol;
    std::memcpy(&symbol, symbols.data() + at, sizeof symbol);
    if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_size == 0 || symbol.st_shndx == SHN_UNDEF) {
      continue;
    }
    if (symbol.st_name >= names.size()) {
      reader.refuse("a symbol's name is outside of the table of names");
    }
    const auto rest = names.subspan(symbol.st_name);
    const auto end = std::find(rest.begin(), rest.end(), std::byte{0});
    // Linkers let names share their ends; a small file must not mean much memory all the same.
    text += static_cast<std::size_t>(end - rest.begin());
    if (text > 4 * reader.size()) {
      reader.refuse("its symbols' names overlap");
    }
    to.push_back({std::string(reinterpret_cast<const char*>(rest.data()), static_cast<std::size_t>(end - rest.begin())),
                  symbol.st_value, symbol.st_size});
  }
}

}  // namespace

ElfCode read_elf_code(const std::string& path, std::span<const std::byte> file) {
  const Reader reader(path, file);
  const std::vector<Elf64_Shdr> all = sections(reader);
  ElfCode code;
  bool named = false;
  for (const Elf64_Shdr& section : all) {
    if (section.sh_type == SHT_PROGBITS && (section.sh_flags & SHF_EXECINSTR) != 0) {
      // Sections that share their bytes would make a small file mean a long list.
      if (code.instructions.size() > file.size()) {
        reader.refuse("its code sections overlap");
      }
      add_instructions(reader, section, code.instructions);
    } else if (section.sh_type == SHT_SYMTAB && !named) {
      named = true;  // an ELF file has one at most
      add_functions(reader, all, section, code.functions);
    }
  }
  std::sort(code.instructions.begin(), code.instructions.end());
  std::stable_sort(code.functions.begin(), code.functions.end(),
                   [](const ElfFunction& a, const ElfFunction& b) { return a.address < b.address; });
  code.functions.erase(std::unique(code.functions.begin(), code.functions.end(),
                                   [](const ElfFunction& a, const ElfFunction& b) { return a.address == b.address; }),
                       code.functions.end());
  return code;
}

ElfCode read_elf_code(const std::string& path) {
  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  std::string bytes;
  if (stream) {
    bytes.assign(std::istreambuf_iterator<char>(stream), {});
  }
  if (!stream || bytes.size() > most_bytes) {
    throw Error(fmt::format("{} can't be read: {}", path,
                            stream ? "it has more than 256 MiB" : std::strerror(errno != 0 ? errno : EIO)),
                "name an ELF executable for riscv64");
  }
  return read_elf_code(path, std::as_bytes(std::span(bytes)));
}

}  // namespace orrery::cli
