#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <fstream>

#include "common/error.h"
#include "qemu_bridge/launcher/child_process.h"
#include "qemu_bridge/launcher/guest_console.h"
#include "qemu_bridge/launcher/guest_files.h"
#include "qemu_bridge/launcher/qemu_program.h"
#include "qemu_bridge/launcher/system_text.h"

namespace orrery::bridge::process_test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what() + std::string(" | ") + error.remedy();
  }
  return "no error";
}

class Scratch : public ::testing::Test {
 protected:
  Scratch() : directory(fs::temp_directory_path() / ("lt-" + std::to_string(::getpid()))) {
    fs::remove_all(directory);
    fs::create_directories(directory);
  }
  ~Scratch() override { fs::remove_all(directory); }
  std::string put(const std::string& name, const std::string& content, bool program = false) {
    const fs::path path = directory / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
    if (program) {
      fs::permissions(path, fs::perms::owner_all);
    }
    return path.string();
  }
  fs::path directory;
  boost::asio::io_context io;
};

// ---- ChildProcess

class ChildTest : public Scratch {
 protected:
  std::unique_ptr<ChildProcess> sh(const std::string& script, std::size_t tail = 16384) {
    ChildOptions options;
    options.program = "/bin/sh";
    options.arguments = {"-c", script};
    options.environment = {{"ORRERY_TEST", "yes"}};
    options.output_tail_bytes = tail;
    return std::make_unique<ChildProcess>(io, options, [this](const ChildExit& e) { exits.push_back(e); });
  }
  std::vector<ChildExit> exits;
};

TEST_F(ChildTest, ReportsStatusAndOutputOnce) {
  const auto child = sh("echo out; echo err >&2; echo $ORRERY_TEST; exit 3");
  io.run();
  ASSERT_EQ(exits.size(), 1U);
  EXPECT_EQ(exits[0].status, 3);
  EXPECT_EQ(exits[0].sentence(), "ended with exit status 3");
  EXPECT_EQ(child->output_tail(), "out\nerr\nyes\n");
}

TEST_F(ChildTest, ReportsASignal) {
  const auto child = sh("kill -SEGV $$");
  io.run();
  ASSERT_EQ(exits.size(), 1U);
  EXPECT_EQ(exits[0].sentence(), "was killed by signal 11 (Segmentation fault)");
}

TEST_F(ChildTest, KeepsOnlyTheEndOfEndlessOutput) {
  const auto child = sh("yes | head -c 1000000; printf end", 100);
  io.run();
  EXPECT_EQ(child->output_tail().size(), 100U);
  EXPECT_EQ(child->output_tail().substr(97), "end");
}

TEST_F(ChildTest, HasItsOwnGroupAPrivateUmaskAndNoDescriptorOfOurs) {
  // Not close-on-exec, at a number that a shell wouldn't use.
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::dup2(null, 100), 100);
  const auto child =
      sh("umask; cut -d' ' -f5 /proc/$$/stat; [ -e /proc/$$/fd/100 ] && echo leaked; readlink /proc/$$/fd/0");
  io.run();
  ::close(100);
  ::close(null);
  EXPECT_EQ(child->output_tail(), "0077\n" + std::to_string(child->pid()) + "\n/dev/null\n");
}

TEST_F(ChildTest, ProgramThatIsNotThereIsNamed) {
  ChildOptions options;
  options.program = "/nonexistent/qemu";
  EXPECT_THAT(error_of([&] { ChildProcess child(io, options); }),
              HasSubstr("/nonexistent/qemu can't be started: No such file"));
  options.program = put("not-a-program", "text");
  EXPECT_THAT(error_of([&] { ChildProcess child(io, options); }), HasSubstr("Permission denied"));
}

