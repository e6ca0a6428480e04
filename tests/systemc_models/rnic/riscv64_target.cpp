// The target riscv64 under the tests of the native one: each rig's firmware runs on a machine of its own, and simulated
// time stands still while it works. ORRERY_FIRMWARE_ELF names another ELF than ours, ORRERY_FIRMWARE_CODE_LOGS a
// directory for logs of the code that ran.
#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "cli/firmware_host.h"
#include "common/error.h"
#include "qemu_bridge/launcher/qemu_program.h"
#include "tests/systemc_models/rnic/mlx5_rig.h"

namespace orrery::test::riscv64_target {
namespace {

class Riscv64Target final : public FirmwareTarget {
 public:
  Riscv64Target(FakeBus& bus, rnic::ManagementBlock& block) : bus_(bus), block_(block) {
    std::string pattern = (std::filesystem::temp_directory_path() / "orrery-fw-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) {
      throw Error("no directory for sockets: " + pattern);
    }
    directory_ = pattern;
    const char* elf = std::getenv("ORRERY_FIRMWARE_ELF");
    cli::FirmwareHostOptions options;
    options.name = "rnic0";
    options.directory = directory_;
    options.program = bridge::find_qemu_riscv();
    options.elf = cli::firmware_elf(elf != nullptr ? elf : ORRERY_BUILT_FIRMWARE);
    if (const char* logs = std::getenv("ORRERY_FIRMWARE_CODE_LOGS"); logs != nullptr) {
      options.code_logs = logs;
    }
    host_ = std::make_unique<cli::FirmwareHost>(io_, block, options);
    bus_.before_event = [this] { come_to_rest(); };
  }
  ~Riscv64Target() override {
    bus_.before_event = {};
    host_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  Riscv64Target(const Riscv64Target&) = delete;
  Riscv64Target& operator=(const Riscv64Target&) = delete;

 private:
  // A limit of last resort: a firmware that never sleeps again would hang the test.
  static constexpr std::chrono::seconds patience{60};

  void come_to_rest() {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (!block_.asleep() && !block_.crashed()) {
      if (given_up_ || std::chrono::steady_clock::now() >= deadline) {
        if (!given_up_) {
          ADD_FAILURE() << "the firmware doesn't come to rest";
        }
        given_up_ = true;
        return;
      }
      io_.run_one_for(std::chrono::milliseconds(100));
      io_.restart();
    }
  }

  FakeBus& bus_;
  rnic::ManagementBlock& block_;
  boost::asio::io_context io_;
  std::filesystem::path directory_;
  std::unique_ptr<cli::FirmwareHost> host_;
  bool given_up_ = false;
};

std::unique_ptr<FirmwareTarget> make(FakeBus& bus, rnic::ManagementBlock& block) {
  return std::make_unique<Riscv64Target>(bus, block);
}

const bool chosen = [] {
  make_firmware_target = make;
  return true;
}();

}  // namespace
}  // namespace orrery::test::riscv64_target
