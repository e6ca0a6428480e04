// `orrery fw test`: the firmware's test list, on either target. The tests are programs of their own, beside this one.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/code_coverage.h"
#include "cli/commands.h"
#include "cli/firmware_host.h"
#include "cli/fw_bare_test.h"
#include "cli/fw_command.h"
#include "cli/output.h"
#include "common/error.h"
#include "qemu_bridge/launcher/qemu_program.h"

namespace orrery::cli {

namespace {

struct FwTestOptions {
  std::string target = "riscv64";
  std::string elf;
  std::string filter;
  std::string junit;
  std::string map;
  std::string coverage;
  std::vector<std::string> faults;
  unsigned seconds = 60;
  bool bare = false;
  bool list = false;
};

struct TestFiles {
  std::string program;
  std::string traces;  // of stock drivers' commands; empty: where the program was built to look
};

TestFiles test_files(const std::string& target) {
  namespace files = std::filesystem;
  const std::string program = target == "native" ? "mlx5_test" : "firmware_riscv64_test";
  std::error_code ignored;
  const files::path top = files::read_symlink("/proc/self/exe", ignored).parent_path().parent_path();
  const files::path built = top / "tests" / "systemc_models" / "rnic" / program;
  if (files::exists(built, ignored)) {
    return {built.string(), {}};
  }
  const files::path installed = top / "libexec" / "orrery" / program;
  if (files::exists(installed, ignored)) {
    return {installed.string(), (top / "share" / "orrery" / "firmware" / "traces").string()};
  }
  throw Error(
      fmt::format("the tests of target {} are neither at {} nor at {}", target, built.string(), installed.string()),
      target == "native" ? "build everything: ./dev build"
                         : "run ./dev setup firmware, which installs the compiler for riscv64, and ./dev build");
}

// Runs the tests in a process of their own and then writes the coverage. Its exit status, 128 + the signal that ended
// it.
int test_with_coverage(std::vector<char*>& argv, const std::string& elf, const std::string& tracefile) {
  require_tracefile(tracefile, elf);
  const CodeLogs logs;
  ::setenv("ORRERY_FIRMWARE_CODE_LOGS", logs.path().c_str(), 1);
  // Ctrl-C ends the tests; what they covered until then is written.
  const auto interrupted = std::signal(SIGINT, SIG_IGN);
  posix_spawnattr_t attributes;
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGINT);
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t child = 0;
  const int error = ::posix_spawn(&child, argv[0], nullptr, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    throw Error(fmt::format("{} can't be run: {}", argv[0], std::strerror(error)));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  std::signal(SIGINT, interrupted);
  write_code_coverage(elf, logs.path(), tracefile);
  flush_output();
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int fw_test(const FwTestOptions& options) {
  if (!options.elf.empty() && options.target != "riscv64") {
    throw Error("an ELF file needs a machine", "leave --target out");
  }
  if (options.bare || !options.map.empty()) {
    return fw_bare_test({options.elf, options.map, options.faults, options.junit, options.coverage, options.seconds});
  }
  if (!options.faults.empty()) {
    throw Error("--fault is for programs that test themselves", "give --elf and --map, or --bare");
  }
  if (!options.coverage.empty() && options.target != "riscv64") {
    throw Error("--coverage is of the code for riscv64",
                "leave --target out; the native firmware is part of the program: ./dev build --preset coverage");
  }
  const TestFiles test = test_files(options.target);
  std::vector<std::string> words{test.program, "--gtest_filter=" + (options.filter.empty() ? "Mlx5*" : options.filter)};
  if (options.list) {
    words.emplace_back("--gtest_list_tests");
  }
  if (!options.junit.empty()) {
    words.push_back("--gtest_output=xml:" + std::filesystem::absolute(options.junit).string());
  }
  std::string elf;
  if (options.target == "riscv64") {
    // Told before the first of many tests finds out.
    static_cast<void>(bridge::find_qemu_riscv());
    elf = firmware_elf(options.elf);
    ::setenv("ORRERY_FIRMWARE_ELF", elf.c_str(), 1);
  }
  if (!test.traces.empty()) {
    ::setenv("ORRERY_TRACES", test.traces.c_str(), 1);
  }
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) {
    argv.push_back(word.data());
  }
  argv.push_back(nullptr);
  flush_output();
  if (!options.coverage.empty() && !options.list) {
    return test_with_coverage(argv, elf, options.coverage);
  }
  ::execv(argv[0], argv.data());
  throw Error(fmt::format("{} can't be run: {}", test.program, std::strerror(errno)));
}

}  // namespace

void add_fw_test_command(CLI::App& app) {
  auto options = std::make_shared<FwTestOptions>();
  CLI::App* command = app.add_subcommand(
      "test", "Run the firmware's tests: commands as a driver sends them, stock drivers' logged commands");
  command->add_option("--target", options->target, "riscv64 (default) or native")
      ->check(CLI::IsMember({"riscv64", "native"}));
  command->add_option("--elf", options->elf, "Test this ELF file instead of Orrery's firmware");
  command->add_option("--filter", options->filter, "Only tests whose names match, as in 'Mlx5Umr.*'");
  command->add_option("--junit", options->junit, "Write the results to this file, as JUnit XML");
  command->add_option("--coverage", options->coverage,
                      "Write which lines of the ELF file's source ran to this file, for lcov and genhtml (riscv64)");
  command->add_flag("--list", options->list, "Only list the tests");
  command->add_flag("--bare", options->bare, "The ELF file is a test program: run it once and read its console")
      ->needs("--elf");
  command->add_option("--map", options->map, "… on the register map that this file describes (means --bare)")
      ->needs("--elf");
  command
      ->add_option("--fault", options->faults,
                   "… with a fault: \"read NAME VALUE [COUNT]\", \"write NAME VALUE [COUNT]\", \"dma CHANNEL [COUNT]\" "
                   "(repeatable)")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);
  command->add_option("--timeout", options->seconds, "… for at most so many seconds (default: 60)")
      ->check(CLI::Range(1, 86400));
  command->callback([options] {
    if (const int status = fw_test(*options); status != 0) {
      throw ExitStatus{status};
    }
  });
}

}  // namespace orrery::cli
