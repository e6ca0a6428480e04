// A running guest: QEMU, what serves it beside (virtiofsd), its monitor and its console.
//
// Starts them, watches them, plugs a device in again after a server restart, ends them. Kills only what
// it started; whatever happens to us, the kernel ends them with us (child_process.h). One thread: the
// io_context's, which must live as long as the guest shall.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "qemu_bridge/launcher/child_process.h"
#include "qemu_bridge/launcher/guest_console.h"
#include "qemu_bridge/launcher/guest_spec.h"
#include "qemu_bridge/launcher/qmp_client.h"

namespace orrery::bridge {

class QemuProcess {
 public:
  // Why the guest ended: a sentence, and whether it did so by itself and in order (power off, reboot with
  // reboot_ends, or a stop that was asked for).
  struct End {
    ChildExit exit;
    std::string sentence;  // "guest0: QEMU ended with exit status 1: <its last lines>"
    bool in_order = false;
  };
  using Ended = std::function<void(const End&)>;
  using Done = std::function<void(const std::string& failure)>;  // empty: it worked

  // Starts virtiofsd if the guest has a share, then QEMU. Throws Error if the description is wrong, a
  // program can't be started or virtiofsd doesn't come up within 5 s (this wait blocks). Files that the
  // arguments name (OVMF variables) must be there. `ended` is called once when QEMU has ended, however.
  QemuProcess(boost::asio::io_context& io, GuestSpec spec, GuestTopology topology, GuestPaths paths,
              QemuInstallation qemu, Ended ended);
  // Kills whatever still runs.
  ~QemuProcess();
  QemuProcess(const QemuProcess&) = delete;
  QemuProcess& operator=(const QemuProcess&) = delete;

  // Connects to the monitor. A QEMU that ends instead is reported by `ended` and here.
  void connect_monitor(std::chrono::milliseconds time_limit, Done done);

  // Ends the guest: asks it to power off (ACPI power button) and gives it `grace`, then tells QEMU to quit
  // and gives it two seconds, then kills it. `grace` zero: quit at once. `ended` says when it is over.
  void stop(std::chrono::milliseconds grace);
  void kill();

  // Plugs an endpoint out and in again, after its server has come back. A guest takes five seconds to let
  // go of a PCI Express device (the attention button's grace).
  void replug(const std::string& endpoint, std::chrono::milliseconds time_limit, Done done);

  [[nodiscard]] bool running() const { return !ended_; }
  [[nodiscard]] int pid() const { return qemu_->pid(); }
  [[nodiscard]] std::uint64_t start_time() const { return qemu_->start_time(); }
  [[nodiscard]] QmpClient& monitor() { return monitor_; }
  [[nodiscard]] GuestConsole& console() { return console_; }
  [[nodiscard]] const GuestSpec& spec() const { return spec_; }
  [[nodiscard]] const GuestPaths& paths() const { return paths_; }
  // The arguments that QEMU was started with.
  [[nodiscard]] const std::vector<std::string>& arguments() const { return arguments_; }

 private:
  void start_share();
  void qemu_ended(const ChildExit& exit);
  void quit();

  boost::asio::io_context& io_;
  GuestSpec spec_;
  GuestTopology topology_;
  GuestPaths paths_;
  QemuInstallation installation_;
  Ended on_end_;
  std::vector<std::string> arguments_;
  QmpClient monitor_;
  GuestConsole console_;
  boost::asio::steady_timer stop_timer_;
  std::unique_ptr<ChildProcess> virtiofsd_;
  std::unique_ptr<ChildProcess> qemu_;
  bool ended_ = false;
  bool stopping_ = false;
  bool quitting_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // false once this object is gone
};

// virtiofsd's arguments for a share on this socket. As root it isolates itself in a namespace; an
// ordinary user may not, so it only serves what that user may read anyway.
[[nodiscard]] std::vector<std::string> virtiofsd_arguments(const GuestShare& share, const std::string& socket,
                                                           bool as_root);

}  // namespace orrery::bridge
