// ACCESS_REG: the port's registers.
#include "firmware/commands.h"

namespace orrery::firmware {

namespace reg = rnic::reg;
using namespace layout;

namespace {

// Link rates as PTYS names them.
struct LinkRate {
  std::uint32_t gbps;
  std::uint32_t infiniband_width;  // number of lanes
  std::uint32_t infiniband_rate;   // bit 5 EDR, 6 HDR, 7 NDR
  std::uint32_t ethernet;          // bit of eth_proto_oper
};
constexpr LinkRate rates[] = {{100, 4, 1U << 5, 1U << 23}, {200, 4, 1U << 6, 1U << 23}, {400, 4, 1U << 7, 1U << 23}};

void port_type_and_speed(const Firmware& fw, const View& data) {
  const std::uint32_t gbps = fw.strap(reg::strap_link_gbps);
  const LinkRate* rate = &rates[0];
  for (const LinkRate& one : rates) {
    if (one.gbps == gbps) {
      rate = &one;
    }
  }
  if (fw.ethernet()) {
    data.set_word(0x0c, rate->ethernet);  // capability, admin, operational
    data.set_word(0x18, rate->ethernet);
    data.set_word(0x24, rate->ethernet);
  } else {
    data.set_word(0x10, rate->infiniband_width << 16 | rate->infiniband_rate);
    data.set_word(0x1c, rate->infiniband_width << 16 | rate->infiniband_rate);
    data.set_word(0x28, rate->infiniband_width << 16 | rate->infiniband_rate);
  }
}

struct RegisterInfo {
  std::uint32_t id;
  std::uint32_t bytes;  // least size of the data
  bool writable;
};
constexpr RegisterInfo known_registers[] = {
    {registers::pmtu, 16, true},
    {registers::ptys, 64, false},
    {registers::paos, 16, true},
    {registers::pfcc, 16, false},  // reads as 0: there is no flow control
    {registers::ppcnt, 256, false},
    {registers::pvlc, 16, false},
    {registers::node_description, 64, true},
    {registers::host_endianness, 16, true},
};

// What one function can tell of the port: its own frames and RoCE packets.
Result port_counter_group(const Firmware& fw, const Function& function, const View& data) {
  rnic::FrameCounters c;
  if (const reg::ContextStatus status =
          fw.read_context(rnic::ContextKind::frame_counters, function.number, &c, sizeof c);
      status != reg::ContextStatus::ok) {
    return from_hardware(status);
  }
  constexpr std::uint64_t check_bytes = 4;  // these counters include the FCS
  const auto sum = [](const rnic::FrameCounter& a, const rnic::FrameCounter& b) {
    return rnic::FrameCounter{a.frames + b.frames, a.bytes + b.bytes};
  };
  const rnic::FrameCounter unicast_in = sum(c.received_unicast, c.roce_received_unicast);
  const rnic::FrameCounter multicast_in = sum(c.received_multicast, c.roce_received_multicast);
  const rnic::FrameCounter unicast_out = sum(c.sent_unicast, c.roce_sent_unicast);
  const rnic::FrameCounter multicast_out = sum(c.sent_multicast, c.roce_sent_multicast);
  const rnic::FrameCounter in = sum(sum(unicast_in, multicast_in), c.received_broadcast);
  const rnic::FrameCounter out = sum(sum(unicast_out, multicast_out), c.sent_broadcast);
  const std::uint64_t in_bytes = in.bytes + in.frames * check_bytes;
  const std::uint64_t out_bytes = out.bytes + out.frames * check_bytes;
  namespace pc = port_counters;
  const View set = data.at(pc::at);
  switch (data.get(pc::group)) {
    case pc::ieee_802_3:
      set.set_wide(pc::frames_sent, out.frames);
      set.set_wide(pc::frames_received, in.frames);
      set.set_wide(pc::octets_sent, out_bytes);
      set.set_wide(pc::octets_received, in_bytes);
      set.set_wide(pc::multicast_sent, multicast_out.frames);
      set.set_wide(pc::broadcast_sent, c.sent_broadcast.frames);
      set.set_wide(pc::multicast_received, multicast_in.frames);
      set.set_wide(pc::broadcast_received, c.received_broadcast.frames);
      break;
    case pc::rfc_2863:
      set.set_wide(pc::in_octets, in_bytes);
      set.set_wide(pc::in_unicast, unicast_in.frames);
      set.set_wide(pc::in_discards, c.no_buffer);
      set.set_wide(pc::in_errors, c.received_errors.frames);
      set.set_wide(pc::out_octets, out_bytes);
      set.set_wide(pc::out_unicast, unicast_out.frames);
      set.set_wide(pc::out_errors, c.sent_errors.frames);
      set.set_wide(pc::in_multicast, multicast_in.frames);
      set.set_wide(pc::in_broadcast, c.received_broadcast.frames);
      set.set_wide(pc::out_multicast, multicast_out.frames);
      set.set_wide(pc::out_broadcast, c.sent_broadcast.frames);
      break;
    default:
      break;  // the other groups have nothing to count: 0
  }
  return {};
}

// The driver hears of it as of a cable.
void set_port(Firmware& fw, Function& function, bool down) {
  if (function.vport.down == down) {
    return;
  }
  constexpr std::uint32_t port_change = 0x09;
  constexpr std::uint32_t went_down = 1, came_up = 4;
  constexpr std::uint32_t first_port = 1U << 28;
  function.vport.down = down;
  fw.write_function(function);
  fw.raise_event(function, port_change, down ? went_down : came_up, {0, 0, first_port});
}

}  // namespace

Result access_register(Firmware& fw, Function& function) {
  const bool read = fw.op_mod() == 1;
  const std::uint32_t id = fw.input().get(registers::id);
  const RegisterInfo* info = nullptr;
  for (const RegisterInfo& one : known_registers) {
    info = one.id == id ? &one : info;
  }
  if (info == nullptr || fw.op_mod() > 1 || (!read && !info->writable)) {
    return failed(Status::bad_parameter, Syndrome::register_id);
  }
  if (fw.input_length() < registers::data + info->bytes || fw.output_length() < registers::data + info->bytes) {
    return failed(Status::bad_input_length, Syndrome::length);
  }
  const View in = fw.input().at(registers::data);
  const View data = fw.output().at(registers::data);
  for (std::uint32_t at = 0; at < info->bytes; at += 4) {
    data.set_word(at, in.word(at));  // selectors (port, layer) come back
  }
  constexpr std::uint32_t infiniband_mtu = 4096;
  constexpr std::uint32_t ethernet_mtu = 9216;
  switch (id) {
    case registers::pmtu: {
      const std::uint32_t most = fw.ethernet() ? ethernet_mtu : infiniband_mtu;
      if (!read) {
        const std::uint32_t wanted = in.word(0x08) >> 16;  // administrative
        if (wanted > most) {
          return failed(Status::bad_parameter, Syndrome::value);
        }
        function.vport.mtu = wanted;
        fw.write_function(function);
      }
      data.set_word(0x04, most << 16);
      data.set_word(0x08, most << 16);
      data.set_word(0x0c, most << 16);
      return {};
    }
    case registers::paos: {
      const std::uint32_t wanted = in.get(port_admin::admin);
      if (!read && in.get(port_admin::admin_written) != 0) {
        if (wanted != port_admin::up && wanted != port_admin::down) {
          return failed(Status::bad_parameter, Syndrome::value);
        }
        set_port(fw, function, wanted == port_admin::down);
      }
      const std::uint32_t state = function.vport.down ? port_admin::down : port_admin::up;
      data.set(port_admin::admin, state);
      data.set(port_admin::operational, state);
      return {};
    }
    case registers::ppcnt:
      return port_counter_group(fw, function, data);
    case registers::ptys:
      port_type_and_speed(fw, data);
      return {};
    case registers::pvlc:
      data.set_word(0x04, 1);
      return {};
    case registers::node_description: {
      if (read) {
        constexpr char text[] = "Orrery RNIC";
        for (std::uint32_t at = 0; at < 64; at += 4) {
          std::uint32_t word = 0;
          for (std::uint32_t i = 0; i < 4; ++i) {
            const std::uint32_t letter = at + i < sizeof text - 1 ? static_cast<unsigned char>(text[at + i]) : 0U;
            word = word << 8 | letter;
          }
          data.set_word(at, word);
        }
      }
      return {};
    }
    default:
      return {};
  }
}

}  // namespace orrery::firmware
