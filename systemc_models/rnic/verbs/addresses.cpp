#include "systemc_models/rnic/verbs/addresses.h"

#include <algorithm>

namespace orrery::rnic {
namespace {

fabric::Gid gid_of(const std::uint8_t (&bytes)[16]) {
  fabric::Gid gid;
  std::copy(std::begin(bytes), std::end(bytes), gid.begin());
  return gid;
}

bool is_ipv4(const fabric::Gid& gid) {
  return std::all_of(gid.begin(), gid.begin() + 10, [](std::uint8_t b) { return b == 0; }) && gid[10] == 0xff &&
         gid[11] == 0xff;
}

}  // namespace

ControlResult Addresses::write(std::uint32_t index, const AddressContext& context) {
  if (index >= table_.size()) {
    return ControlResult::bad_index;
  }
  if (context.roce_version > 2 || (context.vlan != none && context.vlan > 0xfff)) {
    return ControlResult::bad_value;
  }
  forget(index);
  table_.make(index) = context;
  if (context.roce_version != 0) {
    owners_[gid_of(context.gid)][index] = true;
  }
  return ControlResult::ok;
}

ControlResult Addresses::read(std::uint32_t index, AddressContext& into) const {
  if (index >= table_.size()) {
    return ControlResult::bad_index;
  }
  const AddressContext* context = table_.find(index);
  into = context == nullptr ? AddressContext{} : *context;
  return ControlResult::ok;
}

void Addresses::forget(std::uint32_t index) {
  AddressContext* context = table_.find(index);
  if (context == nullptr || context->roce_version == 0) {
    return;
  }
  if (const auto found = owners_.find(gid_of(context->gid)); found != owners_.end()) {
    found->second.erase(index);
    if (found->second.empty()) {
      owners_.erase(found);
    }
  }
  *context = {};
}

void Addresses::destroy(std::uint32_t index) {
  forget(index);
}

void Addresses::reset(std::uint32_t function) {
  for (std::uint32_t i = 0; i < max_addresses; ++i) {
    forget(address_index(function, i));
  }
}

std::optional<Route> Addresses::route(std::uint32_t function, const PathContext& path) const {
  const AddressContext* own =
      path.address_index < max_addresses ? table_.find(address_index(function, path.address_index)) : nullptr;
  if (own == nullptr || own->roce_version == 0) {
    return std::nullopt;
  }
  Route route;
  fabric::NetworkHeaders& n = route.network;
  n.source = gid_of(own->gid);
  n.destination = gid_of(path.remote_gid);
  n.source_mac = {own->mac != 0 ? own->mac : functions_.at(function).mac};
  n.destination_mac = {path.remote_mac & 0xffff'ffff'ffffU};
  // A datagram's address vector on an InfiniBand port is a LID; for connected QPs the firmware does the same.
  const bool by_lid = functions_.at(function).lid != 0 && path.remote_mac == 0;
  if (by_lid) {
    std::uint8_t gid[16] = {};
    lid_gid(path.remote_lid, gid);
    n.destination = gid_of(gid);
    n.destination_mac = {lid_mac(path.remote_lid)};
  }
  n.has_vlan = own->vlan != none;
  n.vlan_tci = n.has_vlan ? static_cast<std::uint16_t>(own->vlan | (std::uint32_t{path.service_level} & 7U) << 13)
                          : std::uint16_t{0};
  if (own->roce_version == 1) {
    n.encapsulation = fabric::RoceEncapsulation::v1;
  } else {
    const bool ipv4 = is_ipv4(n.source);
    if (ipv4 != is_ipv4(n.destination)) {
      return std::nullopt;
    }
    n.encapsulation = ipv4 ? fabric::RoceEncapsulation::v2_ipv4 : fabric::RoceEncapsulation::v2_ipv6;
  }
  n.ecn = fabric::Ecn::ect0;
  n.dscp = path.traffic_class >> 2;
  n.hop_limit = path.hop_limit != 0 ? path.hop_limit : std::uint8_t{64};
  n.flow_label = path.flow_label & 0xf'ffffU;
  n.udp_source_port =
      path.udp_source_port != 0 && !by_lid ? static_cast<std::uint16_t>(path.udp_source_port) : std::uint16_t{0xc000};
  route.local = is_local(n.destination_mac);
  return route;
}

std::optional<std::uint32_t> Addresses::owner(const fabric::Gid& gid) const {
  const auto found = owners_.find(gid);
  if (found == owners_.end()) {
    return std::nullopt;
  }
  return found->second.begin()->first / max_addresses;
}

bool Addresses::is_local(fabric::MacAddress mac) const {
  for (std::uint32_t f = 0; f < max_functions; ++f) {
    if (functions_.at(f).enabled != 0 && macs_.has(f, mac.value)) {
      return true;
    }
  }
  return false;
}

}  // namespace orrery::rnic
