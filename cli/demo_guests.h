// The demonstration's guests: boots them beside a server of this process, and runs commands in them.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/guest_run.h"
#include "cli/server_host.h"
#include "qemu_bridge/launcher/guest_agent.h"

namespace orrery::cli {

class DemoGuests {
 public:
  // `host` and `interrupted` (set by Ctrl-C) outlive it.
  DemoGuests(ServerHost& host, const bool& interrupted) : host_(host), interrupted_(interrupted) {}

  // Starts one. Throws Error if QEMU can't be started.
  void start(const bridge::RunDirectory& run, PreparedGuest guest);
  // Waits until all are up, and their agents answer. Throws Error with the console's end if one doesn't come up.
  void wait_until_up();
  [[nodiscard]] std::size_t size() const { return members_.size(); }
  [[nodiscard]] GuestRun& operator[](std::size_t index) { return *members_.at(index).run; }

  struct Outcome {
    int status = 0;
    std::string output;  // standard output, then standard error
  };
  // Runs a command in a guest to its end. Throws Error if that can't be told.
  Outcome run(std::size_t guest, std::vector<std::string> command);
  std::string exec(std::size_t guest, std::vector<std::string> command) {
    return run(guest, std::move(command)).output;
  }
  // A server in one guest and, once it has had time to start, its client in another; both to their end.
  struct PairOutcome {
    Outcome server;
    Outcome client;
    [[nodiscard]] bool passed() const { return server.status == 0 && client.status == 0; }
  };
  PairOutcome run_pair(std::size_t server, std::size_t client, std::vector<std::string> server_command,
                       std::vector<std::string> client_command);
  // Ends all at once. Throws Error if one doesn't.
  void stop();

 private:
  struct Member {
    std::unique_ptr<GuestRun> run;
    std::unique_ptr<bridge::GuestAgent> agent;
  };
  void run_until(const std::function<bool()>& done, std::chrono::milliseconds limit, const std::string& what);
  void begin(std::size_t guest, std::vector<std::string> command, std::shared_ptr<bridge::GuestExecResult> result,
             std::shared_ptr<bool> done);
  static Outcome outcome_of(const std::string& command, const bridge::GuestExecResult& result);

  ServerHost& host_;
  const bool& interrupted_;
  std::vector<Member> members_;
};

}  // namespace orrery::cli
