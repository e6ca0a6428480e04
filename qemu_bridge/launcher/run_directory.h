// The private directory of one run: sockets, console captures, a file for each running guest.
//
// ${XDG_RUNTIME_DIR:-/tmp}/orrery-<uid>/<run>/, mode 0700, owned by the user. A lock file in it is held
// for as long as the run lives; the directory of a run that died is taken over by the next run of that
// name and swept by any.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/file_descriptor.h"
#include "qemu_bridge/launcher/guest_spec.h"

namespace orrery::bridge {

// A running guest, as `orrery exec` finds it.
struct RunningGuest {
  std::string name;
  std::string run;               // name of its run
  int pid = 0;                   // QEMU's
  std::uint64_t start_time = 0;  // proc(5) stat field 22: with the pid, names this very process
  GuestPaths paths;
  std::uint16_t ssh_port = 0;  // 0: none
};

class RunDirectory {
 public:
  // Makes the directory and locks it, or takes over that of a dead run of this name. With an empty name:
  // "run-<pid>". Throws Error if a live run has the name, if the directory's parent belongs to somebody
  // else or others can enter it, or if it can't be written.
  explicit RunDirectory(const std::string& name = {}, const std::filesystem::path& base = default_base());
  // Removes the directory and all in it.
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const std::string& name() const { return name_; }

  // A file name in the directory. For a socket, the whole path is checked against the 107 bytes that
  // sockaddr_un holds (unix(7)); throws Error that says how to shorten it.
  [[nodiscard]] std::string file(const std::string& file_name) const;
  [[nodiscard]] std::string socket(const std::string& file_name) const;
  // The files and sockets of one guest; a guest's name is a device id (pci_placement.h).
  [[nodiscard]] GuestPaths guest_paths(const std::string& guest) const;

  // Writes a file of the directory whole (temporary name, then rename), mode 0600; throws Error if that
  // fails, naming the file and the reason (a full disk among them).
  void write_file(const std::string& file_name, const std::string& content) const;

  // Publishes a guest for list_guests(), or takes it back.
  void add_guest(const RunningGuest& guest) const;
  void remove_guest(const std::string& guest) const;

  // ${XDG_RUNTIME_DIR:-/tmp}/orrery-<uid>
  [[nodiscard]] static std::filesystem::path default_base();
  // Every guest whose QEMU still runs, in order of run and name. What can't be read is passed over.
  [[nodiscard]] static std::vector<RunningGuest> list_guests(const std::filesystem::path& base = default_base());
  // The guest of this name, or "run/name". Throws Error that lists the running ones, or names the runs
  // among which the choice is open.
  [[nodiscard]] static RunningGuest find_guest(const std::string& name,
                                               const std::filesystem::path& base = default_base());
  // Removes what dead runs left. Returns how many directories it removed.
  static unsigned sweep(const std::filesystem::path& base = default_base());

 private:
  std::filesystem::path base_;
  std::filesystem::path path_;
  std::string name_;
  FileDescriptor lock_;
};

}  // namespace orrery::bridge
