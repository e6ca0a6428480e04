#include "cli/run_files.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "qemu_bridge/launcher/child_process.h"

namespace orrery::cli {

void publish_server(const std::filesystem::path& directory) {
  const nlohmann::json identity{{"pid", getpid()}, {"start_time", bridge::process_start_time(getpid()).value_or(0)}};
  const std::filesystem::path temporary = directory / "server.json.new";
  const auto fail = [&](int reason) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    throw Error(fmt::format("{} can't be written: {}", temporary.string(), std::strerror(reason)),
                reason == ENOSPC || reason == EDQUOT ? "free some space there, or name another directory"
                                                     : "name a directory that you may write to");
  };
  errno = 0;
  std::ofstream file(temporary);
  file << identity.dump() << '\n';
  file.close();
  if (!file) {
    fail(errno != 0 ? errno : EIO);
  }
  std::error_code failed;
  std::filesystem::rename(temporary, directory / "server.json", failed);
  if (failed) {
    fail(failed.value());
  }
}

std::optional<ServerIdentity> running_server(const std::filesystem::path& directory) {
  std::ifstream file(directory / "server.json");
  const nlohmann::json json = nlohmann::json::parse(file, nullptr, false);
  if (!json.is_object() || !json.contains("pid") || !json["pid"].is_number_integer() || !json.contains("start_time") ||
      !json["start_time"].is_number_unsigned()) {
    return std::nullopt;
  }
  const ServerIdentity identity{json["pid"].get<int>(), json["start_time"].get<std::uint64_t>()};
  if (bridge::process_start_time(identity.pid) != identity.start_time) {
    return std::nullopt;
  }
  return identity;
}

}  // namespace orrery::cli
