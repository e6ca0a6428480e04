// The file by which a running server is known to launchers that use its sockets from another process.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace orrery::cli {

// In the folder of a guest's sockets: locked by the launcher that runs the guest.
inline constexpr const char* launcher_lock = ".launcher";

struct ServerIdentity {
  int pid = 0;
  std::uint64_t start_time = 0;  // proc(5) stat field 22
  bool operator==(const ServerIdentity&) const = default;
};

// Writes DIRECTORY/server.json for this process; throws Error.
void publish_server(const std::filesystem::path& directory);
// The server of a directory, if its process lives.
std::optional<ServerIdentity> running_server(const std::filesystem::path& directory);

}  // namespace orrery::cli
