// The port as a function sees it: InfiniBand vport, Ethernet vport, source addresses.
#include "firmware/commands.h"

namespace orrery::firmware {

namespace reg = rnic::reg;
using namespace layout;
using rnic::ContextKind;

namespace {

constexpr std::uint32_t context_at = 0x10;
constexpr std::uint32_t gids = 8;  // gid_table_size code 0
constexpr std::uint32_t pkeys = 128;
constexpr std::uint32_t full_member = 0xffff;
constexpr std::uint64_t link_local = 0xfe80'0000'0000'0000ULL;
constexpr std::uint32_t roce_addresses = 128;

std::uint64_t system_guid(const Firmware& fw) {
  const std::uint64_t low = fw.strap(reg::strap_guid_low);
  return low | static_cast<std::uint64_t>(fw.strap(reg::strap_guid_high)) << 32;
}

}  // namespace

Result query_hca_vport_context(Firmware& fw, Function& function) {
  if (fw.ethernet()) {
    return failed(Status::bad_opcode, Syndrome::unsupported);
  }
  constexpr std::uint32_t follow_port = 2;
  constexpr std::uint32_t link_up = 5;
  constexpr std::uint32_t active = 4;
  constexpr std::uint32_t port_capabilities = 0x0251'4868;  // of PortInfo (IBTA §14.2.5.6)
  constexpr std::uint32_t sm_lid = 1;
  constexpr std::uint32_t timeout = 18;
  const View c = fw.output().at(context_at);
  c.set(hca_vport::physical_state, link_up);
  c.set(hca_vport::policy, follow_port);
  c.set(hca_vport::port_state, active);
  c.set(hca_vport::vport_state, active);
  c.set(hca_vport::system_guid, system_guid(fw));
  c.set(hca_vport::port_guid, fw.port_guid(function));
  c.set(hca_vport::node_guid, fw.port_guid(function));
  c.set(hca_vport::capabilities, port_capabilities);
  c.set(hca_vport::lid, fw.strap(reg::strap_lid) + function.number);
  c.set(hca_vport::subnet_timeout, timeout);
  c.set(hca_vport::sm_lid, sm_lid);
  return {};
}

Result query_hca_vport_gid(Firmware& fw, Function& function) {
  const std::uint32_t index = fw.input().word(0x0c) & 0xffffU;
  if (fw.ethernet() || index >= gids) {
    return failed(Status::bad_parameter, Syndrome::value);
  }
  fw.output().set({"gids_num", 0x0c, 31, 16}, 1);
  if (index == 0) {
    fw.output().set_wide(context_at, link_local);
    fw.output().set_wide(context_at + 8, fw.port_guid(function));
  }
  return {};
}

Result query_hca_vport_pkey(Firmware& fw, Function& /*function*/) {
  constexpr std::uint32_t all = 0xffff;
  const std::uint32_t index = fw.input().word(0x0c) & 0xffffU;
  if (index != all && index >= pkeys) {
    return failed(Status::bad_parameter, Syndrome::value);
  }
  if (index == all && fw.output_length() < context_at + 4 * pkeys) {
    return failed(Status::bad_output_length, Syndrome::length);
  }
  fw.output().set_word(context_at, index == 0 || index == all ? full_member : 0);
  return {};
}

// There is no subnet management agent: the answer is a MAD that says so.
Result mad_ifc(Firmware& fw, Function& /*function*/) {
  constexpr std::uint32_t mad_bytes = 256;
  constexpr std::uint32_t response = 0x80;             // in the method
  constexpr std::uint32_t unsupported_field = 0x001c;  // status: invalid attribute or modifier (IBTA Table 110)
  for (std::uint32_t at = 0; at < mad_bytes; at += 4) {
    fw.output().set_word(context_at + at, fw.input().word(context_at + at));
  }
  const View mad = fw.output().at(context_at);
  mad.set_word(0, mad.word(0) | response);
  mad.set_word(4, unsupported_field << 16 | (mad.word(4) & 0xffffU));
  return {};
}

// ---- Ethernet --------------------------------------------------------------------------------------------------

Result query_nic_vport_context(Firmware& fw, Function& function) {
  if (!fw.ethernet()) {
    return failed(Status::bad_opcode, Syndrome::unsupported);
  }
  constexpr std::uint32_t no_inline = 2;
  constexpr std::uint32_t fixed = 0x100;
  if (fw.output_length() < context_at + fixed) {
    return failed(Status::bad_output_length, Syndrome::length);
  }
  const View c = fw.output().at(context_at);
  c.set(nic_vport::min_inline, no_inline);
  c.set(nic_vport::roce, function.vport.roce);
  c.set(nic_vport::mtu, function.vport.mtu);
  c.set(nic_vport::system_guid, system_guid(fw));
  c.set(nic_vport::port_guid, fw.port_guid(function));
  c.set(nic_vport::node_guid, fw.port_guid(function));
  c.set(nic_vport::promisc, function.vport.promiscuous);
  c.set(nic_vport::mac_high, static_cast<std::uint32_t>(function.vport.mac >> 32));
  c.set(nic_vport::mac_low, static_cast<std::uint32_t>(function.vport.mac));
  return {};
}

namespace {

constexpr std::uint64_t multicast_bit = 1ULL << 40;

std::uint64_t listed_address(const View& context, std::uint32_t i) {
  return context.wide(nic_vport::list + 8 * i) & 0xffff'ffff'ffffULL;
}

// The list of unicast addresses takes the place of the former one. Those of multicast and VLANs choose nothing: all
// such frames are delivered.
Result check_list(const View& context) {
  const std::uint32_t count = context.get(nic_vport::list_size);
  if (context.get(nic_vport::list_type) != nic_vport::list_unicast) {
    return {};
  }
  if (count > rnic::max_macs) {
    return failed(Status::bad_parameter, Syndrome::size);
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    if (const std::uint64_t mac = listed_address(context, i); mac == 0 || (mac & multicast_bit) != 0) {
      return failed(Status::bad_parameter, Syndrome::value);
    }
  }
  return {};
}

void take_list(const Firmware& fw, Function& function, const View& context) {
  if (context.get(nic_vport::list_type) != nic_vport::list_unicast) {
    return;
  }
  const std::uint32_t count = context.get(nic_vport::list_size);
  const std::uint32_t first = function.number * rnic::max_macs;
  for (std::uint32_t i = 0; i < count; ++i) {
    const rnic::MacContext mac{listed_address(context, i)};
    fw.write_context(ContextKind::mac, first + i, &mac, sizeof mac);
  }
  for (std::uint32_t i = function.vport.addresses; i-- > count;) {
    fw.context_op(ContextKind::mac, first + i, rnic::reg::ContextOp::destroy);
  }
  function.vport.addresses = count;
}

}  // namespace

Result modify_nic_vport_context(Firmware& fw, Function& function) {
  if (!fw.ethernet()) {
    return failed(Status::bad_opcode, Syndrome::unsupported);
  }
  constexpr std::uint32_t context = 0x100;
  constexpr std::uint32_t largest_mtu = 9216;
  if (fw.input_length() < context + nic_vport::list) {
    return failed(Status::bad_input_length, Syndrome::length);
  }
  const View c = fw.input().at(context);
  const std::uint32_t select = fw.input().get(nic_vport::select);
  const std::uint64_t mac = static_cast<std::uint64_t>(c.get(nic_vport::mac_high)) << 32 | c.get(nic_vport::mac_low);
  if ((select & nic_vport::select_mtu) != 0 && c.get(nic_vport::mtu) > largest_mtu) {
    return failed(Status::bad_parameter, Syndrome::value);
  }
  if ((select & nic_vport::select_mac) != 0 && (mac == 0 || (mac & multicast_bit) != 0)) {
    return failed(Status::bad_parameter, Syndrome::value);
  }
  if ((select & nic_vport::select_list) != 0 &&
      context + nic_vport::list + c.get(nic_vport::list_size) * 8 > fw.input_length()) {
    return failed(Status::bad_input_length, Syndrome::list_length);
  }
  if ((select & nic_vport::select_list) != 0) {
    if (const Result result = check_list(c); result.status != Status::ok) {
      return result;
    }
    take_list(fw, function, c);
  }
  if ((select & nic_vport::select_roce) != 0) {
    function.vport.roce = c.get(nic_vport::roce);
  }
  if ((select & nic_vport::select_mtu) != 0) {
    function.vport.mtu = c.get(nic_vport::mtu);
  }
  if ((select & nic_vport::select_mac) != 0) {
    function.vport.mac = mac;
  }
  if ((select & nic_vport::select_promisc) != 0) {
    function.vport.promiscuous = c.get(nic_vport::promisc);
  }
  fw.write_function(function);
  return {};
}

Result query_vport_state(Firmware& fw, Function& function) {
  const std::uint32_t up = function.vport.down ? 0 : 1;
  fw.output().set({"admin_state", 0x0c, 7, 4}, up);
  fw.output().set({"state", 0x0c, 3, 0}, up);
  return {};
}

Result query_vport_counter(Firmware& fw, Function& function) {
  rnic::FrameCounters counters;
  if (const reg::ContextStatus status =
          fw.read_context(ContextKind::frame_counters, function.number, &counters, sizeof counters);
      status != reg::ContextStatus::ok) {
    return from_hardware(status);
  }
  // Errors; RDMA; Ethernet.
  const struct {
    std::uint32_t at;
    rnic::FrameCounter value;
  } fields[] = {{0x10, counters.received_errors},         {0x20, counters.sent_errors},
                {0x30, counters.roce_received_unicast},   {0x40, counters.roce_sent_unicast},
                {0x50, counters.roce_received_multicast}, {0x60, counters.roce_sent_multicast},
                {0x70, counters.received_broadcast},      {0x80, counters.sent_broadcast},
                {0x90, counters.received_unicast},        {0xa0, counters.sent_unicast},
                {0xb0, counters.received_multicast},      {0xc0, counters.sent_multicast}};
  for (const auto& field : fields) {
    if (fw.output_length() >= field.at + 16) {
      fw.output().set_wide(field.at, field.value.frames);
      fw.output().set_wide(field.at + 8, field.value.bytes);
    }
  }
  return {};
}

Result set_roce_address(Firmware& fw, Function& function) {
  const View c = fw.input();
  const std::uint32_t index = c.get(roce_address::index);
  if (!fw.ethernet() || index >= roce_addresses) {
    return failed(Status::bad_parameter, Syndrome::value);
  }
  rnic::AddressContext address;
  bool used = false;
  for (std::uint32_t i = 0; i < 16; ++i) {
    address.gid[i] = static_cast<std::uint8_t>(c.word(roce_address::at + (i & ~3U)) >> (8 * (3 - i % 4)));
    used = used || address.gid[i] != 0;
  }
  address.mac = static_cast<std::uint64_t>(c.get(roce_address::mac_high)) << 32 | c.get(roce_address::mac_low);
  if (c.get(roce_address::vlan_valid) != 0) {
    address.vlan = c.get(roce_address::vlan);
  }
  switch (c.get(roce_address::version)) {
    case 0:
      address.roce_version = 1;
      break;
    case 2:
      address.roce_version = 2;
      break;
    default:
      return failed(Status::bad_parameter, Syndrome::value);
  }
  if (!used) {
    address.roce_version = 0;
  }
  return from_hardware(
      fw.write_context(ContextKind::address, function.number * rnic::max_addresses + index, &address, sizeof address));
}

Result query_roce_address(Firmware& fw, Function& function) {
  const std::uint32_t index = fw.input().get(roce_address::index);
  if (!fw.ethernet() || index >= roce_addresses) {
    return failed(Status::bad_parameter, Syndrome::value);
  }
  rnic::AddressContext address;
  if (fw.read_context(ContextKind::address, function.number * rnic::max_addresses + index, &address, sizeof address) !=
          reg::ContextStatus::ok ||
      address.roce_version == 0) {
    return {};
  }
  const View c = fw.output();
  for (std::uint32_t at = 0; at < 16; at += 4) {
    const auto byte = [&](std::uint32_t i) { return static_cast<std::uint32_t>(address.gid[at + i]); };
    c.set_word(roce_address::at + at, byte(0) << 24 | byte(1) << 16 | byte(2) << 8 | byte(3));
  }
  c.set(roce_address::mac_high, static_cast<std::uint32_t>(address.mac >> 32));
  c.set(roce_address::mac_low, static_cast<std::uint32_t>(address.mac));
  if (address.vlan != rnic::none) {
    c.set(roce_address::vlan_valid, 1);
    c.set(roce_address::vlan, address.vlan);
  }
  c.set(roce_address::version, address.roce_version == 2 ? 2 : 0);
  return {};
}

}  // namespace orrery::firmware
