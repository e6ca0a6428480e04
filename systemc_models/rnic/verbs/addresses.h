// Source addresses (GIDs) of the functions, routes made of them, and whose a received packet is.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>

#include "fabric/roce_headers.h"
#include "firmware/interface/contexts.h"
#include "systemc_models/rnic/verbs/mac_addresses.h"
#include "systemc_models/rnic/verbs/sparse_table.h"
#include "systemc_models/rnic/verbs/translation.h"
#include "systemc_models/rnic/verbs/verbs_engine.h"

namespace orrery::rnic {

// Where packets of a QP or of a datagram go.
struct Route {
  fabric::NetworkHeaders network;
  bool local = false;  // this RNIC's own: packets don't leave it
};

class Addresses {
 public:
  Addresses(const FunctionWindows& functions, const MacAddresses& macs)
      : functions_(functions), macs_(macs), table_(max_functions * max_addresses) {}

  ControlResult write(std::uint32_t index, const AddressContext& context);
  ControlResult read(std::uint32_t index, AddressContext& into) const;
  void destroy(std::uint32_t index);
  void reset(std::uint32_t function);

  // Headers towards `path`; nothing if its source address is not set.
  [[nodiscard]] std::optional<Route> route(std::uint32_t function, const PathContext& path) const;
  // The function that has this GID.
  [[nodiscard]] std::optional<std::uint32_t> owner(const fabric::Gid& gid) const;
  // One of the enabled functions has this MAC address.
  [[nodiscard]] bool is_local(fabric::MacAddress mac) const;

 private:
  void forget(std::uint32_t index);

  const FunctionWindows& functions_;
  const MacAddresses& macs_;
  SparseTable<AddressContext, max_addresses> table_;
  std::map<fabric::Gid, std::map<std::uint32_t, bool>> owners_;  // GID → entries that have it
};

}  // namespace orrery::rnic
