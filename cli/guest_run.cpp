#include "cli/guest_run.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <boost/asio/post.hpp>

#include "common/error.h"
#include "qemu_bridge/launcher/qemu_command_line.h"
#include "qemu_bridge/launcher/qemu_program.h"

namespace orrery::cli {

namespace {

namespace fs = std::filesystem;

// Root bus numbers of the guest's expander bridges: far enough apart for a switch hierarchy each.
constexpr unsigned buses_per_socket = 64;

// GT/s of a generation as QEMU spells it.
const char* speed_name(unsigned generation) {
  constexpr const char* names[] = {"2_5", "5", "8", "16", "32", "64"};
  return names[std::clamp(generation, 1U, 6U) - 1];
}

bridge::PcieLinkSpec link_spec(const pcie::LinkSettings& link) {
  return {speed_name(link.generation), link.width};
}

std::string own_public_key() {
  const char* home = std::getenv("HOME");
  for (const char* name : {"id_ed25519.pub", "id_ecdsa.pub", "id_rsa.pub"}) {
    const fs::path key = fs::path(home == nullptr ? "/" : home) / ".ssh" / name;
    if (fs::exists(key)) {
      return key.string();
    }
  }
  throw Error("--ssh needs a public key, and ~/.ssh has none", "make one with ssh-keygen, or name one with --ssh-key");
}

}  // namespace

void add_guest_options(CLI::App& command, GuestOptions& options) {
  command.add_option("--kernel", options.kernel, "Kernel: 6.1-cloud, 6.12-cloud, 7.3-cloud, or a file");
  command.add_option("--initrd", options.initrd, "Initial ramdisk, for a kernel of your own");
  command.add_option("--disk", options.disk,
                     "Disk image (its writes are dropped), or 'root' for the Debian root disk of ./dev setup");
  command.add_flag("--disk-write", options.disk_write, "Let the guest write to the disk image");
  command.add_option("--firmware", options.firmware, "Firmware: seabios or ovmf")
      ->check(CLI::IsMember({"seabios", "ovmf"}));
  command.add_option("--cpus", options.cpus, "Virtual CPUs, 1 to 8")->check(CLI::Range(1, 8));
  command.add_option("--memory", options.memory_mib, "Guest memory in MiB")->check(CLI::Range(256, 1048576));
  command.add_option("--share", options.share, "Host directory to share (virtiofs, tag orrery)")
      ->check(CLI::ExistingDirectory);
  command.add_flag("--share-read-only", options.share_read_only, "Share it read-only");
  command.add_flag("--ssh", options.ssh, "Start sshd in our own images and forward a port of 127.0.0.1 to it");
  command.add_option("--ssh-key", options.ssh_key, "Public key to let in (default: ~/.ssh/id_*.pub)")
      ->check(CLI::ExistingFile);
  command.add_flag("--no-network", options.no_network, "No network device");
  command.add_option("--append", options.append, "Words to add to the kernel's command line (repeatable)")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);
  command.add_option("--qemu", options.qemu_arguments, "One more argument for QEMU (repeatable)")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);
}

