#include "cli/server_relays.h"

#include <utility>

#include <fmt/format.h>

#include "cli/output.h"

namespace orrery::cli {

class ServerRelays::Function final : public bridge::RelayObserver {
 public:
  Function(ServerRelays& owner, std::string name, std::filesystem::path listen, std::filesystem::path server)
      : owner_(owner),
        name_(std::move(name)),
        relay_(owner.io_, bridge::RelayEndpointOptions{std::move(listen), std::move(server)}, *this) {}

 private:
  void on_attached(bool again) override {
    refusal_.clear();
    if (again) {
      owner_.attached(*this);
    }
  }
  void on_lost(std::string_view /*reason*/) override { owner_.lost(*this); }
  void on_client_gone() override { owner_.lost_.erase(this); }
  void on_refused(std::string_view reason) override {
    if (reason != refusal_) {  // the server is tried again and again
      refusal_ = reason;
      note("orrery: {}: the server can't serve this device: {}; it reads as all ones", name_, reason);
    }
  }

  ServerRelays& owner_;
  std::string name_;
  std::string refusal_;
  bridge::RelayEndpoint relay_;
};

ServerRelays::ServerRelays(boost::asio::io_context& io, std::filesystem::path directory,
                           const bridge::RunDirectory& run)
    : io_(io), directory_(std::move(directory)), run_(run) {}

ServerRelays::~ServerRelays() = default;

std::string ServerRelays::add(const std::string& guest, const std::string& endpoint,
                              const std::filesystem::path& server) {
  std::string socket = run_.socket(fmt::format("{}.{}.sock", guest, endpoint));
  if (functions_.count(socket) == 0) {
    functions_.emplace(socket, std::make_unique<Function>(*this, guest + ": " + endpoint, socket, server));
  }
  return socket;
}

void ServerRelays::lost(const Function& function) {
  if (lost_.empty()) {
    reset_ = 0;
    note("orrery: the server in {} has gone; until it is back its devices read as all ones", directory_.string());
  }
  lost_.insert(&function);
}

void ServerRelays::attached(const Function& function) {
  lost_.erase(&function);
  ++reset_;
  if (lost_.empty()) {
    note("orrery: the server in {} is back; {} devices were reset and work again", directory_.string(), reset_);
  }
}

}  // namespace orrery::cli