TEST_F(ChildTest, DestructorKillsAndReaps) {
  auto child = sh("sleep 1000");
  const int pid = child->pid();
  EXPECT_EQ(process_start_time(pid), child->start_time());
  child.reset();
  EXPECT_EQ(process_start_time(pid), std::nullopt);
  io.run_for(50ms);
  EXPECT_TRUE(exits.empty());
}

TEST_F(ChildTest, TerminateKillsWhatIgnoresIt) {
  const auto child = sh("trap '' TERM; while :; do sleep 0.05; done");
  io.run_for(100ms);
  child->terminate(100ms);
  io.run();
  ASSERT_EQ(exits.size(), 1U);
  EXPECT_EQ(exits[0].signal, SIGKILL);
  child->kill();  // nothing happens any more
}

TEST_F(ChildTest, AGrandchildThatKeepsTheOutputOpenDelaysNothing) {
  const auto start = std::chrono::steady_clock::now();
  const auto child = sh("sleep 5 & echo started");
  io.run_until(start + 4s);
  EXPECT_EQ(exits.size(), 1U);
  EXPECT_EQ(child->output_tail(), "started\n");
}

TEST_F(ChildTest, ADeadStarterTakesItsChildAlong) {
  const std::string pid_file = (directory / "pid").string();
  const pid_t starter = ::fork();
  if (starter == 0) {
    boost::asio::io_context own;
    ChildOptions options;
    options.program = "/bin/sh";
    options.arguments = {"-c", "echo $$ >" + pid_file + "; mv " + pid_file + " " + pid_file + ".ok; exec sleep 1000"};
    const ChildProcess child(own, options);
    own.run();
    ::_exit(0);
  }
  while (!fs::exists(pid_file + ".ok")) {
    ::usleep(1000);
  }
  int pid = 0;
  std::ifstream(pid_file + ".ok") >> pid;
  ::kill(starter, SIGKILL);
  ::waitpid(starter, nullptr, 0);
  // Dead, though perhaps not yet reaped by the process that inherits it.
  const auto state = [&] {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string number, name, letter;
    file >> number >> name >> letter;
    return letter;
  };
  for (int i = 0; i < 2000 && !state().empty() && state() != "Z"; ++i) {
    ::usleep(1000);
  }
  EXPECT_THAT(state(), ::testing::AnyOf("", "Z"));
}

// ---- Text from outside

TEST(Printable, TakesOutWhatDrivesATerminal) {
  EXPECT_EQ(printable("a\x1b[31mb\x1b[0mc\r\n\td\x01\x7f"), "abc\n\td??");
  EXPECT_EQ(printable("x\x1b]0;title\ay\x1b]0;t\x1b\\z"), "xyz");
  EXPECT_EQ(printable("end\x1b"), "end");
  EXPECT_EQ(printable("end\x1b[12"), "end");
  EXPECT_EQ(printable("\x1b(Bok"), "ok");
}

TEST(LastLines, SkipsBlankOnesAndKeepsOrder) {
  EXPECT_THAT(last_lines("a\n\nb\n  \nc", 2), ElementsAre("b", "c"));
  EXPECT_THAT(last_lines("a\nb\n", 5), ElementsAre("a", "b"));
  EXPECT_TRUE(last_lines("", 5).empty());
  EXPECT_TRUE(last_lines("\n\n", 5).empty());
}

// ---- GuestConsole

class ConsoleTest : public Scratch {
 protected:
  ConsoleTest() : log((directory / "console").string()), console(io, log) {}
  void write(const std::string& text) { std::ofstream(log, std::ios::app | std::ios::binary) << text; }
  ConsoleResult wait(std::chrono::milliseconds limit = 3s) {
    std::optional<ConsoleResult> result;
    console.wait_for({guest_ready_marker, login_marker}, limit, [&](const ConsoleResult& r) { result = r; });
    io.restart();
    io.run();
    return result.value();
  }
  std::string log;
  GuestConsole console;
};