bridge::GuestTopology guest_topology(const models::Topology& topology, const models::ServerConfig& config,
                                     const models::GuestConfig& guest,
                                     const std::function<std::string(const std::string& endpoint)>& socket) {
  bridge::GuestTopology result;
  result.shape = topology.switches.empty() ? bridge::TopologyShape::root_ports : bridge::TopologyShape::switched;
  for (const models::Topology::Socket& a_socket : topology.sockets) {
    bridge::GuestRootComplex complex;
    complex.numa_node = a_socket.numa_node;
    complex.bus_number = buses_per_socket * (a_socket.index + 1);
    // Switches in the order of their root ports; an endpoint at a root port of its own is a switch of one.
    std::map<std::string, std::size_t> by_name;
    for (const models::Topology::Endpoint& endpoint : topology.endpoints) {
      if (endpoint.socket != a_socket.index ||
          std::find(guest.devices.begin(), guest.devices.end(), endpoint.name) == guest.devices.end()) {
        continue;
      }
      const std::string name =
          endpoint.switch_index ? topology.switches[*endpoint.switch_index].name : endpoint.name + "-slot";
      if (by_name.count(name) == 0) {
        by_name[name] = complex.switches.size();
        bridge::GuestSwitch a_switch;
        a_switch.name = name;
        a_switch.uplink = link_spec(endpoint.switch_index
                                        ? topology.root_ports[topology.switches[*endpoint.switch_index].root_port].link
                                        : endpoint.link);
        complex.switches.push_back(a_switch);
      }
      bridge::GuestEndpoint guest_endpoint;
      guest_endpoint.name = endpoint.name;
      guest_endpoint.socket_path = socket(endpoint.name);
      guest_endpoint.link = link_spec(endpoint.link);
      if (endpoint.kind == models::EndpointKind::gpu) {
        guest_endpoint.prefetchable_bytes = config.gpu.bar_mib << 20;
      }
      complex.switches[by_name[name]].endpoints.push_back(guest_endpoint);
    }
    if (!complex.switches.empty()) {
      result.root_complexes.push_back(complex);
    }
  }
  return result;
}

PreparedGuest prepare_guest(const bridge::RunDirectory& run, const models::Topology& topology,
                            const models::ServerConfig& config, const models::GuestConfig& guest,
                            const GuestOptions& options,
                            const std::function<std::string(const std::string& endpoint)>& socket) {
  PreparedGuest prepared;
  prepared.qemu = bridge::find_qemu();
  prepared.paths = run.guest_paths(guest.name);
  const bridge::GuestAssets assets(bridge::cache_directory());
  bridge::GuestSpec& spec = prepared.spec;
  spec.name = guest.name;
  spec.cpus = options.cpus != 0 ? options.cpus : guest.cpus;
  spec.memory_mib = options.memory_mib != 0 ? options.memory_mib : static_cast<unsigned>(guest.memory_mib);
  spec.numa_nodes = static_cast<unsigned>(topology.sockets.size());
  const std::string firmware = options.firmware;
  spec.firmware = firmware == "ovmf" || (firmware.empty() && guest.firmware == models::GuestFirmware::ovmf)
                      ? bridge::Firmware::ovmf
                      : bridge::Firmware::seabios;

  const std::string disk = !options.disk.empty() ? options.disk : guest.disk;
  std::string kernel = !options.kernel.empty() ? options.kernel : guest.kernel;
  std::string initrd = !options.initrd.empty() ? options.initrd : guest.initrd;
  if (kernel.empty() && (disk.empty() || disk == bridge::GuestAssets::default_disk)) {
    kernel = bridge::GuestAssets::default_kernel;
  }
  if (kernel.empty() && !initrd.empty()) {
    throw Error(fmt::format("initrd {} without a kernel: {} boots by itself", initrd, disk),
                "give the kernel too (--kernel), or leave the initrd out");
  }
  if (!kernel.empty()) {
    spec.kernel = assets.kernel(kernel);
    if (initrd.empty()) {
      initrd = assets.initrd(kernel);
    } else if (access(initrd.c_str(), R_OK) != 0) {
      throw Error(fmt::format("initrd {} can't be read: {}", initrd, std::strerror(errno)), "name an existing file");
    }
    spec.initrd = run.file(guest.name + ".initrd");
    bridge::join_initrds({initrd, guest_programs_archive()}, spec.initrd);
  }
  if (!disk.empty()) {
    bridge::GuestDisk image;
    image.path = assets.disk(disk);
    image.format = bridge::probe_disk_format(image.path);
    image.mode = options.disk_write ? bridge::DiskMode::write : bridge::DiskMode::throw_away;
    spec.disk = image;
    if (disk == bridge::GuestAssets::default_disk) {
      spec.kernel_arguments.emplace_back("orrery.root=/dev/vda");
    }
  }
  std::vector<std::string> words = options.append;
  words.insert(words.begin(), guest.command_line);
  for (const std::string& some : words) {
    if (!some.empty()) {
      spec.kernel_arguments.push_back(some);
    }
  }
  if (!options.share.empty()) {
    spec.share = bridge::GuestShare{.directory = options.share, .tag = "orrery", .read_only = options.share_read_only};
  }
  spec.network = options.no_network ? bridge::GuestNetwork::none : bridge::GuestNetwork::user;
  if (options.ssh || !options.ssh_key.empty()) {
    spec.ssh_port = bridge::find_free_loopback_port();
    spec.ssh_key_file = options.ssh_key.empty() ? own_public_key() : options.ssh_key;
    spec.kernel_arguments.emplace_back("orrery.ssh=1");
  }
  spec.extra_arguments = options.qemu_arguments;

  const bridge::KvmVerdict kvm = bridge::kvm_verdict(prepared.qemu, bridge::RunDirectory::default_base());
  spec.accelerator = kvm.works ? bridge::Accelerator::kvm : bridge::Accelerator::tcg;
  if (!kvm.works) {
    prepared.accelerator_note = "software emulation (TCG): " + kvm.reason;
  }
  if (spec.firmware == bridge::Firmware::ovmf) {
    bridge::copy_private(prepared.qemu.ovmf_vars, prepared.paths.ovmf_vars);
  }
  prepared.topology = guest_topology(topology, config, guest, socket);
  bridge::validate_guest(spec, prepared.topology, prepared.qemu);
  return prepared;
}

