// Life of the function, and the objects that are numbers only.
#include "firmware/capabilities.h"
#include "firmware/commands.h"

namespace orrery::firmware {

namespace reg = rnic::reg;
using namespace layout;

Result from_hardware(reg::ContextStatus status) {
  Result result;
  if (status != reg::ContextStatus::ok) {
    result.status = status == reg::ContextStatus::wrong_state ? Status::bad_resource_state : Status::bad_parameter;
    result.syndrome = static_cast<std::uint32_t>(Syndrome::hardware) + static_cast<std::uint32_t>(status);
  }
  return result;
}

Result enable_hca(Firmware& /*fw*/, Function& function) {
  if (function.enabled) {
    return failed(Status::bad_system_state, Syndrome::already);
  }
  function.enabled = true;
  return {};
}

Result disable_hca(Firmware& fw, Function& function) {
  teardown_hca(fw, function);
  fw.drop_pages(function);
  function.enabled = false;
  function.issi = 0;
  reset_capabilities(fw, function);
  return {};
}

Result init_hca(Firmware& fw, Function& function) {
  if (function.initialised) {
    return failed(Status::bad_system_state, Syndrome::already);
  }
  function.initialised = true;
  fw.write_function(function);
  return {};
}

// Whatever the driver left behind goes, but for its pages: it takes those back afterwards.
Result teardown_hca(Firmware& fw, Function& function) {
  if (fw.opcode() == 0x103 && fw.op_mod() != 0) {
    return failed(Status::bad_parameter, Syndrome::unsupported);  // fast and forced teardown are not offered
  }
  if (!function.initialised) {
    return {};
  }
  function.initialised = false;
  fw.drop_objects(function, true);
  function.vport.promiscuous = 0;
  function.vport.roce = 0;
  fw.write_function(function);
  return {};
}

Result query_issi(Firmware& fw, Function& function) {
  fw.output().set({"current_issi", 0x08, 15, 0}, function.issi);
  fw.output().set_word(0x6c, 0x3);  // issi 0 and 1
  return {};
}

Result set_issi(Firmware& fw, Function& function) {
  const std::uint32_t issi = fw.input().word(0x08) & 0xffffU;
  if (issi > 1) {
    return failed(Status::bad_parameter, Syndrome::value);
  }
  function.issi = static_cast<std::uint16_t>(issi);
  return {};
}

// The RNIC has memory of its own.
Result query_pages(Firmware& fw, Function& function) {
  if (fw.op_mod() < 1 || fw.op_mod() > 3) {
    return failed(Status::bad_parameter, Syndrome::value);
  }
  const bool reclaim = fw.op_mod() == 3;  // what it could give back: as a negative number
  fw.output().set_word(0x0c, reclaim ? 0U - function.pages : 0U);
  return {};
}

Result manage_pages(Firmware& fw, Function& function) {
  constexpr std::uint32_t can_not_give = 0, give = 1, take_back = 2;
  constexpr std::uint32_t list = 0x10;
  const std::uint32_t count = fw.input().word(0x0c);
  switch (fw.op_mod()) {
    case can_not_give:
      return {};
    case give:
      if (count > donated_pages - fw.page_count) {
        return failed(Status::no_resources, Syndrome::exhausted);
      }
      if (list + count * 8 > fw.input_length()) {
        return failed(Status::bad_input_length, Syndrome::list_length);
      }
      for (std::uint32_t i = 0; i < count; ++i) {
        fw.page_addresses[fw.page_count] = fw.input().wide(list + i * 8);
        fw.page_functions[fw.page_count++] = static_cast<std::uint16_t>(function.number);
      }
      function.pages += count;
      return {};
    case take_back: {
      std::uint32_t given = 0;
      for (std::uint32_t i = fw.page_count; i-- > 0 && given < count && list + (given + 1) * 8 <= fw.output_length();) {
        if (fw.page_functions[i] != function.number) {
          continue;
        }
        fw.output().set_wide(list + given++ * 8, fw.page_addresses[i]);
        --fw.page_count;
        fw.page_addresses[i] = fw.page_addresses[fw.page_count];
        fw.page_functions[i] = fw.page_functions[fw.page_count];
      }
      function.pages -= given;
      fw.output().set_word(0x08, given);
      return {};
    }
    default:
      return failed(Status::bad_parameter, Syndrome::value);
  }
}

Result query_adapter(Firmware& fw, Function& /*function*/) {
  constexpr std::uint32_t ieee_vendor = 0x0002c9;
  constexpr char board[17] = "ORRERY_RNIC_0001";
  fw.output().set({"ieee_vendor_id", 0x28, 23, 0}, ieee_vendor);
  for (std::uint32_t i = 0; i < 16; i += 4) {
    const auto byte = [&](std::uint32_t at) {
      return static_cast<std::uint32_t>(static_cast<unsigned char>(board[at]));
    };
    fw.output().set_word(0x100 + i, byte(i) << 24 | byte(i + 1) << 16 | byte(i + 2) << 8 | byte(i + 3));
  }
  return {};
}

Result query_special_contexts(Firmware& fw, Function& /*function*/) {
  fw.output().set_word(0x08, rnic::dump_fill_key);
  fw.output().set_word(0x0c, rnic::reserved_key);
  fw.output().set_word(0x10, rnic::null_key);
  return {};
}

// ---- ACCESS_REG ------------------------------------------------------------------------------------------------

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
    {registers::ppcnt, 16, false},
    {registers::pvlc, 16, false},
    {registers::node_description, 64, true},
    {registers::host_endianness, 16, true},
};

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