TEST_F(ConsoleTest, FindsAMarkerThatCameBefore) {
  write("boot\norrery-guest: ready\nmore\n");
  const ConsoleResult result = wait();
  EXPECT_EQ(result.kind, ConsoleResult::Kind::marker);
  EXPECT_EQ(result.text, guest_ready_marker);
}

TEST_F(ConsoleTest, FindsAMarkerWrittenInPiecesWithoutALineEnd) {
  std::optional<ConsoleResult> result;
  console.wait_for({login_marker}, 5s, [&](const ConsoleResult& r) { result = r; });
  for (const char* piece : {"debian lo", "g\x1b[0mi", "n:"}) {
    io.run_for(50ms);
    EXPECT_FALSE(result);
    write(piece);
  }
  io.run();
  ASSERT_TRUE(result);
  EXPECT_EQ(result->text, login_marker);
}

TEST_F(ConsoleTest, SeesAPanicEarly) {
  write(
      "[    1.0] Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)\r\n[ 1.1] CPU: 0\r\n");
  const ConsoleResult result = wait(60s);
  EXPECT_EQ(result.kind, ConsoleResult::Kind::panic);
  EXPECT_THAT(console.excerpt(20), ::testing::AllOf(HasSubstr("unknown-block(0,0)"), HasSubstr("\n  [ 1.1] CPU: 0")));
}

TEST_F(ConsoleTest, TimesOutOnAFileThatNeverComes) {
  EXPECT_EQ(wait(60ms).kind, ConsoleResult::Kind::timed_out);
  EXPECT_THAT(console.excerpt(), HasSubstr("is empty"));
}

