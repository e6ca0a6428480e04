// The unicast MAC addresses of the functions: each has one of its own, and a list for what its driver puts on top
// (a changed address, macvlan). Simulation thread only.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "firmware/interface/contexts.h"
#include "systemc_models/rnic/verbs/translation.h"
#include "systemc_models/rnic/verbs/verbs_engine.h"

namespace orrery::rnic {

class MacAddresses {
 public:
  explicit MacAddresses(const FunctionWindows& functions) : functions_(functions) {}

  // By function * max_macs + place. Neither 0 nor a multicast address.
  ControlResult write(std::uint32_t index, const MacContext& context) {
    if (index >= max_functions * max_macs) {
      return ControlResult::bad_index;
    }
    if (context.mac == 0 || context.mac >> 48 != 0 || (context.mac & multicast) != 0) {
      return ControlResult::bad_value;
    }
    std::vector<std::uint64_t>& list = lists_[index / max_macs];
    list.resize(std::max<std::size_t>(list.size(), index % max_macs + 1));
    list[index % max_macs] = context.mac;
    return ControlResult::ok;
  }
  ControlResult read(std::uint32_t index, MacContext& into) const {
    if (index >= max_functions * max_macs) {
      return ControlResult::bad_index;
    }
    const std::vector<std::uint64_t>& list = lists_[index / max_macs];
    into.mac = index % max_macs < list.size() ? list[index % max_macs] : 0;
    return ControlResult::ok;
  }
  ControlResult destroy(std::uint32_t index) {
    if (index >= max_functions * max_macs) {
      return ControlResult::bad_index;
    }
    std::vector<std::uint64_t>& list = lists_[index / max_macs];
    if (index % max_macs < list.size()) {
      list[index % max_macs] = 0;
    }
    while (!list.empty() && list.back() == 0) {
      list.pop_back();
    }
    return ControlResult::ok;
  }
  void reset(std::uint32_t function) { lists_[function].clear(); }

  [[nodiscard]] bool has(std::uint32_t function, std::uint64_t mac) const {
    const std::vector<std::uint64_t>& list = lists_[function];
    return mac != 0 && (functions_.at(function).mac == mac || std::find(list.begin(), list.end(), mac) != list.end());
  }

 private:
  static constexpr std::uint64_t multicast = std::uint64_t{1} << 40;
  const FunctionWindows& functions_;
  std::array<std::vector<std::uint64_t>, max_functions> lists_;
};

}  // namespace orrery::rnic
