// Fuzz target: a server configuration and --set options, from text to topology and back.
//
// Input: TOML text; behind a zero byte, --set options separated by newlines.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"
#include "common/text.h"
#include "systemc_models/server/server_config.h"
#include "systemc_models/server/topology.h"
#include "tests/fuzz/require.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace orrery;
  using fuzz::require;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> sets;
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos) {
    for (const std::string_view set : split(text.substr(zero + 1), '\n')) {
      sets.emplace_back(set);
    }
    text = text.substr(0, zero);
  }
  try {
    ConfigOrigins origins;
    const models::ServerConfig config = models::parse_server_config(text, "fuzz.toml", sets, &origins);
    const models::Topology topology = models::Topology::from(config);
    require(!topology.endpoints.empty(), "a server that parses has endpoints");
    for (const models::Topology::Socket& socket : topology.sockets) {
      for (const std::size_t port : socket.root_ports) {
        require(topology.root_ports[port].subordinate_bus <= socket.last_bus, "buses stay in the socket's share");
      }
    }
    const std::string plain = models::to_plain_toml(config);
    require(models::to_plain_toml(models::parse_server_config(plain, "again.toml")) == plain,
            "what is written reads back the same");
    require(models::to_plain_toml(models::parse_server_config(models::to_toml(config, origins), "again.toml")) == plain,
            "remarks change nothing");
  } catch (const Error& error) {
    require(error.what()[0] != '\0' && !error.remedy().empty(), "an error says what is wrong and what is right");
  }
  return 0;
}
