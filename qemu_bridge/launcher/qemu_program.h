// Finding a QEMU that serves, and asking whether KVM does.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "qemu_bridge/launcher/guest_spec.h"

namespace orrery::bridge {

struct QemuVersion {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned micro = 0;
  auto operator<=>(const QemuVersion&) const = default;
  [[nodiscard]] std::string text() const;
};

// The first QEMU with the vfio-user-pci device.
inline constexpr QemuVersion least_qemu_version{10, 1, 0};

// The environment that discovery looks at; a test gives its own.
struct DiscoveryEnvironment {
  std::string orrery_qemu;                       // ORRERY_QEMU: a program; empty: not set
  std::string orrery_qemu_riscv;                 // ORRERY_QEMU_RISCV, likewise
  std::string path;                              // PATH
  std::filesystem::path cache;                   // see cache_directory()
  std::chrono::milliseconds time_limit{20'000};  // for a program that is asked for its version
  [[nodiscard]] static DiscoveryEnvironment of_process();
};

// ${ORRERY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/orrery}, where ./dev setup puts QEMU, kernels, images.
[[nodiscard]] std::filesystem::path cache_directory();

// ORRERY_QEMU if set; else qemu-system-x86_64 on PATH if it is new enough; else the cache's. Fills in
// what lies beside it (firmware, virtiofsd): the cache's where the cache has it, else the system's.
// Throws Error that names the version found, the version needed and `./dev setup`.
[[nodiscard]] QemuInstallation find_qemu(const DiscoveryEnvironment& environment = DiscoveryEnvironment::of_process());

// The same for qemu-system-riscv64 (ORRERY_QEMU_RISCV), which needs nothing beside it.
[[nodiscard]] std::string find_qemu_riscv(const DiscoveryEnvironment& environment = DiscoveryEnvironment::of_process());

// Runs `program --version`; nothing, and the reason in `why_not`, if it can't be run, says something else, or doesn't
// end in time. Throws Error only when the user has interrupted it.
[[nodiscard]] std::optional<QemuVersion> qemu_version(const std::string& program, std::chrono::milliseconds time_limit,
                                                      std::string* why_not = nullptr);

struct RunResult {
  std::optional<int> status;  // exit status; nothing: killed by a signal, or by the time limit
  bool timed_out = false;
  std::string output;  // the end of stdout and stderr
};

// Runs a program to its end or the time limit. Blocks. Throws Error if it can't be started.
[[nodiscard]] RunResult run_program(const std::string& program, const std::vector<std::string>& arguments,
                                    std::chrono::milliseconds time_limit);

struct KvmVerdict {
  bool works = false;
  std::string reason;  // why not: "/dev/kvm can't be opened: Permission denied"
};

// Whether a guest really runs under an accelerator: a guest of 21 bytes computes on the FPU and ends QEMU
// with the result. (A /dev/kvm that only emulates instructions opens, and even runs firmware, but has no
// FPU instruction; a broken nested one hangs.) `accelerator` is "kvm"; a test also probes "tcg".
// `scratch` is a directory to put the guest's 64 KiB into.
[[nodiscard]] KvmVerdict probe_accelerator(const QemuInstallation& qemu, const std::string& accelerator,
                                           const std::filesystem::path& scratch,
                                           std::chrono::milliseconds time_limit = std::chrono::seconds(3));

// The verdict on KVM, remembered in `base` (RunDirectory::default_base()) until the machine boots again
// or another QEMU is used. Never throws: what goes wrong is a reason.
[[nodiscard]] KvmVerdict kvm_verdict(const QemuInstallation& qemu, const std::filesystem::path& base);

}  // namespace orrery::bridge
