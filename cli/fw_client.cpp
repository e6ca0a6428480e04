#include "cli/fw_client.h"

#include <optional>
#include <vector>

#include <fmt/format.h>
#include <boost/asio/io_context.hpp>

#include "cli/stop_watch.h"
#include "common/error.h"
#include "common/listening_socket.h"
#include "common/text.h"
#include "qemu_bridge/launcher/json_line_stream.h"
#include "qemu_bridge/launcher/run_directory.h"

namespace orrery::cli {

namespace {

namespace files = std::filesystem;

constexpr std::chrono::milliseconds connect_limit{2'000};
constexpr std::chrono::milliseconds answer_limit{30'000};

// Throws if the answer is an error.
void require_answer(const nlohmann::json& answer) {
  if (const auto error = answer.find("error"); error != answer.end() && error->is_string()) {
    const auto remedy = answer.find("remedy");
    throw Error(printable(error->get<std::string>(), 1000), remedy != answer.end() && remedy->is_string()
                                                                ? printable(remedy->get<std::string>(), 1000)
                                                                : std::string());
  }
}

class Conversation {
 public:
  explicit Conversation(const files::path& socket)
      : stream_(
            io, {}, [this](const nlohmann::json& message) { handle(message); },
            [this](const std::string& reason) { lost = reason; }) {
    std::optional<std::string> failure;
    stream_.connect(socket.string(), connect_limit, [&](const std::string& why) { failure = why; });
    while (!failure) {
      io.run_one();
    }
    if (!failure->empty()) {
      throw Error(fmt::format("no server answers at {}: {}", socket.string(), *failure), "is it still running?");
    }
  }
  void send(const nlohmann::json& request) { stream_.send(request); }
  // False: the time is up.
  bool run_until(const std::function<bool()>& done, std::chrono::milliseconds limit) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!done()) {
      if (std::chrono::steady_clock::now() >= end) {
        return false;
      }
      io.restart();
      io.run_one_for(std::chrono::milliseconds(100));
    }
    return true;
  }

  boost::asio::io_context io;
  std::function<void(const nlohmann::json&)> handle;
  std::optional<std::string> lost;

 private:
  bridge::JsonLineStream stream_;
};

}  // namespace

files::path find_firmware_control(const std::string& server) {
  const auto control_in = [](const files::path& directory) {
    return directory / firmware_folder / firmware_control_socket;
  };
  const files::path base = bridge::RunDirectory::default_base();
  std::error_code ignored;
  if (!server.empty()) {
    for (const files::path& directory : {files::path(server), base / server}) {
      if (files::exists(control_in(directory), ignored)) {
        return files::absolute(control_in(directory));
      }
    }
    throw Error(fmt::format("there is no server with RNIC firmware in {} or named so", printable(server)),
                "name the directory of `orrery serve` or `orrery fw run`, or the run of `orrery boot`; its RNICs need "
                "rnic.personality = \"mlx5\"");
  }
  std::vector<std::string> runs;
  for (const files::directory_entry& entry : files::directory_iterator(base, ignored)) {
    // A dead run's folder may still be there; nobody listens at its socket.
    if (files::exists(control_in(entry.path()), ignored) && connect_to_socket(control_in(entry.path()))) {
      runs.push_back(entry.path().filename().string());
    }
  }
  if (runs.size() != 1) {
    throw Error(
        runs.empty() ? "no run with RNIC firmware" : fmt::format("runs with RNIC firmware: {}", fmt::join(runs, ", ")),
        runs.empty() ? "start one: orrery fw run" : "name one of them");
  }
  return control_in(base / runs.front());
}

nlohmann::json ask_firmware(const files::path& socket, const nlohmann::json& request) {
  Conversation conversation(socket);
  std::optional<nlohmann::json> answer;
  conversation.handle = [&](const nlohmann::json& message) { answer = answer.value_or(message); };
  conversation.send(request);
  if (!conversation.run_until([&] { return answer || conversation.lost; }, answer_limit)) {
    throw Error(
        fmt::format("the server at {} doesn't answer within {} s", socket.string(), answer_limit.count() / 1000));
  }
  if (!answer) {
    throw Error(fmt::format("the server at {} has gone: {}", socket.string(), *conversation.lost));
  }
  require_answer(*answer);
  return *answer;
}

void follow_commands(const files::path& socket, const std::string& rnic,
                     const std::function<bool(const nlohmann::json& command)>& each) {
  const StopSignals signals;
  Conversation conversation(socket);
  bool answered = false;
  bool ended = false;
  std::optional<nlohmann::json> refusal;
  const StopWatch watch(conversation.io, signals, [&] { ended = true; });
  conversation.handle = [&](const nlohmann::json& message) {
    if (!answered) {
      answered = true;
      refusal = message;
      return;
    }
    const auto of = message.find("rnic");
    if (!ended && (rnic.empty() || (of != message.end() && *of == rnic))) {
      ended = !each(message);
    }
  };
  conversation.send({{"do", "trace"}, {"rnic", rnic}});
  const auto checked = [&] {
    if (refusal) {
      require_answer(*std::exchange(refusal, std::nullopt));
    }
    return ended || conversation.lost.has_value();
  };
  while (!conversation.run_until(checked, std::chrono::hours(1))) {
  }
  if (!ended) {
    throw Error(fmt::format("the server at {} has gone: {}", socket.string(), *conversation.lost));
  }
}

}  // namespace orrery::cli