// ---- Numbers ---------------------------------------------------------------------------------------------------

namespace {

template <class Table>
Result allocate(Firmware& fw, Function& function, Table& table) {
  const std::uint32_t number = table.allocate(function.number);
  if (number == 0) {
    return failed(Status::no_resources, Syndrome::exhausted);
  }
  fw.give_handle(number);
  return {};
}

template <class Table>
Result deallocate(Function& function, Table& table, std::uint32_t number) {
  const auto* object = table.find(function.number, number);
  if (object == nullptr) {
    return failed(Status::bad_resource, Syndrome::handle);
  }
  if (object->references != 0) {
    return failed(Status::bad_resource_state, Syndrome::in_use);
  }
  table.release(number);
  return {};
}

}  // namespace

Result alloc_pd(Firmware& fw, Function& function) {
  return allocate(fw, function, fw.pds);
}
Result dealloc_pd(Firmware& fw, Function& function) {
  return deallocate(function, fw.pds, fw.handle());
}
Result alloc_uar(Firmware& fw, Function& function) {
  const std::uint32_t number = fw.uars.allocate(function.number);
  if (number == 0) {
    return failed(Status::no_resources, Syndrome::exhausted);
  }
  if (number >= fw.strap(reg::strap_uar_pages)) {
    fw.uars.release(number);
    return failed(Status::no_resources, Syndrome::exhausted);
  }
  fw.give_handle(number);
  return {};
}
Result dealloc_uar(Firmware& fw, Function& function) {
  return deallocate(function, fw.uars, fw.handle());
}
Result alloc_xrcd(Firmware& fw, Function& function) {
  return allocate(fw, function, fw.xrc_domains);
}
Result dealloc_xrcd(Firmware& fw, Function& function) {
  return deallocate(function, fw.xrc_domains, fw.handle());
}
Result alloc_transport_domain(Firmware& fw, Function& function) {
  return allocate(fw, function, fw.transport_domains);
}
Result dealloc_transport_domain(Firmware& fw, Function& function) {
  return deallocate(function, fw.transport_domains, fw.handle());
}
Result alloc_q_counter(Firmware& fw, Function& function) {
  return allocate(fw, function, fw.counter_sets);
}
Result dealloc_q_counter(Firmware& fw, Function& function) {
  return deallocate(function, fw.counter_sets, fw.handle() & 0xffU);
}
// Counter sets count nothing yet: no capability names a counter of theirs.
Result query_q_counter(Firmware& fw, Function& function) {
  const std::uint32_t number = fw.input().word(0x1c) & 0xffU;
  return fw.counter_sets.find(function.number, number) == nullptr ? failed(Status::bad_resource, Syndrome::handle)
                                                                  : Result{};
}

}  // namespace orrery::firmware
