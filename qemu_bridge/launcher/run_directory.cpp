#include "qemu_bridge/launcher/run_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/error.h"
#include "qemu_bridge/launcher/child_process.h"
#include "qemu_bridge/launcher/pci_placement.h"
#include "qemu_bridge/launcher/system_text.h"

namespace orrery::bridge {

namespace fs = std::filesystem;

namespace {

constexpr const char* lock_name = "lock";
constexpr const char* guest_prefix = "guest-";
constexpr std::size_t longest_socket_path = sizeof(sockaddr_un::sun_path) - 1;
constexpr std::size_t largest_guest_file = 64 * 1024;

[[noreturn]] void fail(const fs::path& path, std::string_view what, int reason) {
  std::string remedy = "set XDG_RUNTIME_DIR to a directory of yours that can be written";
  if (reason == ENOSPC || reason == EDQUOT) {
    remedy = "free some space there, or set XDG_RUNTIME_DIR to a directory with room";
  }
  throw Error(fmt::format("{} {}: {}", path.string(), what, system_text(reason)), remedy);
}

// Nobody else may own or enter the directory: in /tmp anybody could have made it before us.
void make_private(const fs::path& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    fail(path, "can't be made", errno);
  }
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    fail(path, "can't be examined", errno);
  }
  if (!S_ISDIR(status.st_mode) || status.st_uid != ::geteuid() || (status.st_mode & 077) != 0) {
    throw Error(fmt::format("{} is not a directory of this user with mode 0700", path.string()),
                "remove it, or set XDG_RUNTIME_DIR to a directory of yours");
  }
}

FileDescriptor open_lock(const fs::path& path, int flags) {
  return FileDescriptor(::open(path.c_str(), flags | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600));
}

// The lock that makes "is this run alive? then take its directory" one step.
FileDescriptor lock_base(const fs::path& base) {
  FileDescriptor lock = open_lock(base / ".lock", O_CREAT);
  if (!lock) {
    fail(base / ".lock", "can't be opened", errno);
  }
  while (::flock(lock.get(), LOCK_EX) != 0) {
    if (errno != EINTR) {
      fail(base / ".lock", "can't be locked", errno);
    }
  }
  return lock;
}

// True if no process holds the run's lock.
bool is_dead(const fs::path& run) {
  const FileDescriptor lock = open_lock(run / lock_name, 0);
  return !lock || ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0;
}

bool is_run_name(const std::string& name) {
  return !name.empty() && name.size() <= 32 && name.front() != '.' && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  });
}

unsigned sweep_locked(const fs::path& base) {
  unsigned removed = 0;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(base, ignored)) {
    if (entry.is_directory(ignored) && !entry.is_symlink(ignored) && is_run_name(entry.path().filename().string()) &&
        is_dead(entry.path())) {
      removed += fs::remove_all(entry.path(), ignored) > 0 ? 1 : 0;
    }
  }
  return removed;
}

nlohmann::json to_json(const RunningGuest& guest) {
  return {{"name", guest.name},
          {"pid", guest.pid},
          {"start_time", guest.start_time},
          {"ssh_port", guest.ssh_port},
          {"qmp_socket", guest.paths.qmp_socket},
          {"agent_socket", guest.paths.agent_socket},
          {"console_socket", guest.paths.console_socket},
          {"console_log", guest.paths.console_log},
          {"gdb_socket", guest.paths.gdb_socket}};
}

std::optional<RunningGuest> read_guest(const fs::path& file, const std::string& run) {
  std::ifstream stream(file, std::ios::binary);
  std::string text(largest_guest_file, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    RunningGuest guest;
    guest.run = run;
    guest.name = json.at("name").get<std::string>();
    guest.pid = json.at("pid").get<int>();
    guest.start_time = json.at("start_time").get<std::uint64_t>();
    guest.ssh_port = json.at("ssh_port").get<std::uint16_t>();
    guest.paths.qmp_socket = json.at("qmp_socket").get<std::string>();
    guest.paths.agent_socket = json.at("agent_socket").get<std::string>();
    guest.paths.console_socket = json.at("console_socket").get<std::string>();
    guest.paths.console_log = json.at("console_log").get<std::string>();
    guest.paths.gdb_socket = json.at("gdb_socket").get<std::string>();
    return guest;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;  // half written by a version of ours that died, or not ours
  }
}

}  // namespace

fs::path RunDirectory::default_base() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  const fs::path parent = runtime != nullptr && *runtime == '/' ? runtime : "/tmp";
  return parent / fmt::format("orrery-{}", ::geteuid());
}

RunDirectory::RunDirectory(const std::string& name, const fs::path& base)
    : base_(base), name_(name.empty() ? fmt::format("run-{}", ::getpid()) : name) {
  if (!is_run_name(name_)) {
    throw Error(fmt::format("the run name '{}' can't be used", name_),
                "use letters, digits, '-', '_' and '.', at most 32, not starting with '.'");
  }
  path_ = base_ / name_;
  make_private(base_);
  const FileDescriptor base_lock = lock_base(base_);
  if (fs::exists(path_) && !is_dead(path_)) {
    throw Error(fmt::format("a run named '{}' is under way already ({})", name_, path_.string()),
                "end it, or choose another name");
  }
  sweep_locked(base_);
  make_private(path_);
  lock_ = open_lock(path_ / lock_name, O_CREAT);
  if (!lock_) {
    const int reason = errno;
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    fail(path_ / lock_name, "can't be made", reason);
  }
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    fail(path_ / lock_name, "can't be locked", errno);
  }
}

