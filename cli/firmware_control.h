// The door through which `orrery fw` reaches the firmware of a running server: a UNIX socket with JSON lines.
//
// Requests are objects with "do": "status", "trace", "fail", "register_fault", "dma_fault", "clear_faults". Each is
// answered by one object, {"ok": true, …} or {"error": …, "remedy": …}; after "trace" an object for each command
// follows. Whoever can open the socket owns the server; even so, a request is checked before anything is done.
#pragma once

#include <cstdint>
#include <filesystem>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <nlohmann/json.hpp>

#include "common/listening_socket.h"
#include "qemu_bridge/launcher/json_line_stream.h"
#include "systemc_models/rnic/management_block.h"

namespace orrery::cli {

// The firmware of one RNIC, as requests name it.
struct ControlledFirmware {
  std::string rnic;
  std::string target;  // "native", "riscv64", "none"
  rnic::ManagementBlock* block = nullptr;
  // Of target riscv64.
  std::string elf;
  std::string console_log;
  std::string gdb_socket;
};

// What the requests do, without a socket.
class FirmwareRequests {
 public:
  explicit FirmwareRequests(std::vector<ControlledFirmware> firmware) : firmware_(std::move(firmware)) {}
  // Never throws for what the request holds.
  [[nodiscard]] nlohmann::ordered_json answer(const nlohmann::json& request);
  [[nodiscard]] const std::vector<ControlledFirmware>& firmware() const { return firmware_; }

 private:
  std::vector<ControlledFirmware> firmware_;
};

// A command for `orrery fw trace`. Times in microseconds of simulated time.
[[nodiscard]] nlohmann::ordered_json describe_command(const std::string& rnic, const rnic::CommandRecord& record);

class FirmwareControl {
 public:
  static constexpr std::size_t most_clients = 16;

  // Throws Error if the socket can't be had. The blocks outlive the control.
  FirmwareControl(boost::asio::io_context& io, const std::filesystem::path& socket,
                  std::vector<ControlledFirmware> firmware);
  ~FirmwareControl();
  FirmwareControl(const FirmwareControl&) = delete;
  FirmwareControl& operator=(const FirmwareControl&) = delete;

 private:
  struct Client {
    std::unique_ptr<bridge::JsonLineStream> stream;
    bool traces = false;
  };
  // Of one RNIC.
  class Listener final : public rnic::CommandObserver {
   public:
    Listener(FirmwareControl& control, std::string rnic) : control_(control), rnic_(std::move(rnic)) {}
    void on_command(const rnic::CommandRecord& record) override { control_.publish(rnic_, record); }

   private:
    FirmwareControl& control_;
    std::string rnic_;
  };

  void wait_for_client();
  void welcome(FileDescriptor socket);
  void publish(const std::string& rnic, const rnic::CommandRecord& record);

  boost::asio::io_context& io_;
  FirmwareRequests requests_;
  ListeningSocket listening_;
  boost::asio::posix::stream_descriptor acceptor_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::list<Client> clients_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace orrery::cli
