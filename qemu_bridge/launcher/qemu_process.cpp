#include "qemu_bridge/launcher/qemu_process.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>
#include <utility>

#include "common/error.h"
#include "common/stop_signals.h"
#include "qemu_bridge/launcher/pci_placement.h"
#include "qemu_bridge/launcher/qemu_command_line.h"
#include "qemu_bridge/launcher/system_text.h"

namespace orrery::bridge {

using std::chrono::milliseconds;

namespace {

constexpr milliseconds quit_limit{2000};
constexpr milliseconds share_limit{5000};

bool is_socket(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode);
}

std::string joined_tail(const ChildProcess& child) {
  std::string text;
  for (const std::string& line : last_lines(child.output_tail(), 10)) {
    text += "\n  " + line;
  }
  return text;
}

}  // namespace

std::vector<std::string> virtiofsd_arguments(const GuestShare& share, const std::string& socket, bool as_root) {
  std::vector<std::string> arguments{"--socket-path", socket,      "--shared-dir",
                                     share.directory, "--sandbox", as_root ? "namespace" : "none"};
  if (share.read_only) {
    arguments.emplace_back("--readonly");
  }
  return arguments;
}

QemuProcess::QemuProcess(boost::asio::io_context& io, GuestSpec spec, GuestTopology topology, GuestPaths paths,
                         QemuInstallation qemu, Ended ended)
    : io_(io),
      spec_(std::move(spec)),
      topology_(std::move(topology)),
      paths_(std::move(paths)),
      installation_(std::move(qemu)),
      on_end_(std::move(ended)),
      arguments_(qemu_arguments(spec_, topology_, paths_, installation_)),
      monitor_(io),
      console_(io, paths_.console_log),
      stop_timer_(io) {
  if (spec_.share) {
    start_share();
  }
  ChildOptions options;
  options.program = installation_.program;
  options.arguments = arguments_;
  qemu_ = std::make_unique<ChildProcess>(io_, options, [this](const ChildExit& exit) { qemu_ended(exit); });
}

QemuProcess::~QemuProcess() {
  *alive_ = false;
}

void QemuProcess::start_share() {
  struct stat status {};
  if (::stat(spec_.share->directory.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    throw Error(fmt::format("{}: the shared directory {} is not there", spec_.name, spec_.share->directory));
  }
  ::unlink(paths_.share_socket.c_str());
  ChildOptions options;
  options.program = installation_.virtiofsd;
  options.arguments = virtiofsd_arguments(*spec_.share, paths_.share_socket, ::geteuid() == 0);
  virtiofsd_ = std::make_unique<ChildProcess>(io_, options);
  // QEMU connects to it at its start and doesn't try again.
  const auto deadline = std::chrono::steady_clock::now() + share_limit;
  while (!is_socket(paths_.share_socket)) {
    if (virtiofsd_->has_ended() || std::chrono::steady_clock::now() >= deadline) {
      const char* how = virtiofsd_->has_ended() ? "ended at once" : "made no socket within 5 s";
      throw Error(fmt::format("{}: virtiofsd, which shares {}, {}:{}", spec_.name, spec_.share->directory, how,
                              joined_tail(*virtiofsd_)));
    }
    throw_if_stopped();
    std::this_thread::sleep_for(milliseconds(5));
  }
}

void QemuProcess::connect_monitor(milliseconds time_limit, Done done) {
  monitor_.connect(paths_.qmp_socket, time_limit, std::move(done));
}

void QemuProcess::qemu_ended(const ChildExit& exit) {
  ended_ = true;
  stop_timer_.cancel();
  monitor_.close();
  console_.cancel_wait();
  if (virtiofsd_) {
    virtiofsd_->kill();
  }
  End end;
  end.exit = exit;
  end.in_order = exit.success();
  end.sentence = fmt::format("{}: QEMU {}", spec_.name, exit.sentence());
  if (!exit.success()) {
    if (const std::string tail = joined_tail(*qemu_); !tail.empty()) {
      end.sentence += ':' + tail;
    }
  }
  if (auto handler = std::exchange(on_end_, {})) {
    handler(end);
  }
}

void QemuProcess::stop(milliseconds grace) {
  if (ended_ || quitting_) {
    return;
  }
  const bool again = std::exchange(stopping_, true);
  if (grace.count() == 0 || !monitor_.connected()) {
    quit();
    return;
  }
  if (again) {
    return;
  }
  monitor_.execute("system_powerdown", {}, grace, [](const QmpReply&) {});
  stop_timer_.expires_after(grace);
  stop_timer_.async_wait([this, alive = alive_](const boost::system::error_code& cancelled) {
    if (!cancelled && *alive) {
      quit();
    }
  });
}

void QemuProcess::quit() {
  quitting_ = true;
  if (monitor_.connected()) {
    monitor_.execute("quit", {}, quit_limit, [](const QmpReply&) {});
    stop_timer_.expires_after(quit_limit);
    stop_timer_.async_wait([this, alive = alive_](const boost::system::error_code& cancelled) {
      if (!cancelled && *alive) {
        qemu_->kill();
      }
    });
  } else {
    // QEMU takes SIGTERM for quit.
    qemu_->terminate(quit_limit);
  }
}

void QemuProcess::kill() {
  if (!ended_) {
    qemu_->kill();
  }
}

void QemuProcess::replug(const std::string& endpoint, milliseconds time_limit, Done done) {
  for (const PlacedDevice& device : place_devices(topology_)) {
    if (device.endpoint != nullptr && device.id == endpoint && device.endpoint->stand_in.empty()) {
      const std::string json = vfio_user_device_json(*device.endpoint, device.bus, spec_.message_timeout_ms);
      monitor_.replug(nlohmann::json::parse(json), time_limit, std::move(done));
      return;
    }
  }
  throw Error(fmt::format("{}: there is no vfio-user endpoint named '{}' to plug in again", spec_.name, endpoint));
}

}  // namespace orrery::bridge