TEST_F(ConsoleTest, AMarkerIsFoundInsideALineOfAnyLength) {
  write(std::string(5000, 'x') + std::string(100'000, 'y') + "login:" + std::string(5000, 'z'));
  EXPECT_EQ(wait().kind, ConsoleResult::Kind::marker);
  EXPECT_LE(console.last_lines(1).at(0).size(), 65536U);
}

TEST_F(ConsoleTest, LastLinesFollowTheFile) {
  write("one\n");
  EXPECT_THAT(console.last_lines(9), ElementsAre("one"));
  write("t\x1b[31mwo\n");
  EXPECT_THAT(console.last_lines(9), ElementsAre("one", "two"));
}

TEST_F(ConsoleTest, ACancelledWaitCallsNothing) {
  bool called = false;
  console.wait_for({"x"}, 50ms, [&](const ConsoleResult&) { called = true; });
  console.cancel_wait();
  io.run_for(120ms);
  EXPECT_FALSE(called);
}

// ---- Finding QEMU

class FindQemu : public Scratch {
 protected:
  std::string fake(const std::string& name, const std::string& version) {
    return put(name, "#!/bin/sh\necho 'QEMU emulator version " + version + " (Debian 1:" + version + "+ds)'\n", true);
  }
  DiscoveryEnvironment environment() {
    DiscoveryEnvironment e;
    e.path = (directory / "path").string();
    e.cache = directory / "cache";
    e.time_limit = 2s;
    return e;
  }
};

TEST_F(FindQemu, TheVariableComesFirstThenPathThenTheCache) {
  const std::string cached = fake("cache/qemu/bin/qemu-system-x86_64", "11.1.3");
  put("cache/qemu/share/bios.bin", "x");
  EXPECT_EQ(find_qemu(environment()).program, cached);
  EXPECT_EQ(find_qemu(environment()).data_directory, (directory / "cache/qemu/share").string());
  const std::string on_path = fake("path/qemu-system-x86_64", "10.1.0");
  EXPECT_EQ(find_qemu(environment()).program, on_path);
  EXPECT_EQ(find_qemu(environment()).data_directory, "");
  DiscoveryEnvironment named = environment();
  named.orrery_qemu = fake("own", "10.2.1");
  EXPECT_EQ(find_qemu(named).program, named.orrery_qemu);
}

TEST_F(FindQemu, OneOnPathThatIsTooOldGivesWayToTheCaches) {
  fake("path/qemu-system-x86_64", "7.2.15");
  const std::string cached = fake("cache/qemu/bin/qemu-system-x86_64", "11.1.3");
  EXPECT_EQ(find_qemu(environment()).program, cached);
}

TEST_F(FindQemu, TooOldNamesBothVersionsAndTheSetUp) {
  fake("path/qemu-system-x86_64", "10.0.9");
  EXPECT_THAT(error_of([&] { static_cast<void>(find_qemu(environment())); }),
              ::testing::AllOf(HasSubstr("QEMU 10.0.9"), HasSubstr("10.1.0 or newer"), HasSubstr("./dev setup")));
  DiscoveryEnvironment named = environment();
  named.orrery_qemu = fake("own", "9.2.0");
  EXPECT_THAT(error_of([&] { static_cast<void>(find_qemu(named)); }),
              ::testing::AllOf(HasSubstr("ORRERY_QEMU"), HasSubstr("9.2.0")));
}

TEST_F(FindQemu, NoneAtAllNamesTheSetUp) {
  EXPECT_THAT(error_of([&] { static_cast<void>(find_qemu(environment())); }),
              ::testing::AllOf(HasSubstr("on PATH"), HasSubstr("./dev setup")));
}

TEST_F(FindQemu, TheOneForRiscVHasPlacesOfItsOwn) {
  fake("path/qemu-system-x86_64", "11.1.3");
  EXPECT_THAT(error_of([&] { static_cast<void>(find_qemu_riscv(environment())); }),
              ::testing::AllOf(HasSubstr("qemu-system-riscv64"), HasSubstr("./dev setup firmware"),
                               HasSubstr("ORRERY_QEMU_RISCV")));
  const std::string cached = fake("cache/qemu-riscv/bin/qemu-system-riscv64", "11.1.3");
  EXPECT_EQ(find_qemu_riscv(environment()), cached);
  fake("path/qemu-system-riscv64", "9.2.0");
  EXPECT_EQ(find_qemu_riscv(environment()), cached);
  const std::string on_path = fake("path/qemu-system-riscv64", "10.1.0");
  EXPECT_EQ(find_qemu_riscv(environment()), on_path);
  DiscoveryEnvironment named = environment();
  named.orrery_qemu_riscv = fake("own", "10.0.0");
  EXPECT_THAT(error_of([&] { static_cast<void>(find_qemu_riscv(named)); }), HasSubstr("named by ORRERY_QEMU_RISCV"));
}

TEST_F(FindQemu, WhatIsNoQemuIsRefused) {
  DiscoveryEnvironment e = environment();
  for (const char* script :
       {"exit 0", "echo QEMU emulator version eleven", "echo QEMU emulator version 11.1.3; exit 1"}) {
    e.orrery_qemu = put("own", std::string("#!/bin/sh\n") + script + "\n", true);
    EXPECT_THAT(error_of([&] { static_cast<void>(find_qemu(e)); }), HasSubstr("doesn't say a QEMU version: `"))
        << script;
  }
  e.orrery_qemu = put("own", "#!/bin/sh\nexec sleep 100\n", true);
  e.time_limit = 100ms;
  EXPECT_THAT(error_of([&] { static_cast<void>(find_qemu(e)); }), HasSubstr("doesn't say a QEMU version"));
  e.orrery_qemu = (directory / "nothing").string();
  EXPECT_THAT(error_of([&] { static_cast<void>(find_qemu(e)); }), HasSubstr("not a program"));
}

TEST_F(FindQemu, AProbeThatHangsIsBoundedAndSaysSo) {
  QemuInstallation qemu;
  qemu.program = put("hang", "#!/bin/sh\necho 'warning: x' >&2; echo 'KVM internal error' >&2; exec sleep 100\n", true);
  const KvmVerdict verdict = probe_accelerator(qemu, "kvm", directory, 200ms);
  EXPECT_FALSE(verdict.works);
  EXPECT_THAT(verdict.reason, ::testing::AllOf(HasSubstr("200 ms"), HasSubstr("KVM internal error")));
  qemu.program = put("refuses", "#!/bin/sh\necho 'Could not access KVM kernel module' >&2; exit 1\n", true);
  EXPECT_THAT(probe_accelerator(qemu, "kvm", directory, 2s).reason, HasSubstr("Could not access KVM"));
  qemu.program = put("right", "#!/bin/sh\nexit 9\n", true);
  EXPECT_TRUE(probe_accelerator(qemu, "kvm", directory, 2s).works);
  EXPECT_THAT(probe_accelerator(qemu, "kvm", directory / "nowhere", 2s).reason, HasSubstr("can't be written"));
}

// ---- Files

class FilesTest : public Scratch {};

TEST_F(FilesTest, FormatComesFromTheHeaderNeverFromTheName) {
  using namespace std::string_literals;
  EXPECT_EQ(probe_disk_format(put("a.raw", "QFI\xfb\0\0\0\3"s + std::string(504, '\0'))), "qcow2");
  EXPECT_EQ(probe_disk_format(put("b.qcow2", std::string(1024, '\0'))), "raw");
  EXPECT_EQ(probe_disk_format(put("c", "QFI\xfb\0\0\0\1"s)), "qcow");
  EXPECT_EQ(probe_disk_format(put("d", "KDMV"s + std::string(508, '\0'))), "vmdk");
  EXPECT_EQ(probe_disk_format(put("e", std::string(64, 'x') + "\x7f\x10\xda\xbe"s)), "vdi");
  EXPECT_EQ(probe_disk_format(put("f", "vhdxfile")), "vhdx");
  EXPECT_EQ(probe_disk_format(put("g", "QF")), "raw");
}

TEST_F(FilesTest, ImagesThatCannotBootAreRefused) {
  EXPECT_THAT(error_of([&] { static_cast<void>(probe_disk_format(put("z.img", "\x1f\x8b...."))); }), HasSubstr("gzip"));
  EXPECT_THAT(error_of([&] { static_cast<void>(probe_disk_format(put("empty", ""))); }), HasSubstr("empty"));
  EXPECT_THAT(error_of([&] { static_cast<void>(probe_disk_format(directory.string())); }), HasSubstr("directory"));
  EXPECT_THAT(error_of([&] { static_cast<void>(probe_disk_format("/nonexistent.img")); }),
              HasSubstr("/nonexistent.img"));
}

TEST_F(FilesTest, InitrdsAreJoinedOnFourByteBoundaries) {
  const std::string joined = (directory / "joined").string();
  join_initrds({put("a", "12345"), put("b", "6789"), put("c", "x")}, joined);
  std::ifstream in(joined, std::ios::binary);
  const std::string content((std::istreambuf_iterator<char>(in)), {});
  EXPECT_EQ(content, std::string("12345\0\0\0"
                                 "6789"
                                 "x\0\0\0",
                                 16));
}

TEST_F(FilesTest, AJoinThatFailsNamesTheFileAndLeavesNothing) {
  const std::string joined = (directory / "joined").string();
  EXPECT_THAT(error_of([&] { join_initrds({put("a", "1"), "/nonexistent"}, joined); }), HasSubstr("/nonexistent"));
  EXPECT_FALSE(fs::exists(joined));
  EXPECT_THAT(error_of([&] { join_initrds({put("a", "1")}, "/nonexistent/joined"); }),
              HasSubstr("/nonexistent/joined"));
}

TEST_F(FilesTest, AFullDiskIsSaidWithItsRemedy) {
  EXPECT_THAT(error_of([&] { copy_private(put("a", "1"), "/dev/full"); }),
              ::testing::AllOf(HasSubstr("/dev/full can't be written: No space left"), HasSubstr("free some space")));
}

TEST_F(FilesTest, APortInUseIsSaid) {
  const std::uint16_t port = find_free_loopback_port();
  EXPECT_NE(port, 0);
  require_free_loopback_port(port);
  const int taken = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  ASSERT_EQ(::bind(taken, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_THAT(error_of([&] { require_free_loopback_port(port); }), HasSubstr("port " + std::to_string(port)));
  ::close(taken);
}

// As much of a bzImage as tells one: Linux's Documentation/arch/x86/boot.rst, "HdrS" at 0x202.
std::string bzimage_head() {
  std::string head(0x1000, '\0');
  head.replace(0x202, 4, "HdrS");
  return head;
}

TEST_F(FilesTest, AssetsComeFromTheCacheOrAPath) {
  const GuestAssets assets(directory);
  const std::string kernel = put("kernels/6.1-cloud/vmlinuz", bzimage_head());
  put("kernels/6.1-cloud/release", "6.1.0-99-cloud-amd64\n");
  put("kernels/half/config", "x");
  const std::string initrd = put("images/6.1-cloud/initrd", "x");
  const std::string disk = put("images/disk/root.qcow2", "x");
  EXPECT_EQ(assets.kernel("6.1-cloud"), kernel);
  EXPECT_EQ(assets.initrd("6.1-cloud"), initrd);
  EXPECT_EQ(assets.disk("root"), disk);
  EXPECT_EQ(assets.release("6.1-cloud"), "6.1.0-99-cloud-amd64");
  EXPECT_THAT(assets.kernels(), ElementsAre("6.1-cloud"));
  EXPECT_EQ(assets.kernel(kernel), kernel);
}

TEST_F(FilesTest, MissingAssetsNameThePathAndTheCommand) {
  const GuestAssets assets(directory);
  put("kernels/6.1-cloud/vmlinuz", "x");
  EXPECT_THAT(
      error_of([&] { static_cast<void>(assets.kernel("7.3-cloud")); }),
      ::testing::AllOf(HasSubstr("kernels/7.3-cloud/vmlinuz"), HasSubstr("6.1-cloud"), HasSubstr("./dev setup")));
  EXPECT_THAT(error_of([&] { static_cast<void>(assets.initrd("6.1-cloud")); }), HasSubstr("images/6.1-cloud/initrd"));
  EXPECT_THAT(error_of([&] { static_cast<void>(assets.initrd("/boot/vmlinuz")); }), HasSubstr("--initrd"));
  EXPECT_THAT(error_of([&] { static_cast<void>(assets.disk("root")); }), HasSubstr("images/disk/root.qcow2"));
  EXPECT_THAT(error_of([&] { static_cast<void>(assets.kernel("/nonexistent/bzImage")); }),
              HasSubstr("/nonexistent/bzImage"));
  EXPECT_THAT(error_of([&] { static_cast<void>(assets.kernel("")); }), HasSubstr("guest kernel ''"));
}

TEST_F(FilesTest, WhatIsNoKernelIsSaidBeforeQemuIsAsked) {
  const GuestAssets assets(directory);
  const auto error = [&](const std::string& path) { return error_of([&] { static_cast<void>(assets.kernel(path)); }); };
  EXPECT_THAT(error(put("empty", "")), HasSubstr("empty is empty | give a Linux kernel"));
  EXPECT_THAT(error(put("short", "HdrS")), HasSubstr("short is neither a bzImage nor an ELF file"));
  EXPECT_THAT(error(put("text", std::string(4096, 'x'))), HasSubstr("neither a bzImage nor an ELF file"));
  EXPECT_THAT(error(directory.string()), HasSubstr("is a directory, not a file"));
  const std::string elf = put("vmlinux",
                              "\x7f"
                              "ELF and so on");
  EXPECT_EQ(assets.kernel(elf), elf);
}

}  // namespace
}  // namespace orrery::bridge::process_test