GuestRun::GuestRun(boost::asio::io_context& io, const bridge::RunDirectory& run, PreparedGuest guest)
    : io_(io), run_(run), guest_(std::move(guest)) {
  start();
}

void GuestRun::start() {
  qemu_ = std::make_unique<bridge::QemuProcess>(
      io_, guest_.spec, guest_.topology, guest_.paths, guest_.qemu, [this](const bridge::QemuProcess::End& end) {
        if (!restarting_) {
          end_ = end;
          return;
        }
        restarting_ = false;
        boost::asio::post(io_, [this] {  // not from inside the old process's own handler
          try {
            qemu_.reset();
            start();
          } catch (const Error& error) {
            end_ = bridge::QemuProcess::End{};
            end_->sentence = error.what();
          }
        });
      });
  bridge::RunningGuest running;
  running.name = guest_.spec.name;
  running.run = run_.name();
  running.pid = qemu_->pid();
  running.start_time = qemu_->start_time();
  running.paths = guest_.paths;
  running.ssh_port = guest_.spec.ssh_port;
  run_.add_guest(running);
}

void GuestRun::restart() {
  if (!end_ && !restarting_) {
    restarting_ = true;
    qemu_->kill();
  }
}

GuestRun::~GuestRun() {
  run_.remove_guest(name());
}

bool GuestRun::was_to_report() const {
  const std::vector<std::string>& words = guest_.spec.kernel_arguments;
  return std::any_of(words.begin(), words.end(),
                     [](const std::string& word) { return word.find("orrery.run=") != std::string::npos; });
}

void GuestRun::require_orderly_end(bool has_reported) {
  if (!end_) {
    return;
  }
  std::string what;
  if (!end_->in_order) {
    what = end_->sentence;
  } else if (!has_reported && qemu_ != nullptr && !qemu_->console().panic().empty()) {
    what = name() + ": the guest's kernel gave up";
  } else if (!has_reported && was_to_report()) {
    what = name() + ": the guest ended without the exit status of its program (orrery.run=)";
  } else {
    return;
  }
  throw Error(what, qemu_ != nullptr ? qemu_->console().excerpt() : std::string{});
}

std::string guest_programs_archive() {
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  const fs::path built = program.parent_path().parent_path() / "guests" / "programs.cpio";
  const fs::path installed = program.parent_path().parent_path() / "share" / "orrery" / "guest" / "programs.cpio";
  for (const fs::path& candidate : {built, installed}) {
    if (fs::exists(candidate)) {
      return candidate.string();
    }
  }
  throw Error(fmt::format("Orrery's in-guest programs are neither at {} nor at {}", built.string(), installed.string()),
              "build everything (./dev build), or reinstall");
}

}  // namespace orrery::cli
