#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/file_descriptor.h"
#include "qemu_bridge/launcher/qemu_program.h"
#include "qemu_bridge/launcher/system_text.h"

namespace orrery::bridge {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t image_size = 64 * 1024;  // QEMU takes firmware images in multiples of this
constexpr std::size_t reset_vector = 0xfff0;   // of its last 64 KiB (Intel SDM vol. 3, First Instruction Executed)

// Real mode, from the image's start: (1 + 1)² on the FPU, its low byte to isa-debug-exit's port, halt.
constexpr std::array<unsigned char, 21> probe_code{
    0xdb, 0xe3,              // fninit
    0xd9, 0xe8,              // fld1
    0xd8, 0xc0,              // fadd st0, st0
    0xd8, 0xc8,              // fmul st0, st0
    0xdf, 0x1e, 0x00, 0x05,  // fistp word [0x500]
    0x9b,                    // fwait
    0xa0, 0x00, 0x05,        // mov al, [0x500]
    0xe6, 0xf4,              // out 0xf4, al
    0xf4,                    // hlt
    0xeb, 0xfd,              // jmp to the hlt
};
constexpr std::array<unsigned char, 3> jump_to_start{0xe9, 0x0d, 0x00};
// isa-debug-exit ends QEMU with 2 · value + 1.
constexpr int expected_status = 2 * 4 + 1;

bool write_probe(const fs::path& file) {
  std::string image(image_size, '\xf4');
  std::copy(probe_code.begin(), probe_code.end(), image.begin());
  std::copy(jump_to_start.begin(), jump_to_start.end(), image.begin() + reset_vector);
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out.write(image.data(), static_cast<std::streamsize>(image.size()));
  out.close();
  return out.good();
}

// A line of QEMU's that isn't a warning says more than its exit status.
std::string telling_line(const std::string& output) {
  const std::vector<std::string> lines = last_lines(output, 1000);
  for (const std::string& line : lines) {
    if (line.find("warning:") == std::string::npos) {
      return ": " + line;
    }
  }
  return {};
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

std::int64_t changed_at(const std::string& program) {
  std::error_code failed;
  const auto time = fs::last_write_time(program, failed);
  return failed ? 0 : static_cast<std::int64_t>(time.time_since_epoch().count());
}

std::optional<KvmVerdict> remembered(const fs::path& file, const nlohmann::json& key) {
  std::ifstream stream(file);
  const nlohmann::json json = nlohmann::json::parse(stream, nullptr, false);
  if (!json.is_object() || !json.contains("key") || json["key"] != key || !json.contains("works") ||
      !json["works"].is_boolean() || !json.contains("reason") || !json["reason"].is_string()) {
    return std::nullopt;
  }
  return KvmVerdict{json["works"].get<bool>(), json["reason"].get<std::string>()};
}

}  // namespace

KvmVerdict probe_accelerator(const QemuInstallation& qemu, const std::string& accelerator, const fs::path& scratch,
                             std::chrono::milliseconds time_limit) {
  const fs::path image = scratch / fmt::format("probe-{}.bin", ::getpid());
  if (!write_probe(image)) {
    std::error_code ignored;
    fs::remove(image, ignored);
    return {false, fmt::format("the probe {} can't be written", image.string())};
  }
  std::vector<std::string> arguments;
  if (!qemu.data_directory.empty()) {
    arguments = {"-L", qemu.data_directory};
  }
  const std::vector<std::string> more{"-accel",      accelerator,
                                      "-machine",    "pc",
                                      "-m",          "2",
                                      "-display",    "none",
                                      "-device",     "isa-debug-exit,iobase=0xf4,iosize=4",
                                      "-bios",       image.string(),
                                      "-nodefaults", "-no-user-config",
                                      "-no-reboot"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  KvmVerdict verdict;
  try {
    const RunResult result = run_program(qemu.program, arguments, time_limit);
    if (result.timed_out) {
      verdict.reason = fmt::format("a guest under {} did not get through {} instructions in {} ms{}", accelerator, 10,
                                   time_limit.count(), telling_line(result.output));
    } else if (result.status != expected_status) {
      verdict.reason = fmt::format("a guest under {} doesn't run{}", accelerator, telling_line(result.output));
    } else {
      verdict.works = true;
    }
  } catch (const Error& error) {
    verdict.reason = error.what();
  }
  std::error_code ignored;
  fs::remove(image, ignored);
  return verdict;
}

KvmVerdict kvm_verdict(const QemuInstallation& qemu, const fs::path& base) {
  {
    const FileDescriptor device(::open("/dev/kvm", O_RDWR | O_CLOEXEC));
    if (!device) {
      return {false, fmt::format("/dev/kvm can't be opened: {}", system_text(errno))};
    }
  }
  const nlohmann::json key = {{"boot", boot_id()}, {"qemu", qemu.program}, {"changed", changed_at(qemu.program)}};
  const fs::path memory = base / "kvm-probe.json";
  std::error_code ignored;
  if (!fs::is_directory(base, ignored)) {
    return probe_accelerator(qemu, "kvm", fs::temp_directory_path(ignored));
  }
  if (auto verdict = remembered(memory, key)) {
    return *verdict;
  }
  KvmVerdict verdict = probe_accelerator(qemu, "kvm", base);
  // Two probes at once both write the same; a reader of a half-written file probes again.
  std::ofstream out(memory, std::ios::trunc);
  using handler = nlohmann::json::error_handler_t;
  out << nlohmann::json{{"key", key}, {"works", verdict.works}, {"reason", verdict.reason}}.dump(2, ' ', false,
                                                                                                 handler::replace);
  return verdict;
}

}  // namespace orrery::bridge
