// The other end of FirmwareControl: finds a running server by name or directory, and asks it.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include <nlohmann/json.hpp>

namespace orrery::cli {

// Where a server keeps its firmware's files, in the directory of its sockets. No guest can have its name: that begins
// with a letter.
inline constexpr const char* firmware_folder = ".firmware";
inline constexpr const char* firmware_control_socket = "control";

// The control socket of a server: a directory (of `orrery serve`, `orrery fw run`), the name of a run, or, if empty, of
// the only run with firmware. Throws Error that names what there is.
[[nodiscard]] std::filesystem::path find_firmware_control(const std::string& server);

// One request; the answer, if it is no error. Throws Error.
nlohmann::json ask_firmware(const std::filesystem::path& socket, const nlohmann::json& request);

// Asks for the trace and hands over each command until `each` returns false or a signal comes. Throws Error if the
// server ends.
void follow_commands(const std::filesystem::path& socket, const std::string& rnic,
                     const std::function<bool(const nlohmann::json& command)>& each);

}  // namespace orrery::cli
