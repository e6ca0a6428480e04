// The machine that runs an RNIC's firmware built for riscv64: a qemu-system-riscv64 with the RNIC's management
// registers as its only PCI device.
//
// One thread: the io_context's. Whatever happens to us, the kernel ends the machine with us (child_process.h).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "qemu_bridge/launcher/child_process.h"
#include "qemu_bridge/launcher/qmp_client.h"

namespace orrery::bridge {

// Every file and socket of one machine, all in the run's private directory.
struct FirmwareMachineSpec {
  std::string name;            // of the RNIC, for messages
  std::string program;         // qemu-system-riscv64
  std::string elf;             // what it runs
  std::string device_socket;   // of the vfio-user server with the registers
  std::string console_socket;  // the UART
  std::string console_log;
  std::string gdb_socket;
  std::string qmp_socket;
  unsigned memory_mib = 64;
  // If set, a directory: each machine logs the instructions it is about to run for the first time, in a file *.log of
  // its own there (QEMU's `-d in_asm`, one instruction at a time). Slower.
  std::string code_logs;
  bool stopped = false;  // waits for a debugger before the first instruction
};

[[nodiscard]] std::vector<std::string> firmware_machine_arguments(const FirmwareMachineSpec& spec);

// Throws Error unless the file is an ELF executable for 64-bit RISC-V: QEMU would start with anything.
void require_riscv64_elf(const std::string& path);

class FirmwareMachine {
 public:
  struct Handlers {
    // The machine has ended by itself; what it said. Not after this object is gone.
    std::function<void(const ChildExit& exit, const std::string& sentence)> ended;
    // A debugger has stopped the processor, or lets it go on.
    std::function<void(bool stopped)> stopped;
  };

  // Throws Error if the program can't be started.
  FirmwareMachine(boost::asio::io_context& io, FirmwareMachineSpec spec, Handlers handlers);
  // Ends it at once.
  ~FirmwareMachine();
  FirmwareMachine(const FirmwareMachine&) = delete;
  FirmwareMachine& operator=(const FirmwareMachine&) = delete;

  [[nodiscard]] int pid() const { return process_->pid(); }
  [[nodiscard]] const FirmwareMachineSpec& spec() const { return spec_; }

 private:
  FirmwareMachineSpec spec_;
  Handlers handlers_;
  QmpClient monitor_;
  std::unique_ptr<ChildProcess> process_;
};

}  // namespace orrery::bridge
