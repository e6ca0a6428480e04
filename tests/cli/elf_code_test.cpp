#include "cli/elf_code.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "common/error.h"

namespace orrery::cli {
namespace {

// An ELF file laid out by hand after the System V ABI, chapter 4: header, code, symbols, names, section table.
class ElfFile {
 public:
  static constexpr std::uint64_t code_at = 0x8000'0000;

  ElfFile() {
    // addi sp,sp,-16 (2 bytes); auipc t0,0 (4); ret (2); nop (4), wfi (4): the RISC-V manual's encodings.
    const std::vector<unsigned char> code{0x41, 0x11, 0x97, 0x02, 0x00, 0x00, 0x82, 0x80,
                                          0x13, 0x00, 0x00, 0x00, 0x73, 0x00, 0x50, 0x10};
    const std::string names{"\0start\0idle\0table\0", 18};
    std::vector<Elf64_Sym> symbols(5);
    symbols[1] = symbol(7, STT_FUNC, code_at + 8, 8);
    symbols[2] = symbol(1, STT_FUNC, code_at, 8);
    symbols[3] = symbol(12, STT_OBJECT, code_at + 8, 8);
    symbols[4] = symbol(12, STT_FUNC, code_at + 8, 8);  // another name for idle
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_machine = EM_RISCV;
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = 4;
    sections.resize(4);
    sections[1] = section(SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, add(code.data(), code.size()), code.size());
    sections[1].sh_addr = code_at;
    sections[2] = section(SHT_SYMTAB, 0, add(symbols.data(), symbols.size() * sizeof(Elf64_Sym)),
                          symbols.size() * sizeof(Elf64_Sym));
    sections[2].sh_link = 3;
    sections[3] = section(SHT_STRTAB, 0, add(names.data(), names.size()), names.size());
    header.e_shoff = sizeof header + body_.size();
  }
  [[nodiscard]] std::vector<std::byte> bytes() const {
    std::vector<std::byte> file(sizeof header + body_.size() + sections.size() * sizeof(Elf64_Shdr));
    std::memcpy(file.data(), &header, sizeof header);
    std::memcpy(file.data() + sizeof header, body_.data(), body_.size());
    std::memcpy(file.data() + sizeof header + body_.size(), sections.data(), sections.size() * sizeof(Elf64_Shdr));
    return file;
  }

  Elf64_Ehdr header{};
  std::vector<Elf64_Shdr> sections;

 private:
  static Elf64_Sym symbol(std::uint32_t name, unsigned char type, std::uint64_t value, std::uint64_t size) {
    Elf64_Sym one{};
    one.st_name = name;
    one.st_info = ELF64_ST_INFO(STB_GLOBAL, type);
    one.st_shndx = 1;
    one.st_value = value;
    one.st_size = size;
    return one;
  }
  static Elf64_Shdr section(std::uint32_t type, std::uint64_t flags, std::uint64_t at, std::uint64_t size) {
    Elf64_Shdr one{};
    one.sh_type = type;
    one.sh_flags = flags;
    one.sh_offset = at;
    one.sh_size = size;
    return one;
  }
  std::uint64_t add(const void* data, std::size_t size) {
    const std::size_t at = body_.size();
    body_.resize(at + size);
    std::memcpy(body_.data() + at, data, size);
    return sizeof header + at;
  }
  std::vector<std::byte> body_;
};

std::string refusal(const ElfFile& file) {
  try {
    static_cast<void>(read_elf_code("fw.elf", file.bytes()));
  } catch (const Error& error) {
    return error.what();
  }
  return "taken";
}

TEST(ElfCode, FindsInstructionsOfBothLengthsAndFunctions) {
  const ElfCode code = read_elf_code("fw.elf", ElfFile().bytes());
  constexpr std::uint64_t at = ElfFile::code_at;
  EXPECT_EQ(code.instructions, (std::vector<std::uint64_t>{at, at + 2, at + 6, at + 8, at + 12}));
  ASSERT_EQ(code.functions.size(), 2U);
  EXPECT_EQ(code.functions[0].name, "start");
  EXPECT_EQ(code.functions[0].address, at);
  EXPECT_EQ(code.functions[1].name, "idle");
  EXPECT_EQ(code.functions[1].bytes, 8U);
}

TEST(ElfCode, EveryTruncationIsRefusedByName) {
  const std::vector<std::byte> whole = ElfFile().bytes();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    try {
      static_cast<void>(read_elf_code("fw.elf", std::span(whole).first(size)));
      FAIL() << size << " of " << whole.size() << " bytes are taken for a whole file";
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find("fw.elf: "), 0U) << error.what();
    }
  }
}

TEST(ElfCode, WhatLiesOutsideOfTheFileIsRefused) {
  ElfFile far;
  far.sections[1].sh_offset = ~std::uint64_t{0} - 4;
  EXPECT_NE(refusal(far).find("its code is outside of the file"), std::string::npos) << refusal(far);
  ElfFile long_code;
  long_code.sections[1].sh_size = ~std::uint64_t{0};
  EXPECT_NE(refusal(long_code).find("its code is outside of the file"), std::string::npos);
  ElfFile table;
  table.header.e_shoff = ~std::uint64_t{0};
  EXPECT_NE(refusal(table).find("its section table is outside of the file"), std::string::npos);
  ElfFile link;
  link.sections[2].sh_link = 4;
  EXPECT_NE(refusal(link).find("its symbol table has no names"), std::string::npos);
  ElfFile name;
  name.sections[3].sh_size = 3;
  EXPECT_NE(refusal(name).find("outside of the table of names"), std::string::npos);
  ElfFile other;
  other.header.e_machine = EM_X86_64;
  EXPECT_NE(refusal(other).find("no ELF file for 64-bit RISC-V"), std::string::npos);
}

// Many sections over the same bytes: the answer stays within a few times the file.
TEST(ElfCode, OverlappingCodeIsRefused) {
  ElfFile file;
  file.sections.resize(200, file.sections[1]);
  file.header.e_shnum = 200;
  for (std::size_t i = 4; i < file.sections.size(); ++i) {
    file.sections[i].sh_offset = 0;
    file.sections[i].sh_size = 200 * sizeof(Elf64_Shdr);
  }
  EXPECT_NE(refusal(file).find("its code sections overlap"), std::string::npos) << refusal(file);
}

TEST(ElfCode, FileThatIsntThereIsNamed) {
  EXPECT_THROW(static_cast<void>(read_elf_code("/nowhere/fw.elf")), Error);
}

}  // namespace
}  // namespace orrery::cli