RunDirectory::~RunDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string RunDirectory::file(const std::string& file_name) const {
  return (path_ / file_name).string();
}

std::string RunDirectory::socket(const std::string& file_name) const {
  std::string path = file(file_name);
  if (path.size() > longest_socket_path) {
    throw Error(fmt::format("the socket path {} has {} bytes; a UNIX socket takes at most {}", path, path.size(),
                            longest_socket_path),
                "set XDG_RUNTIME_DIR to a directory with a shorter name, or give the run a shorter name");
  }
  return path;
}

GuestPaths RunDirectory::guest_paths(const std::string& guest) const {
  if (!is_device_id(guest)) {
    throw Error(fmt::format("guest: the name '{}' can't be used", guest),
                "use a letter, then letters, digits, '-' or '_', at most 32 in all");
  }
  GuestPaths paths;
  paths.qmp_socket = socket(guest + ".qmp");
  paths.agent_socket = socket(guest + ".agent");
  paths.console_socket = socket(guest + ".console");
  paths.gdb_socket = socket(guest + ".gdb");
  paths.share_socket = socket(guest + ".share");
  paths.console_log = file(guest + ".console.log");
  paths.ovmf_vars = file(guest + ".ovmf-vars.fd");
  return paths;
}

void RunDirectory::write_file(const std::string& file_name, const std::string& content) const {
  const fs::path target = path_ / file_name;
  const fs::path temporary = path_ / (file_name + ".new");
  const auto give_up = [&](int reason) {
    ::unlink(temporary.c_str());
    fail(target, "can't be written", reason);
  };
  FileDescriptor out(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!out) {
    give_up(errno);
  }
  std::string_view rest = content;
  while (!rest.empty()) {
    const ssize_t written = ::write(out.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      give_up(written < 0 ? errno : ENOSPC);
    }
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  // close() is where some file systems first say that there was no room.
  if (::close(out.release()) != 0 || ::rename(temporary.c_str(), target.c_str()) != 0) {
    give_up(errno);
  }
}

void RunDirectory::add_guest(const RunningGuest& guest) const {
  using handler = nlohmann::json::error_handler_t;
  write_file(guest_prefix + guest.name + ".json", to_json(guest).dump(2, ' ', false, handler::replace) + '\n');
}

void RunDirectory::remove_guest(const std::string& guest) const {
  std::error_code ignored;
  fs::remove(path_ / (guest_prefix + guest + ".json"), ignored);
}

std::vector<RunningGuest> RunDirectory::list_guests(const fs::path& base) {
  std::vector<RunningGuest> guests;
  std::error_code ignored;
  for (const fs::directory_entry& run : fs::directory_iterator(base, ignored)) {
    if (!run.is_directory(ignored)) {
      continue;
    }
    for (const fs::directory_entry& entry : fs::directory_iterator(run.path(), ignored)) {
      const std::string file = entry.path().filename().string();
      if (file.rfind(guest_prefix, 0) != 0 || entry.path().extension() != ".json") {
        continue;
      }
      auto guest = read_guest(entry.path(), run.path().filename().string());
      if (guest && process_start_time(guest->pid) == guest->start_time) {
        guests.push_back(std::move(*guest));
      }
    }
  }
  std::sort(guests.begin(), guests.end(), [](const RunningGuest& a, const RunningGuest& b) {
    return std::tie(a.run, a.name) < std::tie(b.run, b.name);
  });
  return guests;
}

RunningGuest RunDirectory::find_guest(const std::string& name, const fs::path& base) {
  const std::vector<RunningGuest> running = list_guests(base);
  std::vector<RunningGuest> matching;
  std::string names;
  for (const RunningGuest& guest : running) {
    const std::string full = guest.run + '/' + guest.name;
    names += (names.empty() ? "" : ", ") + full;
    if (guest.name == name || full == name) {
      matching.push_back(guest);
    }
  }
  if (matching.size() == 1) {
    return matching.front();
  }
  if (matching.empty()) {
    throw Error(
        fmt::format("no guest '{}' is running", name),
        running.empty() ? "no guest is running at all: start one with orrery boot" : fmt::format("running: {}", names));
  }
  throw Error(fmt::format("{} running guests are named '{}'", matching.size(), name),
              fmt::format("say which, as RUN/GUEST: {}", names));
}

unsigned RunDirectory::sweep(const fs::path& base) {
  std::error_code ignored;
  if (!fs::is_directory(base, ignored)) {
    return 0;
  }
  make_private(base);
  const FileDescriptor lock = lock_base(base);
  return sweep_locked(base);
}

}  // namespace orrery::bridge
