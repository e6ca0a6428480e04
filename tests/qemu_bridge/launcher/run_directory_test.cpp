#include "qemu_bridge/launcher/run_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "common/error.h"
#include "qemu_bridge/launcher/child_process.h"

namespace orrery::bridge::run_directory_test {
namespace {

namespace fs = std::filesystem;
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

class RunDirectoryTest : public ::testing::Test {
 protected:
  RunDirectoryTest() : base(fs::temp_directory_path() / ("rd-" + std::to_string(::getpid()))) { fs::remove_all(base); }
  ~RunDirectoryTest() override { fs::remove_all(base); }
  fs::path base;
};

TEST_F(RunDirectoryTest, IsPrivateAndLeavesNothing) {
  {
    const RunDirectory run("a", base);
    struct stat status {};
    ASSERT_EQ(::stat(run.path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777U, 0700U);
    run.write_file("x", "content");
    ASSERT_EQ(::stat(run.file("x").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777U, 0600U);
  }
  EXPECT_FALSE(fs::exists(base / "a"));
}

TEST_F(RunDirectoryTest, TwoRunsOfOneNameDoNotCollide) {
  const RunDirectory first("a", base);
  first.write_file("mine", "1");
  EXPECT_THAT(error_of([&] { RunDirectory second("a", base); }), HasSubstr("'a' is under way"));
  EXPECT_TRUE(fs::exists(first.file("mine")));
  const RunDirectory other("b", base);
  EXPECT_TRUE(fs::exists(first.file("mine")));
}

TEST_F(RunDirectoryTest, ADeadRunsDirectoryIsTakenOver) {
  const pid_t child = ::fork();
  if (child == 0) {
    const RunDirectory run("a", base);
    run.write_file("left-behind", "1");
    ::kill(::getpid(), SIGKILL);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  ASSERT_TRUE(fs::exists(base / "a/left-behind"));
  const RunDirectory run("a", base);
  EXPECT_FALSE(fs::exists(run.file("left-behind")));
}

TEST_F(RunDirectoryTest, SweepTakesTheDeadAndLeavesTheLiving) {
  const RunDirectory alive("alive", base);
  fs::create_directory(base / "dead");
  std::ofstream(base / "dead/guest-x.json") << "{}";
  EXPECT_EQ(RunDirectory::sweep(base), 1U);
  EXPECT_FALSE(fs::exists(base / "dead"));
  EXPECT_TRUE(fs::exists(alive.path()));
}

TEST_F(RunDirectoryTest, ABaseThatOthersCanEnterIsRefused) {
  fs::create_directory(base);
  fs::permissions(base, fs::perms::owner_all | fs::perms::group_exec);
  EXPECT_THAT(error_of([&] { RunDirectory run("a", base); }), HasSubstr("mode 0700"));
}

TEST_F(RunDirectoryTest, ABaseThatIsALinkIsRefused) {
  const fs::path target = base.string() + "-target";
  fs::create_directory(target);
  fs::permissions(target, fs::perms::owner_all);
  fs::create_directory_symlink(target, base);
  EXPECT_THAT(error_of([&] { RunDirectory run("a", base); }), HasSubstr("not a directory of this user"));
  fs::remove(base);
  fs::remove_all(target);
}

TEST_F(RunDirectoryTest, ABaseThatCannotBeMadeIsNamed) {
  EXPECT_THAT(error_of([&] { RunDirectory run("a", "/proc/orrery"); }), HasSubstr("/proc/orrery can't be made"));
}

TEST_F(RunDirectoryTest, NamesThatLeaveTheDirectoryAreRefused) {
  for (const char* name : {"..", "a/b", ".hidden", "a b", "012345678901234567890123456789012"}) {
    EXPECT_THAT(error_of([&] { RunDirectory run(name, base); }), HasSubstr("can't be used")) << name;
  }
  const RunDirectory run("a", base);
  EXPECT_THAT(error_of([&] { static_cast<void>(run.guest_paths("../x")); }), HasSubstr("can't be used"));
}

TEST_F(RunDirectoryTest, SocketPathsAreHeldTo107Bytes) {
  const RunDirectory run("a", base);
  const std::size_t room = 107 - run.path().string().size() - 1;
  EXPECT_EQ(run.socket(std::string(room, 's')).size(), 107U);
  EXPECT_THAT(error_of([&] { static_cast<void>(run.socket(std::string(room + 1, 's'))); }),
              ::testing::AllOf(HasSubstr("108 bytes"), HasSubstr("XDG_RUNTIME_DIR")));
}

TEST_F(RunDirectoryTest, AFullDiskIsSaid) {
  const RunDirectory run("a", base);
  // /dev/full answers every write with ENOSPC; O_NOFOLLOW keeps a link from being used, so rename is
  // where a directory in the way shows.
  fs::create_directory(run.file("x"));
  EXPECT_THAT(error_of([&] { run.write_file("x", "content"); }), HasSubstr("can't be written"));
  EXPECT_FALSE(fs::exists(run.file("x.new")));
}

TEST_F(RunDirectoryTest, GuestsAreListedWhileTheyRun) {
  const RunDirectory run("a", base);
  const RunDirectory other("b", base);
  RunningGuest guest;
  guest.name = "guest0";
  guest.pid = ::getpid();
  guest.start_time = process_start_time(::getpid()).value();
  guest.paths = run.guest_paths("guest0");
  guest.ssh_port = 2222;
  run.add_guest(guest);
  RunningGuest gone = guest;
  gone.name = "gone";
  gone.start_time += 1;  // the pid has been given to another process since
  run.add_guest(gone);
  run.write_file("guest-broken.json", "{\"name\": ");
  run.write_file("guest-types.json", R"({"name": 1, "pid": "x"})");

  const auto found = RunDirectory::list_guests(base);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].name, "guest0");
  EXPECT_EQ(found[0].run, "a");
  EXPECT_EQ(found[0].paths.agent_socket, guest.paths.agent_socket);
  EXPECT_EQ(found[0].ssh_port, 2222);
  EXPECT_EQ(RunDirectory::find_guest("guest0", base).run, "a");
  EXPECT_THAT(error_of([&] { static_cast<void>(RunDirectory::find_guest("nobody", base)); }), HasSubstr("a/guest0"));

  other.add_guest(guest);
  EXPECT_THAT(error_of([&] { static_cast<void>(RunDirectory::find_guest("guest0", base)); }),
              HasSubstr("a/guest0, b/guest0"));
  EXPECT_EQ(RunDirectory::find_guest("b/guest0", base).run, "b");
  run.remove_guest("guest0");
  EXPECT_EQ(RunDirectory::find_guest("guest0", base).run, "b");
}

TEST_F(RunDirectoryTest, NoRunsAtAllIsNoError) {
  EXPECT_TRUE(RunDirectory::list_guests(base).empty());
  EXPECT_EQ(RunDirectory::sweep(base), 0U);
}

}  // namespace
}  // namespace orrery::bridge::run_directory_test
