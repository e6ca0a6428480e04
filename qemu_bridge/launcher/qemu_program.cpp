#include "qemu_bridge/launcher/qemu_program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdlib>
#include <sstream>
#include <tuple>

#include "common/error.h"
#include "common/stop_signals.h"
#include "common/text.h"
#include "qemu_bridge/launcher/child_process.h"
#include "qemu_bridge/launcher/system_text.h"

namespace orrery::bridge {

namespace fs = std::filesystem;

namespace {

constexpr const char* program_name = "qemu-system-x86_64";

// A QEMU of one target: how it is called, who else may name it, where set-up puts it.
struct Target {
  const char* program;
  const char* variable;
  const char* folder;  // of the cache
  const char* setup;   // command that fetches it
};
constexpr Target x86{program_name, "ORRERY_QEMU", "qemu", "./dev setup"};
constexpr Target riscv{"qemu-system-riscv64", "ORRERY_QEMU_RISCV", "qemu-riscv", "./dev setup firmware"};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

bool is_program(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0;
}

std::string first_existing(const std::vector<fs::path>& candidates) {
  std::error_code ignored;
  for (const fs::path& candidate : candidates) {
    if (fs::exists(candidate, ignored)) {
      return candidate.string();
    }
  }
  return {};
}

// What guests need beside the program. Firmware images are data: the cache's serve any QEMU.
QemuInstallation complete(const std::string& program, const fs::path& cache) {
  QemuInstallation qemu;
  qemu.program = program;
  const fs::path own = cache / "qemu";
  std::error_code ignored;
  // Firmware of the cache belongs to the QEMU of the cache; another QEMU brings its own.
  if (fs::equivalent(program, own / "bin" / program_name, ignored) && fs::is_directory(own / "share", ignored)) {
    qemu.data_directory = (own / "share").string();
  }
  qemu.virtiofsd = first_existing({own / "bin/virtiofsd", "/usr/libexec/virtiofsd"});
  qemu.ovmf_code = first_existing({own / "ovmf/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_CODE_4M.fd"});
  qemu.ovmf_vars = first_existing({own / "ovmf/OVMF_VARS_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"});
  return qemu;
}

// The first line of a program's output, for a message.
std::string printable_line(const std::string& output) {
  const std::string line = output.substr(0, output.find('\n'));
  return line.empty() ? "(nothing)" : orrery::printable(line);
}

// Throws unless it is a QEMU that is new enough.
void require_new_enough(const std::string& program, const Target& target, std::string_view named_by,
                        std::chrono::milliseconds limit) {
  std::string why;
  const std::optional<QemuVersion> version = qemu_version(program, limit, &why);
  if (!version) {
    throw Error(fmt::format("{} ({}) doesn't say a QEMU version: {}", program, named_by, why),
                fmt::format("name a {} of version {} or newer, or run {}", target.program, least_qemu_version.text(),
                            target.setup));
  }
  if (*version < least_qemu_version) {
    throw Error(fmt::format("{} ({}) is QEMU {}; {} or newer is needed for its vfio-user-pci device", program, named_by,
                            version->text(), least_qemu_version.text()),
                fmt::format("run {}, which fetches one", target.setup));
  }
}

// What the variable names; else one on PATH if it is new enough; else the cache's. Throws Error.
std::string find_program(const Target& target, const std::string& named, const DiscoveryEnvironment& environment) {
  if (!named.empty()) {
    if (!is_program(named)) {
      throw Error(fmt::format("{} names {}, which is not a program", target.variable, named),
                  fmt::format("name a {}, or unset {}", target.program, target.variable));
    }
    require_new_enough(named, target, fmt::format("named by {}", target.variable), environment.time_limit);
    return named;
  }
  // One on PATH that is too old is no error as long as the cache has a newer.
  std::string too_old;
  std::istringstream path(environment.path);
  for (std::string directory; std::getline(path, directory, ':');) {
    const fs::path program = fs::path(directory) / target.program;
    if (directory.empty() || !is_program(program)) {
      continue;
    }
    const std::optional<QemuVersion> version = qemu_version(program.string(), environment.time_limit);
    if (version && *version >= least_qemu_version) {
      return program.string();
    }
    if (too_old.empty()) {
      too_old = fmt::format("{} is {}", program.string(),
                            version ? "QEMU " + version->text() : "no QEMU that says its version");
    }
  }
  const fs::path cached = environment.cache / target.folder / "bin" / target.program;
  if (is_program(cached)) {
    require_new_enough(cached.string(), target, "fetched by set-up", environment.time_limit);
    return cached.string();
  }
  throw Error(too_old.empty() ? fmt::format("no {} on PATH and none in {}", target.program, cached.string())
                              : fmt::format("{}; {} or newer is needed, and there is none in {}", too_old,
                                            least_qemu_version.text(), cached.string()),
              fmt::format("run {}, which fetches one, or set {}", target.setup, target.variable));
}

}  // namespace

std::string QemuVersion::text() const {
  return fmt::format("{}.{}.{}", major, minor, micro);
}

fs::path cache_directory() {
  if (const std::string cache = variable("ORRERY_CACHE"); !cache.empty()) {
    return cache;
  }
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty()) {
    return fs::path(cache) / "orrery";
  }
  const std::string home = variable("HOME");
  // HOME may be unset in a bare container; set-up uses root's then.
  return fs::path(home.empty() ? "/root" : home) / ".cache/orrery";
}

