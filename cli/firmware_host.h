// An RNIC's firmware on a processor of its own: its registers on a vfio-user socket, the machine on it, started,
// watched and started anew.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "qemu_bridge/launcher/firmware_machine.h"
#include "qemu_bridge/server.h"
#include "systemc_models/rnic/firmware_function.h"

namespace orrery::cli {

struct FirmwareHostOptions {
  std::string name;                 // of the RNIC
  std::filesystem::path directory;  // exists, private; for sockets and the console's log
  std::string program;              // qemu-system-riscv64
  std::string elf;
  bool stopped = false;  // each start waits for a debugger
  std::string map;       // file of a register map; empty: the RNIC's own
  // If set, the machine is not started anew: called once when it has ended, or would have to be restarted. `status`:
  // QEMU's exit status; -1: killed, or the firmware crashed.
  std::function<void(int status, const std::string& sentence)> once;
  std::string code_logs = {};  // directory for logs of the code that ran (FirmwareMachineSpec); empty: none
};

class FirmwareHost {
 public:
  // Throws Error if the socket can't be had or a path is too long for one. The machine starts from the io_context.
  // `block` has no processor yet; it and the io_context outlive the host.
  FirmwareHost(boost::asio::io_context& io, rnic::ManagementBlock& block, FirmwareHostOptions options);
  // Ends the machine and removes its files.
  ~FirmwareHost();
  FirmwareHost(const FirmwareHost&) = delete;
  FirmwareHost& operator=(const FirmwareHost&) = delete;

  [[nodiscard]] const std::string& name() const { return spec_.name; }
  [[nodiscard]] const bridge::FirmwareMachineSpec& spec() const { return spec_; }
  [[nodiscard]] bridge::Server& server() { return *server_; }
  [[nodiscard]] rnic::FirmwareFunction& function() { return function_; }
  // 0: none runs.
  [[nodiscard]] int pid() const { return machine_ != nullptr ? machine_->pid() : 0; }

 private:
  void start_soon();
  void launch();
  void ended(const bridge::ChildExit& exit, const std::string& sentence);
  void finish(int status, const std::string& sentence);

  boost::asio::io_context& io_;
  rnic::ManagementBlock& block_;
  bridge::FirmwareMachineSpec spec_;
  std::function<void(int, const std::string&)> once_;
  rnic::FirmwareFunction function_;
  std::unique_ptr<bridge::Server> server_;
  std::unique_ptr<bridge::FirmwareMachine> machine_;
  bool started_ = false;
  unsigned failures_ = 0;  // starts in a row after which the firmware never got ready
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

// `elf`, or Orrery's own firmware as built or installed beside this program. Throws Error if it isn't there or can't
// run.
[[nodiscard]] std::string firmware_elf(const std::string& elf);

}  // namespace orrery::cli
