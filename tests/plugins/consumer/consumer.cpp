// A test bench of a team's own, built against the installed tree: a platform, its plug-in, and no QEMU.
#include <cstdio>
#include <cstring>
#include <span>

#include "common/error.h"
#include "crc32c_registers.h"
#include "systemc_models/server/platform.h"
#include "systemc_models/server/server_config.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    return 2;
  }
  try {
    orrery::models::Platform platform(orrery::models::load_server_config(argv[1]));
    for (std::size_t i = 0; i < platform.functions(); ++i) {
      orrery::pcie::FunctionAccess& function = platform.function(i);
      if (function.name() == "crc0") {
        const std::uint32_t bar = 0xe000'0000;
        const std::uint16_t command = 2;
        function.config_write(0x10, std::as_bytes(std::span(&bar, 1)));
        function.config_write(4, std::as_bytes(std::span(&command, 1)));
        std::uint32_t id = 0;
        function.bar_read(0, CRC32C_ID, std::as_writable_bytes(std::span(&id, 1)));
        std::printf("%zu functions, crc0 says %08x\n", platform.functions(), id);
        return id == CRC32C_ID_VALUE ? 0 : 1;
      }
    }
    std::printf("no crc0\n");
  } catch (const orrery::Error& error) {
    std::fprintf(stderr, "%s\n%s\n", error.what(), error.remedy().c_str());
  }
  return 1;
}
