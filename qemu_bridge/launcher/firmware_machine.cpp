#include "qemu_bridge/launcher/firmware_machine.h"

#include <elf.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/log.h"
#include "qemu_bridge/launcher/system_text.h"

namespace orrery::bridge {

namespace {

constexpr std::chrono::milliseconds firmware_monitor_limit{60'000};
constexpr unsigned firmware_message_timeout_ms = 600'000;

// A comma ends a value for QEMU; doubled it stands for itself.
std::string qemu_value(const std::string& text) {
  std::string quoted;
  for (const char c : text) {
    quoted += c;
    if (c == ',') {
      quoted += c;
    }
  }
  return quoted;
}

}  // namespace

std::vector<std::string> firmware_machine_arguments(const FirmwareMachineSpec& spec) {
  const nlohmann::ordered_json device = {{"driver", "vfio-user-pci"},
                                         {"id", "rnic"},
                                         {"socket", {{"type", "unix"}, {"path", spec.device_socket}}},
                                         {"x-msg-timeout", firmware_message_timeout_ms}};
  const auto server = [](const std::string& path) {
    return fmt::format("path={},server=on,wait=off", qemu_value(path));
  };
  std::vector<std::string> arguments{
      "-nodefaults",
      "-display",
      "none",
      "-name",
      qemu_value(spec.name + "-firmware"),
      "-machine",
      "virt,aia=aplic-imsic",
      "-cpu",
      "rv64",
      "-smp",
      "1",
      "-m",
      fmt::format("{}M", spec.memory_mib),
      "-bios",
      "none",
      "-kernel",
      spec.elf,
      "-chardev",
      fmt::format("socket,id=console,{},logfile={}", server(spec.console_socket), qemu_value(spec.console_log)),
      "-serial",
      "chardev:console",
      "-chardev",
      fmt::format("socket,id=gdb,{}", server(spec.gdb_socket)),
      "-gdb",
      "chardev:gdb",
      "-chardev",
      fmt::format("socket,id=qmp,{}", server(spec.qmp_socket)),
      "-qmp",
      "chardev:qmp",
      "-device",
      device.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace),
  };
  if (!spec.code_logs.empty()) {
    // %d is the process's id: a machine that is started again doesn't overwrite the log of the one before.
    for (const char* word : {"-accel", "tcg,one-insn-per-tb=on", "-d", "in_asm", "-D"}) {
      arguments.emplace_back(word);
    }
    arguments.push_back(spec.code_logs + "/%d.log");
  }
  if (spec.stopped) {
    arguments.emplace_back("-S");
  }
  return arguments;
}

void require_riscv64_elf(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header{};
  if (!file || ::access(path.c_str(), R_OK) != 0) {
    throw Error(fmt::format("firmware {} can't be read: {}", path, std::strerror(errno != 0 ? errno : ENOENT)),
                "name an ELF file, or build ours: ./dev build firmware_riscv64 (./dev setup firmware installs the "
                "compiler)");
  }
  file.read(reinterpret_cast<char*>(&header), sizeof header);
  const bool elf =
      file.gcount() == static_cast<std::streamsize>(sizeof header) && std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0;
  if (!elf || header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_RISCV || header.e_type != ET_EXEC) {
    throw Error(fmt::format("firmware {} is {}", path,
                            elf ? "an ELF file, but no executable for 64-bit RISC-V" : "no ELF file"),
                "link it statically for riscv64, to run from 0x80000000 in machine mode");
  }
}

FirmwareMachine::FirmwareMachine(boost::asio::io_context& io, FirmwareMachineSpec spec, Handlers handlers)
    : spec_(std::move(spec)), handlers_(std::move(handlers)), monitor_(io) {
  for (const std::string* socket : {&spec_.console_socket, &spec_.gdb_socket, &spec_.qmp_socket}) {
    ::unlink(socket->c_str());  // of the machine before
  }
  ChildOptions options;
  options.program = spec_.program;
  options.arguments = firmware_machine_arguments(spec_);
  process_ = std::make_unique<ChildProcess>(io, options, [this](const ChildExit& exit) {
    std::string sentence = fmt::format("{}: the machine of its firmware {}", spec_.name, exit.sentence());
    for (const std::string& line : last_lines(process_->output_tail(), 5)) {
      sentence += "\n  " + line;
    }
    monitor_.close();
    handlers_.ended(exit, sentence);
  });
  monitor_.on_event([this](const std::string& name, const nlohmann::json& /*data*/) {
    if (name == "STOP" || name == "RESUME") {
      handlers_.stopped(name == "STOP");
    }
  });
  monitor_.connect(spec_.qmp_socket, firmware_monitor_limit, [this](const std::string& failure) {
    if (!failure.empty() && !process_->exit()) {
      log(LogLevel::warning, "{}: a debugger will not hold the watchdog: {}", spec_.name, failure);
    }
  });
}

FirmwareMachine::~FirmwareMachine() = default;

}  // namespace orrery::bridge
