#include "common/log.h"

#include <array>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include "common/error.h"
#include "common/text.h"

namespace orrery {
namespace {

struct LevelName {
  LogLevel level;
  std::string_view word;
};
constexpr std::array<LevelName, 6> level_names{{{LogLevel::trace, "trace"},
                                                {LogLevel::debug, "debug"},
                                                {LogLevel::info, "info"},
                                                {LogLevel::warning, "warning"},
                                                {LogLevel::error, "error"},
                                                {LogLevel::off, "off"}}};

std::shared_ptr<spdlog::logger> make_logger(spdlog::sink_ptr sink) {
  auto logger = std::make_shared<spdlog::logger>("orrery", std::move(sink));
  // Lines come out complete; levels are ours.
  logger->set_pattern("%v");
  logger->set_level(spdlog::level::trace);
  logger->flush_on(spdlog::level::trace);
  return logger;
}

// Which logger is current; a message holds on to the one it found.
class CurrentLogger {
 public:
  std::shared_ptr<spdlog::logger> get() {
    const std::lock_guard lock(mutex_);
    return logger_;
  }
  void set(std::shared_ptr<spdlog::logger> logger) {
    const std::lock_guard lock(mutex_);
    logger_ = std::move(logger);
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<spdlog::logger> logger_ = make_logger(std::make_shared<spdlog::sinks::stderr_sink_mt>());
};

CurrentLogger& current() {
  static CurrentLogger instance;
  return instance;
}

}  // namespace

LogLevel parse_log_level(std::string_view word) {
  std::vector<std::string> words;
  for (const LevelName& name : level_names) {
    if (name.word == word) {
      return name.level;
    }
    words.emplace_back(name.word);
  }
  throw Error(fmt::format("\"{}\" is no log level", printable(word)), fmt::format("use {}", join_alternatives(words)));
}

void set_log_level(LogLevel level) {
  log_detail::threshold.store(level, std::memory_order_relaxed);
}

void set_log_file(const std::string& path) {
  if (path.empty()) {
    current().set(make_logger(std::make_shared<spdlog::sinks::stderr_sink_mt>()));
    return;
  }
  try {
    current().set(make_logger(std::make_shared<spdlog::sinks::basic_file_sink_mt>(path)));
  } catch (const spdlog::spdlog_ex& error) {
    throw Error(fmt::format("{}: cannot write the log: {}", path, error.what()), "check the path and its permissions");
  }
}

void log_detail::write(LogLevel level, std::string_view message, const Picoseconds* time) {
  std::string_view word = "off";
  for (const LevelName& name : level_names) {
    word = name.level == level ? name.word : word;
  }
  std::string line = fmt::format("orrery: {}: ", word);
  if (time != nullptr) {
    line += fmt::format("[{}.{:06} us] ", time->count / 1'000'000, time->count % 1'000'000);
  }
  // A message stays one line, whatever a guest or a peer put into it.
  line += printable(message, 4000);
  current().get()->log(spdlog::level::info, "{}", line);
}

}  // namespace orrery
