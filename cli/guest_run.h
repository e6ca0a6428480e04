// One guest of a run: from its configuration and the command line to a QEMU that runs.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "qemu_bridge/launcher/guest_files.h"
#include "qemu_bridge/launcher/qemu_process.h"
#include "qemu_bridge/launcher/run_directory.h"
#include "systemc_models/server/server_config.h"
#include "systemc_models/server/topology.h"

namespace CLI {
class App;
}

namespace orrery::cli {

// What the command line says about guests; what it leaves open, the configuration decides.
struct GuestOptions {
  std::string kernel;  // a name of the cache ("7.3-cloud") or a path
  std::string initrd;
  std::string disk;  // "root" for the one that set-up made, or a path
  bool disk_write = false;
  std::string firmware;  // "seabios", "ovmf"
  unsigned cpus = 0;
  unsigned memory_mib = 0;
  std::string share;
  bool share_read_only = false;
  bool ssh = false;
  std::string ssh_key;  // public key; empty with ssh: the user's own, ~/.ssh/id_*.pub
  bool no_network = false;
  std::vector<std::string> append;  // to the kernel's command line
  std::vector<std::string> qemu_arguments;
};
void add_guest_options(CLI::App& command, GuestOptions& options);

// The guest's face of the topology, reduced to the guest's own devices (design: two faces of one
// configuration). `socket` gives the path of an endpoint's socket.
bridge::GuestTopology guest_topology(const models::Topology& topology, const models::ServerConfig& config,
                                     const models::GuestConfig& guest,
                                     const std::function<std::string(const std::string& endpoint)>& socket);

// The description of a guest, files resolved; what has to be made for it (a joined initrd, OVMF's variables) goes
// into the run's directory. Throws Error.
struct PreparedGuest {
  bridge::GuestSpec spec;
  bridge::GuestTopology topology;
  bridge::GuestPaths paths;
  bridge::QemuInstallation qemu;
  std::string accelerator_note;  // why TCG, if KVM isn't used
};
PreparedGuest prepare_guest(const bridge::RunDirectory& run, const models::Topology& topology,
                            const models::ServerConfig& config, const models::GuestConfig& guest,
                            const GuestOptions& options,
                            const std::function<std::string(const std::string& endpoint)>& socket);

// Runs and publishes a prepared guest.
class GuestRun {
 public:
  // Throws Error if QEMU can't be started.
  GuestRun(boost::asio::io_context& io, const bridge::RunDirectory& run, PreparedGuest guest);
  ~GuestRun();
  GuestRun(const GuestRun&) = delete;
  GuestRun& operator=(const GuestRun&) = delete;

  [[nodiscard]] bridge::QemuProcess& qemu() { return *qemu_; }
  [[nodiscard]] const std::string& name() const { return guest_.spec.name; }
  [[nodiscard]] const PreparedGuest& guest() const { return guest_; }
  // Set once QEMU has ended.
  [[nodiscard]] const std::optional<bridge::QemuProcess::End>& end() const { return end_; }
  // Ends QEMU at once and starts it anew with the same description, from the io_context; a failure to start is
  // an end of the guest.
  void restart();
  // The kernel command line has orrery.run=, so one of our images reports an exit status.
  [[nodiscard]] bool was_to_report() const;
  // Throws Error with the reason and the console's last lines, if the guest did not end in order: QEMU failed, the
  // kernel panicked (which to QEMU is a restart like any), or a status that was to be reported wasn't.
  void require_orderly_end(bool has_reported);

 private:
  void start();

  boost::asio::io_context& io_;
  const bridge::RunDirectory& run_;
  PreparedGuest guest_;
  bool restarting_ = false;
  std::optional<bridge::QemuProcess::End> end_;
  std::unique_ptr<bridge::QemuProcess> qemu_;
};

// The archive with Orrery's in-guest programs, as built or installed beside this program. Throws Error.
std::string guest_programs_archive();

}  // namespace orrery::cli
