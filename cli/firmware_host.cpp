#include "cli/firmware_host.h"

#include <sys/un.h>

#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include "common/error.h"
#include "common/log.h"

namespace orrery::cli {

namespace {

constexpr unsigned most_failures = 3;

std::string machine_socket(const std::filesystem::path& path) {
  if (path.native().size() >= sizeof(sockaddr_un::sun_path)) {
    throw Error(fmt::format("{} has {} bytes; a socket's path may have {}", path.string(), path.native().size(),
                            sizeof(sockaddr_un::sun_path) - 1),
                "use a shorter directory");
  }
  return path.string();
}

bridge::FirmwareMachineSpec machine_spec(const FirmwareHostOptions& options) {
  const auto file = [&](const char* suffix) { return options.directory / (options.name + suffix); };
  bridge::FirmwareMachineSpec spec;
  spec.name = options.name;
  spec.program = options.program;
  spec.elf = options.elf;
  spec.device_socket = machine_socket(file(".registers"));
  spec.console_socket = machine_socket(file(".console"));
  spec.console_log = file(".log").string();
  spec.gdb_socket = machine_socket(file(".gdb"));
  spec.qmp_socket = machine_socket(file(".qmp"));
  spec.stopped = options.stopped;
  spec.code_logs = options.code_logs;
  return spec;
}

}  // namespace

FirmwareHost::FirmwareHost(boost::asio::io_context& io, rnic::ManagementBlock& block, FirmwareHostOptions options)
    : io_(io),
      block_(block),
      spec_(machine_spec(options)),
      once_(std::move(options.once)),
      function_(
          options.name + "-management", block, [this] { start_soon(); },
          options.map.empty() ? nullptr
                              : std::make_unique<rnic::RegisterMap>(rnic::load_register_map(options.map), block)) {
  bridge::ServerOptions server;
  server.socket = spec_.device_socket;
  server_ = std::make_unique<bridge::Server>(io, function_, server);
  block_.bind(function_);
  block_.power_on();
}

FirmwareHost::~FirmwareHost() {
  *alive_ = false;
  block_.unbind_processor();
  machine_.reset();
  server_.reset();
  std::error_code ignored;
  for (const std::string* file : {&spec_.console_socket, &spec_.console_log, &spec_.gdb_socket, &spec_.qmp_socket}) {
    std::filesystem::remove(*file, ignored);
  }
}

void FirmwareHost::start_soon() {
  // Not from inside the simulation, nor from the handler of the machine that ended.
  boost::asio::post(io_, [this, alive = alive_] {
    if (*alive) {
      launch();
    }
  });
}

void FirmwareHost::finish(int status, const std::string& sentence) {
  if (auto once = std::exchange(once_, {})) {
    once(status, sentence);
  }
}

void FirmwareHost::launch() {
  if (std::exchange(started_, true) && once_) {
    finish(-1, spec_.name + ": its firmware crashed");
    return;
  }
  try {
    machine_.reset();
    machine_ = std::make_unique<bridge::FirmwareMachine>(
        io_, spec_,
        bridge::FirmwareMachine::Handlers{
            [this](const bridge::ChildExit& exit, const std::string& sentence) { ended(exit, sentence); },
            [this](bool stopped) { block_.hold_watchdog(stopped); }});
    block_.hold_watchdog(false);
  } catch (const Error& error) {
    log(LogLevel::error, "{}: its firmware can't be started: {}", spec_.name, error.what());
    finish(-1, error.what());
  }
}

void FirmwareHost::ended(const bridge::ChildExit& exit, const std::string& sentence) {
  if (once_) {
    finish(exit.signal == 0 ? exit.status : -1, sentence);
    return;
  }
  log(LogLevel::error, "{}", sentence);
  failures_ = block_.ready() ? 0 : failures_ + 1;
  if (failures_ >= most_failures) {
    log(LogLevel::error,
        "{}: {} starts of its firmware ended before it was ready; it is left without, and its guests see an RNIC that "
        "never comes up. Its console: {}",
        spec_.name, failures_, spec_.console_log);
    return;
  }
  function_.processor_ended();
}

std::string firmware_elf(const std::string& elf) {
  namespace fs = std::filesystem;
  if (!elf.empty()) {
    bridge::require_riscv64_elf(elf);
    return fs::absolute(elf).string();
  }
  constexpr const char* file = "orrery-firmware-riscv64.elf";
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored).parent_path().parent_path();
  const fs::path built = program / "firmware" / "riscv64" / file;
  const fs::path installed = program / "share" / "orrery" / "firmware" / file;
  for (const fs::path& candidate : {built, installed}) {
    if (fs::exists(candidate, ignored)) {
      bridge::require_riscv64_elf(candidate.string());
      return candidate.string();
    }
  }
  throw Error(
      fmt::format("Orrery's firmware for riscv64 is neither at {} nor at {}", built.string(), installed.string()),
      "run ./dev setup firmware, which installs its compiler, and ./dev build; or name another with "
      "rnic.firmware_elf");
}

}  // namespace orrery::cli
