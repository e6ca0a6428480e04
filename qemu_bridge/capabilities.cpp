#include "qemu_bridge/capabilities.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace orrery::bridge {
namespace {

using nlohmann::json;

// Takes an optional number; false if it is there and not a non-negative integer.
bool take_number(const json& object, const char* key, std::uint64_t& value, bool& named) {
  const auto it = object.find(key);
  if (it == object.end()) {
    return true;
  }
  if (!it->is_number_unsigned()) {
    return false;
  }
  value = it->get<std::uint64_t>();
  named = true;
  return true;
}

bool take_boolean(const json& object, const char* key, bool& value, bool& named) {
  const auto it = object.find(key);
  if (it == object.end()) {
    return true;
  }
  if (!it->is_boolean()) {
    return false;
  }
  value = it->get<bool>();
  named = true;
  return true;
}

bool take_twin_socket(const json& capabilities, ClientProposal& proposal) {
  const auto it = capabilities.find("twin_socket");
  if (it == capabilities.end()) {
    return true;
  }
  bool named = false;
  if (!it->is_object() || !take_boolean(*it, "supported", proposal.twin_socket, named)) {
    return false;
  }
  proposal.names_twin_socket = true;
  return true;
}

bool take_capabilities(const json& capabilities, ClientProposal& p) {
  return capabilities.is_object() && take_number(capabilities, "max_msg_fds", p.max_msg_fds, p.names_max_msg_fds) &&
         take_number(capabilities, "max_data_xfer_size", p.max_data_xfer_size, p.names_max_data_xfer_size) &&
         take_number(capabilities, "max_dma_maps", p.max_dma_maps, p.names_max_dma_maps) &&
         take_number(capabilities, "pgsizes", p.page_sizes, p.names_page_sizes) &&
         take_boolean(capabilities, "write_multiple", p.write_multiple, p.names_write_multiple) &&
         take_twin_socket(capabilities, p) && p.max_data_xfer_size > 0 &&
         (p.page_sizes & wire::default_page_sizes) != 0;
}

}  // namespace

Decoded<ClientProposal> decode_version(std::span<const std::byte> payload) {
  const auto invalid = Decoded<ClientProposal>::failed(EINVAL);
  if (payload.size() < sizeof(wire::Version) || payload.size() > sizeof(wire::Version) + max_version_data) {
    return invalid;
  }
  const auto version = load<wire::Version>(payload);
  if (version.major != protocol_major) {
    return invalid;
  }
  ClientProposal proposal;
  proposal.minor = version.minor;
  const std::span<const std::byte> data = payload.subspan(sizeof(wire::Version));
  if (data.empty()) {
    return {proposal, 0};
  }
  // NUL-terminated, and no NUL before: the parser would take that for the end of its input.
  if (std::find(data.begin(), data.end(), std::byte{0}) != data.end() - 1) {
    return invalid;
  }
  const auto* text = reinterpret_cast<const char*>(data.data());
  const json parsed = json::parse(text, text + data.size() - 1, nullptr, false);
  if (!parsed.is_object()) {
    return invalid;
  }
  const auto capabilities = parsed.find("capabilities");
  if (capabilities != parsed.end() && !take_capabilities(*capabilities, proposal)) {
    return invalid;
  }
  return {proposal, 0};
}

std::string reply_capabilities(const ClientProposal& proposal, const ServerLimits& limits, int twin_socket_index) {
  json granted = json::object();
  if (proposal.names_max_msg_fds) {
    granted["max_msg_fds"] = limits.max_msg_fds;
  }
  if (proposal.names_max_data_xfer_size) {
    granted["max_data_xfer_size"] = std::uint64_t{max_transfer};
  }
  if (proposal.names_max_dma_maps) {
    granted["max_dma_maps"] = std::min(proposal.max_dma_maps, limits.max_dma_maps);
  }
  if (proposal.names_page_sizes) {
    granted["pgsizes"] = wire::default_page_sizes;
  }
  if (proposal.names_write_multiple && proposal.write_multiple) {
    granted["write_multiple"] = true;
  }
  if (twin_socket_index >= 0) {
    granted["twin_socket"] = {{"supported", true}, {"fd_index", twin_socket_index}};
  }
  json reply = json::object();
  reply["capabilities"] = std::move(granted);
  return reply.dump();
}

}  // namespace orrery::bridge
