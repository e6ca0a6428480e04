// Shared objects that go wrong, one way for each ORRERY_FAULT; and, through its parameter, factories that do.
#include <tlm_utils/simple_initiator_socket.h>
#include <tlm_utils/simple_target_socket.h>

#include "systemc_models/plugin/tlm_device.h"

namespace {

class Silent final : public sc_core::sc_module {
 public:
  explicit Silent(const sc_core::sc_module_name& name) : sc_module(name) {
    registers.register_b_transport(this, &Silent::access);
  }
  tlm_utils::simple_target_socket<Silent, 64> registers{"registers"};  // also: a bus width of its own

 private:
  void access(tlm::tlm_generic_payload& payload, sc_core::sc_time& /*delay*/) {
    payload.set_response_status(tlm::TLM_OK_RESPONSE);
  }
};

std::unique_ptr<sc_core::sc_module> create(orrery::models::TlmSlot& slot) {
  const std::string how = slot.parameters.text("how", "");
  slot.function.identity.vendor_id = 0x1234;
  slot.function.identity.device_id = 0x0eff;
  slot.function.bars[0].size = 4096;
  auto device = std::make_unique<Silent>(slot.module_name());
  if (how == "runtime_error") {
    throw std::runtime_error("out of paint");
  }
  if (how == "error") {
    throw orrery::Error("the model's own words", "the model's own remedy");
  }
  if (how == "int") {
    throw 42;
  }
  if (how == "systemc") {
    SC_REPORT_ERROR("model", "a report of SystemC");
  }
  if (how == "null") {
    return nullptr;
  }
  if (how == "integer") {
    static_cast<void>(slot.parameters.integer("value", 5, 1, 10));
  }
  if (how == "number") {
    static_cast<void>(slot.parameters.number("value", 0.5, 0, 1));
  }
  if (how == "boolean") {
    static_cast<void>(slot.parameters.boolean("value", true));
  }
  if (how == "unbound") {
    return device;
  }
  if (how == "no size") {
    slot.function.bars[0].size = 0;
  }
  if (how == "odd size") {
    slot.function.bars[0].size = 4000;
  }
  if (how == "no id") {
    slot.function.identity.device_id = 0xffff;
  }
  if (how == "class") {
    slot.function.identity.class_code = 0x100'0000;
  }
  if (how == "vectors") {
    slot.function.msix_vectors = 2049;
  }
  if (how == "width") {
    slot.function.bars[0].max_access = 16;
  }
  slot.bind_bar(0, device->registers);
  if (how == "twice") {
    slot.bind_bar(0, device->registers);
  }
  if (how == "bar 6") {
    slot.bind_bar(6, device->registers);
  }
  if (how == "irq") {
    static_cast<void>(slot.irq(2048));
  }
  return device;
}

}  // namespace

#if ORRERY_FAULT == 0
ORRERY_TLM_DEVICE("goes wrong on demand", create)
#elif ORRERY_FAULT == 1  // no entry point
const void* unused = reinterpret_cast<const void*>(&create);
#elif ORRERY_FAULT == 2  // another interface
extern "C" const orrery::models::TlmDevicePlugin orrery_tlm_device{orrery::models::tlm_device_abi + 1,
                                                                   orrery::models::systemc_version, "", create};
#elif ORRERY_FAULT == 3  // another SystemC
extern "C" const orrery::models::TlmDevicePlugin orrery_tlm_device{orrery::models::tlm_device_abi, 0x020302, "",
                                                                   create};
#elif ORRERY_FAULT == 4  // a symbol that nobody has
extern "C" void nobody_defines_this();
std::unique_ptr<sc_core::sc_module> needy(orrery::models::TlmSlot& slot) {
  nobody_defines_this();
  return create(slot);
}
ORRERY_TLM_DEVICE("needs what isn't there", needy)
#endif