DiscoveryEnvironment DiscoveryEnvironment::of_process() {
  DiscoveryEnvironment environment;
  environment.orrery_qemu = variable("ORRERY_QEMU");
  environment.orrery_qemu_riscv = variable("ORRERY_QEMU_RISCV");
  environment.path = variable("PATH");
  environment.cache = cache_directory();
  return environment;
}

RunResult run_program(const std::string& program, const std::vector<std::string>& arguments,
                      std::chrono::milliseconds time_limit) {
  boost::asio::io_context io;
  RunResult result;
  boost::asio::steady_timer limit(io, time_limit);
  ChildOptions options;
  options.program = program;
  options.arguments = arguments;
  ChildProcess child(io, options, [&](const ChildExit& exit) {
    limit.cancel();
    if (exit.signal == 0 && !result.timed_out) {
      result.status = exit.status;
    }
  });
  limit.async_wait([&](const boost::system::error_code& cancelled) {
    if (!cancelled) {
      result.timed_out = true;
      child.kill();
    }
  });
  // In short turns: Ctrl-C must not wait for a program that hangs.
  while (!io.stopped()) {
    io.run_for(std::chrono::milliseconds(100));
    throw_if_stopped();
  }
  result.output = child.output_tail();
  return result;
}

std::optional<QemuVersion> qemu_version(const std::string& program, std::chrono::milliseconds time_limit,
                                        std::string* why_not) {
  std::string ignored;
  std::string& why = why_not == nullptr ? ignored : *why_not;
  RunResult result;
  try {
    result = run_program(program, {"--version"}, time_limit);
  } catch (const Error& error) {
    throw_if_stopped();
    why = error.what();
    return std::nullopt;
  }
  constexpr std::string_view before = "QEMU emulator version ";
  const auto at = result.output.find(before);
  if (result.timed_out) {
    why = fmt::format("`{} --version` doesn't end within {} s", program, time_limit.count() / 1000);
  } else if (result.status != 0) {
    why = fmt::format("`{} --version` fails: {}", program, printable_line(result.output));
  } else if (at == std::string::npos) {
    why = fmt::format("`{} --version` prints: {}", program, printable_line(result.output));
  } else {
    QemuVersion version;
    char dot1 = 0;
    char dot2 = 0;
    std::istringstream text(result.output.substr(at + before.size()));
    if ((text >> version.major >> dot1 >> version.minor >> dot2 >> version.micro) && dot1 == '.' && dot2 == '.') {
      return version;
    }
    why = fmt::format("`{} --version` prints: {}", program, printable_line(result.output));
  }
  return std::nullopt;
}

QemuInstallation find_qemu(const DiscoveryEnvironment& environment) {
  return complete(find_program(x86, environment.orrery_qemu, environment), environment.cache);
}

std::string find_qemu_riscv(const DiscoveryEnvironment& environment) {
  return find_program(riscv, environment.orrery_qemu_riscv, environment);
}

}  // namespace orrery::bridge
