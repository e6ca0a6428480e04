// Relays for the guests of a server in another process: a killed server's devices come back in a running guest.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>

#include <boost/asio/io_context.hpp>

#include "qemu_bridge/launcher/run_directory.h"
#include "qemu_bridge/relay/relay_endpoint.h"

namespace orrery::cli {

// One relay for each function, with a socket in the run's directory. Says on stderr when the server goes, when it is
// back, and what hinders a device.
class ServerRelays {
 public:
  // `io` and `run` outlive the relays. `directory`: of `orrery serve --directory`.
  ServerRelays(boost::asio::io_context& io, std::filesystem::path directory, const bridge::RunDirectory& run);
  ~ServerRelays();
  ServerRelays(const ServerRelays&) = delete;
  ServerRelays& operator=(const ServerRelays&) = delete;

  // Makes the relay of a function that listens at `server`; returns the socket for QEMU. Throws Error.
  std::string add(const std::string& guest, const std::string& endpoint, const std::filesystem::path& server);

 private:
  class Function;
  void lost(const Function& function);
  void attached(const Function& function);

  boost::asio::io_context& io_;
  std::filesystem::path directory_;
  const bridge::RunDirectory& run_;
  std::set<const Function*> lost_;
  std::size_t reset_ = 0;                                       // functions that have come back since the server went
  std::map<std::string, std::unique_ptr<Function>> functions_;  // by socket
};

}  // namespace orrery::cli
