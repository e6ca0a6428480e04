#include "qemu_bridge/launcher/firmware_machine.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "common/error.h"

namespace orrery::bridge::firmware_machine_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

FirmwareMachineSpec spec() {
  FirmwareMachineSpec s;
  s.name = "rnic0";
  s.program = "/q/qemu-system-riscv64";
  s.elf = "/f/fw.elf";
  s.device_socket = "/r/rnic0.registers";
  s.console_socket = "/r/a,b.console";
  s.console_log = "/r/rnic0.log";
  s.gdb_socket = "/r/rnic0.gdb";
  s.qmp_socket = "/r/rnic0.qmp";
  return s;
}

TEST(FirmwareMachine, ArgumentsNameEveryFile) {
  const std::vector<std::string> arguments = firmware_machine_arguments(spec());
  EXPECT_THAT(arguments, Contains("virt,aia=aplic-imsic"));
  EXPECT_THAT(arguments, Contains("/f/fw.elf"));
  // A comma in a path is doubled for QEMU.
  EXPECT_THAT(arguments, Contains("socket,id=console,path=/r/a,,b.console,server=on,wait=off,logfile=/r/rnic0.log"));
  EXPECT_THAT(arguments, Contains("socket,id=gdb,path=/r/rnic0.gdb,server=on,wait=off"));
  EXPECT_THAT(arguments, Contains(R"({"driver":"vfio-user-pci","id":"rnic","socket":{"type":"unix","path":"/r/rnic0.)"
                                  R"(registers"},"x-msg-timeout":600000})"));
  EXPECT_THAT(arguments, Not(Contains("-S")));
  FirmwareMachineSpec stopped = spec();
  stopped.stopped = true;
  EXPECT_THAT(firmware_machine_arguments(stopped), Contains("-S"));
}

class ElfFile : public ::testing::Test {
 protected:
  ElfFile() {
    std::string pattern = (std::filesystem::temp_directory_path() / "orrery-elf-XXXXXX").string();
    directory = mkdtemp(pattern.data());
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_machine = EM_RISCV;
    header.e_type = ET_EXEC;
  }
  ~ElfFile() override { std::filesystem::remove_all(directory); }
  std::string complaint(const void* bytes, std::size_t size) {
    const std::string path = (directory / "fw.elf").string();
    std::ofstream(path, std::ios::binary).write(static_cast<const char*>(bytes), static_cast<std::streamsize>(size));
    try {
      require_riscv64_elf(path);
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }
  std::filesystem::path directory;
  Elf64_Ehdr header{};
};

TEST_F(ElfFile, MustBeAnExecutableForRiscv64) {
  EXPECT_EQ(complaint(&header, sizeof header), "");
  header.e_machine = EM_X86_64;
  EXPECT_THAT(complaint(&header, sizeof header), HasSubstr("no executable for 64-bit RISC-V"));
  header.e_machine = EM_RISCV;
  header.e_type = ET_DYN;
  EXPECT_THAT(complaint(&header, sizeof header), HasSubstr("no executable for 64-bit RISC-V"));
  EXPECT_THAT(complaint(&header, 20), HasSubstr("no ELF file"));
  EXPECT_THAT(complaint("", 0), HasSubstr("no ELF file"));
}

TEST_F(ElfFile, MustBeThere) {
  try {
    require_riscv64_elf((directory / "none").string());
    FAIL() << "it isn't there";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("No such file"));
    EXPECT_THAT(error.remedy(), HasSubstr("./dev setup firmware"));
  }
}

}  // namespace
}  // namespace orrery::bridge::firmware_machine_test
