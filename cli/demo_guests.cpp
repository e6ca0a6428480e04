#include "cli/demo_guests.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"
#include "qemu_bridge/launcher/guest_console.h"

namespace orrery::cli {

namespace {

constexpr std::chrono::milliseconds boot_limit{240'000};
constexpr std::chrono::milliseconds command_limit{400'000};
constexpr std::chrono::milliseconds end_limit{30'000};
constexpr std::chrono::milliseconds head_start{1'500};  // for a server, before its client comes

}  // namespace

void DemoGuests::start(const bridge::RunDirectory& run, PreparedGuest guest) {
  members_.push_back({std::make_unique<GuestRun>(host_.io(), run, std::move(guest)), nullptr});
}

// An end of a guest or Ctrl-C on the way is an error.
void DemoGuests::run_until(const std::function<bool()>& done, std::chrono::milliseconds limit,
                           const std::string& what) {
  const auto ended = [this] {
    return std::find_if(members_.begin(), members_.end(), [](const Member& m) { return m.run->end().has_value(); });
  };
  const bool in_time = host_.run_until([&] { return done() || interrupted_ || ended() != members_.end(); }, limit);
  if (done()) {
    return;
  }
  if (interrupted_) {
    throw Error("interrupted");
  }
  if (const auto member = ended(); member != members_.end()) {
    throw Error(member->run->end()->sentence, member->run->qemu().console().excerpt());
  }
  if (!in_time) {
    throw Error(fmt::format("{}: not done after {} s", what, limit.count() / 1000),
                members_.front().run->qemu().console().excerpt());
  }
}

void DemoGuests::wait_until_up() {
  std::vector<std::optional<bridge::ConsoleResult>> found(members_.size());
  for (std::size_t i = 0; i < members_.size(); ++i) {
    members_[i].run->qemu().console().wait_for({bridge::guest_ready_marker}, boot_limit,
                                               [&found, i](const bridge::ConsoleResult& result) { found[i] = result; });
  }
  run_until([&] { return std::all_of(found.begin(), found.end(), [](const auto& f) { return f.has_value(); }); },
            boot_limit + std::chrono::seconds(1), "the guests' boot");
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (found[i]->kind != bridge::ConsoleResult::Kind::marker) {
      throw Error(fmt::format("guest {} did not boot: {}", members_[i].run->name(), found[i]->text),
                  members_[i].run->qemu().console().excerpt());
    }
    members_[i].agent = std::make_unique<bridge::GuestAgent>(host_.io(), members_[i].run->guest().paths.agent_socket);
  }
}

void DemoGuests::begin(std::size_t guest, std::vector<std::string> command,
                       std::shared_ptr<bridge::GuestExecResult> result, std::shared_ptr<bool> done) {
  members_.at(guest).agent->exec(std::move(command), {}, command_limit,
                                 [result = std::move(result), done = std::move(done)](const auto& r) {
                                   *result = r;
                                   *done = true;
                                 });
}

DemoGuests::Outcome DemoGuests::outcome_of(const std::string& command, const bridge::GuestExecResult& result) {
  if (!result.failure.empty()) {
    throw Error(command + " in the guest: " + result.failure, result.remedy);
  }
  return {result.exit_code, result.output + result.errors};
}

DemoGuests::Outcome DemoGuests::run(std::size_t guest, std::vector<std::string> command) {
  const std::string what = command.front();
  const auto result = std::make_shared<bridge::GuestExecResult>();
  const auto done = std::make_shared<bool>(false);
  begin(guest, std::move(command), result, done);
  run_until([&] { return *done; }, command_limit + std::chrono::seconds(10), what);
  return outcome_of(what, *result);
}

DemoGuests::PairOutcome DemoGuests::run_pair(std::size_t server, std::size_t client,
                                             std::vector<std::string> server_command,
                                             std::vector<std::string> client_command) {
  const std::string what = server_command.front();
  const auto server_result = std::make_shared<bridge::GuestExecResult>();
  const auto server_done = std::make_shared<bool>(false);
  begin(server, std::move(server_command), server_result, server_done);
  const auto start = std::chrono::steady_clock::now();
  run_until([&] { return *server_done || std::chrono::steady_clock::now() - start >= head_start; }, command_limit,
            what);
  const auto client_result = std::make_shared<bridge::GuestExecResult>();
  const auto client_done = std::make_shared<bool>(false);
  begin(client, std::move(client_command), client_result, client_done);
  run_until([&] { return *server_done && *client_done; }, command_limit + std::chrono::seconds(10), what);
  return {outcome_of(what, *server_result), outcome_of(what, *client_result)};
}

void DemoGuests::stop() {
  for (const Member& member : members_) {
    member.run->qemu().stop(std::chrono::milliseconds(0));
  }
  const auto all_ended = [this] {
    return std::all_of(members_.begin(), members_.end(), [](const Member& m) { return m.run->end().has_value(); });
  };
  if (!host_.run_until(all_ended, end_limit)) {
    throw Error("a guest did not end");
  }
}

}  // namespace orrery::cli
